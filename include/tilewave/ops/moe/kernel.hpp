// SPDX-License-Identifier: MIT
// The kernels that a layer of experts has beside those of its parts. MoeRoute makes ids of experts local, and gives
// every token the shared expert; a lane has a slot. MoeCopy copies rows of x into the order of experts; a wave has a
// row. Bound: memory.
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

template <class B>
Status moe_route_launch(const MoeRouteArgs& a, hipStream_t stream) {
  using Kernel = MoeRoute<B>;
  return B::template launch<Kernel>({ceil_div<std::int64_t>(a.count, Kernel::block_threads), Kernel::block_threads}, a,
                                    stream);
}

struct MoeCopyArgs {
  const Chunk* x;  // rows of whole chunks of 16 bytes
  Chunk* out;
  const float* scale;
  float* out_scale;                   // [rows][groups]
  const std::int32_t* row_ids;        // of the rows of out, see GemmSpec::gathered
  const std::int32_t* count;          // the rows that there are
  std::int64_t x_stride, out_stride;  // in chunks
  std::int64_t scale_stride, scale_group_stride;
  std::int32_t rows, chunks, groups, tokens;
};

template <class B>
struct MoeCopy {
  using Room = B;
  using Args = MoeCopyArgs;
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 1, lanes = B::facts.wave_lanes;
  static constexpr int rows = block_threads / lanes;  // of a block
  static constexpr int at_once = 4;                   // chunks of a lane whose reads are under way together

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int32_t row = B::block_id() * rows + B::wave_id();
    if (row >= a.rows || row >= B::load(a.count)) return;
    const std::int64_t token = min_of(B::load(a.row_ids + row) & ((1 << gemm_token_bits) - 1), a.tokens - 1);
    const Chunk* const from = a.x + token * a.x_stride;
    Chunk* const to = a.out + row * a.out_stride;
    for (std::int32_t first = B::lane_id(); first < a.chunks; first += at_once * lanes) {
      Chunk chunk[at_once];
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i) chunk[i] = B::load(from + min_of(first + i * lanes, a.chunks - 1));
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i)
        if (first + i * lanes < a.chunks) B::store(to + first + i * lanes, chunk[i]);
    }
    for (std::int32_t group = B::lane_id(); group < a.groups; group += lanes) {
      const float scale = B::load(a.scale + token * a.scale_stride + group * a.scale_group_stride);
      B::store(a.out_scale + std::int64_t{row} * a.groups + group, scale);
    }
  }
};

template <class B>
Status moe_copy_launch(const MoeCopyArgs& a, hipStream_t stream) {
  using Kernel = MoeCopy<B>;
  return B::template launch<Kernel>({ceil_div<std::int64_t>(a.rows, Kernel::rows), Kernel::block_threads}, a, stream);
}

}  // namespace tilewave
