// SPDX-License-Identifier: MIT
#include <tilewave/ops/gemm/repack/launch.hpp>

#include "room.hpp"
#include "room_kernels.hpp"

namespace engine {

// kernels_*.cpp have these.
extern template Status plan_product<Room, WeightFormat::bf16>(const GemmProblem&, GemmPlan&);
extern template Status plan_product<Room, WeightFormat::fp8>(const GemmProblem&, GemmPlan&);
extern template Status plan_product<Room, WeightFormat::int4>(const GemmProblem&, GemmPlan&);
extern template Status plan_decode<Room, DType::bf16>(const PagedAttentionProblem&, PagedAttentionPlan&);
extern template Status plan_decode<Room, Room::facts.fp8>(const PagedAttentionProblem&, PagedAttentionPlan&);
extern template Status plan_mixed<Room, DType::bf16>(const FlashAttentionProblem&, FlashAttentionPlan&);
extern template Status plan_mixed<Room, Room::facts.fp8>(const FlashAttentionProblem&, FlashAttentionPlan&);
extern template Status plan_experts<Room, WeightFormat::bf16>(const MoeProblem&, MoePlan&);
extern template Status plan_experts<Room, WeightFormat::fp8>(const MoeProblem&, MoePlan&);
extern template Status plan_experts<Room, WeightFormat::int4>(const MoeProblem&, MoePlan&);
extern template Status plan_experts<Room, WeightFormat::mxfp4>(const MoeProblem&, MoePlan&);

std::unique_ptr<Kernels> make_kernels(const ModelConfig& config, const CacheShape& cache, hipStream_t stream) {
  return std::make_unique<RoomKernels<Room>>(config, cache, stream);
}

static void repack(const GemmRepackProblem& problem) {
  GemmRepackProblem p = problem;
  if (p.shipped == GemmShipped::mxfp4 && experts_spec<Room>(WeightFormat::mxfp4).fragments)
    p.weights = GemmWeights::fragments;
  const Status status = gemm_repack<Room>(p, nullptr);
  if (!status.ok()) throw Error("repacking weights: " + std::string(status.reason));
  must(hipDeviceSynchronize(), "repacking weights");
}

Loader room_loader() {
  return {Room::facts.fp8, repack, RoomKernels<Room>::norms_in_weights, RoomKernels<Room>::pairs_of_neighbours};
}

}  // namespace engine
