// SPDX-License-Identifier: MIT
// Combines the partial results of a balanced launch. The partials of a row lie with the blocks that shared its stages,
// one after the other. Grid: one wave or one block for each output row (sequence, query token, head). It may begin
// while decode still runs, and works out meanwhile where the partials will lie. Shared memory: what the waves of a
// block have summed up. Bound: latency of two reads that depend on each other.
#pragma once

#include "tilewave/attention/partial_sum.hpp"
#include "tilewave/attention/sink.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/paged_attention/work_queue.hpp"

namespace tilewave {

/// Every `step`-th partial of a row from `offset` on, as PartialSum wants them. A block that begins inside a row block
/// leaves its partial in slot 2 * block. A block that ends inside one, where the first partial always is, leaves it in
/// slot 2 * block + 1. A slot has `rows` rows. All blocks of a launch may have a part of one row. Blocks that share the
/// stages of a sequence are `block_step` apart.
template <int most_blocks>
struct BalancedPartials {
  const void* x;
  const float* lse;
  std::int64_t head_size, first_block;
  std::int32_t rows, row, offset, step, count, block_step;

  static constexpr int max_count = most_blocks;
  TILEWAVE_DEVICE std::int64_t lse_offset(std::int32_t p) const {
    const std::int32_t index = offset + p * step;
    return (2 * (first_block + index * block_step) + (index == 0 ? 1 : 0)) * rows + row;
  }
  TILEWAVE_DEVICE std::int64_t x_offset(std::int32_t p) const { return lse_offset(p) * head_size; }
};

/// H is what combine knows of the launch before it: head_size, the columns of a row, and out, their type; the tokens
/// and rows of its blocks, block_tokens and block_rows; the most blocks it has, chip_blocks; and lockstep, whether the
/// row blocks of a sequence walk the same tokens side by side, in neighbouring blocks.
template <class B, class H>
struct BalancedCombine {
  using Room = B;
  using Args = PagedAttentionArgs;
  static constexpr bool waits_itself = true, reads_inputs_early = true;  // the lengths or the list of work
  static constexpr int head_size = H::head_size, stage_tokens = H::block_tokens, block_rows = H::block_rows;
  static constexpr bool lockstep = H::lockstep;
  static constexpr int lanes = B::facts.wave_lanes, block_threads = paged_attention_combine_threads;
  static constexpr int waves = block_threads / lanes, waves_per_simd = 2;
  static constexpr int unit = head_size >= 4 * lanes   ? 4
                              : head_size >= 2 * lanes ? 2
                                                       : 1;  // columns that a lane reads at once
  static constexpr RowPolicy row_policy{
      .lanes = lanes, .rows = waves, .chunks = ceil_div(head_size, unit* lanes), .vec = unit * int{sizeof(float)}};
  using Partials = BalancedPartials<H::chip_blocks>;
  using Total = PartialSum<B, DType::f32, row_policy, false>;
  struct Shared {
    Total total[waves][lanes];
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t row_waves = a.combine_waves.divisor, id = B::block_id() * waves + B::wave_id();
    const std::int32_t row = min_of(a.combine_waves.quotient(id), a.output_rows - 1);
    const std::int32_t out_row = row / a.num_q_heads, head = row - out_row * a.num_q_heads;
    Partials partials = partials_of(a, out_row, head);
    partials.offset = id - a.combine_waves.quotient(id) * row_waves;
    partials.step = row_waves;
    const bool beyond_table = B::uniform(B::load(a.context_lengths + out_row / a.query_tokens)) > a.capacity;

    B::wait_for_previous();
    B::launch_next();
    if (partials.count == 1 || id >= a.output_rows * row_waves)
      return;  // the one block that had the row wrote its output
    partials.count = max_of(ceil_div(partials.count - partials.offset, row_waves), 0);
    Total total = Total::of(partials, head_size);
    if (row_waves > 1) {  // then all waves of the block have the same row
      shared.total[partials.offset][B::lane_id()] = total;
      B::barrier();
      if (partials.offset != 0) return;
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
    total.template store<H::out>(to, head_size);
    if (a.lse != nullptr && B::lane_id() == 0) B::store(a.lse + row, total.lse);
  }

 protected:
  /// Where the partials of a row lie. An empty sequence has none, and a row that one block had to itself has one.
  TILEWAVE_DEVICE static Partials partials_of(const Args& a, std::int32_t out_row, std::int32_t head) {
    const std::int32_t sequence = out_row / a.query_tokens, token = out_row - sequence * a.query_tokens;
    const std::int32_t kv_head = a.gqa_ratio.quotient(head);
    const std::int32_t kv_head_row = token * a.gqa_ratio.divisor + head - kv_head * a.gqa_ratio.divisor;
    const std::int32_t row_block = kv_head_row / block_rows;
    // Where row blocks walk side by side, each part of the stages has a block for every one of them.
    const std::int32_t beside = lockstep ? a.row_blocks.divisor : 1;
    const std::int32_t sequence_row_blocks = lockstep ? 1 : a.kv_heads.divisor * a.row_blocks.divisor;
    std::int32_t all = 0, before = 0, stages = 0;
    if (a.stage_starts != nullptr) {
      all = B::load(a.stage_starts + a.batch);
      before = B::load(a.stage_starts + sequence);
      stages = B::load(a.stage_starts + sequence + 1) - before;
    } else {
      for (std::int32_t s = B::lane_id(); s < a.batch; s += lanes) {
        const std::int32_t stages_of_s = AttentionReach::stages_of<B>(a, s, stage_tokens);
        all += stages_of_s;
        if (s < sequence) before += stages_of_s;
      }
      all = wave_sum<B>(all);
      before = wave_sum<B>(before);
      stages = AttentionReach::stages_of<B>(a, sequence, stage_tokens);
    }
    const std::int64_t total = std::int64_t{all} * sequence_row_blocks;
    const std::int64_t begin = std::int64_t{before} * sequence_row_blocks +
                               (lockstep ? 0 : std::int64_t{kv_head * a.row_blocks.divisor + row_block} * stages);
    Partials partials{
        a.partial_out, a.partial_lse, head_size, 0, block_rows, kv_head_row - row_block * block_rows, 0, 1, 0, beside};
    if (stages > 0 && total > 0) {
      // A list that is not of these lengths leads to other blocks, but all of them have slots in the workspace.
      const std::int64_t last = working_blocks(a, total) - 1;
      partials.first_block = max_of(min_of(block_of(a, begin, total), last), std::int64_t{0});
      const std::int64_t end = max_of(min_of(block_of(a, begin + stages - 1, total), last), partials.first_block);
      partials.count = static_cast<std::int32_t>(end - partials.first_block) + 1;
      if (lockstep) partials.first_block = partials.first_block * beside + row_block;
    }
    return partials;
  }

  /// Adds up the sums of the block's waves as partials are added up.
  TILEWAVE_DEVICE static void add_up(const Shared& shared, Total& total) {
    constexpr float minus_infinity = -__builtin_inff();
    float top = minus_infinity, sum = 0.0f;
    TILEWAVE_UNROLL
    for (int w = 0; w < waves; ++w) top = Max{}(top, shared.total[w][B::lane_id()].lse);
    const float reference = top == minus_infinity ? 0.0f : top;
    total.scale(0.0f);
    TILEWAVE_UNROLL
    for (int w = 0; w < waves; ++w) {
      const Total& wave_total = shared.total[w][B::lane_id()];
      const float weight = B::exp2((wave_total.lse - reference) * log2_e);
      sum += weight;
      TILEWAVE_UNROLL
      for (int c = 0; c < Total::chunks; ++c) {
        TILEWAVE_UNROLL
        for (int e = 0; e < Total::unit; ++e) total.x[c][e] += weight * wave_total.x[c][e];
      }
    }
    total.scale(sum == 0.0f ? 0.0f : 1.0f / sum);
    total.lse = sum == 0.0f ? minus_infinity : reference + B::log2(sum) * ln_2;
  }

 private:
  /// The block w that has a stage: floor(w T / W) <= stage < floor((w + 1) T / W) with T stages and W blocks.
  TILEWAVE_DEVICE static std::int64_t block_of(const Args& a, std::int64_t stage, std::int64_t total) {
    return ((stage + 1) * working_blocks(a, total) - 1) / total;
  }
};

/// The combine of paged attention.
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionCombined {
  static constexpr int head_size = S.head_size, block_tokens = P.block_tokens(S), block_rows = P.block_rows();
  static constexpr int chip_blocks = paged_attention_chip_blocks(P, B::facts);
  static constexpr DType out = S.out;
  static constexpr bool lockstep = false;
};
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
using PagedAttentionBalancedCombine = BalancedCombine<B, PagedAttentionCombined<B, S, P>>;

}  // namespace tilewave
