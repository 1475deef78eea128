// SPDX-License-Identifier: MIT
// How a layer of experts is computed. A policy changes the speed, never the answer.
#pragma once

#include <string>

#include "tilewave/core/value_list.hpp"
#include "tilewave/ops/moe/spec.hpp"

namespace tilewave {

/// Where results lie between the second product and the sums.
/// - rows: in the order of their experts, and the sums look up the row of each choice.
/// - slots: the second product scatters them to [tokens][slots], where the sums expect them.
enum class MoeResults : int { rows, slots };

/// How the first product gets the rows of x.
/// - gathered: it takes each row where the token has it.
/// - copied: a launch in front of it copies rows into the order of their experts.
enum class MoeTokens : int { gathered, copied };

struct MoePolicy {
  MoeResults results = MoeResults::rows;
  MoeTokens tokens = MoeTokens::gathered;

  friend constexpr bool operator==(const MoePolicy&, const MoePolicy&) = default;
};

/// Returns `rows` or `slots`, and `.copied` behind it.
inline std::string name_of(const MoePolicy& p) {
  return std::string(p.results == MoeResults::rows ? "rows" : "slots") +
         (p.tokens == MoeTokens::copied ? ".copied" : "");
}

/// Returns the policies of a spec, the usual one first. Results of tokens that lie by expert stay where they are. On
/// sm90 lanes gather rows, which takes longer than products where experts have many rows. A weight on the input needs
/// ids in the first product.
constexpr ValueList<MoePolicy> moe_policies(ArchId arch, const MoeSpec& s) {
  ValueList<MoePolicy> policies;
  policies.add({MoeResults::rows});
  policies.add({MoeResults::slots});
  if (facts_of(arch).matrix == Matrix::mma && !s.masked() && s.weight == MoeWeight::output)
    policies.add({MoeResults::rows, MoeTokens::copied});
  return policies;
}

/// Returns the spec of the first product of a policy.
constexpr GemmSpec moe_first_spec(const MoeSpec& s, const MoePolicy& p) {
  GemmSpec g = moe_first_spec(s);
  g.gathered = g.gathered && p.tokens == MoeTokens::gathered;
  return g;
}

/// Returns the spec of the second product of a policy.
constexpr GemmSpec moe_second_spec(const MoeSpec& s, const MoePolicy& p) {
  GemmSpec g = moe_second_spec(s);
  g.scattered = !s.masked() && p.results == MoeResults::slots;
  return g;
}

}  // namespace tilewave
