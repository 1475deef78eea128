// SPDX-License-Identifier: MIT
// Rows of A of GemmTensorKernel that are gathered by ids. Maps of the copy engine take neighbouring rows only, so lanes
// copy them.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/gemm/args.hpp"

namespace tilewave {

/// The tokens of the rows of a tile, in the registers of a wave that fetches them: lane l has those of rows l, 32 + l
/// and so on. Eight lanes copy 128 bytes of a row, so a wave copies four rows at a time, whose tokens it gets from the
/// lanes that have them. Copies are only begun here: B::lane_copies_arrive says when they have landed.
template <class B, GemmSpec S, GemmPolicy P>
struct GemmGatheredRows {
  static constexpr int lanes = B::facts.wave_lanes, count = ceil_div(P.rows, lanes);
  static constexpr int row_chunks = 8, rows_at_a_time = lanes / row_chunks;
  static constexpr int copies = P.rows / rows_at_a_time;                // of a lane, of a box
  static constexpr int boxes = P.depth_bytes / 128;                     // boxes of 128 bytes of K in a stage
  static constexpr int batch = min_of(copies, lanes / rows_at_a_time);  // copies whose tokens are under way at once
  static constexpr std::uint32_t none = ~0u;

  /// Tiles of few rows end copying behind them. Beside block scales that was slower at 4096 tokens of DeepSeek-V3.
  static constexpr bool partly = P.rows > lanes&& S.scale != Scaling::per_block;

  std::uint32_t token[count];  // a row of A, or none
  std::int32_t rows = P.rows;  // that count, where copies end behind them

  TILEWAVE_DEVICE void load(const GemmArgs& a, const GemmTile& tile) {
    if constexpr (partly) rows = tile.row_end - tile.first_row;
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i) {
      const int r = i * lanes + B::lane_id();
      token[i] = none;
      if (r < P.rows && tile.first_row + r < tile.row_end) token[i] = gemm_row_of_a<B, S>(a, tile.first_row + r);
    }
  }
  /// Begins to copy a stage, to boxes that are swizzled as by the copy engine. Of rows that the group does not have,
  /// whatever was there stays. All lanes of the wave call this.
  TILEWAVE_DEVICE void copy(const GemmArgs& a, std::int32_t step, Chunk* to) const {
    constexpr int unit_elements = 16 / size_of(S.a);
    const auto stride = static_cast<std::uint32_t>(a.a_stride / unit_elements);
    const int unit = B::lane_id() % row_chunks, first = B::lane_id() / row_chunks;
    const std::int32_t units = a.k * size_of(S.a) / 16;
    TILEWAVE_UNROLL
    for (int box = 0; box < boxes; ++box) {
      const std::int32_t in_row = (step * boxes + box) * row_chunks + unit;
      const Chunk* const from = static_cast<const Chunk*>(a.a) + in_row;
      Chunk* const box_row = to + (box * P.rows + first) * row_chunks;
      const bool inside = in_row < units;
      TILEWAVE_UNROLL
      for (int done = 0; done < copies; done += batch) {
        if (partly && done > 0 && rows_at_a_time * done >= rows) break;
        std::uint32_t tokens[batch];
        TILEWAVE_UNROLL
        for (int i = 0; i < batch; ++i) {
          const int r = rows_at_a_time * (done + i);
          tokens[i] = B::shuffle(token[r / lanes], r % lanes + first);
        }
        TILEWAVE_UNROLL
        for (int i = 0; i < batch; ++i) {
          // Row r of a box has unit u at u ^ r % 8, and rows_at_a_time is 4.
          Chunk* const chunk =
              box_row + rows_at_a_time * (done + i) * row_chunks + (unit ^ (first + rows_at_a_time * ((done + i) % 2)));
          if (inside && tokens[i] != none) B::copy_lane(chunk, from + tokens[i] * stride);
        }
      }
      // Behind the end of K there are zeros. The wave that copies boxes clears stages where K is 0.
      if (!inside && units > 0) {
        for (int i = 0; i < copies; ++i)
          box_row[rows_at_a_time * i * row_chunks + (unit ^ (first + rows_at_a_time * (i % 2)))] = {};
      }
    }
  }
  /// Begins to copy the rows' block scales of a stage.
  TILEWAVE_DEVICE void copy_scales(const GemmArgs& a, std::int32_t step, float* to) const {
    const float* const from = a.a_scale + step * a.a_scale_k_stride;
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i)
      if (token[i] != none) B::copy_lane(to + i * lanes + B::lane_id(), from + token[i] * a.a_scale_stride);
  }
};

}  // namespace tilewave
