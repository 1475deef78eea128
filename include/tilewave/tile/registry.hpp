// SPDX-License-Identifier: MIT
// The registry of an operation with one kernel a call: its entries, the choice among them, and the plan for one spec.
// Operations whose plans hold more than an entry have a registry of their own. A Registry is a struct with
//   Spec, Problem, Policy               the structs of the operation
//   check_spec(spec, facts)             ok if kernels of a spec can be built for a chip, or the rule that it breaks;
//                                       constexpr
//   check(problem, facts)               every rule that a problem must satisfy, those of its spec first
//   policies(arch, spec)                the policies that entries are built for, with size() and [i]
//   takes(policy, problem, facts)       ok if such an entry serves the problem, or the reason why not
//   better(a, b, problem, facts)        true if policy a suits the problem better than b, and both take it
//   launch<B, S, P>()                   the launch function of an entry
#pragma once

#include <array>
#include <span>
#include <utility>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/core/value_list.hpp"
#include "tilewave/tile/plan.hpp"

namespace tilewave {

/// A compiled kernel: its spec, its policy and its launch function.
template <class Registry>
struct OpEntry {
  ArchId arch;
  bool emulated;
  typename Registry::Spec spec;
  typename Registry::Policy policy;
  Status (*launch)(const typename Registry::Problem&, hipStream_t);
};

template <class Registry, class B, typename Registry::Spec S>
struct OpEntries {
  static constexpr auto policies = Registry::policies(B::facts.id, S);
  template <std::size_t... i>
  static constexpr std::array<OpEntry<Registry>, sizeof...(i)> all(std::index_sequence<i...>) {
    return {
        OpEntry<Registry>{B::facts.id, B::emulated, S, policies[i], Registry::template launch<B, S, policies[i]>()}...};
  }
};

/// All entries of one spec on one backend.
template <class Registry, class B, typename Registry::Spec S>
inline constexpr auto op_entries =
    OpEntries<Registry, B, S>::all(std::make_index_sequence<OpEntries<Registry, B, S>::policies.size()>{});

/// Picks the entry for a problem: among the candidates of its spec that take it, the one that suits it best, and the
/// first of equals. Errors, with a null entry: those of Registry::check and Registry::takes, or no_matching_entry.
template <class Registry>
Status select_entry(const typename Registry::Problem& p, std::span<const OpEntry<Registry>* const> candidates,
                    const ArchFacts& facts, const OpEntry<Registry>*& entry) {
  entry = nullptr;
  if (Status s = Registry::check(p, facts); !s.ok()) return s;
  Status none{StatusCode::no_matching_entry, "no entry was built for this spec"};
  for (const OpEntry<Registry>* e : candidates) {
    if (e->arch != facts.id || !(e->spec == p.spec)) continue;
    if (Status s = Registry::takes(e->policy, p, facts); !s.ok()) {
      if (none.code == StatusCode::no_matching_entry) none = s;  // another code is more specific
    } else if (entry == nullptr || Registry::better(e->policy, entry->policy, p, facts)) {
      entry = e;
    }
  }
  return entry == nullptr ? none : Status{};
}

/// Returns pointers to the entries of one spec on one backend, among which a plan is chosen.
template <class Registry, class B, typename Registry::Spec S>
inline constexpr auto op_candidates = candidates_of(op_entries<Registry, B, S>);

/// Makes the plan of a problem on backend B for the one spec S that the caller compiles in. A spec that the chip does
/// not serve compiles as well: the status of Registry::check_spec is then the answer to every problem. Other errors:
/// no_matching_entry for a problem of another spec; those of select_entry.
template <class Registry, class B, typename Registry::Spec S>
Status plan_entry(const typename Registry::Problem& p, OpPlan<Registry>& plan) {
  plan = {};  // nvcc passes g++ no designated initializer of a span
  constexpr Status served = Registry::check_spec(S, B::facts);
  if constexpr (!served.ok()) {  // its kernels would not compile
    return served;
  } else {
    plan.candidates = op_candidates<Registry, B, S>;
    if (!(p.spec == S)) return not_the_compiled_spec;
    return select_entry<Registry>(p, op_candidates<Registry, B, S>, B::facts, plan.entry);
  }
}

}  // namespace tilewave
