// SPDX-License-Identifier: MIT
// Tiles that are as high as the rows of their groups ask for, which only the device knows (sm90).
#pragma once

#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave::detail {

/// The heights that a tile may have, in rows of A: the least one that has all rows that the group has is multiplied.
/// Those up to `by_waves` are multiplied by waves, others by wave groups.
struct GemmHeights {
  int count = 0, rows[4]{}, by_waves = 0;
};
/// Weights of four bits have them: what a product costs is to widen them and to multiply, where others wait for memory.
/// ptxas gives the sums of each loop of products by wave groups registers of their own, and waits for each product
/// where they do not suffice (C7512), so that there are one or two such loops. Products of fragments by waves do not
/// count. They take as long up to 32 rows, and of 64 still less than those of 128 by wave groups
/// (docs/notebook/2026-11-28-moe-in-turns.md). A tile of 80 rows has all of a group with 64 on average
/// (docs/notebook/2026-11-28-moe-int4.md), and one of 16 has a loop for up to eight
/// (docs/notebook/2026-11-28-moe-stages-in-pairs.md). Each height of a list is the most rows that it serves. Int4 whose
/// sums stay in the matrix unit has one: its loops are for a whole tile.
constexpr GemmHeights gemm_heights(const GemmSpec& s, const GemmPolicy& p) {
  const GemmHeights whole{1, {p.rows}};
  if (!s.four_bit() || s.groups == GemmGroups::one || p.waves_columns != 1) return whole;
  if (s.rounds_weights() || gemm_rescales_sums(s, p)) return whole;
  if (s.weights != GemmWeights::fragments) return p.rows == 64 ? GemmHeights{2, {32, 64}} : whole;
  if (p.rows == 16) return {2, {8, 16}, 16};
  if (p.rows == 80) return {4, {16, 24, 48, 80}, 24};
  if (p.rows == 128 && s.gated) return {4, {16, 32, 64, 128}, 64};
  if (p.rows == 160 && !s.gated) return {4, {32, 64, 128, 160}, 64};
  return whole;
}

/// Says whether rows have other bits in low tiles than in high ones: sm90 multiplies few rows of fragments by mma.sync
/// and more by wgmma, which add up in orders of their own.
constexpr bool gemm_height_changes_bits(const GemmSpec& s, const GemmPolicy& p) {
  const GemmHeights heights = gemm_heights(s, p);
  return heights.by_waves > 0 && heights.rows[heights.count - 1] > heights.by_waves;
}

}  // namespace tilewave::detail
