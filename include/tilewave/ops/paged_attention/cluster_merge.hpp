// SPDX-License-Identifier: MIT
// The end of a cluster whose blocks split a context: every wave hands each block its share of the head dimensions,
// straight from registers, and every block sums up and writes its share. The ring of the blocks, no longer in use, is
// where the shares arrive.
#pragma once

#include "tilewave/ops/paged_attention/layout.hpp"

namespace tilewave {

/// L is a PagedAttentionLayout. Clusters are 2, 4 or 8 blocks.
template <class L>
struct PagedAttentionClusterMerge {
  using B = typename L::Room;
  using Map = typename L::Map;
  using State = typename L::State;
  using Place = typename L::Place;
  using Scores = typename L::Scores;

  static constexpr int row_tile_outs = L::row_tiles * L::out_tiles, tiles = L::wave_rows * row_tile_outs;
  static constexpr int most = B::facts.max_cluster_blocks, sources = most * L::token_waves;
  struct Statistics {
    float max, sum;
  };
  /// Tile n of the block goes to block n % cluster, as its n / cluster-th, from `cluster * token_waves` sources.
  struct Shared {
    Scores out[tiles * L::token_waves][L::lanes];
    Statistics row[sources][L::block_rows];
  };

  /// Called by every wave that computes, the others call accompany().
  TILEWAVE_DEVICE static void run(const PagedAttentionArgs& a, const Place& at, State& s, Shared& shared) {
    B::cluster_arrive();
    L::each_row([&](int t, int r) { s.row_sum[t][r] = L::over_groups(s.row_sum[t][r], L::sum); });
    B::cluster_wait();  // the rings of all blocks are free
    hand_out(a, at, s, shared);
    B::cluster_arrive();
    B::cluster_wait();
    const int rank = B::cluster_rank(), wave = at.wave_row * L::token_waves + at.wave_token;
    for (int i = wave; (i << a.cluster_shift) + rank < tiles; i += L::wave_rows * L::token_waves) {
      write(a, at, i, (i << a.cluster_shift) + rank, shared);
    }
  }
  TILEWAVE_DEVICE static void accompany() {
    for (int i = 0; i < 2; ++i) {
      B::cluster_arrive();
      B::cluster_wait();
    }
  }

 private:
  TILEWAVE_DEVICE static void hand_out(const PagedAttentionArgs& a, const Place& at, const State& s, Shared& shared) {
    const int lane = B::lane_id(), source = B::cluster_rank() * L::token_waves + at.wave_token;
    TILEWAVE_UNROLL
    for (int i = 0; i < row_tile_outs; ++i) {
      const int n = at.wave_row * row_tile_outs + i;
      const int place = (n >> a.cluster_shift) * a.cluster * L::token_waves + source;
      B::store(B::remote(&shared.out[place][lane], n & (a.cluster - 1)), s.out[i / L::out_tiles][i % L::out_tiles]);
    }
    for (int c = Map::group(lane); c < a.cluster; c += AtomFacts::groups) {
      L::each_row([&](int t, int r) {
        const int row = (at.wave_row * L::row_tiles + t) * L::atom_rows + Map::row(lane, r);
        Vec<float, 2> statistics{{s.row_max[t][r], s.row_sum[t][r]}};
        B::store(reinterpret_cast<Vec<float, 2>*>(B::remote(&shared.row[source][row], c)), statistics);
      });
    }
  }

  /// Sums up tile n, the i-th of this block.
  TILEWAVE_DEVICE static void write(const PagedAttentionArgs& a, const Place& at, int i, int n, const Shared& shared) {
    const int lane = B::lane_id(), count = a.cluster * L::token_waves;
    const int wave_row = n / row_tile_outs, t = n % row_tile_outs / L::out_tiles, d = n % L::out_tiles;
    const int first_row = (wave_row * L::row_tiles + t) * L::atom_rows;
    float top[L::rows_per_lane], total[L::rows_per_lane] = {};
    TILEWAVE_UNROLL
    for (int r = 0; r < L::rows_per_lane; ++r) {
      top[r] = L::minus_infinity;
      for (int c = 0; c < count; ++c)
        top[r] = L::larger(top[r], B::load(&shared.row[c][first_row + Map::row(lane, r)].max));
    }
    Scores merged{};
#pragma unroll 4
    for (int c = 0; c < count; ++c) {
      const Scores part = B::load(&shared.out[i * count + c][lane]);
      TILEWAVE_UNROLL
      for (int r = 0; r < L::rows_per_lane; ++r) {
        const Statistics from = shared.row[c][first_row + Map::row(lane, r)];
        const float weight = from.max == L::minus_infinity ? 0.0f : B::exp2(from.max - top[r]);
        total[r] += from.sum * weight;
        TILEWAVE_UNROLL
        for (int e = 0; e < L::kv_per_lane; ++e)
          merged[r * L::kv_per_lane + e] += part[r * L::kv_per_lane + e] * weight;
      }
    }
    const float v_scale = L::spec.quant == QuantMode::per_tensor ? B::load(a.v_scale) : 1.0f;
    const std::int32_t group_row = at.first_row - at.wave_row * L::row_tiles * L::atom_rows;
    const int column = d * L::atom_kv + L::kv_per_lane * Map::group(lane);
    TILEWAVE_UNROLL
    for (int r = 0; r < L::rows_per_lane; ++r) {
      const std::int32_t row = group_row + first_row + Map::row(lane, r);
      if (row >= a.rows) continue;
      const float sum = at.beyond_table ? __builtin_nanf("") : total[r];
      const float scale = sum == 0.0f ? 0.0f : v_scale / sum;
      const std::int32_t token = a.group.quotient(row);
      const std::int32_t head = at.kv_head * a.group.divisor + row - token * a.group.divisor;
      const std::int64_t out_row = at.sequence * std::int64_t{a.mtp} + token;
      auto* to = static_cast<std::uint16_t*>(a.out) + out_row * a.out_row_stride + head * a.out_head_stride + column;
      Vec<std::uint32_t, L::kv_per_lane / 2> words;
      TILEWAVE_UNROLL
      for (int w = 0; w < L::kv_per_lane / 2; ++w) {
        const int e = r * L::kv_per_lane + 2 * w;
        words[w] = B::round_bf16(merged[e] * scale, merged[e + 1] * scale);
      }
      B::store(reinterpret_cast<decltype(words)*>(to), words);
      if (a.lse != nullptr && column == 0) {
        B::store(a.lse + out_row * a.num_q_heads + head,
                 sum == 0.0f ? L::minus_infinity : (top[r] + B::log2(sum)) * ln_2);
      }
    }
  }
};

}  // namespace tilewave
