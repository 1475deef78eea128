// SPDX-License-Identifier: MIT
// Combines the partial results of a balanced launch of path tensor, as BalancedCombine does, of which a multiprocessor
// holds one block. Here it holds two, and the chip all blocks of a launch: decode fills it, so blocks begin when
// decode's end, and a second round of them would be time of every call, whether rows have partial results or not.
// A wave has an output row, or several that follow each other. Where rows are few and have many partial results, two to
// eight waves share one. Four partial results of a wave are under way before their weights are known.
// Grid: waves for each row, or as many as the chip holds. Bound: latency of a read.
#pragma once

#include "tilewave/ops/mla_decode/args.hpp"
#include "tilewave/ops/paged_attention/merge/balanced_combine.hpp"

namespace tilewave {

/// H is what BalancedCombine knows of the launch, in lockstep.
template <class B, class H>
struct MlaDecodeCombine : BalancedCombine<B, H> {
  using Base = BalancedCombine<B, H>;
  using Base::lanes, Base::waves, Base::block_rows;
  using typename Base::Args, typename Base::Partials, typename Base::Shared, typename Base::Total;
  static_assert(H::lockstep, "row blocks of a sequence walk the same tokens");
  static constexpr int waves_per_simd = mla_combine_blocks_of_unit * waves / B::facts.simds_per_cu;
  static constexpr std::int32_t held_waves = mla_combine_held_waves(B::facts);

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t row_waves = a.combine_waves.divisor, id = B::block_id() * waves + B::wave_id();
    const std::int32_t of_wave = mla_combine_rows(a.output_rows, row_waves, held_waves);
    const std::int32_t share = a.combine_waves.quotient(id), first = share * of_wave;
    const std::int32_t end = min_of(first + of_wave, a.output_rows);
    Place place = place_of(a, min_of(first, a.output_rows - 1));
    Partials partials = Base::partials_of(a, place.out_row, place.head);

    B::wait_for_previous();
    B::launch_next();
    if (row_waves > 1) return share_row(a, partials, place, id - share * row_waves, first < end, shared);
    TILEWAVE_ROLL
    for (std::int32_t row = first; row < end; ++row) {
      const Place now = place_of(a, row);
      if (now.sequence != place.sequence || now.row_block != place.row_block)
        partials = Base::partials_of(a, now.out_row, now.head);
      place = now;
      if (partials.count == 1) continue;  // the one block that had the row wrote its output
      partials.row = now.in_block;
      const std::int32_t length = B::load(a.context_lengths + now.sequence);
      Total total = sum_of(partials);
      write(a, now, length, total);
    }
  }

 private:
  static constexpr int at_once = mla_combine_at_once, chunks = Total::chunks, unit = Total::unit;
  using Loaded = Packed<DType::f32, unit>[at_once][chunks];

  /// An output row, its head, and where its query row is.
  struct Place {
    std::int32_t row, out_row, sequence, head, row_block, in_block;
  };
  TILEWAVE_DEVICE static Place place_of(const Args& a, std::int32_t row) {
    Place at;
    at.row = row;
    at.out_row = a.gqa_ratio.quotient(row);  // the heads of the one KV head
    at.head = row - at.out_row * a.num_q_heads;
    at.sequence = at.out_row / a.query_tokens;
    const std::int32_t query_row = row - at.sequence * a.rows;
    at.row_block = query_row / block_rows;
    at.in_block = query_row % block_rows;
    return at;
  }

  /// Waves that share a row have its partial results in turns, and the first of them, wave 0, writes the row. All waves
  /// of a block meet, whether they have a row or not.
  TILEWAVE_DEVICE static void share_row(const Args& a, Partials partials, const Place& of, std::int32_t wave,
                                        bool is_row, Shared& shared) {
    const std::int32_t row_waves = a.combine_waves.divisor;
    const bool combines = is_row && partials.count != 1;
    const std::int32_t length = B::load(a.context_lengths + of.sequence);
    if (combines) {
      partials.offset = wave;
      partials.step = row_waves;
      partials.count = max_of(ceil_div(partials.count - wave, row_waves), 0);
      shared.total[B::wave_id()][B::lane_id()] = sum_of(partials);
    }
    B::barrier();
    if (!combines || wave != 0) return;
    const auto total_of = [&](std::int32_t w) TILEWAVE_INLINE_LAMBDA -> const Total& {
      return shared.total[B::wave_id() + w][B::lane_id()];
    };
    float top = minus_infinity, sum = 0.0f;
    for (std::int32_t w = 0; w < row_waves; ++w) top = Max{}(top, total_of(w).lse);
    const float reference = top == minus_infinity ? 0.0f : top;
    Total total{};
    TILEWAVE_ROLL
    for (std::int32_t w = 0; w < row_waves; ++w) {
      const float weight = B::exp2((total_of(w).lse - reference) * log2_e);
      sum += weight;
      TILEWAVE_UNROLL
      for (int c = 0; c < chunks; ++c) {
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) total.x[c][e] += weight * total_of(w).x[c][e];
      }
    }
    total.scale(sum == 0.0f ? 0.0f : 1.0f / sum);
    total.lse = sum == 0.0f ? minus_infinity : reference + B::log2(sum) * ln_2;
    write(a, of, length, total);
  }

  TILEWAVE_DEVICE static void write(const Args& a, const Place& of, std::int32_t length, Total& total) {
    if (B::uniform(length) > a.capacity) {  // beyond the block table
      total.scale(__builtin_nanf(""));
      total.lse = __builtin_nanf("");
    }
    if (a.sinks != nullptr) {
      const JoinedSink joined = join_sink<B>(total.lse, B::load(a.sinks + of.head));
      total.scale(joined.out_scale);
      total.lse = joined.lse;
    }
    auto* const to = static_cast<std::uint16_t*>(a.out) + of.out_row * a.out_row_stride + of.head * a.out_head_stride;
    total.template store<H::out>(to, Base::head_size);
    if (a.lse != nullptr && B::lane_id() == 0) B::store(a.lse + of.row, total.lse);
  }

  /// Adds up partial results, as PartialSum does. Its loops are rolled: each line of code is a read of memory, as is
  /// each weight that is looked at again, which is near by then.
  TILEWAVE_DEVICE static Total sum_of(const Partials& row) {
    Loaded loaded;
    load(row, 0, loaded);
    const auto lse = [&](std::int32_t p) TILEWAVE_INLINE_LAMBDA { return B::load(row.lse + row.lse_offset(p)); };
    float top = minus_infinity, sum = 0.0f;
    TILEWAVE_ROLL
    for (std::int32_t p = B::lane_id(); p < row.count; p += lanes) top = Max{}(top, lse(p));
    top = B::template reduce<lanes>(top, Max{});
    const float reference = top == minus_infinity ? 0.0f : top;  // no partial result has weight
    TILEWAVE_ROLL
    for (std::int32_t p = B::lane_id(); p < row.count; p += lanes) sum += B::exp2((lse(p) - reference) * log2_e);
    sum = B::template reduce<lanes>(sum, Sum{});
    Total total{};
    TILEWAVE_ROLL
    for (std::int32_t first = 0; first < row.count; first += at_once) {
      if (first > 0) load(row, first, loaded);
      TILEWAVE_UNROLL
      for (int j = 0; j < at_once; ++j) {
        if (first + j >= row.count) break;
        const float weight = B::exp2((lse(first + j) - reference) * log2_e);
        TILEWAVE_UNROLL
        for (int c = 0; c < chunks; ++c) {
          const Vec<float, unit> values = widen<B, DType::f32, unit>(loaded[j][c]);
          TILEWAVE_UNROLL
          for (int e = 0; e < unit; ++e) total.x[c][e] += weight * values[e];
        }
      }
    }
    total.scale(sum == 0.0f ? 0.0f : 1.0f / sum);
    total.lse = sum == 0.0f ? minus_infinity : reference + B::log2(sum) * ln_2;
    return total;
  }
  /// Loads partial results from `first` on. Those behind the last are not looked at.
  TILEWAVE_DEVICE static void load(const Partials& row, std::int32_t first, Loaded& to) {
    TILEWAVE_UNROLL
    for (int j = 0; j < at_once; ++j) {
      if (first + j >= row.count) break;
      const auto* const from = static_cast<const float*>(row.x) + row.x_offset(first + j);
      TILEWAVE_UNROLL
      for (int c = 0; c < chunks; ++c)
        to[j][c] = B::load(reinterpret_cast<const Packed<DType::f32, unit>*>(from + Total::column(c)));
    }
  }
};

}  // namespace tilewave
