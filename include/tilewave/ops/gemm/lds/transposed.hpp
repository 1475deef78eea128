// SPDX-License-Identifier: MIT
// Rows that are columns in memory ([K, M] or [K, N]) on their way into a slot of LDS. Through registers: a lane loads
// eight neighbours of four k, turns the square, two bytes at a time, and stores 8 bytes of k for each of the eight
// rows. From there on they are rows like others. Or copied as they are, where the chip turns what it reads.
#pragma once

#include "tilewave/ops/gemm/lds/rows.hpp"

namespace tilewave {

template <class W, int rows>
struct GemmTurnedRows : SharedTile<W, W::spec.a, rows, true> {
  using Slot = SharedTile<W, W::spec.a, rows, true>;
  using B = typename W::Backend;
  using Slot::copies, Slot::row_units, Slot::permute;
  static constexpr int element = size_of(Slot::type), step_k = Slot::row_bytes / element;
  static_assert(element == 2 && copies == 4 && rows % 64 == 0 && W::policy.path == GemmPath::staged,
                "a lane transposes, in registers, one square of eight rows by four k of 16-bit elements");

  const char* base;  // of the first row
  std::int64_t stride;
  std::int32_t k, width;         // elements; bytes of a k's rows that there are, whole 16
  int whole_bytes;               // of a step
  int to;                        // in a slot, of this lane's k of its first row; bytes
  std::uint32_t offset[copies];  // in a step's source, of this lane's k
  Chunk held[copies];

  template <class RowsOf>
  TILEWAVE_DEVICE GemmTurnedRows(const void* matrix, std::int64_t layer_offset, std::int64_t k_stride, const RowsOf& of,
                                 std::int32_t of_k, int wave_row)
      : Slot(of_k, wave_row),
        base(static_cast<const char*>(matrix) + (layer_offset + of.first) * element),
        stride(k_stride * element),
        k(of_k),
        width(align_up(max_of(min_of(of.left, rows), 0) * element, 16)) {
    whole_bytes = bytes_of(step_k);
    // A wave's lanes are 8 x 8: eight of them load a line of 128 bytes.
    constexpr int across = rows / 64;
    const int lane = B::lane_id(), wave = B::wave_id();
    const int eight = lane % 8 + 8 * (wave % across), four = lane / 8 + 8 * (wave / across);
    to = (8 * eight * row_units + (four / 2 ^ permute(8 * eight))) * 16 + four % 2 * 8;
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i)
      offset[i] = 16 * eight < width && 4 * four + i < k
                      ? static_cast<std::uint32_t>((4 * four + i) * stride + 16 * eight)
                      : B::Source::nowhere;
  }

  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t step) {
    const std::int32_t left = whole ? step_k : min_of(k - step * step_k, step_k);
    const std::int64_t from = std::int64_t{left > 0 ? step : 0} * step_k * stride;
    const int bytes = whole ? whole_bytes : bytes_of(left);
    held[i] = typename B::Source{base + from, static_cast<std::uint32_t>(bytes)}.load(offset[i], 0);
  }
  /// All of them with the first: each store needs all.
  template <int i>
  TILEWAVE_DEVICE void put(Chunk* slot) const {
    if constexpr (i == 0) {
      static_for<row_units>([&](auto r) TILEWAVE_INLINE_LAMBDA {
        constexpr int word = r / 2, low = 2 * (r % 2), high = low + 4;
        const Vec<std::uint32_t, 2> of_k{
            {B::template pick_bytes<low, low + 1, high, high + 1>(held[0][word], held[1][word]),
             B::template pick_bytes<low, low + 1, high, high + 1>(held[2][word], held[3][word])}};
        // Row 8 eight + r of the slot: from r to r only these bits of its units' places change.
        constexpr int row_bytes = Slot::row_bytes * r, mask = 16 * (r >> Slot::shift);
        *reinterpret_cast<Vec<std::uint32_t, 2>*>(reinterpret_cast<char*>(slot) + (to ^ mask) + row_bytes) = of_k;
      });
    }
  }

 private:
  /// Of so many k, the same in all lanes as a source wants it; below 2^31, see check_gemm_reach.
  TILEWAVE_DEVICE int bytes_of(std::int32_t ks) const {
    return B::uniform(ks > 0 ? static_cast<int>((ks - 1) * stride) + width : 0);
  }
};

/// A slot of `rows` columns as they lie in memory: a line for each k, in units of eight rows, unit u of k at place
/// u ^ mask(k). Products of a wave: `tiles`.
template <class W, int rows, int tiles>
struct GemmTurnedLines {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr DType type = W::spec.a;
  static constexpr int row_bytes = W::policy.depth_bytes, step_k = row_bytes / 2, side = W::side,
                       lanes = B::facts.wave_lanes;
  static constexpr int line_units = rows / 8, line_bytes = 2 * rows;
  static constexpr int pieces = row_bytes / 16 / Map::units;
  static constexpr int copies = rows * row_bytes / 16 / (W::waves * lanes);  // of a wave for a slot
  static_assert(size_of(type) == 2 && side == 32 && line_units % 16 == 0 && lanes % line_units == 0,
                "load_transposed reads 16-bit elements, of products of 32 x 32, from lines of 128, 256 or 512 rows");
  static_assert(rows * row_bytes / 16 % (W::waves * lanes) == 0, "all lanes copy equally many 16 bytes");

  /// Sixteen lanes read four lines at once.
  TILEWAVE_HOST_DEVICE static constexpr int mask(int k) { return 4 * (k % 4); }
  /// In a slot, in units of 8 bytes: what a lane points at of product `tile` of a wave whose first row is `row`.
  TILEWAVE_HOST_DEVICE static constexpr int place(int lane, int row, int tile) {
    const int k = Map::unit(lane) * 8 + lane % 16 / 4, of_sixteen = lane % 4;
    const int unit = (row + tile * side + Map::row(lane) / 16 * 16) / 8 + of_sixteen / 2;
    return 2 * (k * line_units + (unit ^ mask(k))) + of_sixteen % 2;
  }
  static_assert(lds_transposed_conflicts(B::facts.id, [](int lane) { return place(lane, 0, 0); }) == 0,
                "lanes that are served together meet no bank twice");

  const char* base;                // of the first row
  std::int32_t stride;             // from a k to the next, bytes; those of a step stay below 2^31, see check_gemm_reach
  std::int32_t k, k_bytes, width;  // elements; bytes, of k as rows have it; of a k's rows that there are, whole 16
  int whole_bytes;                 // of a step
  int first;                       // in the slot, of this wave's first copy; in units
  std::uint32_t offset[copies];    // in a step's source, of this lane's units of the wave's copies
  int at[tiles];

  template <class RowsOf>
  TILEWAVE_DEVICE GemmTurnedLines(const void* matrix, std::int64_t layer_offset, std::int64_t k_stride,
                                  const RowsOf& of, std::int32_t of_k, int wave_row)
      : base(static_cast<const char*>(matrix) + (layer_offset + of.first) * 2),
        stride(of_k > 1 ? static_cast<std::int32_t>(k_stride * 2) : 0),
        k(of_k),
        k_bytes(of_k * 2),
        width(align_up(max_of(min_of(of.left, rows), 0) * 2, 16)),
        first(B::wave_id() * copies * lanes) {
    whole_bytes = bytes_of(min_of(step_k, k));
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int unit = first + i * lanes + B::lane_id(), line = unit / line_units;
      const int byte = 16 * (unit % line_units ^ mask(line));
      offset[i] = byte < width && line < k ? static_cast<std::uint32_t>(line * stride + byte) : B::Source::nowhere;
    }
    TILEWAVE_UNROLL
    for (int t = 0; t < tiles; ++t) at[t] = 8 * place(B::lane_id(), wave_row, t);
  }

  /// What lies beyond K becomes 0.
  template <int i, bool whole>
  TILEWAVE_DEVICE void copy(Chunk* slot, std::int32_t step) const {
    const std::int32_t left = whole ? step_k : min_of(k - step * step_k, step_k);
    const std::int64_t from = std::int64_t{whole || left > 0 ? step * step_k : 0} * stride;
    const int bytes = whole ? whole_bytes : bytes_of(left);
    typename B::Source{base + from, static_cast<std::uint32_t>(bytes)}.copy(slot + first + i * lanes, offset[i], 0);
  }

  /// The unit of a lane for product `tile` of the wave.
  TILEWAVE_DEVICE Chunk read(const Chunk* slot, int tile, int piece, int) const {
    const char* const from = reinterpret_cast<const char*>(slot) + at[tile] + piece * (Map::units * 8 * line_bytes);
    const Vec<std::uint32_t, 2> low = B::load_transposed(from), high = B::load_transposed(from + 4 * line_bytes);
    return {{low[0], low[1], high[0], high[1]}};
  }

  TILEWAVE_DEVICE bool ends_within(std::int32_t step) const { return k_bytes % 16 != 0 && k_bytes / row_bytes == step; }
  TILEWAVE_DEVICE static void clean(Chunk*) {}

 private:
  /// As GemmTurnedRows has it, but not by B::uniform: a copy may not follow at once on vector instructions that write
  /// its source, and the compiler does not see copies.
  TILEWAVE_DEVICE int bytes_of(std::int32_t ks) const { return ks > 0 ? (ks - 1) * stride + width : 0; }
};

}  // namespace tilewave
