// SPDX-License-Identifier: MIT
// Makes ids of experts local, and gives every token the shared expert. Grid: a lane for each slot. Bound: memory.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave {

struct MoeRouteArgs {
  const std::int32_t* ids;         // [tokens, topk]
  const float* weights;            // [tokens, topk]
  const std::int32_t* expert_map;  // optional [experts]
  std::int32_t* local_ids;         // [tokens, slots]; -1: not local
  float* slot_weights;             // [tokens, slots]
  std::int64_t ids_stride, weights_stride;
  std::int64_t count;  // tokens times slots
  FastDiv slots;
  std::int32_t topk, experts, first_expert, local_experts;
  float shared_weight;
};

template <class B>
struct MoeRoute {
  using Room = B;
  using Args = MoeRouteArgs;
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int64_t choice = std::int64_t{B::block_id()} * block_threads + B::block_lane_id();
    if (choice >= a.count) return;
    const std::int32_t token = a.slots.quotient(static_cast<std::int32_t>(choice));
    const std::int32_t slot = static_cast<std::int32_t>(choice) - token * a.slots.divisor;
    std::int32_t local = a.local_experts;  // the shared expert
    float weight = a.shared_weight;
    if (slot < a.topk) {
      const std::int32_t id = B::load(a.ids + token * a.ids_stride + slot);
      weight = B::load(a.weights + token * a.weights_stride + slot);
      const bool exists = id >= 0 && id < a.experts;
      local = !exists ? -1 : a.expert_map != nullptr ? B::load(a.expert_map + id) : id - a.first_expert;
      if (local < 0 || local >= a.local_experts) local = -1;
    }
    B::store(a.local_ids + choice, local);
    B::store(a.slot_weights + choice, weight);
  }
};

template <class B>
Status moe_route_launch(const MoeRouteArgs& a, hipStream_t stream) {
  using Kernel = MoeRoute<B>;
  return B::template launch<Kernel>({ceil_div<std::int64_t>(a.count, Kernel::block_threads), Kernel::block_threads}, a,
                                    stream);
}

}  // namespace tilewave
