// SPDX-License-Identifier: MIT
// What the compiled code of writes into latent caches must hold, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/latent_cache_write/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const LatentCacheWriteSpec& s, const RowPolicy& p) {
  const LatentRow row = s.row();
  const bool one_scale = is_fp8(s.kv) && row.group() == 0;
  // The slot has two words, and a position two for a row and for q each.
  const RowUse use{.exchanges = 0, .values = 0, .scalar_loads = 2 + 2 * 2 + one_scale};
  ordered_json claims = row_claims<arch>(use, DType::bf16, DType::bf16, Scaling::none, p);
  claims["bytes_in_flight"] = 0;  // a lane has one unit, and waits for a slot or a position beside it
  const bool halves = s.pairs == RopePairs::halves;
  // Of a rotated unit: itself, its other half, and cos and sin; eight bytes of these for two of bf16 and neighbours.
  const int tables = (halves ? 2 : 1) * 2, wide_tables = size_of(s.table) == 4 ? tables : 0;
  claims["wide_loads"] = 1 + 2 * (1 + halves + wide_tables);  // latent dimensions, then rotated ones of K and q
  claims["narrow_load_bytes"] = 4 * use.scalar_loads + (wide_tables == 0 ? 2 * 8 * tables : 0);
  const int of_codes = row.codes() > 0 ? 8 * (row.layout == LatentLayout::plain ? 2 : 1) : 0;
  claims["wide_stores"] = 1 + (row.codes() == 0 ? 2 : row.layout != LatentLayout::plain);
  claims["narrow_store_bytes"] = of_codes + (row.group() == 0 ? 0 : row.scales_apart() ? 1 : 4);
  claims["dpp"] = 0;
  for (int lanes = row.group() / 8; lanes > 1; lanes /= 2) claims["dpp"] = int{claims["dpp"]} + 1;
  return claims;
}

}  // namespace tilewave::test
