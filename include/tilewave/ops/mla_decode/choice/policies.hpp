// SPDX-License-Identifier: MIT
// Entries of a spec are built for these policies. One list feeds dispatch, tests, benchmarks, the tuner and the gate.
#pragma once

#include "tilewave/core/value_list.hpp"
#include "tilewave/ops/mla_decode/policy.hpp"

namespace tilewave {

using MlaDecodePolicies = ValueList<MlaDecodePolicy, 8>;

/// Returns the policies of a spec, the fastest first. The last one takes all problems.
constexpr MlaDecodePolicies mla_decode_policies(ArchId arch, const MlaDecodeSpec& s) {
  MlaDecodePolicies all;
  const auto add = [&](const MlaDecodePolicy& p) {
    if (mla_decode_policy_status(arch, s, p).ok()) all.add(p);
  };
  constexpr PagedAttentionSchedule balanced = PagedAttentionSchedule::balanced, even = PagedAttentionSchedule::even;
  const auto tensor = [&](PagedAttentionSchedule schedule, bool gathered, int rows = 64) {
    const bool three = rows == 64 && !gathered && !is_fp8(s.kv);  // wave groups
    const int waves = three ? 12 : 8;
    add({.path = MlaDecodePath::tensor,
         .rows = rows,
         .tokens = 64,
         .waves = waves,
         .schedule = schedule,
         .waves_per_simd = waves / 4 + 1,
         .gathered = gathered});
  };
  tensor(balanced, false);
  if (s.kv == s.q) tensor(even, false);  // path registers makes batch-invariant calls of other caches
  tensor(balanced, true);
  if (is_fp8(s.kv)) {  // of bf16 they are no faster
    tensor(balanced, false, 32);
    tensor(balanced, false, 16);
    tensor(balanced, true, 32);  // pages of odd sizes
  }
  const ArchFacts& facts = facts_of(arch);
  const bool cdna = facts.family == Family::cdna;
  for (const int rows : {128, 64, 32}) {
    // 32 rows of fp8 q take path token_waves.
    if (rows < mla_lds_least_rows(facts) || (rows == 32 && is_fp8(s.q))) continue;
    add({.path = MlaDecodePath::lds,
         .rows = rows,
         .tokens = mla_lds_tokens(facts, s),
         .waves = 4,
         .schedule = balanced,
         .waves_per_simd = 1});
  }
  // Wide blocks read the cache less often. On gfx950 they have the LDS for q of 64 rows, or of 32 twice. Path lds
  // leaves them pages of odd sizes, and of codes under bf16 q nothing. Up to 32 rows of codes take path token_waves.
  const bool wide_lds = cdna && facts.lds_bytes > 128 * 1024, lds = all.size() > 0;
  if (cdna && !lds) add({.rows = 64, .schedule = balanced, .waves_per_simd = 1});
  const auto token_waves = [&](int rows) {
    add({.path = MlaDecodePath::token_waves,
         .rows = rows,
         .tokens = mla_token_waves_tokens(facts, s, 4),
         .schedule = balanced,
         .waves_per_simd = 1});
  };
  if (cdna && is_fp8(s.q)) {
    token_waves(32);
  } else if (!cdna || s.kv == s.q) {
    add({.rows = 32, .schedule = balanced, .waves_per_simd = wide_lds ? 2 : 1});
  }
  if (cdna) {
    token_waves(16);
  } else {
    add({.rows = 16, .schedule = balanced, .waves_per_simd = 2});
  }
  add({.rows = 16, .waves_per_simd = 2});
  return all;
}

}  // namespace tilewave
