// SPDX-License-Identifier: MIT
// The policy says how experts are chosen. It may change the speed, never the choice.
#pragma once

#include "tilewave/ops/topk_gating/spec.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// The experts of a token are held as a row, by a wave or less.
struct TopkGatingPolicy : RowPolicy {
  int keep = 8;  // the best of each lane that are merged, which is the most that can be chosen

  friend constexpr bool operator==(const TopkGatingPolicy&, const TopkGatingPolicy&) = default;
};

/// The name is like `l16.r16.c2.v16.k8`: that of a RowPolicy, and the most that can be chosen.
inline std::string name_of(const TopkGatingPolicy& p) {
  return name_of(static_cast<const RowPolicy&>(p)) + ".k" + std::to_string(p.keep);
}

using TopkGatingPolicies = ValueList<TopkGatingPolicy, 8>;

/// Returns the policies that entries of a spec are built for. A lane holds 16 experts, or what a wave leaves it: few
/// enough that sorting them costs no more than merging lanes does.
constexpr TopkGatingPolicies topk_gating_policies(ArchId arch, const TopkGatingSpec& s) {
  TopkGatingPolicies all;
  const int wave = facts_of(arch).wave_lanes, unit = 16 / size_of(s.x);
  const auto add = [&](int lanes, int experts_of_lane, int keep, int threads, bool wide) {
    TopkGatingPolicy p;
    p.lanes = lanes;
    p.rows = threads / lanes;
    p.chunks = wide ? experts_of_lane / unit : experts_of_lane;
    p.vec = wide ? 16 : size_of(s.x);
    p.span = wide ? 1 : 8;
    // Sorting needs 54 registers on CDNA and 72 on sm90, or 128 where a lane holds 32 experts; this occupancy leaves
    // them.
    const bool few = wide && experts_of_lane <= 16;
    p.waves_per_simd = wave == 64 ? (few ? 8 : wide ? 4 : 2) : (few ? 6 : 4);
    p.keep = keep;
    all.add(p);
  };
  const int most = most_gating_experts / wave;
  add(1, 8, 8, 256, true);
  add(8, 16, 8, 256, true);
  add(16, 16, 8, 256, true);
  if (facts_of(arch).family == Family::hopper)
    add(8, 32, 8, 256, true);  // a third fewer instructions a token, but a longer dependent chain
  add(16, 32, 8, 256, true);
  add(wave, most, 8, 256, true);
  add(wave, most, 16, 256, true);
  add(wave, most, 16, 128, false);
  return all;
}

}  // namespace tilewave
