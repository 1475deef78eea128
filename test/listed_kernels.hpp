// SPDX-License-Identifier: MIT
// Which kernels a program does not compile, since it links the lists of entries that have them: their launch functions
// are declared as instantiated elsewhere. One that is nowhere does not link. Included in front of what uses the kernels.
#pragma once

#include <cstddef>

#include "tilewave/core/hip.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave::test {

inline constexpr std::size_t most_listed_policies = 16;  // as many as the macros below name
/// Whether a list of specs has this one.
template <class Specs, class Spec>
constexpr bool has_spec(const Specs& specs, const Spec& spec) {
  for (const Spec& s : specs)
    if (s == spec) return true;
  return false;
}
/// The policy at an index, and behind the last policy the first: a launch function may be declared again.
template <auto policies_of, auto spec, std::size_t i, class B>
constexpr auto listed_policy() {
  constexpr auto policies = policies_of(B::facts.id, spec);
  static_assert(policies.size() > 0 && policies.size() <= most_listed_policies, "name more policies below");
  return policies[i < policies.size() ? i : 0];
}

}  // namespace tilewave::test

/// LISTED_KERNELS(launch function, its parameters in parentheses, backend, spec, its list's specs, its list's policies)
#define LISTED_KERNELS(launch, parameters, B, spec, specs, policies)                                \
  static_assert(::tilewave::test::has_spec(specs(B::facts.id), spec), "the list has no such spec"); \
  LINKED_KERNELS(launch, parameters, B, spec, policies)
/// LINKED_KERNELS(launch function, its parameters in parentheses, backend, spec, its policies): whatever list has them
#define LINKED_KERNELS(launch, parameters, B, spec, policies) \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 0)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 1)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 2)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 3)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 4)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 5)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 6)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 7)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 8)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 9)     \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 10)    \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 11)    \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 12)    \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 13)    \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 14)    \
  LISTED_KERNEL(launch, parameters, B, spec, policies, 15)
#define LISTED_KERNEL(launch, parameters, B, spec, policies, i) \
  extern template Status launch<B, spec, ::tilewave::test::listed_policy<policies, spec, i, B>()> parameters;
