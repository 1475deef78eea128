// SPDX-License-Identifier: MIT
// At the end of an item rows are divided by their sums and stored: sixteen whole rows by the copy engine, others 64
// bytes at a time. Partials of splits are stored as f32 from registers.
#pragma once

#include "tilewave/ops/flash_attention/tensor/work.hpp"

namespace tilewave {

/// Each wave writes its sixteen rows. They pass through shared memory, where they lie as rows of Q do. The copy engine
/// takes them from there if all of them are rows of the item, as boxes of 128 bytes. Else a lane takes sixteen
/// bytes of a few rows. The place of Q's rows of fp8 has room for a part of the output at a time.
template <class B, FlashAttentionSpec S, class L>
struct FlashAttentionOutput {
  using Item = typename L::Item;
  static constexpr int wave_rows = 16, row_units = S.value_size * 2 / 16;
  static constexpr int boxes = L::out_boxes, passes = ceil_div(boxes, L::staged_boxes), pass_boxes = boxes / passes;
  static constexpr int pass_units = row_units / passes, chunks = wave_rows * pass_units / B::facts.wave_lanes;
  static_assert(boxes % passes == 0);

  /// Writes the wave's rows. `staging` is row 0 of the wave in the first box. The copy engine may still read there
  /// afterwards: lane 0 has stores to wait for.
  template <class Softmax>
  TILEWAVE_DEVICE static void write(const typename L::Args& args, const Item& item, const Softmax& softmax,
                                    const JoinedSink (&joined)[2], const typename L::Output& out, Chunk* staging) {
    const FlashAttentionArgs& a = args.attention;
    const std::int32_t first = softmax.row(0) - B::lane_id() / 4;
    const bool whole = args.out_boxes && first + wave_rows <= item.rows;
    if constexpr (L::splits) store_partial(args, item, softmax, out, joined);
    TILEWAVE_UNROLL
    for (int pass = 0; pass < passes && !L::splits; ++pass) {
      if (pass > 0) {
        if (whole && B::lane_id() == 0) B::template stores_read<0>();
        B::wave_barrier();
      }
      stage(out, joined, pass, staging);
      if (whole) {
        B::shared_written();
        B::wave_barrier();
        if (B::lane_id() == 0) store_boxes(args, item, first, pass, staging);
      } else {
        B::wave_barrier();
        store_rows(args, item, first, pass, staging);
      }
    }
    if (a.lse == nullptr || B::lane_id() % 4 != 0) return;
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      if (softmax.row(h) >= item.rows) continue;
      const std::int64_t token = item.sequence.q_first + softmax.query(h);
      B::store(lse_of(args, item) + softmax.head(h) * a.lse_head_stride + token, joined[h].lse);
    }
  }

  /// A wave writes an item's rows, which see no keys: 0, or NaN if a length is beyond the capacity. An lse of -inf, or
  /// NaN, says as much of a split.
  TILEWAVE_DEVICE static void write_without_keys(const typename L::Args& args, const Item& item) {
    const FlashAttentionArgs& a = args.attention;
    const FlashAttentionSections& sections = args.sections;
    const AttentionSequence& s = item.sequence;
    const std::uint32_t word = s.beyond_capacity ? 0x7fff7fffu : 0u;  // two NaNs, or zeros
    auto* const to = first_element(a, item);
    TILEWAVE_ROLL
    for (int n = B::lane_id(); n < item.rows * row_units && !L::splits; n += B::facts.wave_lanes)
      B::store(row_chunks(a, sections, to, n / row_units) + n % row_units, Chunk{{word, word, word, word}});
    if (a.lse == nullptr) return;
    // Queries beyond the capacity have no row tiles, but what combines splits reads their lse.
    std::int32_t rows = item.rows;
    if (L::splits && s.beyond_capacity && a.q_starts != nullptr &&
        item.first_query + rows / sections.row_heads.divisor == s.q_count) {
      const std::int32_t all = B::load(a.q_starts + s.number + 1) - s.q_first;
      rows = (all - item.first_query) * sections.row_heads.divisor;
    }
    TILEWAVE_ROLL
    for (int row = B::lane_id(); row < rows; row += B::facts.wave_lanes) {
      const std::int32_t head = item.head + sections.row_heads.head_of(row);
      const float lse = a.sinks != nullptr ? B::load(a.sinks + head) : minus_infinity;
      B::store(lse_of(args, item) + head * a.lse_head_stride + s.q_first + item.first_query +
                   sections.row_heads.query_of(row),
               s.beyond_capacity ? __builtin_nanf("") : lse);
    }
  }

 private:
  static_assert(64 * S.value_size % (wave_rows * 8) == 0);
  /// Returns where the lse of an item's rows begins: that of its split, if there are any.
  TILEWAVE_DEVICE static float* lse_of(const typename L::Args& args, const Item& item) {
    if constexpr (L::splits) return args.attention.lse + item.split * args.partial_lse_stride;
    return args.attention.lse;
  }
  /// Stores a lane's elements of a split's rows: four lanes side by side store 32 bytes.
  template <class Softmax>
  TILEWAVE_DEVICE static void store_partial(const typename L::Args& args, const Item& item, const Softmax& softmax,
                                            const typename L::Output& out, const JoinedSink (&joined)[2]) {
    using Pair = Vec<float, 2>;
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      if (softmax.row(h) >= item.rows) continue;
      const std::int64_t token = item.sequence.q_first + softmax.query(h);
      float* const to = args.partials + item.split * args.partial_stride +
                        (token * args.attention.q_heads + softmax.head(h)) * S.value_size + 2 * (B::lane_id() % 4);
      TILEWAVE_UNROLL
      for (int j = 0; j < S.value_size / 8; ++j) {
        const typename L::Sums& sums = out.of[8 * j / L::value_columns];
        const int i = 8 * j % L::value_columns / 2 + 2 * h;
        const float scale = joined[h].out_scale;
        B::store(reinterpret_cast<Pair*>(to + 8 * j), Pair{sums[i] * scale, sums[i + 1] * scale});
      }
    }
  }
  /// Stores a pass of sixteen rows from `first` on, as boxes.
  TILEWAVE_DEVICE static void store_boxes(const typename L::Args& args, const Item& item, std::int32_t first, int pass,
                                          const Chunk* staging) {
    const AttentionSequence& s = item.sequence;
    const std::int32_t sequence_row =
        args.attention.q_starts != nullptr ? s.q_first : s.number * args.out_sequence_rows;
    const std::int32_t row = sequence_row + item.first_query + args.sections.row_heads.query_of(first);
    const bool packed = args.sections.row_heads.divisor > 1;  // rows of the map are heads then
    TILEWAVE_UNROLL
    for (int box = 0; box < pass_boxes; ++box) {
      B::store_tensor(args.out, (pass * pass_boxes + box) * 64, packed ? item.head : row, packed ? row : item.head,
                      staging + box * (L::rows * L::box_chunks));
    }
    B::stores_end();
  }
  /// Stores those of sixteen rows that the item has, lane by lane.
  TILEWAVE_DEVICE static void store_rows(const typename L::Args& args, const Item& item, std::int32_t first, int pass,
                                         const Chunk* staging) {
    const FlashAttentionArgs& a = args.attention;
    auto* const to = first_element(a, item);
    TILEWAVE_ROLL
    for (int i = 0; i < chunks; ++i) {
      const int n = i * B::facts.wave_lanes + B::lane_id();
      const std::int32_t row = first + n / pass_units;
      if (row >= item.rows) continue;
      B::store(row_chunks(a, args.sections, to, row) + pass * pass_units + n % pass_units,
               staging[staged_chunk(n / pass_units, n % pass_units)]);
    }
    B::shared_written();  // others' copies come here next
  }

  /// Return the first element of an item's output, and the chunks of one of its rows.
  TILEWAVE_DEVICE static std::uint16_t* first_element(const FlashAttentionArgs& a, const Item& item) {
    return static_cast<std::uint16_t*>(a.out) + item.sequence.query_at(a, a.out_strides, item.first_query, item.head);
  }
  TILEWAVE_DEVICE static Chunk* row_chunks(const FlashAttentionArgs& a, const FlashAttentionSections& sections,
                                           std::uint16_t* to, std::int32_t row) {
    return reinterpret_cast<Chunk*>(to + sections.row_heads.query_of(row) * a.out_strides.token +
                                    sections.row_heads.head_of(row) * a.out_strides.head);
  }

  /// Returns the chunk, from `staging` on, of unit `unit` of a row of the wave: boxes of 64 columns, swizzled as Q is.
  TILEWAVE_DEVICE static int staged_chunk(int row, int unit) {
    return unit / L::box_chunks * (L::rows * L::box_chunks) + row * L::box_chunks + (unit % L::box_chunks ^ row % 8);
  }
  /// Stores the columns of a pass to `staging`, in squares of sixteen rows by sixteen columns, four matrices each.
  TILEWAVE_DEVICE static void stage(const typename L::Output& out, const JoinedSink (&joined)[2], int pass,
                                    Chunk* staging) {
    const int matrix = B::lane_id() / 8, row = B::lane_id() % 8 + 8 * (matrix % 2);
    TILEWAVE_UNROLL
    for (int square = pass * 4 * pass_boxes; square < (pass + 1) * 4 * pass_boxes; ++square) {
      const typename L::Sums& sums = out.of[square * 16 / L::value_columns];
      Chunk words;
      TILEWAVE_UNROLL
      for (int m = 0; m < 4; ++m) {
        const int i = square * 16 % L::value_columns / 2 + 4 * (m / 2) + 2 * (m % 2);
        const float scale = joined[m % 2].out_scale;
        words[m] = round_out(sums[i] * scale, sums[i + 1] * scale);
      }
      B::template store_matrices_straight<4>(staging + staged_chunk(row, (2 * square + matrix / 2) % pass_units),
                                             words);
    }
  }
  TILEWAVE_DEVICE static std::uint32_t round_out(float low, float high) {
    return S.out == DType::f16 ? B::pack_f16(low, high) : B::round_bf16(low, high);
  }
};

}  // namespace tilewave
