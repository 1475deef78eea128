// SPDX-License-Identifier: MIT
// The end of a work item: waves that walked different tokens of the same rows merge, then outputs or partials are
// written.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/paged_attention/registers/layout.hpp"

namespace tilewave {

template <class L>
struct PagedAttentionEpilogue {
  using B = typename L::Room;
  using Map = typename L::Map;
  using State = typename L::State;
  using WorkItem = typename L::WorkItem;
  using Scores = typename L::Scores;

  /// Every wave of the block calls this. Of the waves that share rows, the one with wave_token 0 writes.
  TILEWAVE_DEVICE static void run(const PagedAttentionArgs& a, const WorkItem& item, State& s,
                                  typename L::Shared& shared) {
    L::each_row([&](int t, int r) { s.row_sum[t][r] = L::over_lane_groups(s.row_sum[t][r], L::sum); });
    if constexpr (L::token_waves > 1) {
      merge_statistics(item, s, shared);
      add_outputs(item, s, shared);
    }
    if (item.wave_token == 0) write(a, item, s);
  }

 private:
  /// Scales every wave's rows to a common maximum, and adds up their sums.
  TILEWAVE_DEVICE static void merge_statistics(const WorkItem& item, State& s, typename L::Shared& shared) {
    const int lane = B::lane_id();
    auto& maxima = shared.row_max[item.wave_row];
    auto& sums = shared.row_sum[item.wave_row];
    L::each_row([&](int t, int r) {
      if (Map::group(lane) != 0) return;
      maxima[item.wave_token][t * L::atom_rows + Map::row(lane, r)] = s.row_max[t][r];
      sums[item.wave_token][t * L::atom_rows + Map::row(lane, r)] = s.row_sum[t][r];
    });
    B::barrier();
    L::each_row([&](int t, int r) {
      const int row = t * L::atom_rows + Map::row(lane, r);
      float maximum = L::minus_infinity, sum = 0.0f;
      TILEWAVE_UNROLL
      for (int w = 0; w < L::token_waves; ++w) maximum = L::larger(maximum, maxima[w][row]);
      const float reference = maximum == L::minus_infinity ? 0.0f : maximum;  // -inf if no wave saw a token
      TILEWAVE_UNROLL
      for (int w = 0; w < L::token_waves; ++w) sum += sums[w][row] * B::exp2(maxima[w][row] - reference);
      L::scale_row(s, t, r, B::exp2(s.row_max[t][r] - reference));
      s.row_max[t][r] = maximum;
      s.row_sum[t][r] = sum;
    });
  }

  /// Adds up the outputs of the waves. Half of the waves hand theirs to the other half, until one wave is left. A lane
  /// reads what the same lane of the other wave wrote, so there are no bank conflicts.
  TILEWAVE_DEVICE static void add_outputs(const WorkItem& item, State& s, typename L::Shared& shared) {
    const int lane = B::lane_id();
    static_for<L::row_tiles * L::out_tiles / L::merge_tiles>([&](auto batch) {
      TILEWAVE_UNROLL
      for (int half = L::token_waves / 2; half >= 1; half /= 2) {
        if (item.wave_token >= half && item.wave_token < 2 * half) {
          auto& to = shared.out[item.wave_row][item.wave_token - half];
          TILEWAVE_UNROLL
          for (int i = 0; i < L::merge_tiles; ++i) to[i][lane] = out_tile(s, batch * L::merge_tiles + i);
        }
        B::barrier();
        if (item.wave_token < half) {
          const auto& from = shared.out[item.wave_row][item.wave_token];
          TILEWAVE_UNROLL
          for (int i = 0; i < L::merge_tiles; ++i) {
            const Scores other = from[i][lane];
            Scores& sum = out_tile(s, batch * L::merge_tiles + i);
            TILEWAVE_UNROLL
            for (int c = 0; c < Scores::size; ++c) sum[c] += other[c];
          }
        }
        B::barrier();
      }
    });
  }

  TILEWAVE_DEVICE static Scores& out_tile(State& s, int i) { return s.out[i / L::out_tiles][i % L::out_tiles]; }

  TILEWAVE_DEVICE static void write(const PagedAttentionArgs& a, const WorkItem& item, State& s) {
    const int lane = L::lane_id(), column = L::Values::first_held(0, Map::group(lane));
    const float v_scale = L::common_scale(a, a.v_scale, item.kv_head) / L::probability_scale;
    L::each_row([&](int t, int r) {
      const std::int32_t row = item.first_row + t * L::atom_rows + Map::row(lane, r);
      if (row >= a.rows) return;
      const auto query = query_row(a, item, row);
      const std::int64_t lse_index = query.out_row * a.num_q_heads + query.head;
      const float sum = item.beyond_table ? __builtin_nanf("") : s.row_sum[t][r];
      const float scale = sum == 0.0f ? 0.0f : v_scale / sum;
      float lse = sum == 0.0f ? L::minus_infinity : (s.row_max[t][r] + B::log2(sum)) * ln_2;
      if (item.slot < 0) {
        float sink_scale = 1.0f;
        if (a.sinks != nullptr) {  // with the same bits as combine
          const JoinedSink joined = join_sink<B>(lse, B::load(a.sinks + query.head));
          sink_scale = joined.out_scale;
          lse = joined.lse;
        }
        auto* to =
            static_cast<std::uint16_t*>(a.out) + query.out_row * a.out_row_stride + query.head * a.out_head_stride;
        write_out(s, t, r, scale, sink_scale, to + column);
        if (a.lse != nullptr && column == 0) B::store(a.lse + lse_index, lse);
      } else {
        const std::int32_t block_row = row - item.first_row + item.wave_row * L::row_tiles * L::atom_rows;
        const std::int64_t partial = L::policy.balanced() ? std::int64_t{item.slot} * L::block_rows + block_row
                                                          : lse_index * a.splits.divisor + item.slot;
        write_partial(s, t, r, scale, a.partial_out + partial * L::spec.head_size + column);
        if (column == 0) B::store(a.partial_lse + partial, lse);
      }
    });
  }

  TILEWAVE_DEVICE static void write_out(const State& s, int t, int r, float scale, float sink_scale,
                                        std::uint16_t* to) {
    constexpr int count = min_of(8, int{L::Values::run});
    // Combine adds partial results to 0, which turns -0 into +0. Subtracting -0 does the same.
    const auto value = [&](int block, int n) {
      return B::subtract(L::out_value(s, t, r, block, n) * scale, -0.0f) * sink_scale;
    };
    L::template each_dims<count>([&](int block, int n) {
      Vec<std::uint32_t, count / 2> words;
      TILEWAVE_UNROLL
      for (int w = 0; w < count / 2; ++w) {
        words[w] = L::round_out(value(block, n + 2 * w), value(block, n + 2 * w + 1));
      }
      B::store(reinterpret_cast<decltype(words)*>(to + block * L::Values::block_dims + n), words);
    });
  }

  TILEWAVE_DEVICE static void write_partial(const State& s, int t, int r, float scale, float* to) {
    constexpr int count = min_of(4, int{L::Values::run});
    L::template each_dims<count>([&](int block, int n) {
      Vec<float, count> values;
      TILEWAVE_UNROLL
      for (int c = 0; c < count; ++c) values[c] = L::out_value(s, t, r, block, n + c) * scale;
      B::store(reinterpret_cast<decltype(values)*>(to + block * L::Values::block_dims + n), values);
    });
  }
};

}  // namespace tilewave
