// SPDX-License-Identifier: MIT
// Swizzled tiles: every unit has a place of its own, and what a wave reads meets no bank twice.
#include "tilewave/tile/shared_tile.hpp"

#include <set>

#include "test/arch/room.hpp"

namespace tilewave::test {
namespace {

/// The kernel's side of SharedTile: one wave, products of 16 or 32 rows.
template <class B, int rows_of_product, int k>
struct Wave {
  using Backend = B;
  struct Map : ProductMap<rows_of_product> {
    static constexpr bool by_lane = false;
  };
  static constexpr int side = rows_of_product, waves = 1, step_k = k;
};

template <class B, DType type, int side, int k, bool mixed = false>
void check_tile() {
  constexpr int rows = 64;
  using Tile = SharedTile<Wave<B, side, k>, type, rows, mixed>;
  CAPTURE(name_of(B::facts.id), name_of(type), side, k, Tile::shift);
  std::set<int> places;
  for (int row = 0; row < rows; ++row)
    for (int unit = 0; unit < Tile::row_units; ++unit) {
      const int place = row * Tile::row_units + (unit ^ Tile::permute(row));
      CHECK(place / Tile::row_units == row);
      places.insert(place);
    }
  CHECK(places.size() == std::size_t{rows} * Tile::row_units);
  CHECK(Tile::conflicts(Tile::shift) == 0);
  int worst = 0;  // of reads of one unit of all rows without a swizzle
  for (int i = 0; i < Tile::lane_units; ++i)
    worst += lds_conflicts(B::facts.id,
                           [&](int lane) { return Tile::Map::row(lane) * Tile::row_units + Tile::unit(lane, i); });
  CHECK(worst > 0);
}

struct CheckTiles {
  template <class B>
  void operator()() const {
    if constexpr (B::facts.id != ArchId::sm90) {
      check_tile<B, DType::bf16, 32, 64>();
      check_tile<B, DType::bf16, 16, 64>();
      check_tile<B, DType::bf16, 32, 64, true>();
      check_tile<B, B::facts.fp8, 32, 128>();
      check_tile<B, DType::i8, 16, 128>();
    }
  }
};

TEST_CASE("units of a swizzled tile have places of their own, where no bank is met twice") {
  AllRooms::each(CheckTiles{});
}

}  // namespace
}  // namespace tilewave::test
