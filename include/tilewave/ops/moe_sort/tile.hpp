// SPDX-License-Identifier: MIT
// The blocks of a sort read, count and rank the choices of tokens with these types.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/moe_sort/policy.hpp"
#include "tilewave/ops/moe_sort/problem.hpp"

namespace tilewave {

struct MoeSortArgs {
  const std::int32_t* topk_ids;
  const float* topk_weights;
  const std::int32_t* expert_mask;
  std::int32_t* sorted_ids;
  std::int32_t* sorted_expert_ids;
  std::int32_t* num_tokens_post_pad;
  float* sorted_weights;
  std::int32_t* group_offsets;
  std::int32_t* group_counts;
  std::int32_t* rows;
  std::int32_t* row_tokens;
  std::int64_t ids_stride, weights_stride, rows_stride;
  std::uint32_t* counts;  // [blocks, experts], in the workspace; null: blocks count for themselves
  FastDiv topk, unit;
  std::int32_t tokens, choices, experts, capacity;
  std::int32_t blocks;         // blocks of the launch
  std::int32_t segment;        // choices that a block counts
  std::int32_t block_choices;  // choices that a block places, among those that it counts
};
static_assert(sizeof(MoeSortArgs) <= sm90_arguments_with_launch);

static_assert(sizeof(MoeSortArgs) == 176, "176 bytes of arguments come with a launch, and others from memory");

template <class B, MoeSortPolicy P, int threads>
struct MoeSortChoices {
  static constexpr int wave_lanes = B::facts.wave_lanes, waves = threads / wave_lanes;
  static constexpr int none = most_sorted_experts;  // the expert of a choice that gets no row
  static constexpr int expert_bits = 11;
  using Histogram = std::uint32_t[most_sorted_experts];

  TILEWAVE_DEVICE static std::int32_t expert_at(const MoeSortArgs& a, std::int64_t at) {
    const std::int32_t id = B::load(a.topk_ids + at);
    return static_cast<std::uint32_t>(id) < static_cast<std::uint32_t>(a.experts) ? id : none;
  }
  /// Returns the offset of a choice in a tensor of this stride.
  TILEWAVE_DEVICE static std::int64_t strided(const MoeSortArgs& a, std::int32_t choice, std::int64_t stride) {
    const std::int32_t token = a.topk.quotient(choice);
    return token * stride + (choice - token * a.topk.divisor);
  }

  /// The whole block adds up the choices of every expert from `first` to `end`, those below `split` in `below`. The
  /// result does not depend on the order. `prepare` is called after the first reads and must have a barrier; there is
  /// none at the end.
  template <class Prepare>
  TILEWAVE_DEVICE static void count(const MoeSortArgs& a, std::int32_t first, std::int32_t split, std::int32_t end,
                                    Histogram& below, Histogram& others, const Prepare& prepare) {
    constexpr int batch = P.batch;
    const std::int32_t lane = B::block_lane_id();
    TILEWAVE_ROLL
    for (std::int32_t at = first; at == first || at < end; at += batch * threads) {
      Vec<std::int32_t, batch> ids;  // used after all reads, or nvcc waits for four before it begins the next
      const auto read = [&](const auto& offset_of) {
        TILEWAVE_UNROLL
        for (int i = 0; i < batch; ++i) {
          const std::int32_t choice = at + lane + i * threads;
          ids[i] = -1;
          if (choice < end) ids[i] = B::load(a.topk_ids + offset_of(choice));
        }
      };
      if (a.ids_stride == a.topk.divisor) {
        read([](std::int32_t choice) { return choice; });
      } else {
        read([&](std::int32_t choice) { return strided(a, choice, a.ids_stride); });
      }
      if (at == first) prepare();
      TILEWAVE_UNROLL
      for (int i = 0; i < batch; ++i) {
        const bool counts = static_cast<std::uint32_t>(ids[i]) < static_cast<std::uint32_t>(a.experts);
        if (counts) B::add_shared((at + lane + i * threads < split ? below : others) + ids[i], 1);
      }
    }
  }
};

/// The choices that a block ranks at a time. They are ordered by wave, then by the lane's choice, then by lane.
template <class B, MoeSortPolicy P, int threads, int tile_lane_choices>
struct MoeSortTile {
  using Choices = MoeSortChoices<B, P, threads>;
  static constexpr int none = Choices::none, waves = Choices::waves;
  static constexpr int lane_choices = tile_lane_choices, choices = threads * lane_choices;
  struct Counts {
    // only a wave writes its own counts; later these are the counts of the waves before
    std::int32_t of[waves + 1][most_sorted_experts];
  };

  Vec<std::int32_t, lane_choices> experts, ranks;  // rank: choices of the same expert that come before in the wave
  Vec<float, lane_choices> weights;

  /// Returns choice `i` of this lane in the tile that starts at `first`.
  TILEWAVE_DEVICE static std::int32_t choice(std::int32_t first, int wave, int i) {
    return first + (wave * lane_choices + i) * Choices::wave_lanes + B::lane_id();
  }
  /// It also reads weights: at the end they would be one more wait for memory.
  TILEWAVE_DEVICE void read(const MoeSortArgs& a, std::int32_t first, std::int32_t end) {
    const int wave = B::wave_id();
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_choices; ++i) {
      const std::int32_t at = choice(first, wave, i);
      experts[i] = none;
      if (at >= end) continue;
      experts[i] = Choices::expert_at(a, Choices::strided(a, at, a.ids_stride));
      if (a.topk_weights != nullptr) weights[i] = B::load(a.topk_weights + Choices::strided(a, at, a.weights_stride));
    }
  }
  TILEWAVE_DEVICE static void clear(const MoeSortArgs& a, Counts& counts) {
    std::int32_t* const own = counts.of[B::wave_id()];
    TILEWAVE_ROLL
    for (std::int32_t e = B::lane_id(); e < a.experts; e += Choices::wave_lanes) own[e] = 0;
  }
  /// Ranks the choices, and fills the counts of this wave, which must be clear.
  TILEWAVE_DEVICE void rank(Counts& counts) {
    std::int32_t* const own = counts.of[B::wave_id()];
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_choices; ++i) {
      const std::int32_t expert = experts[i];
      const Peers same = B::template peers<Choices::expert_bits>(static_cast<std::uint32_t>(expert));
      B::wave_barrier();  // counts are clear, or those of the choice before
      const std::int32_t before = i > 0 && expert != none ? own[expert] : 0;
      if (i > 0) B::wave_barrier();  // all have read
      if (expert != none && same.before == 0) own[expert] = before + same.count;
      ranks[i] = before + same.before;
    }
  }
};

}  // namespace tilewave
