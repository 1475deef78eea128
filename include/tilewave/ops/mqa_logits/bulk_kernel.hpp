// SPDX-License-Identifier: MIT
// Logits of an indexer through shared memory, for rooms with a tensor copy engine and products of wave groups.
//
// Grid: as in kernel.hpp. A block is one wave group with a ring of stages in shared memory. The copy engine copies
// tiles of 64 keys with their scales into it. The block takes each tile to registers, and multiplies it with the heads
// of one query after the other. Shared memory: the queries, and the ring. Bound: bytes of keys for up to three queries
// of 64 heads, then products and sums.
#pragma once

#include "tilewave/ops/mqa_logits/args.hpp"
#include "tilewave/ops/mqa_logits/seen.hpp"
#include "tilewave/tile/ring.hpp"

namespace tilewave {

template <class B, MqaLogitsSpec S, MqaLogitsPolicy P>
struct MqaBulkLogits {
  using Room = B;
  struct Args {
    MqaLogitsArgs call;
    typename B::TensorMap keys, queries;
  };
  static constexpr int waves = 4;
  static constexpr int block_threads = waves * B::facts.wave_lanes, waves_per_simd = P.waves_per_simd;
  static constexpr int keys = 64;  // of a tile
  static constexpr int head_chunks = S.head_size * size_of(S.type) / 16,
                       steps = head_chunks / 2;  // 16 bytes of a head; products
  static constexpr bool paged = S.keys == MqaKeys::paged;
  static constexpr int pair = P.queries > 1 ? 2 : 1;  // queries whose logits are written together
  static constexpr int pairs = P.queries / pair, lane_heads = S.heads / 4;
  static_assert(P.teams == 1 && head_chunks == 8 && P.queries % pair == 0,
                "one team takes rows of 128 bytes, and logits are written for pairs of queries");
  using Seen = MqaLogitsSeen<B, S, P, keys>;
  using Sums = Vec<float, S.heads / 2>;
  using Weights = Vec<float, 2>[P.queries][lane_heads / 2];

  struct Ring {
    alignas(1024) Chunk keys[P.stages][MqaBulkLogits::keys * head_chunks];
    alignas(16) float scales[P.stages][MqaBulkLogits::keys];
    RingBarriers<B, P.stages> stage;
  };
  struct Shared {
    alignas(1024) Chunk q[P.queries][S.heads * head_chunks];
    Ring ring;
    typename B::Mbarrier queries;
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const bool fetches = B::wave_id() == 0;
    Ring& ring = shared.ring;
    if (fetches) {
      if (B::elected()) B::mbarrier_init(&shared.queries, 1);
      ring.stage.begin(1, waves);
    }
    B::barrier();
    const auto item = MqaLogitsWorkItem::of<B>(a.call, P.queries);
    const Seen seen(a.call, item);
    Fetcher fetcher(a, item, seen, ring);  // the first pages are on their way
    if (fetches && seen.tiles > 0) {
      B::mbarrier_expect(&shared.queries, sizeof(shared.q));
      if (B::lane_id() == 0) {
        TILEWAVE_UNROLL
        for (int i = 0; i < P.queries; ++i)
          B::copy_tensor(shared.q[i], a.queries, 0, 0, static_cast<int>(item.query(a.call, i)), &shared.queries);
        B::prefetch_map(a.keys);
      }
    }
    TILEWAVE_ROLL
    for (int s = 0; s < P.stages && fetches; ++s) fetcher.fetch();
    fill(a.call, item, seen);
    if (seen.tiles > 0) multiply(a.call, item, seen, fetches, fetcher, shared);
  }

 private:
  using Slot = RingSlot<P.stages>;

  /// One wave fetches tile after tile.
  class Fetcher {
   public:
    TILEWAVE_DEVICE Fetcher(const Args& args, const MqaLogitsWorkItem& item, const Seen& seen_keys, Ring& to)
        : a(args), seen(seen_keys), ring(to), table(args.call.block_tables + item.sequence * args.call.table_stride) {
      if (seen.tiles > 0) next_pages = pages_from(0);
    }
    TILEWAVE_DEVICE void fetch() {
      constexpr int lanes = B::facts.wave_lanes;
      if (tile >= seen.tiles) return;
      const MqaLogitsArgs& call = a.call;
      if (tile % lanes == 0) {
        pages = next_pages;
        next_pages = pages_from(lanes);
      }
      const std::int32_t page = paged ? B::shuffle(pages, tile % lanes) : 0, first = seen.begin + tile * keys;
      const std::int32_t row = paged ? call.block_size.remainder(first) : first;
      // The scales of ranges end with the tensor, at a multiple of 16 bytes.
      const std::int32_t scales = paged ? keys : min_of(std::int32_t{keys}, call.columns - first);
      ring.stage.wait_free(slot);
      auto* const full = &ring.stage.full[slot.slot];
      B::mbarrier_expect(full, sizeof(ring.keys[0]) + scales * sizeof(float));
      if (B::lane_id() == 0) {
        B::copy_tensor(ring.keys[slot.slot], a.keys, 0, row, page, full);
        const auto* const from = static_cast<const float*>(call.k_scale) + page * call.k_scale_page_stride + row;
        B::copy_bulk(ring.scales[slot.slot], from, scales * sizeof(float), full);
      }
      slot.advance();
      ++tile;
    }

   private:
    /// The page of the tile that is `later` plus the lane's number behind the current one.
    TILEWAVE_DEVICE std::int32_t pages_from(std::int32_t later) const {
      if constexpr (!paged) return 0;
      const std::int32_t of = min_of(tile + later + B::lane_id(), seen.tiles - 1);
      return B::load(table + a.call.block_size.quotient(seen.begin + of * keys));
    }

    const Args& a;
    const Seen& seen;
    Ring& ring;
    const std::int32_t* table;
    std::int32_t tile = 0, pages = 0, next_pages = 0;
    Slot slot;
  };

  /// Reads tile after tile into registers: the keys as operands, and the scale of the key whose logit the lane writes.
  struct Reader {
    Ring& ring;
    Chunk operand[steps] = {};
    float scale = 0;
    Slot slot{};

    TILEWAVE_DEVICE explicit Reader(Ring& of) : ring(of) {}
    TILEWAVE_DEVICE void read() {
      ring.stage.wait_full(slot);
      const int lane = B::lane_id(), row = 16 * wave() + lane % 16;
      TILEWAVE_UNROLL
      for (int s = 0; s < steps; ++s)
        operand[s] = B::load_matrices(&ring.keys[slot.slot][row * head_chunks + ((2 * s + lane / 16) ^ row % 8)]);
      scale = ring.scales[slot.slot][written_key()];
      ring.stage.release(slot.slot);
      slot.advance();
    }
  };

  /// Where this lane writes, for a pair of queries or for one: the logits of one query for one of its two keys.
  struct Row {
    float* to;  // the logit of the lane's key in the first tile
    std::int32_t first, count;
    float unseen_logit;
    std::int32_t end;  // no key from here on is written
  };
  TILEWAVE_DEVICE static int wave() { return B::block_lane_id() / B::facts.wave_lanes; }
  TILEWAVE_DEVICE static bool second_key() { return B::lane_id() % 2 == 1; }
  TILEWAVE_DEVICE static bool second_query() { return B::lane_id() / 2 % 2 == 1; }
  TILEWAVE_DEVICE static int written_key() { return 16 * wave() + B::lane_id() / 4 + (second_key() ? 8 : 0); }

  /// Writes the columns that no query of the block sees.
  TILEWAVE_DEVICE static void fill(const MqaLogitsArgs& a, const MqaLogitsWorkItem& item, const Seen& seen) {
    TILEWAVE_UNROLL
    for (int i = 0; i < P.queries; ++i) {
      if (i >= item.queries) return;
      float* const row = a.logits + item.query(a, i) * a.logits_stride;
      // They lie before the first tile and behind the last one.
      const std::int32_t behind = seen.begin + seen.tiles * keys;
      TILEWAVE_ROLL
      for (int part = 0; part < 2; ++part) {
        const std::int32_t from = part == 0 ? item.first_column : behind, to = part == 0 ? seen.begin : item.end_column;
        TILEWAVE_ROLL
        for (std::int32_t c = from + B::block_lane_id(); c < to; c += block_threads) {
          B::store(row + c, seen.reach[i].unseen_logit);
        }
      }
    }
  }

  TILEWAVE_DEVICE static void multiply(const MqaLogitsArgs& a, const MqaLogitsWorkItem& item, const Seen& seen,
                                       bool fetches, Fetcher& fetcher, Shared& shared) {
    Weights weights;
    TILEWAVE_UNROLL
    for (int i = 0; i < P.queries; ++i) {
      const auto* const of = reinterpret_cast<const Vec<float, 2>*>(a.weights + item.query(a, i) * a.weights_stride);
      TILEWAVE_UNROLL
      for (int j = 0; j < lane_heads / 2; ++j) weights[i][j] = B::load(of + 4 * j + B::lane_id() % 4);
    }
    Row rows[pairs];
    TILEWAVE_UNROLL
    for (int p = 0; p < pairs; ++p) rows[p] = row_of(a, item, seen, p);
    Reader reader(shared.ring);
    B::mbarrier_wait(&shared.queries, 0);
    reader.read();
    // Tile n has been read, so another one is fetched into the slot of the tile before.
    const auto next = [&](std::int32_t n) TILEWAVE_INLINE_LAMBDA {
      if (fetches && n > 0) fetcher.fetch();
      if (n + 1 < seen.tiles) reader.read();
    };
    if constexpr (P.queries == 1) {
      multiply_one(seen, next, weights, rows[0], reader, shared);
    } else {
      multiply_ahead(seen, next, weights, rows, reader, shared);
    }
  }

  template <class Next>
  TILEWAVE_DEVICE static void multiply_one(const Seen& seen, const Next& next, const Weights& weights, const Row& row,
                                           Reader& reader, Shared& shared) {
    for (std::int32_t n = 0; n < seen.tiles; ++n) {
      const float scale = reader.scale;
      Sums sums;
      begin(reader, shared.q[0], sums);
      B::template group_mma_wait<0>();
      B::group_mma_fence(sums);
      next(n);
      const float sum = exchanged(weighed(weights[0], sums));
      write(row, n, sum + B::shuffle_xor(sum, 2), scale);
    }
  }

  /// The sums of a query are added up while the products of the next query, or of the next tile, are under way. The
  /// compiler follows products along straight code only, not around a loop, so they are waited for there. Behind the
  /// last tile the products of one query are begun that nobody looks at.
  template <class Next>
  TILEWAVE_DEVICE static void multiply_ahead(const Seen& seen, const Next& next, const Weights& weights,
                                             const Row (&rows)[pairs], Reader& reader, Shared& shared) {
    Sums even, odd;
    begin(reader, shared.q[0], even);
    B::template group_mma_wait<0>();
    B::group_mma_fence(even);
    for (std::int32_t n = 0; n < seen.tiles; ++n) {
      const float scale = reader.scale;
      TILEWAVE_UNROLL
      for (int i = 0; i < P.queries; i += 2) {
        begin(reader, shared.q[i + 1], odd);
        B::template group_mma_wait<1>();
        B::group_mma_fence(even);
        const float first = exchanged(weighed(weights[i], even));
        if (i + 2 == P.queries) {
          B::template group_mma_wait<0>();
          next(n);
        }
        begin(reader, shared.q[(i + 2) % P.queries], even);
        B::template group_mma_wait<1>();
        B::group_mma_fence(odd);
        write(rows[i / 2], n, both(first, exchanged(weighed(weights[i + 1], odd))), scale);
      }
      B::template group_mma_wait<0>();
      B::group_mma_fence(even);
    }
  }

  /// Begins the tile's products with the heads of a query.
  TILEWAVE_DEVICE static void begin(const Reader& reader, const Chunk* q, Sums& sums) {
    sums = {};
    B::group_mma_fence(sums);
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int s = 0; s < steps; ++s)
      B::template group_multiply<S.type, S.heads>(reader.operand[s], SwizzledOperand{q, 0, s}, sums);
    B::group_mma_end();
  }

  TILEWAVE_DEVICE static Row row_of(const MqaLogitsArgs& a, const MqaLogitsWorkItem& item, const Seen& seen, int p) {
    const bool second = pair == 2 && second_query();
    const MqaLogitsReach one = seen.reach[pair * p], two = seen.reach[pair * p + pair - 1];
    const MqaLogitsReach reach{second ? two.first : one.first, second ? two.end : one.end,
                               second ? two.unseen_logit : one.unseen_logit};
    const int query = pair * p + (second ? 1 : 0);
    const bool writes = query < item.queries && (pair == 2 || !second_query());
    const std::int32_t key = seen.begin + written_key();
    const std::int32_t end = min_of(item.end_column, seen.begin + seen.tiles * keys);
    return {a.logits + item.query(a, query) * a.logits_stride + key, reach.first - key, reach.end - reach.first,
            reach.unseen_logit, writes ? end - key : 0};
  }

  /// For both keys, the sum over this lane's heads of weight times positive part.
  TILEWAVE_DEVICE static Vec<float, 2> weighed(const Vec<float, 2> (&weights)[lane_heads / 2], const Sums& sums) {
    Vec<float, 2> of = {};
    TILEWAVE_UNROLL
    for (int j = 0; j < lane_heads / 2; ++j) {
      TILEWAVE_UNROLL
      for (int i = 0; i < 2; ++i) {
        TILEWAVE_UNROLL
        for (int e = 0; e < 2; ++e) of[i] = fused(weights[j][e], positive(sums[4 * j + 2 * i + e]), of[i]);
      }
    }
    return of;
  }
  // The four lanes of a key add up in the order of B::reduce<4>, but each lane for another value.

  /// This lane's sum and its neighbour's, for the key whose logit this lane writes.
  TILEWAVE_DEVICE static float exchanged(const Vec<float, 2>& of) {
    return (second_key() ? of[1] : of[0]) + B::shuffle_xor(second_key() ? of[0] : of[1], 1);
  }
  /// The whole sum of the query that this lane writes.
  TILEWAVE_DEVICE static float both(float a, float b) {
    return (second_query() ? b : a) + B::shuffle_xor(second_query() ? a : b, 2);
  }
  TILEWAVE_DEVICE static void write(const Row& row, std::int32_t n, float sum, float scale) {
    const std::int32_t from = n * keys;
    const bool seen = static_cast<std::uint32_t>(from - row.first) < static_cast<std::uint32_t>(row.count);
    if (from < row.end) B::store(row.to + from, seen ? sum * scale : row.unseen_logit);
  }
};

}  // namespace tilewave
