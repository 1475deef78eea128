// SPDX-License-Identifier: MIT
// Paged-attention decode with K and V straight to registers.
//
// Grid: batch x KV heads x row blocks x splits, flattened with splits fastest; or persistent blocks that share all
// tiles of the batch evenly (work_queue.hpp). A block has `block_rows` query rows, which are query tokens times the
// heads of one KV head, and one split of the context. Each of its waves walks every waves.tokens-th tile of that split
// with an online softmax of its own, and the waves merge at the end. K and V stream from memory to registers in the
// order that the matrix instruction wants (paged_kv.hpp). So the steady loop has no LDS traffic, no barrier and no
// exchange between lanes. LDS: fragments of Q if the policy says so, then the merge. Bound: bytes of K and V over
// memory bandwidth.
#pragma once

#include "tilewave/attention/operands.hpp"
#include "tilewave/attention/unattended.hpp"
#include "tilewave/ops/paged_attention/registers/epilogue.hpp"
#include "tilewave/ops/paged_attention/registers/layout.hpp"
#include "tilewave/ops/paged_attention/registers/online_softmax.hpp"
#include "tilewave/ops/paged_attention/registers/split_query.hpp"
#include "tilewave/ops/paged_attention/work_queue.hpp"

namespace tilewave {

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionDecode {
  using Room = B;
  using L = PagedAttentionLayout<B, S, P>;
  using Args = PagedAttentionArgs;
  using Shared = typename L::Shared;
  using Kv = typename L::Kv;
  using Map = typename L::Map;
  using State = typename L::State;
  using WorkItem = typename L::WorkItem;
  using Scores = typename L::Scores;
  using RowsOperand = typename L::RowsOperand;
  using Ring = typename L::Ring;

  // A combine launch has nothing to bring before its wait, and may begin at once.
  static constexpr bool launches_next = !P.balanced();
  static constexpr int block_threads = P.waves_per_block() * L::lanes;
  static constexpr int waves_per_simd = P.waves_per_simd;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    if constexpr (P.balanced()) {
      // The wave's number is found anew for each item. What follows from it would otherwise be kept in registers
      // through decode.
      PagedAttentionWorkQueue<L> queue(a);
      for (queue.start(); queue.more(); queue.next()) decode(a, queue.item(B::wave_id()), shared);
    } else {
      decode(a, locate(a), shared);
    }
  }

 private:
  TILEWAVE_DEVICE static void decode(const Args& a, const WorkItem& item, Shared& shared) {
    State s;
    set_up(a, item, s, shared);
    if (item.tiles > 0) {
      const Kv kv(a, item.sequence, item.kv_head, item.first, item.end);
      const float k_scale = a.scale_log2 * L::common_scale(a, a.k_scale, item.kv_head);
      prefetch(kv, item, s);
      for (std::int32_t tile = 0; tile < item.tiles; tile += L::unrolled_tiles) {
        static_for<L::unrolled_tiles>([&](auto u) {
          if (u == 0 || tile + u < item.tiles) one_tile<u>(kv, item, tile + u, k_scale, s, shared);
        });
      }
    }
    PagedAttentionEpilogue<L>::run(a, item, s, shared);
  }

  /// The item of this wave in the even schedule.
  TILEWAVE_DEVICE static WorkItem locate(const Args& a) {
    WorkItem item;
    const std::int32_t block = B::block_id(), wave = B::wave_id();
    const std::int32_t batch_row_block = a.splits.quotient(block), batch_head = a.row_blocks.quotient(batch_row_block);
    const std::int32_t split = block - batch_row_block * a.splits.divisor;
    const std::int32_t row_block = batch_row_block - batch_head * a.row_blocks.divisor;
    item.sequence = a.kv_heads.quotient(batch_head);
    item.kv_head = batch_head - item.sequence * a.kv_heads.divisor;
    item.wave_row = wave / L::token_waves;
    item.wave_token = wave % L::token_waves;
    item.first_row = row_block * L::block_rows + item.wave_row * L::row_tiles * L::atom_rows;

    constexpr std::int32_t block_tokens = L::block_tokens;
    const std::int32_t length = B::uniform(B::load(a.context_lengths + item.sequence));
    const auto reach = AttentionReach::of(a, length, block_tokens, L::wave_tokens);
    reach.publish(a, item);
    item.slot = a.splits.divisor == 1 ? -1 : split;

    const std::int32_t base = reach.base, block_tiles = reach.stages;
    const std::int32_t equal_parts = a.splits.quotient(block_tiles + a.splits.divisor - 1);
    const std::int32_t per_split = max_of(equal_parts, a.split_tiles);
    const std::int32_t from = base + min_of(split * per_split, block_tiles) * block_tokens;
    const std::int32_t to = min_of(item.end, base + min_of((split + 1) * per_split, block_tiles) * block_tokens);
    item.begin = from + item.wave_token * L::wave_tokens;
    item.tiles = item.begin < to ? ceil_div(to - item.begin, block_tokens) : 0;
    return item;
  }

  /// The first token of this wave's n-th tile. Past the end it is the last tile's again, so that loads ahead need no
  /// branch.
  TILEWAVE_DEVICE static std::int32_t tile_token(const WorkItem& item, std::int32_t n) {
    return item.begin + min_of(n, item.tiles - 1) * L::block_tokens;
  }

  TILEWAVE_DEVICE static void set_up(const Args& a, const WorkItem& item, State& s, Shared& shared) {
    const int lane = L::lane_id();
    TILEWAVE_UNROLL
    for (int t = 0; t < L::row_tiles; ++t) {
      RowsOperand q[L::q_operands];
      TILEWAVE_UNROLL
      for (int r = 0; r < L::rows_per_lane; ++r) {
        const std::int32_t row = item.first_row + t * L::atom_rows + Map::row(lane, r);
        L::begin_row(a, item, s, t, r, row);
        load_q_row(a, item, lane, row, r, q);
      }
      if constexpr (L::fp8_keys) s.q_scale[t][0] = SplitQuery<L>::run(q);
      TILEWAVE_UNROLL
      for (int i = 0; i < L::q_operands; ++i) {
        if constexpr (P.q_shared) {
          if (item.wave_token == 0) shared.q[(item.wave_row * L::row_tiles + t) * L::q_operands + i][lane] = q[i];
        } else {
          s.q[t][i] = q[i];
        }
      }
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) s.out[t][d] = Scores{};
    }
    if constexpr (P.q_shared) B::barrier();
  }

  /// Loads row r of the lane's Q operands: units 4 * u + lane group of the row, `steps` operands each. Rows past the
  /// last are zero. So are units past the end of the head, for which K is a unit before.
  TILEWAVE_DEVICE static void load_q_row(const Args& a, const WorkItem& item, int lane, std::int32_t row, int r,
                                         RowsOperand* q) {
    const bool valid = row < a.rows;
    const auto query = query_row(a, item, valid ? row : 0);
    const auto* row_start =
        static_cast<const std::uint16_t*>(a.q) + query.out_row * a.q_row_stride + query.head * a.q_head_stride;
    constexpr int words = L::atom.k_per_lane / 2;
    TILEWAVE_UNROLL
    for (int u = 0; u < L::k_units; ++u) {
      const auto* from = row_start + (AtomFacts::groups * u + Map::group(lane)) * L::unit;
      TILEWAVE_UNROLL
      for (int half = 0; half < L::unit / 8; ++half) {
        Chunk c{};
        if (valid && (u < L::k_units - 1 || !Kv::past_end(u))) {
          c = B::load(reinterpret_cast<const Chunk*>(from) + half);
        }
        TILEWAVE_UNROLL
        for (int w = 0; w < 4; ++w) {
          const int word = half * 4 + w;
          q[u * L::steps + word / words][r * words + word % words] = c[w];
        }
      }
    }
  }

  TILEWAVE_DEVICE static void prefetch(const Kv& kv, const WorkItem& item, State& s) {
    static_for<L::tiles_ahead>([&](auto n) { s.cursors[n] = kv.cursor(kv.pages(tile_token(item, n))); });
    s.pages = kv.pages(tile_token(item, L::tiles_ahead));
    static_for<L::stages>(
        [&](auto f) { load_slice<f % L::slices_per_tile>(kv, s.cursors[f / L::slices_per_tile], s.ring[f]); });
  }

  template <int slice>
  TILEWAVE_DEVICE static void load_slice(const Kv& kv, const typename Kv::Cursor& cursor, Ring& ring) {
    if constexpr (slice < L::slices) {
      TILEWAVE_UNROLL
      for (int i = 0; i < L::k_slice_chunks; ++i) {
        const int chunk = slice * L::k_slice_chunks + i;
        ring[i] = kv.template load_k<L::stream>(cursor, chunk / L::score_tiles, chunk % L::score_tiles);
      }
    } else {
      kv.template load_v<L::stream, (slice - L::slices) * L::v_slice_chunks, L::v_slice_chunks>(cursor, ring);
    }
    B::sched_fence();
  }

  template <int u>
  TILEWAVE_DEVICE static void one_tile(const Kv& kv, const WorkItem& item, std::int32_t tile, float k_scale, State& s,
                                       const Shared& shared) {
    const std::int32_t token = tile_token(item, tile);
    s.cursors[L::tiles_ahead] = kv.cursor(s.pages);
    s.pages = kv.pages(tile_token(item, tile + L::tiles_ahead + 1));
    const bool edge = item.is_edge(token, L::wave_tokens);

    Scores scores[L::row_tiles][L::score_tiles] = {};
    static_for<L::slices>([&](auto i) {
      constexpr int slot = (u * L::slices_per_tile + i) % L::stages;
      multiply_k<i>(item, s, shared, s.ring[slot], scores);
      load_ahead<u, i>(kv, s);
    });
    RowsOperand probabilities[L::row_tiles][L::steps];
    OnlineSoftmax<L>::run(kv, item, token, edge, k_scale, s, scores, probabilities);
    static_for<L::slices>([&](auto i) {
      constexpr int slot = (u * L::slices_per_tile + L::slices + i) % L::stages;
      multiply_v<i>(kv, item, token, edge, s, s.ring[slot], probabilities);
      load_ahead<u, L::slices + i>(kv, s);
    });
    TILEWAVE_UNROLL
    for (int n = 0; n < L::tiles_ahead; ++n) s.cursors[n] = s.cursors[n + 1];
  }

  /// Refills the slot that slice `slice` of this tile has just left, with the slice that is `stages` further on.
  template <int u, int slice>
  TILEWAVE_DEVICE static void load_ahead(const Kv& kv, State& s) {
    constexpr int ahead = slice + L::stages;
    load_slice<ahead % L::slices_per_tile>(kv, s.cursors[ahead / L::slices_per_tile],
                                           s.ring[(u * L::slices_per_tile + slice) % L::stages]);
  }

  /// A unit of K as words of q's type. Where fp8 keys are multiplied as they are stored, it is not used.
  TILEWAVE_DEVICE static auto widened_keys(const Chunk& keys) {
    if constexpr (L::fp8_keys)
      return Vec<std::uint32_t, 1>{};
    else
      return widen_unit<B, S.kv, S.q>(keys);
  }

  /// scores[row][token] += Q[row][d] K[token][d] over the head dimensions d of one slice.
  template <int slice>
  TILEWAVE_DEVICE static void multiply_k(const WorkItem& item, const State& s, const Shared& shared, const Ring& ring,
                                         Scores (&scores)[L::row_tiles][L::score_tiles]) {
    TILEWAVE_UNROLL
    for (int i = 0; i < L::k_slice_chunks; ++i) {
      const int chunk = slice * L::k_slice_chunks + i, u = chunk / L::score_tiles, tile = chunk % L::score_tiles;
      const auto words = widened_keys(ring[i]);
      TILEWAVE_UNROLL
      for (int step = 0; step < L::steps; ++step) {
        TILEWAVE_UNROLL
        for (int t = 0; t < L::row_tiles; ++t) {
          RowsOperand q;
          if constexpr (P.q_shared) {
            q = shared.q[(item.wave_row * L::row_tiles + t) * L::q_operands + u * L::steps + step][B::lane_id()];
          } else {
            q = s.q[t][u * L::steps + step];
          }
          if constexpr (L::fp8_keys) {
            scores[t][tile] = B::mma_fp8(SplitQuery<L>::keys(ring[i], step), q, scores[t][tile]);
          } else {
            scores[t][tile] = mma_of<B, S.q>(L::operand(words, step), q, scores[t][tile]);
          }
        }
      }
      if (i % 2 == 1) B::sched_fence();  // to widen all units first would cost registers that the ring needs
    }
  }

  /// out[row][d] += P[row][token] V[token][d] for the head dimensions d of one slice.
  template <int slice>
  TILEWAVE_DEVICE static void multiply_v(const Kv& kv, const WorkItem& item, std::int32_t token, bool edge, State& s,
                                         Ring& ring, const RowsOperand (&probabilities)[L::row_tiles][L::steps]) {
    if (edge) {
      const std::int32_t unit_token = token + L::unit * kv.lane_group;
      TILEWAVE_UNROLL
      for (int i = 0; i < L::v_slice_chunks; i += L::Values::width) {
        if constexpr (Kv::token_major) {
          Kv::Transpose::zero_outside(ring + i, unit_token, item.first, item.end);
        } else {
          zero_outside<size_of(S.kv)>(ring[i], unit_token, item.first, item.end);
        }
      }
    }
    if constexpr (Kv::token_major) {
      TILEWAVE_UNROLL
      for (int i = 0; i < L::v_slice_chunks; i += L::Values::width) Kv::Transpose::transpose(ring + i);
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < L::v_slice_chunks; ++i) {
      const auto words = widen_unit<B, S.kv, S.value_type()>(ring[i]);
      TILEWAVE_UNROLL
      for (int step = 0; step < L::steps; ++step) {
        TILEWAVE_UNROLL
        for (int t = 0; t < L::row_tiles; ++t) {
          Scores& out = s.out[t][slice * L::v_slice_chunks + i];
          out = mma_of<B, S.value_type()>(L::operand(words, step), probabilities[t][step], out);
        }
      }
      if (i % 2 == 1) B::sched_fence();
    }
  }
};

}  // namespace tilewave
