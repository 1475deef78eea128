// SPDX-License-Identifier: MIT
// Combine of a balanced launch: the parts of a row lie with the blocks that shared its stages, one after the other.
// Grid: one wave, or one block, per output row (sequence, mtp token, head). It may begin while decode still runs, and
// works out meanwhile where the parts will be. LDS plan: what the waves of a block have summed up. Bound: latency of
// two dependent reads.
#pragma once

#include "tilewave/attention/partial_sum.hpp"
#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/paged_attention/work.hpp"

namespace tilewave {

/// Every `step`-th part of a row from `offset` on, as PartialSum wants it. A block that begins inside a sequence leaves
/// its part in slot 2 * block, one that ends inside, as the first of a row does, in 2 * block + 1; `rows` a slot. One
/// row may lie with all blocks of the launch, `workers`.
template <int workers>
struct BalancedParts {
  const void* x;
  const float* lse;
  std::int64_t head_size, first_block;
  std::int32_t rows, row, offset, step, count;

  static constexpr int max_count = workers;
  TILEWAVE_DEVICE std::int64_t lse_offset(std::int32_t p) const {
    const std::int32_t part = offset + p * step;
    return (2 * (first_block + part) + (part == 0 ? 1 : 0)) * rows + row;
  }
  TILEWAVE_DEVICE std::int64_t x_offset(std::int32_t p) const { return lse_offset(p) * head_size; }
};

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionBalancedCombine {
  using Room = B;
  using Args = PagedAttentionArgs;
  static constexpr int head_size = S.head_size, stage_tokens = P.block_tokens(S);
  static constexpr int lanes = B::facts.wave_lanes, block_threads = paged_attention_combine_threads;
  static constexpr int waves = block_threads / lanes, waves_per_simd = 2;
  static constexpr int unit = head_size >= 4 * lanes ? 4 : head_size >= 2 * lanes ? 2 : 1;  // columns of one access
  static constexpr RowPolicy row_policy{
      .lanes = lanes, .rows = waves, .chunks = ceil_div(head_size, unit* lanes), .vec = unit * int{sizeof(float)}};
  using Parts = BalancedParts<paged_attention_workers(P, B::facts)>;
  using Total = PartialSum<B, DType::f32, row_policy, false>;
  struct Shared {
    Total total[waves][lanes];
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t row_waves = a.combine_waves.divisor, id = B::block_id() * waves + B::wave_id();
    const std::int32_t row = min_of(a.combine_waves.quotient(id), a.output_rows - 1);
    const std::int32_t out_row = row / a.num_q_heads, head = row - out_row * a.num_q_heads;
    Parts parts = parts_of(a, out_row, head);
    parts.offset = id - a.combine_waves.quotient(id) * row_waves;
    parts.step = row_waves;
    const bool beyond_table = B::uniform(B::load(a.context_lengths + out_row / a.query_tokens)) > a.capacity;

    B::wait_for_previous();
    if (parts.count == 1 || id >= a.output_rows * row_waves) return;  // its block wrote it
    parts.count = max_of(ceil_div(parts.count - parts.offset, row_waves), 0);
    Total total = Total::of(parts, head_size);
    if (row_waves > 1) {  // then all waves of the block have this row
      shared.total[parts.offset][B::lane_id()] = total;
      B::barrier();
      if (parts.offset != 0) return;
      add_up(shared, total);
    }
    if (beyond_table) {
      total.scale(__builtin_nanf(""));
      total.lse = __builtin_nanf("");
    }
    if (a.sinks != nullptr) {
      const JoinedSink joined = join_sink<B>(total.lse, B::load(a.sinks + head));
      total.scale(joined.out_scale);
      total.lse = joined.lse;
    }
    auto* to = static_cast<std::uint16_t*>(a.out) + out_row * a.out_row_stride + head * a.out_head_stride;
    total.template store<S.out>(to, head_size);
    if (a.lse != nullptr && B::lane_id() == 0) B::store(a.lse + row, total.lse);
  }

 private:
  /// Where the parts of a row are: none of an empty sequence, one if a block had it to itself.
  TILEWAVE_DEVICE static Parts parts_of(const Args& a, std::int32_t out_row, std::int32_t head) {
    const std::int32_t sequence = out_row / a.query_tokens, token = out_row - sequence * a.query_tokens;
    const std::int32_t kv_head = a.group.quotient(head);
    const std::int32_t group_row = token * a.group.divisor + head - kv_head * a.group.divisor;
    const std::int32_t row_group = group_row / P.block_rows(), items = a.kv_heads.divisor * a.row_groups.divisor;
    std::int32_t all = 0, before = 0, stages = 0;
    if (a.stage_starts != nullptr) {
      all = B::load(a.stage_starts + a.batch);
      before = B::load(a.stage_starts + sequence);
      stages = B::load(a.stage_starts + sequence + 1) - before;
    } else {
      for (std::int32_t s = B::lane_id(); s < a.batch; s += lanes) {
        const std::int32_t its_stages = AttentionReach::stages_of<B>(a, s, stage_tokens);
        all += its_stages;
        if (s < sequence) before += its_stages;
      }
      all = wave_sum<B>(all);
      before = wave_sum<B>(before);
      stages = AttentionReach::stages_of<B>(a, sequence, stage_tokens);
    }
    const std::int64_t total = std::int64_t{all} * items;
    const std::int64_t begin =
        std::int64_t{before} * items + std::int64_t{kv_head * a.row_groups.divisor + row_group} * stages;
    Parts parts{
        a.partial_out, a.partial_lse, head_size, 0, P.block_rows(), group_row - row_group * P.block_rows(), 0, 1, 0};
    if (stages > 0 && total > 0) {
      // Of a list that is not of these lengths: some of the blocks, which all have a place in the workspace.
      const std::int64_t last = workers_of(a, total) - 1;
      parts.first_block = max_of(min_of(block_of(a, begin, total), last), std::int64_t{0});
      const std::int64_t end = max_of(min_of(block_of(a, begin + stages - 1, total), last), parts.first_block);
      parts.count = static_cast<std::int32_t>(end - parts.first_block) + 1;
    }
    return parts;
  }

  /// The sums of the block's waves, added up as parts are.
  TILEWAVE_DEVICE static void add_up(const Shared& shared, Total& total) {
    constexpr float minus_infinity = -__builtin_inff();
    float top = minus_infinity, weight = 0.0f;
    TILEWAVE_UNROLL
    for (int w = 0; w < waves; ++w) top = __builtin_fmaxf(top, shared.total[w][B::lane_id()].lse);
    const float reference = top == minus_infinity ? 0.0f : top;
    total.scale(0.0f);
    TILEWAVE_UNROLL
    for (int w = 0; w < waves; ++w) {
      const Total& part = shared.total[w][B::lane_id()];
      const float share = B::exp2((part.lse - reference) * log2_e);
      weight += share;
      TILEWAVE_UNROLL
      for (int c = 0; c < Total::chunks; ++c) {
        TILEWAVE_UNROLL
        for (int e = 0; e < Total::unit; ++e) total.x[c][e] += share * part.x[c][e];
      }
    }
    total.scale(weight == 0.0f ? 0.0f : 1.0f / weight);
    total.lse = weight == 0.0f ? minus_infinity : reference + B::log2(weight) * ln_2;
  }

  /// The block w with floor(w T / G) <= stage < floor((w + 1) T / G).
  TILEWAVE_DEVICE static std::int64_t block_of(const Args& a, std::int64_t stage, std::int64_t total) {
    return ((stage + 1) * workers_of(a, total) - 1) / total;
  }
};

}  // namespace tilewave
