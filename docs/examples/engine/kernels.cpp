// SPDX-License-Identifier: MIT
#include "room.hpp"
#include "room_kernels.hpp"

namespace engine {

std::unique_ptr<Kernels> make_kernels(const ModelConfig& config, const CacheShape& cache,
                                      tilewave::hipStream_t stream) {
  return std::make_unique<RoomKernels<Room>>(config, cache, stream);
}

tilewave::DType room_fp8() { return Room::facts.fp8; }

}  // namespace engine
