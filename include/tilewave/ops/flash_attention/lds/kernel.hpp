// SPDX-License-Identifier: MIT
// Flash attention on CDNA brings K and V through LDS and multiplies 32 x 32.
//
// Grid: row tiles x heads x batch, flattened with row tiles fastest; the row tiles of a head run on one XCD. A block
// has P.rows query rows, of one head or of all that share a kv head (FlashRowHeads), a wave 32 of them, and all waves
// walk the keys together (main_loop.hpp).
// Keys are the rows of the first product, so a lane has scores of one query alone. Its maximum and sum stay in the
// lane, and its scores are the operand of the second product as they stand (tiles.hpp). LDS: P.stages tiles of K and of
// V (layout.hpp). Bound: matrix rate; at head size 64 also the rate of exponentials.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/flash_attention/lds/main_loop.hpp"
#include "tilewave/ops/flash_attention/lds/turns.hpp"

namespace tilewave {

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
struct FlashAttentionLds {
  static_assert(flash_attention_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: flash_attention_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  struct Args {
    FlashAttentionArgs attention;
    FastDiv row_tiles, heads;  // of a sequence; heads whose rows share tiles count once
    FlashRowHeads row_heads;
    std::int32_t blocks;
    bool in_order;  // tiles are taken by number, whichever of them a block masks: rows of any block have the same bits
  };
  using L = FlashLdsLayout<B, S, P>;
  using Shared = typename L::Shared;
  static constexpr int block_threads = P.waves * B::facts.wave_lanes;
  static constexpr int waves_per_simd = P.waves_per_simd;

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const FlashAttentionArgs& a = args.attention;
    const WorkItem item = locate(args);
    if (item.first_row >= item.rows) return;
    typename L::State s;
    begin(args, item, s);
    if (item.tiles > 0) {
      if constexpr (L::page_ids > 0) keep_pages(a, item, shared);
      std::conditional_t<P.turns, FlashLdsTurns<L>, FlashLdsMainLoop<L>>(a, item, shared, s).run();
    }
    write(args, item, shared, s);
  }

 private:
  using WorkItem = FlashLdsWorkItem;
  using State = typename L::State;
  using Map = typename L::Map;

  TILEWAVE_DEVICE static WorkItem locate(const Args& args) {
    const FlashAttentionArgs& a = args.attention;
    // The hardware deals blocks to XCDs in turn. Each XCD takes neighbouring row tiles, so that its L2 keeps their K
    // and V.
    constexpr int xcds = B::facts.xcds;
    const std::int32_t xcd = B::block_id() % xcds, part = args.blocks / xcds, more = args.blocks % xcds;
    const std::int32_t block = xcd * part + min_of(xcd, more) + B::block_id() / xcds;
    const std::int32_t heads = args.row_tiles.quotient(block), number = args.heads.quotient(heads);
    WorkItem item;
    item.sequence = AttentionSequence::of<B>(a, number);
    item.rows = item.sequence.q_count * args.row_heads.divisor;
    item.head = (heads - number * args.heads.divisor) * args.row_heads.divisor;
    item.kv_head = a.gqa_ratio.quotient(item.head);
    // The last rows see the most keys if masks are causal. They come first, so that the longest items start early.
    const std::int32_t tile = args.row_tiles.divisor - 1 - (block - heads * args.row_tiles.divisor);
    item.first_row = tile * P.rows;
    const std::int32_t last_row = max_of(min_of(item.first_row + P.rows, item.rows) - 1, 0);
    const auto keys_of = [&](std::int32_t row) {
      return VisibleKeys::of(a, item.sequence, args.row_heads.query_of(row));
    };
    const VisibleKeys of_first = keys_of(min_of(item.first_row, last_row)), of_last = keys_of(last_row);
    item.first = of_first.first / P.keys;
    const std::int32_t end = ceil_div(of_last.end, P.keys);
    item.tiles = of_last.end > of_first.first ? end - item.first : 0;
    item.full_first = ceil_div(of_last.first, P.keys);
    item.full_end = of_first.end / P.keys;
    if (args.in_order || item.full_end <= item.full_first) item.full_first = item.full_end = end;
    item.left = item.full_first - item.first;
    item.masked = item.tiles - (item.full_end - item.full_first);
    return item;
  }

  /// Stores the ids of the pages that the block reads.
  TILEWAVE_DEVICE static void keep_pages(const FlashAttentionArgs& a, const WorkItem& item, Shared& shared) {
    const std::int32_t first = a.block_size.quotient(item.first * P.keys),
                       last = a.block_size.quotient(min_of((item.first + item.tiles) * P.keys, item.sequence.kv_count) -
                                                    1);
    const std::int32_t* const from = a.block_table + item.sequence.number * a.table_row_stride;
    for (std::int32_t i = first + B::block_lane_id(); i <= last; i += block_threads)
      shared.pages[i - first] = B::load(from + i);
    B::lds_barrier();
  }

  /// Returns the lane's row of the item's sequence and heads; it may be past the last.
  TILEWAVE_DEVICE static std::int32_t row_of(const WorkItem& item) {
    return item.first_row + L::wave_rows * B::wave_id() + Map::row(B::lane_id());
  }

  /// Returns the place of the item's scale of K, or of V.
  TILEWAVE_DEVICE static std::int64_t scale_at(const FlashAttentionArgs& a, const WorkItem& item) {
    return S.quant == Scaling::per_head ? item.kv_head * a.scale_head_stride : 0;
  }
  TILEWAVE_DEVICE static void begin(const Args& args, const WorkItem& item, State& s) {
    const FlashAttentionArgs& a = args.attention;
    const std::int32_t row = min_of(row_of(item), item.rows - 1), query = args.row_heads.query_of(row),
                       head = item.head + args.row_heads.head_of(row);
    s.visible = VisibleKeys::of(a, item.sequence, query);
    s.negative_reference = -L::lowest;
    s.sum = 0.0f;
    s.scale = a.scale_log2;
    if constexpr (L::fp8) {
      // A scale of 0 would make 0 of -inf, which is NaN.
      s.scale = max_of(s.scale * B::load(a.q_scale + (S.quant == Scaling::per_head ? head : 0)) *
                           B::load(a.k_scale + scale_at(a, item)),
                       0x1p-120f);
    }
    const auto* const from = reinterpret_cast<const Chunk*>(
        static_cast<const char*>(a.q) + size_of(S.q) * item.sequence.query_at(a, a.q_strides, query, head));
    TILEWAVE_UNROLL
    for (int c = 0; c < L::head_slices * L::chunks; ++c)
      s.q[c] = B::load(from + Map::units * c + Map::unit(B::lane_id()));
    TILEWAVE_UNROLL
    for (int t = 0; t < L::value_tiles; ++t) s.out[t] = typename L::Sums{};
  }

  /// Writes the rows of a wave by way of LDS, since a lane has few neighbouring dimensions of its row, and stores of
  /// whole rows take a third of the time.
  TILEWAVE_DEVICE static void write(const Args& args, const WorkItem& item, Shared& shared, const State& s) {
    const FlashAttentionArgs& a = args.attention;
    const std::int32_t row = row_of(item), head = item.head + args.row_heads.head_of(row);
    const float all = s.sum + B::shuffle_xor(s.sum, 32);
    const float sum = item.sequence.beyond_capacity ? __builtin_nanf("") : all;
    const float lse = sum == 0.0f ? minus_infinity : (B::log2(sum) - s.negative_reference) * ln_2;
    const JoinedSink joined = with_sink<B>(a, head, lse);
    if (a.lse != nullptr && Map::unit(B::lane_id()) == 0 && row < item.rows)
      B::store(a.lse + head * a.lse_head_stride + item.sequence.q_first + args.row_heads.query_of(row), joined.lse);
    float scale = sum == 0.0f ? 0.0f : joined.out_scale * (L::truncates ? 1.0f + L::truncation_loss : 1.0f) / sum;
    if constexpr (L::fp8) scale *= B::load(a.v_scale + scale_at(a, item));
    if constexpr (is_fp8(S.out)) scale *= B::load(a.out_scale);

    constexpr int element = size_of(S.out), row_chunks = S.value_size * element / 16, lanes = B::facts.wave_lanes;
    static_assert(L::wave_rows * P.waves * row_chunks * sizeof(Chunk) <= sizeof(Shared), "outputs fit into the tiles");
    Chunk* const rows = reinterpret_cast<Chunk*>(&shared) + B::wave_id() * (L::wave_rows * row_chunks);
    const auto place = [](int of_row, int chunk) { return of_row * row_chunks + (chunk ^ of_row % row_chunks); };
    B::lds_barrier();  // all waves have read their last tiles
    TILEWAVE_UNROLL
    for (int t = 0; t < L::value_tiles; ++t) {
      TILEWAVE_UNROLL
      for (int i = 0; i < Map::sums; i += 4) {
        Vec<float, 4> of;
        TILEWAVE_UNROLL
        for (int e = 0; e < 4; ++e) of[e] = s.out[t][i + e] * scale;
        const int byte = element * (32 * t + Map::kv_row(B::lane_id(), i));
        char* const to = reinterpret_cast<char*>(rows + place(Map::row(B::lane_id()), byte / 16)) + byte % 16;
        *reinterpret_cast<Packed<S.out, 4>*>(to) = narrow<B, S.out, 4>(of);
      }
    }
    B::lds_barrier();
    const std::int32_t first = item.first_row + L::wave_rows * B::wave_id();
    char* const out = static_cast<char*>(a.out) + element * item.sequence.query_at(a, a.out_strides, 0, item.head);
    TILEWAVE_UNROLL
    for (int i = 0; i < L::wave_rows * row_chunks / lanes; ++i) {
      const int index = i * lanes + B::lane_id(), of_row = index / row_chunks, chunk = index % row_chunks;
      if (first + of_row >= item.rows) continue;
      const std::int64_t at = args.row_heads.query_of(first + of_row) * a.out_strides.token +
                              args.row_heads.head_of(first + of_row) * a.out_strides.head;
      B::store(reinterpret_cast<Chunk*>(out + element * at) + chunk, rows[place(of_row, chunk)]);
    }
  }
};

}  // namespace tilewave
