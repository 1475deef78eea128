// SPDX-License-Identifier: MIT
// The plan of a layer of experts: an entry for each of its launches.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "tilewave/ops/moe/check.hpp"
#include "tilewave/ops/moe/choose.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave {

/// What a room has of a layer itself. Everything else are entries of other ops.
struct MoeEntry {
  ArchId arch;
  bool emulated;
  MoeSpec spec;
  MoePolicy policy;
  Status (*route)(const MoeRouteArgs&, hipStream_t);
  Status (*copy)(MoeCopyArgs, hipStream_t);
  Status (*choose)(const MoeProblem&, const MoeCalls&, hipStream_t);  // null where a layer chooses no experts
};

/// The entries among which a plan chooses. Their owner keeps them.
struct MoeParts {
  std::span<const MoeEntry* const> layers;
  std::span<const TopkGatingEntry* const> gating;
  std::span<const MoeSortEntry* const> sort;
  std::span<const QuantEntry* const> quant;
  std::span<const GemmEntry* const> products;
  std::span<const MoeReduceEntry* const> sum;
};

/// A plan serves every later problem of the same spec, extents, strides and flags. Pointers and routing may differ, so
/// a launch may be captured in a graph.
struct MoePlan {
  const MoeEntry* entry = nullptr;
  const TopkGatingEntry* gating = nullptr;
  const MoeSortEntry* sort = nullptr;
  const QuantEntry *quant_x = nullptr, *quant_h = nullptr;
  GemmPlan first{}, second{};
  const MoeReduceEntry* sum = nullptr;

  /// Returns the bytes that launch() needs at problem.workspace, 16-byte aligned, with any contents. It is 0 for
  /// extents that launch() refuses.
  std::size_t workspace_bytes(const MoeProblem& p) const {
    if (entry == nullptr || !detail::check_moe_extents(p).ok() || moe_is_empty(p)) return 0;
    return MoeCalls(p, entry->policy, moe_no_workspace(), entry_bytes(p)).workspace_bytes;
  }

  /// Queues the layer's launches on the stream. Nothing is allocated, synchronised or read from the device.
  /// Errors, before anything is queued: no_matching_entry for a plan that was not made, or of another spec; those of
  /// moe_check; null_pointer, misaligned or workspace_too_small for the workspace; launch_failed with the runtime's
  /// reason.
  Status launch(const MoeProblem& p, hipStream_t stream) const {
    return checked(p, [&](const MoeCalls& calls) {
      const LaunchesApart apart(!overlaps(p));
      for (int l = 0; l < moe_launches; ++l)
        if (Status s = run(p, calls, static_cast<MoeLaunch>(l), stream); !s.ok()) return s;
      return Status{};
    });
  }
  /// Queues one launch, or none where the layer has no such launch. What those before it wrote is in the workspace.
  Status launch_one(const MoeProblem& p, MoeLaunch one, hipStream_t stream) const {
    return checked(p, [&](const MoeCalls& calls) { return run(p, calls, one, stream); });
  }
  /// Returns the problems of all launches, as launch() has them.
  MoeCalls calls(const MoeProblem& p) const { return MoeCalls(p, entry->policy, p.workspace, entry_bytes(p)); }

  /// A launch, and the entry that it runs.
  struct Launch {
    MoeLaunch what;
    std::string entry;
  };
  /// Returns the launches of a problem, in order.
  std::vector<Launch> launches(const MoeProblem& p) const {
    std::vector<Launch> all;
    if (entry == nullptr || !detail::check_moe_extents(p).ok() || moe_is_empty(p)) return all;
    const auto policy = [](const auto* e) { return e == nullptr ? std::string("none") : name_of(e->policy); };
    const std::array<std::string, moe_launches> names{"block",         policy(gating), "lanes",      policy(sort),
                                                      policy(quant_x), "waves",        first.name(), policy(quant_h),
                                                      second.name(),   policy(sum)};
    for (int l = 0; l < moe_launches; ++l)
      if (moe_has(p, entry->policy, static_cast<MoeLaunch>(l))) all.push_back({static_cast<MoeLaunch>(l), names[l]});
    return all;
  }
  /// Returns the policy, and the entries of both products: they tell plans of a spec apart.
  std::string name() const {
    return entry == nullptr ? "none" : name_of(entry->policy) + "+" + first.name() + "+" + second.name();
  }

 private:
  /// Says whether kernels begin while the one before ends (overlap_launches). Blocks then begin one by one, as others
  /// leave their SMs. Where experts have many rows, L2 no longer serves those that read the same weights at about the
  /// same time. Where a product has fewer tiles than its blocks have places, they stand two to an SM, beside SMs
  /// without one (docs/notebook/2026-11-28-moe-launches.md).
  bool overlaps(const MoeProblem& p) const {
    if (p.spec.masked() || std::int64_t{p.rows()} > 8 * std::int64_t{p.resident()}) return false;
    const auto fills = [&](const GemmPlan& product, std::int32_t n) {
      const GemmPolicy& policy = product.entry->policy;
      const std::int64_t columns = ceil_div(n, policy.columns), groups = min_of(p.rows(), p.resident());
      return groups * columns >= std::int64_t{facts_of(entry->arch).compute_units} * policy.waves_per_simd;
    };
    return fills(first, 2 * p.intermediate) && fills(second, p.hidden);
  }
  struct LaunchesApart {
    bool before = overlap_launches;
    explicit LaunchesApart(bool apart) { overlap_launches = before && !apart; }
    LaunchesApart(const LaunchesApart&) = delete;
    LaunchesApart& operator=(const LaunchesApart&) = delete;
    ~LaunchesApart() { overlap_launches = before; }
  };
  MoeEntryBytes entry_bytes(const MoeProblem& p) const {
    const MoeCalls calls(p, entry->policy, moe_no_workspace(), {});
    MoeEntryBytes bytes;
    if (sort != nullptr) bytes.sort = moe_sort_workspace_size(calls.sort, sort->policy);
    if (moe_has(p, entry->policy, MoeLaunch::quant_x))
      bytes.quant = max_of(bytes.quant, quant_workspace_size(calls.quant_x));
    if (moe_has(p, entry->policy, MoeLaunch::quant_h))
      bytes.quant = max_of(bytes.quant, quant_workspace_size(calls.quant_h));
    bytes.first = first.workspace_bytes(calls.first), bytes.second = second.workspace_bytes(calls.second);
    return bytes;
  }
  template <class Queue>
  Status checked(const MoeProblem& p, const Queue& queue) const {
    if (entry == nullptr) return {StatusCode::no_matching_entry, "the plan has no entry: it was not made, or refused"};
    if (!(entry->spec == p.spec)) return {StatusCode::no_matching_entry, "the plan was made for another spec"};
    if (Status s = detail::check_moe_extents(p); !s.ok()) return s;
    const MoeEntryBytes bytes = entry_bytes(p);
    const ArchFacts& facts = facts_of(entry->arch);
    if (Status s = moe_check(p, entry->policy, facts, p.workspace, bytes); !s.ok()) return s;
    if (moe_is_empty(p)) return {};
    const MoeCalls calls(p, entry->policy, p.workspace, bytes);
    if (Status s = check_workspace(p.workspace, p.workspace_bytes, calls.workspace_bytes); !s.ok()) return s;
    if (Status s = detail::check_gemm_addresses(calls.first, first.entry->policy, facts); !s.ok()) return s;
    if (Status s = detail::check_gemm_addresses(calls.second, second.entry->policy, facts); !s.ok()) return s;
    return queue(calls);
  }
  Status run(const MoeProblem& p, const MoeCalls& calls, MoeLaunch one, hipStream_t stream) const {
    if (!moe_has(p, entry->policy, one)) return {};
    switch (one) {
      case MoeLaunch::choose: return entry->choose(p, calls, stream);
      case MoeLaunch::gating: return gating->launch(calls.gating, stream);
      case MoeLaunch::route: return entry->route(calls.route, stream);
      case MoeLaunch::sort: return sort->launch(calls.sort, stream);
      case MoeLaunch::quant_x: return quant_x->launch(calls.quant_x, stream);
      case MoeLaunch::copy: return entry->copy(calls.copy, stream);
      case MoeLaunch::first: return first.launch(calls.first, stream);
      case MoeLaunch::quant_h: return quant_h->launch(calls.quant_h, stream);
      case MoeLaunch::second: return second.launch(calls.second, stream);
      case MoeLaunch::sum: return sum->launch(calls.sum, stream);
    }
    return {};
  }
};

namespace detail {

/// Returns ok if a policy serves a problem, whose extents are good.
inline Status moe_serves(const MoeProblem& p, const MoePolicy& policy, const ArchFacts& facts) {
  if (Status s = moe_h_status(p, policy); !s.ok()) return s;
  if (policy.choosing == MoeChoosing::apart || moe_is_empty(p)) return {};
  return moe_choose_status(p, MoeCalls(p, policy, moe_no_workspace(), {}), facts);
}

/// Says whether a policy brings rows to the first product as they are expected to come fastest: copied where experts
/// have many rows (docs/notebook/2026-11-28-groups.md).
inline bool moe_suits(const MoeProblem& p, const MoePolicy& policy, const ArchFacts& facts) {
  // Rows of 16 bits: docs/notebook/2026-11-28-moe-heights.md. Fragments: docs/notebook/2026-11-28-moe-int4.md.
  const std::int64_t enough = p.spec.fragments ? 12 : p.spec.quantised() ? 48 : 128;
  const bool many =
      moe_may_copy(facts.id, p.spec) && !p.batch_invariant && std::int64_t{p.rows()} >= enough * p.resident();
  const MoeChoosing by_few = moe_few_choosing(facts.id, p.spec);
  const bool few = !many && !moe_is_empty(p) && moe_serves(p, {.choosing = by_few}, facts).ok();
  // h in f32: docs/notebook/2026-11-28-moe-two-blocks.md.
  const bool low = moe_may_keep_h(facts.id, p.spec) && p.w1.bias == nullptr && !p.batch_invariant &&
                   std::int64_t{p.rows()} <= 4 * std::int64_t{p.resident()};
  return many == (policy.rows == MoeRows::copied) && few == (policy.choosing != MoeChoosing::apart) &&
         low == (policy.h == MoeH::f32);
}

/// Sets the entries of a plan's parts for a policy.
inline Status choose_moe_parts(const MoeProblem& p, const MoePolicy& policy, const MoeParts& parts,
                               const ArchFacts& facts, MoePlan& plan) {
  if (moe_is_empty(p)) return {};
  const MoeCalls calls(p, policy, moe_no_workspace(), {});
  const auto choose = [&](MoeLaunch l, const auto& select) { return moe_has(p, policy, l) ? select() : Status{}; };
  for (const Status& status :
       {choose(MoeLaunch::gating, [&] { return topk_gating_select(calls.gating, parts.gating, facts, plan.gating); }),
        choose(MoeLaunch::sort, [&] { return moe_sort_select(calls.sort, parts.sort, facts, plan.sort); }),
        choose(MoeLaunch::quant_x, [&] { return quant_select(calls.quant_x, parts.quant, facts, plan.quant_x); }),
        choose(MoeLaunch::first, [&] { return gemm_select(calls.first, parts.products, facts, plan.first); }),
        choose(MoeLaunch::quant_h, [&] { return quant_select(calls.quant_h, parts.quant, facts, plan.quant_h); }),
        choose(MoeLaunch::second, [&] { return gemm_select(calls.second, parts.products, facts, plan.second); }),
        choose(MoeLaunch::sum, [&] { return moe_reduce_select(calls.sum, parts.sum, facts, plan.sum); })}) {
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace detail

/// Sets the plan to the entries that are expected to be fastest, by extents alone. Pointers of the problem count as
/// given or not, and are not read; the workspace need not be there. Where there is nothing to do, any entry does.
/// Errors, with a null entry: those of moe_check; no_matching_entry where `parts` lack an entry.
inline Status moe_select(const MoeProblem& p, const MoeParts& parts, const ArchFacts& facts, MoePlan& plan) {
  plan = {};
  if (Status s = moe_check(p, facts); !s.ok()) return s;
  Status none{StatusCode::no_matching_entry, "no entry was built for this spec"};
  for (const bool suited : {true, false}) {  // others serve where there are no suited ones
    for (const MoeEntry* e : parts.layers) {
      if (e->arch != facts.id || !(e->spec == p.spec) || detail::moe_suits(p, e->policy, facts) != suited) continue;
      MoePlan made;
      Status status = detail::moe_serves(p, e->policy, facts);
      if (status.ok()) status = detail::choose_moe_parts(p, e->policy, parts, facts, made);
      if (!status.ok()) {
        none = status;
        continue;
      }
      plan = made;
      plan.entry = e;
      return {};
    }
  }
  return none;
}

}  // namespace tilewave
