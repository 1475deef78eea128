// SPDX-License-Identifier: MIT
// Entries of a spec are built for these policies. One list feeds dispatch, tests, benchmarks, the tuner and the gate.
#pragma once

#include <array>

#include "tilewave/ops/flash_attention/choice/policies_cdna.hpp"
#include "tilewave/ops/flash_attention/choice/policies_sm90.hpp"

namespace tilewave {

/// Returns the policies of a spec, the fastest first. The one of path registers, which takes all problems, comes last.
constexpr FlashAttentionPolicies flash_attention_policies(ArchId arch, const FlashAttentionSpec& s) {
  FlashAttentionPolicies all;
  if (facts_of(arch).family == Family::cdna) {
    add_flash_policies_cdna(arch, s, all);
  } else {
    add_flash_policies_sm90(arch, s, all);
  }
  all.add({.path = FlashAttentionPath::registers, .rows = 64, .keys = AtomFacts::groups * s.unit(), .waves = 4});
  return all;
}

}  // namespace tilewave
