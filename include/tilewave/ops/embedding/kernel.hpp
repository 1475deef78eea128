// SPDX-License-Identifier: MIT
// Copies rows of a table by their numbers. Grid: one block for each tile of columns (row_tiles.hpp). The read of a row
// waits for the read of its id, so blocks are small and a compute unit has many. No LDS. Bound: memory, one read and
// one write for each value.
#pragma once

#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/embedding/policy.hpp"
#include "tilewave/ops/embedding/problem.hpp"

namespace tilewave {

struct EmbeddingArgs {
  const void* table;
  IndexList ids;
  RowExtent extent;
  RowOutputArgs output;
  FastDiv tiles;  // tiles of a row
  std::int64_t vocab_start, table_stride;
  std::int32_t vocab_rows;
  float scale;
};
static_assert(sizeof(EmbeddingArgs) <= sm90_arguments_with_launch);

template <class B, EmbeddingSpec S, EmbeddingPolicy P>
struct Embedding {
  using Room = B;
  using Args = EmbeddingArgs;
  using Tile = Row<B, S.x, P>;
  using Output = RowOutput<B, S.x, RowOutputSpec{S.x, Scaling::none}, P>;
  using LaneRow = typename Tile::LaneRow;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Tile::unit;
  using Shared = typename Tile::template Shared<1>;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const LaneRow at = tile_lane_row<B, Tile, P>(a.extent, a.tiles, shared);
    const auto id = a.ids.template load<B>(min_of(at.row, a.extent.rows - 1));
    const std::int64_t row = a.ids.value(id) - a.vocab_start;
    LaneRow known = at;
    known.active = at.active & (static_cast<std::uint64_t>(row) < static_cast<std::uint64_t>(a.vocab_rows));
    Tile x;  // x is zeros where the window is empty
    x.load(static_cast<const Storage<S.x>*>(a.table) + row * a.table_stride, known, at.first, a.extent.columns);
    if (a.scale == 1.0f) {
      x.store(Tile::row(a.output.out, a.extent, at, a.output.strides), at, at.first, a.extent.columns);
    } else {
      // a negative scale would make -0 of rows that are not in the table
      const float scale = known.active ? a.scale : 1.0f;
      Output::template write<0>(
          a.output, a.extent, at, shared, [&](const auto& body) { body(at.first); },
          [&](int chunk, int) TILEWAVE_INLINE_LAMBDA {
            Vec<float, unit> v = x.values(chunk);
            TILEWAVE_UNROLL
            for (int e = 0; e < unit; ++e) v[e] *= scale;
            return v;
          });
    }
  }
};

}  // namespace tilewave
