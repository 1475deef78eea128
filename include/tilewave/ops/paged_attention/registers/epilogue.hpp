// SPDX-License-Identifier: MIT
// The end of a decode block: merge the waves that walked different tokens of the same rows, then write outputs or
// partials.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/paged_attention/registers/layout.hpp"

namespace tilewave {

template <class L>
struct PagedAttentionEpilogue {
  using B = typename L::Room;
  using Map = typename L::Map;
  using State = typename L::State;
  using Place = typename L::Place;
  using Scores = typename L::Scores;

  /// Every wave of the block calls this; wave_token 0 of each wave row writes.
  TILEWAVE_DEVICE static void run(const PagedAttentionArgs& a, const Place& at, State& s, typename L::Shared& shared) {
    L::each_row([&](int t, int r) { s.row_sum[t][r] = L::over_groups(s.row_sum[t][r], L::sum); });
    if constexpr (L::token_waves > 1) {
      share_statistics(at, s, shared);
      add_outputs(at, s, shared);
    }
    if (at.wave_token == 0) write(a, at, s);
  }

 private:
  /// Bring every wave's rows to a common maximum and sum.
  TILEWAVE_DEVICE static void share_statistics(const Place& at, State& s, typename L::Shared& shared) {
    const int lane = B::lane_id();
    auto& maxima = shared.row_max[at.wave_row];
    auto& sums = shared.row_sum[at.wave_row];
    L::each_row([&](int t, int r) {
      if (Map::group(lane) != 0) return;
      maxima[at.wave_token][t * L::atom_rows + Map::row(lane, r)] = s.row_max[t][r];
      sums[at.wave_token][t * L::atom_rows + Map::row(lane, r)] = s.row_sum[t][r];
    });
    B::barrier();
    L::each_row([&](int t, int r) {
      const int row = t * L::atom_rows + Map::row(lane, r);
      float maximum = L::minus_infinity, sum = 0.0f;
      TILEWAVE_UNROLL
      for (int w = 0; w < L::token_waves; ++w) maximum = L::larger(maximum, maxima[w][row]);
      const float reference = maximum == L::minus_infinity ? 0.0f : maximum;  // no wave saw a token
      TILEWAVE_UNROLL
      for (int w = 0; w < L::token_waves; ++w) sum += sums[w][row] * B::exp2(maxima[w][row] - reference);
      L::scale_row(s, t, r, B::exp2(s.row_max[t][r] - reference));
      s.row_max[t][r] = maximum;
      s.row_sum[t][r] = sum;
    });
  }

  /// Halve the number of waves that hold a sum until one is left. Each lane meets its own registers again, so the
  /// exchange is lane-linear and free of bank conflicts.
  TILEWAVE_DEVICE static void add_outputs(const Place& at, State& s, typename L::Shared& shared) {
    const int lane = B::lane_id();
    static_for<L::row_tiles * L::out_tiles / L::merge_tiles>([&](auto piece) {
      TILEWAVE_UNROLL
      for (int half = L::token_waves / 2; half >= 1; half /= 2) {
        if (at.wave_token >= half && at.wave_token < 2 * half) {
          auto& to = shared.out[at.wave_row][at.wave_token - half];
          TILEWAVE_UNROLL
          for (int i = 0; i < L::merge_tiles; ++i) to[i][lane] = out_tile(s, piece * L::merge_tiles + i);
        }
        B::barrier();
        if (at.wave_token < half) {
          const auto& from = shared.out[at.wave_row][at.wave_token];
          TILEWAVE_UNROLL
          for (int i = 0; i < L::merge_tiles; ++i) {
            const Scores other = from[i][lane];
            Scores& sum = out_tile(s, piece * L::merge_tiles + i);
            TILEWAVE_UNROLL
            for (int c = 0; c < Scores::size; ++c) sum[c] += other[c];
          }
        }
        B::barrier();
      }
    });
  }

  TILEWAVE_DEVICE static Scores& out_tile(State& s, int i) { return s.out[i / L::out_tiles][i % L::out_tiles]; }

  TILEWAVE_DEVICE static void write(const PagedAttentionArgs& a, const Place& at, State& s) {
    const int lane = L::lane_id(), column = L::Values::first_held(0, Map::group(lane));
    const float v_scale = L::common_scale(a, a.v_scale, at.kv_head) / L::probability_scale;
    L::each_row([&](int t, int r) {
      const std::int32_t row = at.first_row + t * L::atom_rows + Map::row(lane, r);
      if (row >= a.rows) return;
      const auto query = query_row(a, at, row);
      const std::int64_t lse_at = query.out_row * a.num_q_heads + query.head;
      const float sum = at.beyond_table ? __builtin_nanf("") : s.row_sum[t][r];
      const float scale = sum == 0.0f ? 0.0f : v_scale / sum;
      float lse = sum == 0.0f ? L::minus_infinity : (s.row_max[t][r] + B::log2(sum)) * ln_2;
      if (at.slot < 0) {
        float share = 1.0f;
        if (a.sinks != nullptr) {  // as combine does it, to the bit
          const JoinedSink joined = join_sink<B>(lse, B::load(a.sinks + query.head));
          share = joined.out_scale;
          lse = joined.lse;
        }
        auto* to =
            static_cast<std::uint16_t*>(a.out) + query.out_row * a.out_row_stride + query.head * a.out_head_stride;
        write_out(s, t, r, scale, share, to + column);
        if (a.lse != nullptr && column == 0) B::store(a.lse + lse_at, lse);
      } else {
        const std::int32_t in_group = row - at.first_row + at.wave_row * L::row_tiles * L::atom_rows;
        const std::int64_t partial = L::policy.balanced() ? std::int64_t{at.slot} * L::block_rows + in_group
                                                          : lse_at * a.splits.divisor + at.slot;
        write_partial(s, t, r, scale, a.partial_out + partial * L::spec.head_size + column);
        if (column == 0) B::store(a.partial_lse + partial, lse);
      }
    });
  }

  TILEWAVE_DEVICE static void write_out(const State& s, int t, int r, float scale, float share, std::uint16_t* to) {
    constexpr int piece = min_of(8, int{L::Values::run});
    // Combine adds partial results to 0, which makes +0 of -0, as taking -0 away does.
    const auto value = [&](int block, int n) {
      return B::subtract(L::out_value(s, t, r, block, n) * scale, -0.0f) * share;
    };
    L::template each_piece<piece>([&](int block, int n) {
      Vec<std::uint32_t, piece / 2> words;
      TILEWAVE_UNROLL
      for (int w = 0; w < piece / 2; ++w) {
        words[w] = L::round_out(value(block, n + 2 * w), value(block, n + 2 * w + 1));
      }
      B::store(reinterpret_cast<decltype(words)*>(to + block * L::Values::block_dims + n), words);
    });
  }

  TILEWAVE_DEVICE static void write_partial(const State& s, int t, int r, float scale, float* to) {
    constexpr int piece = min_of(4, int{L::Values::run});
    L::template each_piece<piece>([&](int block, int n) {
      Vec<float, piece> values;
      TILEWAVE_UNROLL
      for (int c = 0; c < piece; ++c) values[c] = L::out_value(s, t, r, block, n + c) * scale;
      B::store(reinterpret_cast<decltype(values)*>(to + block * L::Values::block_dims + n), values);
    });
  }
};

}  // namespace tilewave
