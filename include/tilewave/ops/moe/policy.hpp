// SPDX-License-Identifier: MIT
// How a layer of experts is computed. A policy changes the speed, never the answer.
#pragma once

#include <array>
#include <string>

#include "tilewave/ops/moe/spec.hpp"

namespace tilewave {

/// Where results lie between the second product and the sums.
/// - rows: in the order of their experts, and the sums look up the row of each choice.
/// - slots: the second product scatters them to [tokens][slots], where the sums expect them.
enum class MoeResults : int { rows, slots };

struct MoePolicy {
  MoeResults results = MoeResults::rows;

  friend constexpr bool operator==(const MoePolicy&, const MoePolicy&) = default;
};

inline std::string name_of(const MoePolicy& p) { return p.results == MoeResults::rows ? "rows" : "slots"; }

/// Returns the policies of a spec, the usual one first. Results of tokens that lie by expert stay where they are.
constexpr std::array<MoePolicy, 2> moe_policies(ArchId, const MoeSpec&) {
  return {{{MoeResults::rows}, {MoeResults::slots}}};
}

/// Returns the spec of the second product of a policy.
constexpr GemmSpec moe_second_spec(const MoeSpec& s, const MoePolicy& p) {
  GemmSpec g = moe_second_spec(s);
  g.scattered = !s.masked() && p.results == MoeResults::slots;
  return g;
}

}  // namespace tilewave
