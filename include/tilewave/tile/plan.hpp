// SPDX-License-Identifier: MIT
// The plan of a call: every op is launched in this one way.
//
//   SoftmaxPlan plan;
//   Status status = softmax_plan<B, spec>(problem, plan);   // chooses a kernel from extents and strides; reads nothing
//   ... problem.workspace has plan.workspace_bytes(problem) bytes, which are 0 for most ops
//   status = plan.launch(problem, stream);
//
// A plan serves every later problem of the same spec, extents, strides and flags; pointers may differ.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave {

template <class Registry>
struct OpEntry;

namespace detail {

/// The entry type of a Registry: OpEntry<Registry>, or a type of its own.
template <class Registry>
struct EntryOf {
  using type = OpEntry<Registry>;
};
template <class Registry>
requires requires { typename Registry::Entry; }
struct EntryOf<Registry> {
  using type = typename Registry::Entry;
};

}  // namespace detail

/// The answer to a problem of another spec than the one that a plan is compiled for.
inline constexpr Status not_the_compiled_spec{StatusCode::no_matching_entry,
                                              "problem.spec is not the spec that the plan is compiled for"};

/// Returns pointers to entries of static storage, among which a plan is chosen.
template <class Entry, std::size_t count>
constexpr std::array<const Entry*, count> candidates_of(const std::array<Entry, count>& entries) {
  std::array<const Entry*, count> candidates{};
  for (std::size_t i = 0; i < count; ++i) candidates[i] = &entries[i];
  return candidates;
}

/// A part of the entries of a spec: number `number` of `of` parts. A build compiles them side by side.
struct EntryPart {
  int number = 0, of = 1;
};

/// An entry and the run-time part of its policy. A Registry (registry.hpp) may also have
///   workspace_bytes(problem, policy, facts, splits)   the bytes, where a launch needs a workspace; of any problem
///   considers(problem, entry, facts)                  ok, or the reason why the choice passes over an entry
///   cost_us(problem, entry, splits)                   the modelled time by which the choice ranks entries
///   name(entry, splits)                               the name in rows and tables, where the policy's is not enough
///   absent_kinds(problem, candidates, facts)          a list with a status for each kind of entry: ok, or why the
///                                                     candidates have none of it
template <class Registry>
struct OpPlan {
  using Entry = typename detail::EntryOf<Registry>::type;
  using Problem = typename Registry::Problem;

  const Entry* entry = nullptr;
  int splits = 1;  // blocks that share the K of a tile, or the tokens of a sequence
  std::span<const Entry* const>
      candidates{};  // the entries among which it was chosen; the maker of the plan keeps them

  /// Returns the bytes that launch() needs at problem.workspace, 16-byte aligned, with any contents. It is 0 for most
  /// ops, for a plan without an entry, and for extents that launch() refuses: a plan that is kept may meet any.
  std::size_t workspace_bytes(const Problem& p) const {
    if (entry == nullptr) return 0;
    if constexpr (requires { Registry::workspace_bytes(p, entry->policy, facts_of(entry->arch), splits); }) {
      return Registry::workspace_bytes(p, entry->policy, facts_of(entry->arch), splits);
    } else {
      return 0;
    }
  }

  /// Queues the op's kernels on the stream. Nothing is allocated, synchronised or read from the device, so the call can
  /// be captured in a graph. Errors, before anything is queued: no_matching_entry for a plan that was not made; those
  /// of the op's check; workspace_too_small; launch_failed with the runtime's reason.
  Status launch(const Problem& p, hipStream_t stream) const {
    if (entry == nullptr) return {StatusCode::no_matching_entry, "the plan has no entry: it was not made, or refused"};
    if constexpr (requires { entry->launch(p, splits, stream); }) {
      return entry->launch(p, splits, stream);
    } else {
      return entry->launch(p, stream);
    }
  }

  /// Returns the policy and the splits, as benchmark rows and tables show them; "none" without an entry.
  std::string name() const { return entry == nullptr ? "none" : name(*entry, splits); }

  /// Returns one line for each candidate: the choice took it, considered it, or passed over it for a reason. Then it
  /// returns one line for each kind of entry of which there is no candidate. For a problem that the op's check refuses,
  /// it returns one line with that reason.
  std::string explain(const Problem& p) const {
    const Entry* const first = entry != nullptr ? entry : candidates.empty() ? nullptr : candidates.front();
    if (first == nullptr) return "no entry was compiled in: the status that made this plan says why\n";
    const ArchFacts& facts = facts_of(first->arch);
    if (const Status s = Registry::check(p, facts); !s.ok()) return reason(s) + "\n";
    std::string text;
    for (const Entry* e : candidates) {
      const Status s = considered(p, *e, facts);
      text += name(*e, e == entry ? splits : 1);
      text += e == entry ? ": chosen" : s.ok() ? ": serves" : ": " + reason(s);
      if constexpr (requires { Registry::cost_us(p, *e, 1); }) {
        if (s.ok()) text += ", modelled " + std::to_string(Registry::cost_us(p, *e, e == entry ? splits : 1)) + " us";
      }
      text += "\n";
    }
    if constexpr (requires { Registry::absent_kinds(p, candidates, facts); }) {
      for (const Status& s : Registry::absent_kinds(p, candidates, facts))
        if (!s.ok()) text += "not compiled in: " + reason(s) + "\n";
    }
    return text;
  }

 private:
  static std::string reason(const Status& s) { return std::string(name_of(s.code)) + ": " + s.reason; }
  static std::string name(const Entry& e, int splits) {
    if constexpr (requires { Registry::name(e, splits); }) {
      return Registry::name(e, splits);
    } else {
      return name_of(e.policy);
    }
  }

  static Status considered(const Problem& p, const Entry& e, const ArchFacts& facts) {
    if constexpr (requires { Registry::considers(p, e, facts); }) {
      return Registry::considers(p, e, facts);
    } else {
      if (!(e.spec == p.spec)) return {StatusCode::no_matching_entry, "built for another spec"};
      return Registry::takes(e.policy, p, facts);
    }
  }
};

}  // namespace tilewave
