// SPDX-License-Identifier: MIT
// How an indexer's logits are computed. A policy changes the speed only.
#pragma once

#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/value_list.hpp"
#include "tilewave/ops/mqa_logits/spec.hpp"

namespace tilewave {

/// A team is the waves that multiply together: one wave of CDNA, which takes 32 keys at a time, or a wave group of
/// sm90, which takes 64.
struct MqaLogitsPolicy {
  int queries = 1;  // of a block; each is multiplied with every key that is loaded
  int teams = 1;    // of a block, each with keys of its own
  int stages = 2;   // tiles of keys that a team loads ahead
  int waves_per_simd = 2;
  bool arranged = false;  // gfx950, ranges: lanes load whole lines of keys, and exchange them through LDS
  bool bulk = false;      // sm90: the copy engine copies tiles of keys to shared memory

  friend constexpr bool operator==(const MqaLogitsPolicy&, const MqaLogitsPolicy&) = default;

  constexpr int block_threads() const { return teams * 64; }                 // of CDNA
  constexpr int blocks_per_cu() const { return bulk ? waves_per_simd : 4; }  // at a time, approximately
};

/// `t4.q2.s2.lds`: teams, queries, stages, arranged; or `t1.q4.s4.bulk`.
inline std::string name_of(const MqaLogitsPolicy& p) {
  return "t" + std::to_string(p.teams) + ".q" + std::to_string(p.queries) + ".s" + std::to_string(p.stages) +
         (p.arranged ? ".lds" : "") + (p.bulk ? ".bulk" : "");
}

using MqaLogitsPolicies = ValueList<MqaLogitsPolicy, 5>;

/// The policies of a spec. One has one query a block, for calls with no more, which read keys at the speed of memory.
/// Others have as many queries as registers hold (CDNA), or as make products the bound instead of L2 (sm90). Entries
/// that are not bulk take pages of any size.
constexpr MqaLogitsPolicies mqa_logits_policies(ArchId arch, const MqaLogitsSpec& s) {
  if (facts_of(arch).wave_groups) {
    return {
        {{{1, 1, 5, 4, false, true}, {2, 1, 5, 3, false, true}, {4, 1, 4, 3, false, true}, {1, 1, 3, 4}, {4, 1, 2, 3}}},
        5};
  }
  return {{{{1, 4, 2, 4}, {2, 4, 2, 2, facts_of(arch).direct_copies && s.keys == MqaKeys::ranges}}}, 2};
}

}  // namespace tilewave
