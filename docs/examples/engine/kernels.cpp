// SPDX-License-Identifier: MIT
#include <tilewave/ops/gemm/repack/launch.hpp>

#include "room.hpp"
#include "room_kernels.hpp"

namespace engine {

std::unique_ptr<Kernels> make_kernels(const ModelConfig& config, const CacheShape& cache,
                                      tilewave::hipStream_t stream) {
  return std::make_unique<RoomKernels<Room>>(config, cache, stream);
}

static void repack(const tilewave::GemmRepackProblem& problem) {
  tilewave::GemmRepackProblem p = problem;
  if (p.shipped == tilewave::GemmShipped::mxfp4 && mxfp4_experts_spec<Room>.fragments)
    p.weights = tilewave::GemmWeights::fragments;
  const tilewave::Status status = tilewave::gemm_repack<Room>(p, nullptr);
  if (!status.ok()) throw Error("repacking weights: " + std::string(status.reason));
  must(tilewave::hipDeviceSynchronize(), "repacking weights");
}

Loader room_loader() {
  return {Room::facts.fp8, repack, RoomKernels<Room>::norms_in_weights, RoomKernels<Room>::pairs_of_neighbours};
}

}  // namespace engine
