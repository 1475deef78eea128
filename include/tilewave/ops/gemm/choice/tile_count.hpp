// SPDX-License-Identifier: MIT
// The number of tiles that a problem has with a policy, which every cost model counts first, and how many of them a
// block takes.
#pragma once

#include <cmath>

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/args.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave {

/// Returns how many contiguous groups have rows, at least 1, where each of m rows falls into any group.
inline double gemm_groups_hit(const GemmProblem& problem, std::int32_t m) {
  const double groups = max_of(problem.groups, 1);
  return max_of(1.0, groups * (1 - std::exp(-m / groups)));
}

/// Returns the tiles of `tile_rows` that a group has on average, where groups have `rows` on average and differ by a
/// sixth of that, or as much as rows do that fall into any group.
inline double gemm_tiles_of_group(double rows, double tile_rows) {
  if (rows > 8 * tile_rows) return rows / tile_rows + 0.5;
  const double deviation = max_of(std::sqrt(rows), rows / 6);
  double tiles = 1;
  for (double end = tile_rows; end < rows + 4 * deviation; end += tile_rows)
    tiles += 0.5 * std::erfc((end - rows) / (deviation * std::sqrt(2.0)));
  return tiles;
}

/// The tiles of a policy that a problem has, and the rows of A that it multiplies, over all batches and groups. Groups
/// count as equally full.
struct GemmTileCount {
  double tiles, rows;
};
inline GemmTileCount gemm_tile_count(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p) {
  const double columns = ceil_div(problem.n, p.columns * p.cluster_columns);
  const std::int32_t tile_rows = p.rows * p.cluster;
  if (problem.spec.groups == GemmGroups::contiguous) {
    const double groups = gemm_groups_hit(problem, m), group_rows = m / groups;
    // On average a group's last tile is half full.
    return {groups * max_of(1.0, group_rows / tile_rows + 0.5) * columns, double(m)};
  }
  if (problem.spec.groups == GemmGroups::masked && problem.expected_group_rows > 0)
    m = min_of(m, problem.expected_group_rows);
  const double layers = problem.spec.groups == GemmGroups::masked ? problem.groups : problem.batch;
  return {double(ceil_div(m, tile_rows)) * columns * layers, double(m) * layers};
}

/// The tiles of a contiguous group with the policy's heights, and what all of them take by cost(height). Rows of groups
/// lie about their mean as those of tokens that choose at random.
struct GemmHeightCost {
  double tiles = 0, of_tiles = 0;
};
template <class Cost>
GemmHeightCost gemm_height_cost(double group_rows, const detail::GemmHeights& heights, const Cost& cost) {
  const double most = heights.rows[heights.count - 1];
  GemmHeightCost mean;
  double all = 0;
  for (double z = -2; z <= 2; z += 0.5) {
    const double odds = std::exp(-z * z / 2), rows = max_of(1.0, std::floor(group_rows + z * std::sqrt(group_rows)));
    const double whole = std::floor((rows - 1) / most), rest = rows - whole * most;  // the last tile has the rest
    int height = 0;
    while (height + 1 < heights.count && heights.rows[height] < rest) ++height;
    all += odds;
    mean.tiles += odds * (whole + 1);
    mean.of_tiles += odds * (whole * cost(most) + cost(heights.rows[height]));
  }
  return {mean.tiles / all, mean.of_tiles / all};
}

/// Returns how many tiles side by side a block goes through (gemm_walks): some sixteen steps of K, and so few that each
/// place on the chip has four blocks, where all groups have as many of m rows. Offsets in B and in its scales fit 31
/// bits.
inline std::int32_t gemm_walk(const GemmProblem& p, std::int32_t m, const GemmPolicy& policy, const ArchFacts& facts) {
  const std::int32_t columns = gemm_tile_columns(p.spec, policy), n = gemm_out_columns(p), tiles_n = n / columns;
  const std::int32_t steps = ceil_div(bytes_of(p.spec.a, p.k), policy.depth_bytes);
  const bool plain = n % columns == 0 && p.bias == nullptr && p.residual == nullptr;
  if (!detail::gemm_walks(p.spec, policy) || !plain || steps == 0) return 1;
  constexpr std::int64_t reach = (std::int64_t{1} << 31) - 4096;
  const std::int64_t row_bytes = (p.spec.in_strips() ? std::int64_t{p.k} : p.b_stride) * size_of(p.spec.b);
  const std::int64_t of_b = reach / max_of<std::int64_t>(row_bytes * columns, 1);
  const std::int64_t of_scales = reach / max_of<std::int64_t>(p.b_scale_stride, 1);
  const double blocks = 4.0 * facts.compute_units * policy.waves_per_simd;
  const double most = min_of(gemm_tile_count(p, m, policy).tiles / blocks, double(min_of(tiles_n, 16 / steps)));
  const auto walk = static_cast<std::int32_t>(max_of(1.0, min_of(most, double(min_of(of_b, of_scales)))));
  return ceil_div(tiles_n, ceil_div(tiles_n, walk));
}

}  // namespace tilewave
