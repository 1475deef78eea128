// SPDX-License-Identifier: MIT
// The walk of blocks over the tiles of C: whatever bands a problem has, each tile is one block's, neighbours in number
// lie below each other, and the last tiles end with the matrix.
#include <cstdint>
#include <set>
#include <utility>

#include "test/catch_compat.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/gemm/args.hpp"

namespace tilewave::test {
namespace {

GemmProblem problem_of(const GemmSpec& spec, std::int32_t m, std::int32_t n, std::int32_t k) {
  GemmProblem p;
  p.spec = spec, p.m = m, p.n = n, p.k = k, p.batch = 2;
  return p;
}

/// Whether a tile begins where its number says or, if tiles may lie over each other, where it ends with the matrix.
bool begins_well(std::int32_t first, std::int32_t of_tile, std::int32_t extent, bool whole) {
  if (whole && extent >= of_tile && first + of_tile > extent) return false;
  return first >= 0 && first < extent && (first % of_tile == 0 || (whole && first + of_tile == extent));
}

/// Walks over all tiles of a problem as `blocks` blocks do.
template <GemmPolicy P>
void check_walk(const GemmProblem& p, int blocks) {
  using Tiles = GemmTiles<host::Backend<ArchId::sm90>, GemmSpec{}, P>;
  const GemmArgs args = gemm_args(p, P, 1);
  const std::int32_t rows = P.rows * P.cluster;
  std::set<std::pair<std::int64_t, std::int32_t>> seen;  // layer and row, column
  for (int block = 0; block < blocks; ++block) {
    Tiles tiles(args, block, blocks, 0);
    for (GemmTile tile; tiles.next(tile);) {
      CHECK((begins_well(tile.first_row, rows, p.m, !args.in_place) &&
             begins_well(tile.first_column, P.columns, p.n, !args.in_place && p.n % 16 == 0)));
      CHECK(seen.insert({std::int64_t{tile.layer} * p.m + tile.first_row, tile.first_column}).second);
    }
  }
  CHECK(static_cast<std::int64_t>(seen.size()) == gemm_tiles(GemmSpec{}, args, P));
  Tiles tiles(args, 0, 1, 0);
  const std::int32_t band = min_of(gemm_band(p, P), ceil_div(p.m, rows));
  GemmTile tile{};
  for (std::int32_t i = 0; i < band; ++i) {
    const std::int32_t last = args.in_place ? i * rows : max_of(0, p.m - rows);
    CHECK((tiles.next(tile) && tile.first_row == min_of(i * rows, last) && tile.first_column == 0));
  }
}

TEST_CASE("each tile of C is one block's, in bands of any height") {
  for (const std::int32_t k : {0, 512, 2048, 7168}) {
    for (const std::int32_t m : {1, 2048, 2049, 4096, 9000}) {
      for (const std::int32_t n : {40, 1000, 1008}) {
        for (const bool in_place : {false, true}) {
          GemmProblem p = problem_of({}, m, n, k);
          if (in_place) p.residual = p.out = reinterpret_cast<void*>(std::uintptr_t{1} << 44);
          INFO(m << " rows, " << n << " columns, k " << k << (in_place ? ", in place" : ""));
          check_walk<GemmPolicy{.rows = 128, .columns = 176, .waves_rows = 1, .pingpong = true}>(p, 132);
          check_walk<GemmPolicy{.rows = 128, .columns = 128, .cluster = 2}>(p, 66);
          check_walk<GemmPolicy{.rows = 64, .columns = 64, .waves_rows = 1, .swapped = true}>(p, 7);
        }
      }
    }
  }
}

TEST_CASE("a band has 2048 rows, or those of which A takes 16 MB, as high as the others") {
  constexpr GemmPolicy policy{.rows = 128, .columns = 256};
  const auto band = [&](std::int32_t m, std::int32_t k) { return gemm_band(problem_of({}, m, 4096, k), policy); };
  CHECK(band(4096, 4096) == 16);
  CHECK(band(4096, 7168) == 16);
  CHECK(band(4096, 2048) == 32);
  CHECK(band(32768, 512) == 128);
  CHECK(band(2304, 8192) == 9);  // two bands of nine, not of sixteen and two
  GemmProblem groups = problem_of({.groups = GemmGroups::masked}, 4096, 4096, 512);
  CHECK(gemm_band(groups, policy) == 16);
}

}  // namespace
}  // namespace tilewave::test
