// SPDX-License-Identifier: MIT
// The kernels that a layer of experts has beside those of its parts. MoeRoute makes ids of experts local, and gives
// every token the shared expert; a lane has a slot. MoeCopy copies rows of x into the order of experts; a wave has a
// part of a token. Bound: memory.
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

  /// A choice of a token: the expert's place on this device, or -1, and the weight.
  struct Choice {
    std::int32_t local;
    float weight;
  };
  TILEWAVE_DEVICE static Choice choice_of(const Args& a, std::int32_t token, std::int32_t slot) {
    if (slot >= a.topk) return {a.local_experts, a.shared_weight};  // the shared expert
    const std::int32_t id = B::load(a.ids + token * a.ids_stride + slot);
    const float weight = B::load(a.weights + token * a.weights_stride + slot);
    const bool exists = id >= 0 && id < a.experts;
    const std::int32_t local = !exists                   ? -1
                               : a.expert_map != nullptr ? B::load(a.expert_map + id)
                                                         : id - a.first_expert;
    return {local < 0 || local >= a.local_experts ? -1 : local, weight};
  }

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int64_t at = std::int64_t{B::block_id()} * block_threads + B::block_lane_id();
    if (at >= a.count) return;
    const std::int32_t token = a.slots.quotient(static_cast<std::int32_t>(at));
    const Choice choice = choice_of(a, token, static_cast<std::int32_t>(at) - token * a.slots.divisor);
    B::store(a.local_ids + at, choice.local);
    B::store(a.slot_weights + at, choice.weight);
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
  const std::int32_t* rows;           // [tokens][slots]: the row of out of each choice; -1: none
  std::int64_t x_stride, out_stride;  // in chunks
  std::int64_t scale_stride, scale_group_stride;
  FastDiv parts;  // of a row, each a wave's
  std::int32_t tokens, slots, chunks, groups;
};

/// A wave reads a part of a token once and writes it to all rows of the token.
template <class B>
struct MoeCopy {
  using Room = B;
  using Args = MoeCopyArgs;
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 4, lanes = B::facts.wave_lanes;
  static constexpr int waves = block_threads / lanes;
  static constexpr int lane_chunks = 4, part = lane_chunks * lanes;  // chunks of a wave

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int32_t number = B::block_id() * waves + B::wave_id();
    const std::int32_t token = a.parts.quotient(number), in_row = number - token * a.parts.divisor;
    if (token >= a.tokens) return;
    const std::int32_t first = in_row * part + B::lane_id();
    const Chunk* const from = a.x + token * a.x_stride;
    Chunk chunk[lane_chunks];
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_chunks; ++i) chunk[i] = B::load(from + min_of(first + i * lanes, a.chunks - 1));
    const std::int32_t* const rows = a.rows + std::int64_t{token} * a.slots;
    TILEWAVE_ROLL
    for (std::int32_t slot = 0; slot < a.slots; ++slot) {
      const std::int32_t row = B::load(rows + slot);
      if (row < 0) continue;
      Chunk* const to = a.out + row * a.out_stride + first;
      TILEWAVE_UNROLL
      for (int i = 0; i < lane_chunks; ++i)
        if (first + i * lanes < a.chunks) B::store(to + i * lanes, chunk[i]);
    }
    if (in_row > 0) return;
    for (std::int32_t group = B::lane_id(); group < a.groups; group += lanes) {
      const float scale = B::load(a.scale + token * a.scale_stride + group * a.scale_group_stride);
      for (std::int32_t slot = 0; slot < a.slots; ++slot) {
        const std::int32_t row = B::load(rows + slot);
        if (row >= 0) B::store(a.out_scale + std::int64_t{row} * a.groups + group, scale);
      }
    }
  }
};

template <class B>
Status moe_copy_launch(MoeCopyArgs a, hipStream_t stream) {
  using Kernel = MoeCopy<B>;
  a.parts = FastDiv::by(max_of(1, ceil_div(a.chunks, Kernel::part)));
  const std::int64_t blocks = ceil_div<std::int64_t>(std::int64_t{a.tokens} * a.parts.divisor, Kernel::waves);
  return B::template launch<Kernel>({blocks, Kernel::block_threads}, a, stream);
}

}  // namespace tilewave
