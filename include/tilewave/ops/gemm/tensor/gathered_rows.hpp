// SPDX-License-Identifier: MIT
// Rows of A of GemmTensorKernel that are gathered by ids. Maps of the copy engine take neighbouring rows only, so lanes
// copy them.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/gemm/args.hpp"

namespace tilewave {

/// The rows of a tile that one of `waves` fetching waves copies, for each lane its place in A. Eight lanes copy 128
/// bytes of a row, so a wave has four rows at a time, and waves take such fours in turn.
template <class B, GemmSpec S, GemmPolicy P>
struct GemmGatheredRows {
  static constexpr int waves = 3, row_chunks = 8, rows_at_a_time = B::facts.wave_lanes / row_chunks;
  static constexpr int copies = ceil_div(P.rows / rows_at_a_time, waves);
  static constexpr int boxes = P.depth_bytes / 128;  // boxes of 128 bytes of K in a stage
  /// A wave lets the copies of so many stages be under way. It reports a stage once it has begun as many more, which is
  /// when their slots are free: there are more slots than that.
  static constexpr int ahead = min_of(3, P.stages - 2);
  static_assert(ahead >= 1, "gathered rows want a ring of three stages");
  static constexpr std::uint32_t none = ~0u;

  std::uint32_t at[copies];  // the lane's first unit of each of its rows, in units of 16 bytes from A's start, or none

  TILEWAVE_DEVICE void load(const GemmArgs& a, const GemmTile& tile, int wave) {
    constexpr int unit_elements = 16 / size_of(S.a);
    const auto stride = static_cast<std::uint32_t>(a.a_stride / unit_elements);
    TILEWAVE_UNROLL
    for (int i = 0; i < copies; ++i) {
      const int r = row_of(i, wave);
      const bool exists = r < P.rows && tile.first_row + r < tile.row_end;
      at[i] = none;
      if (exists) at[i] = gemm_row_of_a<B, S>(a, tile.first_row + r) * stride + unit();
    }
  }
  /// Begins to copy a stage, to boxes that are swizzled as by the copy engine. Of rows that the group does not have,
  /// whatever was there stays. Who uses the stage waits for it behind B::lane_copies_wait and B::shared_written.
  TILEWAVE_DEVICE void copy(const GemmArgs& a, std::int32_t step, Chunk* to, int wave) const {
    const auto* const from = static_cast<const Chunk*>(a.a);
    const std::int32_t units = a.k * size_of(S.a) / 16;
    // Rows of a wave are 12 apart, and of an odd number of such steps the swizzle differs in one bit.
    Chunk* const first = to + row_of(0, wave) * row_chunks;
    const int swizzled = unit() ^ row_of(0, wave) % 8;
    TILEWAVE_UNROLL
    for (int box = 0; box < boxes; ++box) {
      const std::int32_t in_row = (step * boxes + box) * row_chunks;
      const bool inside = in_row + unit() < units;
      TILEWAVE_UNROLL
      for (int i = 0; i < copies; ++i) {
        Chunk* const chunk = first + (box * P.rows + i * waves * rows_at_a_time) * row_chunks +
                             (swizzled ^ (waves * i % 2 * rows_at_a_time));
        if (at[i] == none) continue;
        if (inside) {
          B::copy_lane(chunk, from + (at[i] + static_cast<std::uint32_t>(in_row)));
        } else if (units > 0) {  // The wave that copies boxes clears stages where K is 0.
          *chunk = {};
        }
      }
    }
  }

 private:
  TILEWAVE_DEVICE static int unit() { return B::lane_id() % row_chunks; }
  TILEWAVE_DEVICE static int row_of(int i, int wave) {
    return rows_at_a_time * (wave + waves * i) + B::lane_id() / row_chunks;
  }
};

}  // namespace tilewave
