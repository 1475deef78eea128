// SPDX-License-Identifier: MIT
// The end of a staged decode block: its rows' sums, the merge of its wave groups, and for a cluster whose blocks split
// a context, theirs. Each block owns some of the head dimensions, 16 at a time: every other hands it those of its
// outputs, and tells the maximum and the sum of its rows; the owner weighs and adds them up. They arrive in the ring,
// where it is free.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/paged_attention/bulk/layout.hpp"

namespace tilewave {

/// L is a PagedAttentionStagedLayout.
template <class L>
struct PagedAttentionStagedEpilogue {
  using B = typename L::Room;
  using Args = PagedAttentionArgs;
  using Place = PagedAttentionPlace;
  using State = typename L::State;
  using Products = typename L::Products;

  using Received = typename L::Received;
  static constexpr int pieces = L::pieces, blocks = max_staged_splits;
  using Stages = PagedAttentionStages<L>;
  /// Of the ring, which what is received takes.
  static constexpr int places = ceil_div(int{sizeof(Received)}, int{sizeof(typename Stages::Stage)});
  static_assert(places <= Stages::stages, "what the blocks of a cluster send each other lies in the ring");
  /// The stage, of `count`, before which nobody reads those places any more.
  TILEWAVE_DEVICE static std::int32_t first_beyond(std::int32_t count) {
    return max_of(count - Stages::stages + places, 0);
  }

  /// Two query rows of a lane when all tokens are in: what outputs are multiplied by, and the lse.
  struct Finished {
    float scale[2], lse[2];
  };

  /// Called by a wave group once for each piece of work. Waves that fetch call join_merge() at their end.
  TILEWAVE_DEVICE static void run(const Args& a, const Place& at, State& s, typename L::Shared& shared) {
    const int lane = B::lane_id(), wave = L::wave();
    if constexpr (L::groups > 1) merge_groups(s, shared);
    float sum[L::eights][2];
    L::each_row([&](int j, int e) { sum[j][e] = L::over_tokens(s.row_sum[j][e], L::sum); });
    if (L::clustered(a)) {
      B::cluster_wait();
      merge(a, at, s, sum, shared);
      return;
    }
    auto& of_wave = shared.of_group[L::group()].of_wave;
    L::each_row([&](int j, int e) {
      if (lane / 4 == 0) of_wave[L::query_of(lane, j, e)][wave] = sum[j][e];
    });
    B::group_barrier();
    TILEWAVE_UNROLL
    for (int j = 0; j < L::eights; ++j) {
      float total[2];
      TILEWAVE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const Vec<float, 4> sums = of_wave[L::query_of(lane, j, e)];
        total[e] = sums[0] + sums[1] + sums[2] + sums[3];
      }
      const Finished rows = finish(a, at, s.v_scale, j, s.row_max[j], total);
      TILEWAVE_UNROLL
      for (int n = 0; n < L::own_tiles; ++n) {
        if (L::own_tile(n) < L::out_tiles) write(a, at, 4 * L::own_tile(n) + wave, j, rows, four_of(s.out[n], j));
      }
    }
  }
  TILEWAVE_DEVICE static void join_merge(const Args& a, typename L::Shared& shared) {
    if (L::clustered(a)) publish_free_slots();
    if constexpr (L::groups > 1) B::barrier();
    if (!L::clustered(a)) return;
    B::cluster_wait();
    B::collect(shared.mailbox, words_for(a), 0);
  }

  /// Those places are free in this block, or this wave does not read them.
  TILEWAVE_DEVICE static void publish_free_slots() {
    B::cluster_wait();  // for mailboxes to be open
    B::cluster_arrive_relaxed();
  }

 private:
  /// Of the eight j: [h][e].
  TILEWAVE_DEVICE static Vec<float, 4> four_of(const Products& out, int j) {
    return {{L::value(out, j, 0, 0), L::value(out, j, 0, 1), L::value(out, j, 1, 0), L::value(out, j, 1, 1)}};
  }

  /// Floats that this block is sent.
  TILEWAVE_DEVICE static int words_for(const Args& a) {
    const int shares = max_of(a.splits.quotient(pieces), B::cluster_rank() < pieces ? 1 : 0) * a.cluster;
    return 4 * L::eights * (4 * L::waves * a.cluster + L::lanes * shares);
  }

  /// Two groups: each hands the other what it has of the tile that is the other's, and adds up its own.
  TILEWAVE_DEVICE static void merge_groups(State& s, typename L::Shared& shared) {
    static_assert(L::groups == 2 && L::out_tiles <= 2, "two wave groups finish one tile of outputs each");
    const int group = L::group(), lane = L::group_lane();
    Products &own = s.out[0], &last = s.out[L::out_tiles - 1], other;
    TILEWAVE_UNROLL
    for (int i = 0; i < Products::size; ++i) {
      other[i] = group == 0 ? last[i] : own[i];
      own[i] = group == 0 ? own[i] : last[i];
    }
    auto& mine = shared.of_group[group].handed;
    B::group_barrier();  // the products of all waves are done
    TILEWAVE_UNROLL
    for (int j = 0; j < L::eights; ++j) {
      B::store(&mine.rows[j][lane],
               Vec<float, 4>{{s.row_sum[j][0], s.row_sum[j][1], s.row_max[j][0], s.row_max[j][1]}});
      B::store(&mine.out[j][lane], four_of(other, j));
    }
    B::barrier();
    const auto& theirs = shared.of_group[1 - group].handed;
    TILEWAVE_UNROLL
    for (int j = 0; j < L::eights; ++j) {
      const auto rows = B::load(&theirs.rows[j][lane]), part = B::load(&theirs.out[j][lane]);
      TILEWAVE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float top = L::larger(s.row_max[j][e], rows[2 + e]), finite = top == L::minus_infinity ? 0.0f : top;
        const float mine_of_it = B::exp2(s.row_max[j][e] - finite), theirs_of_it = B::exp2(rows[2 + e] - finite);
        s.row_max[j][e] = top;
        s.row_sum[j][e] = s.row_sum[j][e] * mine_of_it + rows[e] * theirs_of_it;
        TILEWAVE_UNROLL
        for (int h = 0; h < 2; ++h) {
          float& out = L::value(own, j, h, e);
          out = out * mine_of_it + part[2 * h + e] * theirs_of_it;
        }
      }
    }
  }

  /// Each block of the cluster owns some of the head dimensions, 16 at a time: it is handed those of all others, weighs
  /// them, adds them up and writes them.
  TILEWAVE_DEVICE static void merge(const Args& a, const Place& at, const State& s, const float (&sum)[L::eights][2],
                                    typename L::Shared& shared) {
    auto& received = shared.ring.received;
    const int lane = B::lane_id(), wave = L::wave(), rank = B::cluster_rank();
    if (L::group() == 0 && lane / 4 < a.cluster) {  // lanes that hold the same rows tell different blocks
      TILEWAVE_UNROLL
      for (int j = 0; j < L::eights; ++j) {
        B::post(shared.mailbox, &received.statistics[rank][wave][j][lane % 4], lane / 4,
                Vec<float, 4>{{sum[j][0], sum[j][1], s.row_max[j][0], s.row_max[j][1]}});
      }
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < L::own_tiles; ++i) {
      if (L::own_tile(i) >= L::out_tiles) break;
      const int n = 4 * L::own_tile(i) + wave, turn = a.splits.quotient(n);
      TILEWAVE_UNROLL
      for (int j = 0; j < L::eights; ++j) {
        B::post(shared.mailbox, &received.share[turn * a.cluster + rank][j][lane], n - turn * a.cluster,
                four_of(s.out[i], j));
      }
    }
    B::collect(shared.mailbox, words_for(a), 0);
    // Eights of query rows of this block's pieces, a wave each.
    for (int i = B::wave_id(); i / L::eights * a.cluster + rank < pieces; i += L::groups * L::waves) {
      add_up(a, at, s.v_scale, received, i / L::eights, i % L::eights);
    }
  }

  TILEWAVE_DEVICE static void add_up(const Args& a, const Place& at, float v_scale, const Received& received, int turn,
                                     int j) {
    const int lane = B::lane_id();
    static_assert(blocks == L::lanes / 4, "four lanes share rows, and each such four looks at another block");
    // Lanes that hold the same rows look at different blocks.
    float max[2] = {L::minus_infinity, L::minus_infinity}, sum[2] = {};
    if (lane / 4 < a.cluster) {
      TILEWAVE_UNROLL
      for (int w = 0; w < L::waves; ++w) {
        const auto both = B::load(&received.statistics[lane / 4][w][j][lane % 4]);
        TILEWAVE_UNROLL
        for (int e = 0; e < 2; ++e) {
          sum[e] += both[e];
          max[e] = both[2 + e];  // of the group
        }
      }
    }
    float top[2], weight[2];
    TILEWAVE_UNROLL
    for (int e = 0; e < 2; ++e) {
      top[e] = L::over_tokens(max[e], L::larger);
      weight[e] = B::exp2(max[e] - (top[e] == L::minus_infinity ? 0.0f : top[e]));  // nobody saw a token
      sum[e] = L::over_tokens(sum[e] * weight[e], L::sum);
    }
    Vec<float, 4> total{};
    TILEWAVE_UNROLL
    for (int source = 0; source < blocks; ++source) {
      const auto part = B::load(&received.share[turn * a.cluster + min_of(source, a.cluster - 1)][j][lane]);
      TILEWAVE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float its = B::shuffle(weight[e], 4 * source + lane % 4);  // 0 where there is no such block
        total[e] += its * part[e];
        total[2 + e] += its * part[2 + e];
      }
    }
    write(a, at, turn * a.cluster + B::cluster_rank(), j, finish(a, at, v_scale, j, top, sum), total);
  }

  TILEWAVE_DEVICE static Finished finish(const Args& a, const Place& at, float v_scale, int j, const float (&max)[2],
                                         const float (&sums)[2]) {
    Finished rows;
    TILEWAVE_UNROLL
    for (int e = 0; e < 2; ++e) {
      const float sum = at.beyond_table ? __builtin_nanf("") : sums[e];
      rows.scale[e] = sum == 0.0f ? 0.0f : v_scale / sum;
      rows.lse[e] = sum == 0.0f ? L::minus_infinity : (max[e] + B::log2(sum)) * ln_2;
      if (a.sinks != nullptr && at.slot < 0) {
        const std::int32_t row = min_of(at.first_row + L::query_of(B::lane_id(), j, e), a.rows - 1);
        const JoinedSink joined = join_sink<B>(rows.lse[e], B::load(a.sinks + query_row(a, at, row).head));
        rows.scale[e] *= joined.out_scale;
        rows.lse[e] = joined.lse;
      }
    }
    return rows;
  }

  /// Dimensions 16 n up to 16 n + 15 of the eight rows j.
  TILEWAVE_DEVICE static void write(const Args& a, const Place& at, int n, int j, const Finished& rows,
                                    const Vec<float, 4>& out) {
    const int lane = B::lane_id(), odd = lane / 4 % 2;
    if (at.slot >= 0) {
      TILEWAVE_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int row = L::query_of(lane, j, e);
        if (at.first_row + row >= a.rows) continue;
        const std::int64_t partial = std::int64_t{at.slot} * L::rows + row;
        float* to = a.partial_out + partial * L::head_size + 16 * n + lane / 4;
        B::store(to, out[e] * rows.scale[e]);
        B::store(to + 8, out[2 + e] * rows.scale[e]);
        if (n == 0 && lane / 4 == 0) B::store(a.partial_lse + partial, rows.lse[e]);
      }
      return;
    }
    // Two lanes with neighbouring dimensions of two rows give each other what makes pairs of dimensions, a row each.
    Vec<std::uint32_t, 2> words;
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float even_row = out[2 * h] * rows.scale[0], odd_row = out[2 * h + 1] * rows.scale[1];
      const float other = B::shuffle_xor(odd ? even_row : odd_row, 4);
      words[h] = L::round_out(odd ? other : even_row, odd ? odd_row : other);
    }
    const std::int32_t row = at.first_row + L::query_of(lane, j, odd);
    if (row >= a.rows) return;
    const QueryRow query = query_row(a, at, row);
    auto* to = static_cast<std::uint16_t*>(a.out) + query.out_row * a.out_row_stride + query.head * a.out_head_stride +
               16 * n + lane / 8 * 2;
    B::store(reinterpret_cast<std::uint32_t*>(to), words[0]);
    B::store(reinterpret_cast<std::uint32_t*>(to + 8), words[1]);
    if (a.lse != nullptr && n == 0 && lane / 8 == 0)
      B::store(a.lse + query.out_row * a.num_q_heads + query.head, odd ? rows.lse[1] : rows.lse[0]);
  }
};

}  // namespace tilewave
