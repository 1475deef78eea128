// SPDX-License-Identifier: MIT
// How the specs of a list of row operations are divided among code objects, and which of these gate every change.
#pragma once

#include <cstddef>
#include <string_view>

#include "tilewave/arch/facts.hpp"

namespace tilewave::test {

/// Among how many groups the specs are dealt out: group i has every row_groups()-th spec from i on, about four, since an
/// object of one would be mostly headers. Lists are loops over kinds, types and scales, two to four of each: with an odd
/// step a group has some of each.
constexpr std::size_t row_groups(std::size_t specs) {
  const std::size_t fours = (specs + 3) / 4;
  return fours > 2 ? fours | 1 : fours;
}
/// Which half of a spec's policies a policy belongs to: neighbours take turns, and so do neighbours among the specs.
constexpr std::size_t half_of(std::size_t spec, std::size_t policy) { return (spec + policy) % 2; }

/// The code object of a policy, counted over `specs`: two of each group, one for each half of the policies.
constexpr std::size_t row_object(std::size_t spec, std::size_t policy, std::size_t specs) {
  return 2 * (spec % row_groups(specs)) + half_of(spec, policy);
}

/// The first group of an op's own list, of which each chip has another half; the other objects, and lists for tests
/// labelled full, wait for that label.
constexpr bool in_slice(ArchId arch, std::string_view list, std::string_view op, std::size_t object) {
  return list == op && object == (arch == ArchId::gfx942 ? 1 : 0);
}

}  // namespace tilewave::test
