// SPDX-License-Identifier: MIT
// Rows whose columns are independent of each other. A block takes one tile of columns, and the grid has all tiles of
// all rows. Any policy takes rows of any length, so blocks are as small as the chip prefers, and all end together.
#pragma once

#include "tilewave/tile/row.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Returns the number of tiles of a row.
constexpr std::int32_t tiles_of(const RowPolicy& p, DType x, std::int32_t columns) {
  return ceil_div(columns, p.block_columns(x));
}

/// Returns what Row::lane_row does, for a grid in which the tiles of P.rows rows are neighbours.
template <class B, class Tile, RowPolicy P, class S>
TILEWAVE_DEVICE typename Tile::LaneRow tile_lane_row(const RowExtent& extent, const FastDiv& tiles, S& shared) {
  static_assert(P.held && P.blocks == 1, "a tile is read once and belongs to one block");
  typename Tile::LaneRow at = Tile::lane_row(extent, shared);
  const std::int32_t block = B::block_id(), rows = tiles.quotient(block);
  at.row = rows * P.rows + at.slot;
  at.first = (block - rows * tiles.divisor) * Tile::block_columns;
  at.active = at.row < extent.rows;
  at.leader = at.active && at.lane == 0 && at.first == 0;
  return at;
}

/// Returns the launch that covers all tiles.
inline LaunchShape tile_grid(const RowPolicy& p, DType x, std::int32_t rows, std::int32_t columns) {
  return {std::int64_t{ceil_div(rows, p.rows)} * tiles_of(p, x, columns), p.block_threads(), 1};
}

constexpr bool tile_takes(const RowPolicy& p, DType x, std::int32_t columns, bool aligned) {
  return !p.wide(x) || (aligned && columns % (16 / size_of(x)) == 0);
}

/// True if policy a is better than b for rows that both take. The criteria are, in this order: wide accesses; few idle
/// columns in the last tile; large tiles where they fill the chip, and small ones where they do not.
constexpr bool better_tile(const RowPolicy& a, const RowPolicy& b, DType x, std::int32_t rows, std::int32_t columns,
                           const ArchFacts& facts) {
  if (a.vec != b.vec) return a.vec > b.vec;
  const auto covered = [&](const RowPolicy& p) { return std::int64_t{tiles_of(p, x, columns)} * p.block_columns(x); };
  if (covered(a) != covered(b)) return covered(a) < covered(b);
  const auto lanes = [&](const RowPolicy& p) { return std::int64_t{rows} * tiles_of(p, x, columns) * p.lanes; };
  const std::int64_t slots = std::int64_t{facts.compute_units} * facts.simds_per_cu * facts.wave_lanes;
  const bool fills = min_of(lanes(a), lanes(b)) > 4 * slots;
  return fills ? a.block_columns(x) > b.block_columns(x) : a.block_columns(x) < b.block_columns(x);
}

/// The part of a Registry (registry.hpp) that operations on tiles have in common. `aligned` is true if wide accesses
/// can take the rows.
template <class SpecOf, class ProblemOf, bool (*aligned)(const ProblemOf&)>
struct TileRegistry {
  using Spec = SpecOf;
  using Problem = ProblemOf;
  using Policy = RowPolicy;

  static Status takes(const RowPolicy& policy, const Problem& p, const ArchFacts& facts) {
    if (!tile_takes(policy, p.spec.x, columns_of(p), aligned(p))) {
      return {StatusCode::no_matching_entry, "no entry takes rows of this alignment"};
    }
    if (!check_launch(tile_grid(policy, p.spec.x, rows_of(p), columns_of(p)), facts).ok()) {
      return {StatusCode::bad_extent, "too many rows for one launch: 2^31 blocks or 2^32 lanes"};
    }
    return {};
  }
  static bool better(const RowPolicy& a, const RowPolicy& b, const Problem& p, const ArchFacts& facts) {
    return better_tile(a, b, p.spec.x, rows_of(p), columns_of(p), facts);
  }
};

/// Checks what must hold before an entry of this spec and policy is launched: the rules of `check`, and that the entry
/// takes the rows.
template <class Spec, class Problem>
Status check_tile_launch(const Spec& spec, const RowPolicy& policy, const Problem& p, const ArchFacts& facts,
                         Status (*check)(const Problem&, const ArchFacts&), bool (*aligned)(const Problem&)) {
  if (!(p.spec == spec)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = check(p, facts); !s.ok()) return s;
  if (!tile_takes(policy, spec.x, columns_of(p), aligned(p))) {
    return {StatusCode::no_matching_entry, "the entry's policy does not take these rows, see tile_takes"};
  }
  return {};
}

/// Returns the policies that entries are built for: short rows side by side, two sizes of tiles of longer rows, and one
/// that takes any alignment. `chunks` is the number of accesses of a lane in the larger size.
constexpr RowPolicies tile_policies(ArchId arch, DType x, DType out, Scaling mode, int chunks) {
  const ArchFacts& facts = facts_of(arch);
  const int span = output_span(arch, x, out), element = size_of(x);
  RowPolicies all;
  const auto add = [&](const RowPolicy& p) {
    if (!row_policy_status(facts, x, p).ok() || !row_output_status(facts, x, mode, p).ok()) return;
    if (all.count == 0 || !(all.back() == p)) all.add(p);
  };
  add({.lanes = 64, .rows = 4, .chunks = span, .span = span, .waves_per_simd = 8});
  add({.lanes = 256, .chunks = span, .span = span, .waves_per_simd = 8});
  add({.lanes = 256, .chunks = max_of(chunks, span), .span = span, .waves_per_simd = 8});
  add({.lanes = 256, .chunks = 8, .vec = element, .span = 8, .waves_per_simd = 4});
  return all;
}

}  // namespace tilewave
