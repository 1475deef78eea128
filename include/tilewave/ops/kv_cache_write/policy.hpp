// SPDX-License-Identifier: MIT
// How heads are written into a cache. A policy changes the speed only.
#pragma once

#include "tilewave/ops/kv_cache_write/spec.hpp"
#include "tilewave/ops/rope/policy.hpp"

namespace tilewave {

/// A head is held by part of a wave or a wave, as rope holds it.
using KvCacheWritePolicy = RowPolicy;

/// The policies that entries of a spec are built for, those that hold a group. Weights of norms take registers, so
/// fused norms claim fewer waves.
constexpr RowPolicies kv_cache_write_policies(ArchId arch, const KvCacheWriteSpec& s) {
  const RowPolicies heads = head_policies(arch, s.x);
  RowPolicies all;
  for (RowPolicy p : heads) {
    if (s.fused) p.waves_per_simd = per_arch(arch, 8, 8, 10) - (s.norm ? 2 : 0);
    if (p.columns(s.x) >= s.group) all.add(p);
  }
  return all;
}

}  // namespace tilewave
