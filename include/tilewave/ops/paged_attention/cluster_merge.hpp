// SPDX-License-Identifier: MIT
// The end of a cluster whose blocks split a context. Every wave tells every block the maximum and the sum of its rows.
// Once all know, it hands each block its share of the head dimensions, already weighted and straight from registers,
// and every block adds up its share and writes it. The ring of the blocks, by then no longer in use, is where shares
// arrive.
#pragma once

#include "tilewave/ops/paged_attention/layout.hpp"
#include "tilewave/ops/paged_attention/sink.hpp"

namespace tilewave {

/// L is a PagedAttentionLayout.
template <class L>
struct PagedAttentionClusterMerge {
  using B = typename L::Room;
  using Map = typename L::Map;
  using State = typename L::State;
  using Place = typename L::Place;
  using Scores = typename L::Scores;

  static constexpr int wave_tiles = L::row_tiles * L::out_tiles, tiles = L::wave_rows * wave_tiles;
  /// Tile n of the rows goes to block n % cluster, as its n / cluster-th, from `cluster * token_waves` sources.
  using Shares = Scores[(tiles + B::facts.max_cluster_blocks - 1) * L::token_waves][L::lanes];

  /// Called by every wave that computes, the others call accompany().
  TILEWAVE_DEVICE static void run(const PagedAttentionArgs& a, const Place& at, State& s, typename L::Shared& shared,
                                  Shares& shares) {
    L::each_row([&](int t, int r) { s.row_sum[t][r] = L::over_groups(s.row_sum[t][r], L::sum); });
    tell_statistics(a, at, s, shared);
    B::cluster_arrive();
    B::cluster_wait();  // the rings of all blocks are free, too
    weigh(a, at, s, shared);
    hand_out(a, at, s, shares);
    B::cluster_arrive();
    B::cluster_wait();
    const int rank = B::cluster_rank(), wave = at.wave_row * L::token_waves + at.wave_token;
    for (int i = wave; i * a.cluster + rank < tiles; i += L::wave_rows * L::token_waves) {
      write(a, at, i, i * a.cluster + rank, shares);
    }
    if (a.lse != nullptr && rank == 0 && at.wave_token == 0) write_lse(a, at, s);
  }
  TILEWAVE_DEVICE static void accompany() {
    for (int i = 0; i < 2; ++i) {
      B::cluster_arrive();
      B::cluster_wait();
    }
  }

 private:
  TILEWAVE_DEVICE static int row_in_block(const Place& at, int t, int r) {
    return (at.wave_row * L::row_tiles + t) * L::atom_rows + Map::row(B::lane_id(), r);
  }

  /// The four groups, which hold the same, share out the blocks.
  TILEWAVE_DEVICE static void tell_statistics(const PagedAttentionArgs& a, const Place& at, const State& s,
                                              typename L::Shared& shared) {
    const int source = B::cluster_rank() * L::token_waves + at.wave_token;
    for (int c = Map::group(B::lane_id()); c < a.cluster; c += AtomFacts::groups) {
      L::each_row([&](int t, int r) {
        const Vec<float, 2> both{{s.row_max[t][r], s.row_sum[t][r]}};
        B::store(B::remote(reinterpret_cast<Vec<float, 2>*>(&shared.early.row[source][row_in_block(at, t, r)]), c),
                 both);
      });
    }
  }

  /// Bring the outputs to the maximum of all and divide them by the sum of all. The row's lse takes the place of its
  /// maximum.
  TILEWAVE_DEVICE static void weigh(const PagedAttentionArgs& a, const Place& at, State& s,
                                    const typename L::Shared& shared) {
    constexpr int held = L::sources / AtomFacts::groups;
    const int count = a.cluster * L::token_waves;
    const float v_scale = L::common_scale(a, a.v_scale, at.kv_head);
    L::each_row([&](int t, int r) {
      float max[held], sum[held], top = L::minus_infinity, total = 0.0f;
      TILEWAVE_UNROLL
      for (int i = 0; i < held; ++i) {
        const int source = i * AtomFacts::groups + Map::group(B::lane_id());
        Vec<float, 2> both{{L::minus_infinity, 0.0f}};
        if (source < count)
          both = B::load(reinterpret_cast<const Vec<float, 2>*>(&shared.early.row[source][row_in_block(at, t, r)]));
        max[i] = both[0];
        sum[i] = both[1];
        top = L::larger(top, max[i]);
      }
      top = L::over_groups(top, L::larger);
      const float reference = top == L::minus_infinity ? 0.0f : top;  // nobody saw a token
      TILEWAVE_UNROLL
      for (int i = 0; i < held; ++i) total += sum[i] * B::exp2(max[i] - reference);
      total = L::over_groups(total, L::sum);
      if (at.beyond_table) total = __builtin_nanf("");
      float factor = total == 0.0f ? 0.0f : B::exp2(s.row_max[t][r] - reference) * v_scale / total;
      s.row_max[t][r] = total == 0.0f ? L::minus_infinity : (top + B::log2(total)) * ln_2;
      if (a.sinks != nullptr) {
        const std::int32_t row = first_of_block(at) + row_in_block(at, t, r);
        const auto query = L::query_row(a, at, min_of(row, a.rows - 1));
        const JoinedSink joined = join_sink<B>(s.row_max[t][r], B::load(a.sinks + query.head));
        factor *= joined.share;
        s.row_max[t][r] = joined.lse;
      }
      L::scale_row(s, t, r, factor);
    });
  }

  TILEWAVE_DEVICE static void hand_out(const PagedAttentionArgs& a, const Place& at, const State& s, Shares& shares) {
    const int lane = B::lane_id(), source = B::cluster_rank() * L::token_waves + at.wave_token;
    TILEWAVE_UNROLL
    for (int i = 0; i < wave_tiles; ++i) {
      const int n = at.wave_row * wave_tiles + i, turn = a.splits.quotient(n);
      const int place = turn * a.cluster * L::token_waves + source;
      B::store(B::remote(&shares[place][lane], n - turn * a.cluster), s.out[i / L::out_tiles][i % L::out_tiles]);
    }
  }

  /// Adds up tile n, the i-th of this block.
  TILEWAVE_DEVICE static void write(const PagedAttentionArgs& a, const Place& at, int i, int n, const Shares& shares) {
    constexpr int batch = 4;
    const int lane = B::lane_id(), count = a.cluster * L::token_waves;
    Scores sum{};
    for (int c = 0; c < count; c += batch) {
      Scores part[batch];
      TILEWAVE_UNROLL
      for (int j = 0; j < batch; ++j) part[j] = B::load(&shares[i * count + min_of(c + j, count - 1)][lane]);
      TILEWAVE_UNROLL
      for (int j = 0; j < batch; ++j) {
        TILEWAVE_UNROLL
        for (int e = 0; e < Scores::size; ++e) sum[e] += c + j < count ? part[j][e] : 0.0f;
      }
    }
    const int wave_row = n / wave_tiles, t = n % wave_tiles / L::out_tiles, d = n % L::out_tiles;
    TILEWAVE_UNROLL
    for (int r = 0; r < L::rows_per_lane; ++r) {
      const std::int32_t row = first_of_block(at) + (wave_row * L::row_tiles + t) * L::atom_rows + Map::row(lane, r);
      if (row >= a.rows) continue;
      const auto query = L::query_row(a, at, row);
      auto* to = static_cast<std::uint16_t*>(a.out) + query.out_row * a.out_row_stride +
                 query.head * a.out_head_stride + d * L::atom_kv + L::kv_per_lane * Map::group(lane);
      Vec<std::uint32_t, L::kv_per_lane / 2> words;
      TILEWAVE_UNROLL
      for (int w = 0; w < L::kv_per_lane / 2; ++w) {
        const int e = r * L::kv_per_lane + 2 * w;
        words[w] = L::round_out(sum[e], sum[e + 1]);
      }
      B::store(reinterpret_cast<decltype(words)*>(to), words);
    }
  }

  TILEWAVE_DEVICE static void write_lse(const PagedAttentionArgs& a, const Place& at, const State& s) {
    L::each_row([&](int t, int r) {
      const std::int32_t row = first_of_block(at) + row_in_block(at, t, r);
      if (row >= a.rows || Map::group(B::lane_id()) != 0) return;
      const auto query = L::query_row(a, at, row);
      B::store(a.lse + query.out_row * a.num_q_heads + query.head, s.row_max[t][r]);
    });
  }

  /// Query row of the block's first.
  TILEWAVE_DEVICE static std::int32_t first_of_block(const Place& at) {
    return at.first_row - at.wave_row * L::row_tiles * L::atom_rows;
  }
};

}  // namespace tilewave
