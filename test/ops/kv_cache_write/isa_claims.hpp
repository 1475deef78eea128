// SPDX-License-Identifier: MIT
// What the compiled code of cache writes must hold, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/kv_cache_write/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const KvCacheWriteSpec& s, const RowPolicy& p) {
  // The slot has two words, and a given scale one, once for heads and once for V. A position has two more words.
  const bool fp8 = is_fp8(s.kv), found = s.quant == Scaling::per_token;
  RowUse use{.exchanges = 0, .values = s.norm + found, .scalar_loads = 2 * (2 + (fp8 && !found)) + 2 * s.fused};
  use.scalar_loads += s.fused && is_fp8(s.q_out);
  use.scalar_stores = 2 * found;
  ordered_json claims = row_claims<arch>(use, s.x, s.x, Scaling::none, p);
  const int unit = p.vec / size_of(s.x), weights = s.norm ? p.chunks : 0;
  const int tables = s.fused ? 2 * unit * size_of(s.table) / 16 : 0;
  claims["wide_loads"] = 2 * p.chunks + weights + tables;  // a head of k or q, and one of v
  // Stores into token_major caches have 16 bytes, for K, V and q. Codes of halves have 8 bytes.
  const bool joined = !s.fused || s.pairs == RopePairs::neighbours;
  const auto wide = [&](DType type, bool neighbours) { return !is_fp8(type) ? p.chunks : neighbours ? 1 : 0; };
  // If q and K end alike, clang lets one store serve the last accesses of both.
  const bool shared = s.fused && !joined && s.q_out == s.kv;
  const int of_fused = s.fused ? wide(s.q_out, joined) + p.chunks : 0;  // q_out and k_out
  claims["wide_stores"] = wide(s.kv, joined) + wide(s.kv, true) + of_fused - shared;
  // These are elements of V in a dim_major cache, and codes of halves.
  const int halves = (fp8 && !joined ? 2 * unit : 0) + (s.fused && is_fp8(s.q_out) && !joined ? 2 * unit : 0);
  claims["narrow_store_bytes"] = 4 * use.scalar_stores + 2 * unit * size_of(s.kv) + halves;
  if (s.group > 0) {  // no V; a scale of q and one of K for each group
    const auto steps = [](int lanes) {
      int n = 0;
      while (lanes >> (n + 1) != 0) ++n;
      return n;
    };
    claims["wide_loads"] = p.chunks + weights + tables;
    claims["wide_stores"] = 2 + p.chunks;  // codes of q and K, and k_out
    claims["narrow_load_bytes"] = 4 * 4;   // slot and position
    claims["narrow_store_bytes"] = 2 * (s.e8m0 ? 1 : 4);
    claims["dpp"] = steps(p.lanes) + steps(s.group / (2 * unit));
  }
  return claims;
}

}  // namespace tilewave::test
