// SPDX-License-Identifier: MIT
// Rows of A of GemmTensorKernel that are gathered by ids. Maps of the copy engine take neighbouring rows only, so lanes
// copy them.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/gemm/args.hpp"

namespace tilewave {

/// The rows of A of a tile's rows, in the registers of a wave that fetches them. Lane l has those of rows l, 32 + l and
/// so on.
template <class B, GemmSpec S, GemmPolicy P>
struct GemmGatheredRows {
  static constexpr int lanes = B::facts.wave_lanes, count = ceil_div(P.rows, lanes);
  static constexpr int row_chunks = 8, boxes = P.depth_bytes / 128;  // boxes of 128 bytes of K in a stage
  Vec<std::int32_t, count> row;

  TILEWAVE_DEVICE void load(const GemmArgs& a, const GemmTile& tile) {
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i) {
      const std::int32_t at = min_of(tile.first_row + min_of(i * lanes + B::lane_id(), P.rows - 1), tile.row_end - 1);
      row[i] = gemm_row_of_a<B, S>(a, max_of(at, 0));
    }
  }
  /// Copies a stage of the rows, 16 bytes a lane, to boxes swizzled as the copy engine does it. Eight lanes copy
  /// 128 bytes of a row. Of rows that the group does not have, whatever was there stays. All lanes of a wave call this.
  /// Who uses the stage waits for it behind B::lane_copies_wait and B::shared_written.
  TILEWAVE_DEVICE void copy(const GemmArgs& a, const GemmTile& tile, std::int32_t step, Chunk* to) const {
    const int unit = B::lane_id() % row_chunks, first = B::lane_id() / row_chunks;
    const char* const from = static_cast<const char*>(a.a);
    const std::int64_t stride = a.a_stride * size_of(S.a), k_bytes = std::int64_t{a.k} * size_of(S.a);
    constexpr int rows_at_a_time = lanes / row_chunks;
    TILEWAVE_UNROLL
    for (int box = 0; box < boxes; ++box) {
      const std::int64_t at = std::int64_t{step} * P.depth_bytes + box * 128 + unit * 16;
      TILEWAVE_UNROLL
      for (int i = 0; i < P.rows / rows_at_a_time; ++i) {
        const int r = rows_at_a_time * i + first;
        const std::int32_t of_a = B::shuffle(row[rows_at_a_time * i / lanes], r % lanes);
        Chunk* const chunk = to + box * (P.rows * row_chunks) + r * row_chunks + (unit ^ r % 8);
        if (tile.first_row + r >= tile.row_end) continue;
        if (at < k_bytes) {
          B::copy_lane(chunk, reinterpret_cast<const Chunk*>(from + of_a * stride + at));
        } else if (k_bytes > 0) {  // The wave that copies boxes clears stages where K is 0.
          *chunk = {};
        }
      }
    }
  }
};

}  // namespace tilewave
