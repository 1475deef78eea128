// SPDX-License-Identifier: MIT
// The launches that are a layer's own. MoeRoute makes ids of experts local, and gives every token the shared expert.
// Grid: a lane for each slot. MoeCopy copies rows of tokens into the order of their experts. Grid: a wave for each row.
// Bound: memory.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/spec.hpp"

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

struct MoeCopyArgs {
  const std::int32_t* ids = nullptr;  // [rows], as moe_sort sorts them
  const void* x = nullptr;            // [tokens, 16 bytes x chunks]
  void* out = nullptr;                // [rows, 16 bytes x chunks]
  const float* scale = nullptr;       // optional [tokens, scales]
  float* out_scale = nullptr;         // [rows, scales]
  std::int64_t x_stride = 0;          // in units of 16 bytes
  std::int64_t scale_stride = 0, scale_k_stride = 0;
  std::int32_t rows = 0, tokens = 0, chunks = 0, scales = 0;
};

template <class B>
struct MoeCopy {
  using Room = B;
  using Args = MoeCopyArgs;
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 1, lanes = B::facts.wave_lanes;
  static constexpr int block_rows = block_threads / lanes, at_once = 4;  // loads of a lane

  /// Rows that no token has, behind those of all experts, are copies of the last token's.
  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int64_t row = std::int64_t{B::block_id()} * block_rows + B::wave_id();
    if (row >= a.rows) return;
    const std::int32_t token = min_of(B::load(a.ids + row) & ((1 << gemm_token_bits) - 1), a.tokens - 1);
    const Chunk* const from = static_cast<const Chunk*>(a.x) + token * a.x_stride;
    Chunk* const to = static_cast<Chunk*>(a.out) + row * a.chunks;
    for (std::int32_t first = B::lane_id(); first < a.chunks; first += at_once * lanes) {
      Chunk values[at_once];
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (first + i * lanes < a.chunks) values[i] = B::load(from + first + i * lanes);
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (first + i * lanes < a.chunks) B::store(to + first + i * lanes, values[i]);
    }
    for (std::int32_t i = B::lane_id(); i < a.scales; i += lanes)
      B::store(a.out_scale + row * a.scales + i, B::load(a.scale + token * a.scale_stride + i * a.scale_k_stride));
  }
};

template <class B>
Status moe_copy_launch(const MoeCopyArgs& a, hipStream_t stream) {
  using Kernel = MoeCopy<B>;
  return B::template launch<Kernel>({ceil_div<std::int64_t>(a.rows, Kernel::block_rows), Kernel::block_threads}, a,
                                    stream);
}

template <class B>
Status moe_route_launch(const MoeRouteArgs& a, hipStream_t stream) {
  using Kernel = MoeRoute<B>;
  return B::template launch<Kernel>({ceil_div<std::int64_t>(a.count, Kernel::block_threads), Kernel::block_threads}, a,
                                    stream);
}

}  // namespace tilewave
