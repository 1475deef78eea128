// SPDX-License-Identifier: MIT
// How heads are written into a cache: changes the speed only.
#pragma once

#include "tilewave/ops/kv_cache_write/spec.hpp"
#include "tilewave/ops/rope/policy.hpp"

namespace tilewave {

/// Heads are held as by rope.
using KvCacheWritePolicy = RowPolicy;

/// The policies that entries of a spec are built for. Weights of norms take registers.
constexpr RowPolicies kv_cache_write_policies(ArchId arch, const KvCacheWriteSpec& s) {
  RowPolicies all = head_policies(arch, s.x);
  for (int i = 0; i < all.count; ++i) {
    if (s.fused) all.list[i].waves_per_simd = (arch == ArchId::sm90 ? 10 : 8) - (s.norm ? 2 : 0);
  }
  return all;
}

}  // namespace tilewave
