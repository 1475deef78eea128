// SPDX-License-Identifier: MIT
// Transposed operands in a slot of LDS: rows that are columns in memory ([K, M] or [K, N]). On path staged a lane loads
// eight neighbours of four k and transposes the square in registers, two bytes at a time. It then stores 8 bytes of k
// for each of the eight rows, and the slot is like any other. On path direct the columns are copied as they are, and
// the chip transposes what it reads from LDS.
#pragma once

#include "tilewave/ops/gemm/lds/rows.hpp"

namespace tilewave {

/// Path staged: the slot has rows of k, transposed by the lanes on their way.
template <class W, int rows>
struct GemmTransposedRows : SharedTile<W, W::spec.a, rows, true> {
  using Slot = SharedTile<W, W::spec.a, rows, true>;
  using B = typename W::Backend;
  using Slot::copies, Slot::row_units, Slot::permute;
  static constexpr int k_slices = Slot::k_slices;
  static constexpr int element = size_of(Slot::type), step_k = Slot::row_bytes / element;
  static_assert(element == 2 && copies == 4 && rows % 64 == 0 && W::policy.path == GemmPath::staged,
                "a lane transposes, in registers, one square of eight rows by four k of 16-bit elements");

  const char* base;              // address of the first row at k = 0
  std::int64_t stride;           // from a k to the next, in bytes
  std::int32_t k, width;         // K in elements; bytes of the tile's rows that exist at a k, in whole 16
  int whole_bytes;               // of memory that a whole step spans
  int store_offset;              // of this lane's k of its first row, in bytes from the slot's start
  std::uint32_t offset[copies];  // of this lane's four k, in bytes from the start of a step
  Chunk loaded[copies];          // eight rows at each k

  template <class TileRows>
  TILEWAVE_DEVICE GemmTransposedRows(const void* matrix, std::int64_t layer_offset, std::int64_t k_stride,
                                     const TileRows& tile_rows, std::int32_t k_extent, int wave_row)
      : Slot(k_extent, wave_row),
        base(static_cast<const char*>(matrix) + (layer_offset + tile_rows.first) * element),
        stride(k_stride * element),
        k(k_extent),
        width(align_up(max_of(min_of(tile_rows.left, rows), 0) * element, 16)) {
    whole_bytes = span_bytes(step_k);
    // The lanes of a wave are 8 x 8, so that eight of them load a line of 128 bytes. A lane has rows 8 octet to
    // 8 octet + 7 at k = 4 quad to 4 quad + 3.
    constexpr int across = rows / 64;
    const int lane = B::lane_id(), wave = B::wave_id();
    const int octet = lane % 8 + 8 * (wave % across), quad = lane / 8 + 8 * (wave / across);
    store_offset = (8 * octet * row_units + (quad / 2 ^ permute(8 * octet))) * 16 + quad % 2 * 8;
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i)
      offset[i] = 16 * octet < width && 4 * quad + i < k
                      ? static_cast<std::uint32_t>((4 * quad + i) * stride + 16 * octet)
                      : B::Source::nowhere;
  }

  /// Loads the eight rows at this lane's k number i of a step. `whole`: all of the step lies within K.
  template <int i, bool whole>
  TILEWAVE_DEVICE void load(std::int32_t step) {
    const std::int32_t left = whole ? step_k : min_of(k - step * step_k, step_k);
    const std::int64_t from = std::int64_t{left > 0 ? step : 0} * step_k * stride;
    const int bytes = whole ? whole_bytes : span_bytes(left);
    loaded[i] = typename B::Source{base + from, static_cast<std::uint32_t>(bytes)}.load(offset[i], 0);
  }
  /// Stores all eight rows when i is 0, since each of these stores needs all four loads.
  template <int i>
  TILEWAVE_DEVICE void store(Chunk* slot) const {
    if constexpr (i == 0) {
      static_for<row_units>([&](auto r) TILEWAVE_INLINE_LAMBDA {
        constexpr int word = r / 2, low = 2 * (r % 2), high = low + 4;
        const Vec<std::uint32_t, 2> four_k{
            {B::template pick_bytes<low, low + 1, high, high + 1>(loaded[0][word], loaded[1][word]),
             B::template pick_bytes<low, low + 1, high, high + 1>(loaded[2][word], loaded[3][word])}};
        // This is row 8 octet + r of the slot. From one r to the next, only these bits of the unit's address change.
        constexpr int row_bytes = Slot::row_bytes * r, mask = 16 * (r >> Slot::shift);
        *reinterpret_cast<Vec<std::uint32_t, 2>*>(reinterpret_cast<char*>(slot) + (store_offset ^ mask) + row_bytes) =
            four_k;
      });
    }
  }

 private:
  /// Bytes of memory that so many k span. A source wants the same number in all lanes. It stays below 2^31, which
  /// check_gemm_reach guarantees.
  TILEWAVE_DEVICE int span_bytes(std::int32_t ks) const {
    return B::uniform(ks > 0 ? static_cast<int>((ks - 1) * stride) + width : 0);
  }
};

/// Path direct: the slot has columns as they lie in memory. There is a line for each k, in units of eight rows, and
/// unit u of line k lies at u ^ mask(k). A wave has `tiles` products along the rows.
template <class W, int rows, int tiles>
struct GemmTransposedLines {
  using B = typename W::Backend;
  using Map = typename W::Map;
  static constexpr DType type = W::spec.a;
  static constexpr int row_bytes = W::policy.depth_bytes, step_k = row_bytes / 2, side = W::side,
                       lanes = B::facts.wave_lanes;
  static constexpr int line_units = rows / 8, line_bytes = 2 * rows;
  static constexpr int k_slices = row_bytes / 16 / Map::units;
  static constexpr int copies = rows * row_bytes / 16 / (W::waves * lanes);  // of a wave for a slot
  static_assert(size_of(type) == 2 && side == 32 && line_units % 16 == 0 && lanes % line_units == 0,
                "load_transposed reads 16-bit elements, of products of 32 x 32, from lines of 128, 256 or 512 rows");
  static_assert(rows * row_bytes / 16 % (W::waves * lanes) == 0, "all lanes copy equally many 16 bytes");

  /// The swizzle. Sixteen lanes read four lines at once.
  TILEWAVE_HOST_DEVICE static constexpr int mask(int k) { return 4 * (k % 4); }
  /// The address that a lane gives to load_transposed, in units of 8 bytes from the slot's start, for product `tile` of
  /// a wave whose first row is `row`.
  TILEWAVE_HOST_DEVICE static constexpr int read_index(int lane, int row, int tile) {
    const int k = Map::unit(lane) * 8 + lane % 16 / 4, in_sixteen = lane % 4;
    const int unit = (row + tile * side + Map::row(lane) / 16 * 16) / 8 + in_sixteen / 2;
    return 2 * (k * line_units + (unit ^ mask(k))) + in_sixteen % 2;
  }
  static_assert(lds_transposed_conflicts(B::facts.id, [](int lane) { return read_index(lane, 0, 0); }) == 0,
                "lanes that are served together meet no bank twice");

  const char* base;                // address of the first row at k = 0
  std::int32_t stride;             // from a k to the next, in bytes; a step spans less than 2^31, see check_gemm_reach
  std::int32_t k, k_bytes, width;  // K in elements and bytes; bytes of the tile's rows that exist at a k, in whole 16
  int whole_bytes;                 // of memory that a whole step spans
  int first;                       // unit of the slot with which this wave's first copy begins
  std::uint32_t offset[copies];    // of this lane's units of the wave's copies, in bytes from the start of a step
  int read_offset[tiles];          // in bytes from the slot's start

  template <class TileRows>
  TILEWAVE_DEVICE GemmTransposedLines(const void* matrix, std::int64_t layer_offset, std::int64_t k_stride,
                                      const TileRows& tile_rows, std::int32_t k_extent, int wave_row)
      : base(static_cast<const char*>(matrix) + (layer_offset + tile_rows.first) * 2),
        stride(k_extent > 1 ? static_cast<std::int32_t>(k_stride * 2) : 0),
        k(k_extent),
        k_bytes(k_extent * 2),
        width(align_up(max_of(min_of(tile_rows.left, rows), 0) * 2, 16)),
        first(B::wave_id() * copies * lanes) {
    whole_bytes = span_bytes(min_of(step_k, k));
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int unit = first + i * lanes + B::lane_id(), line = unit / line_units;
      const int byte = 16 * (unit % line_units ^ mask(line));
      offset[i] = byte < width && line < k ? static_cast<std::uint32_t>(line * stride + byte) : B::Source::nowhere;
    }
    TILEWAVE_UNROLL
    for (int t = 0; t < tiles; ++t) read_offset[t] = 8 * read_index(B::lane_id(), wave_row, t);
  }

  /// Copies this lane's unit i of a step from memory to LDS. Lines beyond K become 0.
  template <int i, bool whole>
  TILEWAVE_DEVICE void copy(Chunk* slot, std::int32_t step) const {
    const std::int32_t left = whole ? step_k : min_of(k - step * step_k, step_k);
    const std::int64_t from = std::int64_t{whole || left > 0 ? step * step_k : 0} * stride;
    const int bytes = whole ? whole_bytes : span_bytes(left);
    typename B::Source{base + from, static_cast<std::uint32_t>(bytes)}.copy(slot + first + i * lanes, offset[i], 0);
  }

  /// Returns a lane's unit of the wave's product `tile` in k slice `slice`.
  TILEWAVE_DEVICE Chunk read(const Chunk* slot, int tile, int slice, int) const {
    const char* const from =
        reinterpret_cast<const char*>(slot) + read_offset[tile] + slice * (Map::units * 8 * line_bytes);
    const Vec<std::uint32_t, 2> low = B::template load_transposed<2>(from),
                                high = B::template load_transposed<2>(from + 4 * line_bytes);
    return {{low[0], low[1], high[0], high[1]}};
  }

  TILEWAVE_DEVICE bool ends_within(std::int32_t step) const { return k_bytes % 16 != 0 && k_bytes / row_bytes == step; }
  TILEWAVE_DEVICE static void clean(Chunk*) {}

 private:
  /// This does what GemmTransposedRows does, but without B::uniform. The compiler does not see copies, and a copy may
  /// not directly follow vector instructions that write its source.
  TILEWAVE_DEVICE int span_bytes(std::int32_t ks) const { return ks > 0 ? (ks - 1) * stride + width : 0; }
};

}  // namespace tilewave
