// SPDX-License-Identifier: MIT
// The choice among entries: which one serves a problem, and into how many splits it cuts the context.
#pragma once

#include <array>
#include <limits>
#include <span>
#include <string>

#include "tilewave/ops/paged_attention/choice/cost.hpp"
#include "tilewave/ops/paged_attention/choice/entry.hpp"
#include "tilewave/ops/paged_attention/choice/policies.hpp"
#include "tilewave/ops/paged_attention/launch.hpp"
#include "tilewave/ops/paged_attention/tuned/tables.hpp"
#include "tilewave/tile/plan.hpp"

namespace tilewave {

/// Returns whether paged_attention_select considers an entry for a problem that has passed paged_attention_check. If
/// not, the status says why.
inline Status paged_attention_considers(const PagedAttentionProblem& p, const PagedAttentionEntry& e,
                                        const ArchFacts& facts) {
  constexpr StatusCode none = StatusCode::no_matching_entry;
  if (e.arch != facts.id) return {none, "built for another architecture"};
  if (!(e.spec == p.spec)) return {none, "built for another spec"};
  if (p.balanced && !e.policy.balanced()) return {none, "the problem asks for a balanced entry"};
  const bool bulk = e.policy.bulk();
  const int splits = bulk || e.policy.balanced() ? 1 : paged_attention_splits(p, e.policy, facts);
  if (Status s = paged_attention_takes(p, e.policy, facts, splits); !s.ok()) return s;
  const std::int32_t rows = p.kv_head_rows();
  if (bulk && e.policy.block_rows() >= 2 * max_of(rows, 8)) return {none, "half of its query rows would be idle"};
  return {};
}

/// A status for each kind of entry, bulk and balanced: ok if a candidate of the problem's spec is of that kind, else
/// why there is none.
inline std::array<Status, 2> paged_attention_absent_kinds(const PagedAttentionProblem& p,
                                                          std::span<const PagedAttentionEntry* const> candidates,
                                                          const ArchFacts& facts) {
  constexpr StatusCode none = StatusCode::no_matching_entry;
  Status bulk = paged_attention_has_bulk(facts.id, p.spec), balanced{none, "there is no balanced entry of this spec"};
  if (bulk.ok()) bulk = {none, "there is no bulk entry of this spec"};
  for (const PagedAttentionEntry* e : candidates) {
    if (e->arch != facts.id || !(e->spec == p.spec)) continue;
    if (e->policy.bulk()) bulk = {};
    if (e->policy.balanced()) balanced = {};
  }
  return {bulk, balanced};
}

/// What a plan asks about its entries, see tile/plan.hpp.
struct PagedAttentionRegistry {
  using Spec = PagedAttentionSpec;
  using Problem = PagedAttentionProblem;
  using Policy = PagedAttentionPolicy;
  using Entry = PagedAttentionEntry;
  static constexpr auto check = paged_attention_check;
  static constexpr auto considers = paged_attention_considers;
  static constexpr auto absent_kinds = paged_attention_absent_kinds;

  static std::size_t workspace_bytes(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                     const ArchFacts& facts, int splits) {
    return detail::check_extents(p).ok() ? paged_attention_workspace_size(p, policy, facts, splits) : 0;
  }
  /// `t256.r1.w1x4.p1x4.s8`
  static std::string name(const PagedAttentionEntry& e, int splits) {
    return name_of(e.policy, e.spec) + ".s" + std::to_string(splits);
  }
};

/// An entry, and how many ways the context is split. workspace_bytes() depends on capacities, never on lengths. See
/// tile/plan.hpp.
using PagedAttentionPlan = OpPlan<PagedAttentionRegistry>;

namespace detail {

/// The order of entries straight to registers, the lowest first. One that holds all query rows of a KV head in a block
/// goes before one that needs several blocks for them. Of the former the one of fewest rows is first, of the latter the
/// one of most.
inline int rank_of(const PagedAttentionEntry& e, std::int32_t rows) {
  const int block_rows = e.policy.block_rows();
  return block_rows >= rows ? block_rows : 2048 - block_rows;
}

/// The cheapest of the plans that are offered. The cost may be of any kind, the same for all.
struct CheapestPlan {
  PagedAttentionPlan plan;
  double cost = std::numeric_limits<double>::max();
  void offer(const PagedAttentionEntry& e, int splits, double offered_cost) {
    if (offered_cost >= cost) return;
    plan.entry = &e, plan.splits = splits;
    cost = offered_cost;
  }
};

}  // namespace detail

/// Picks the entry and the splits for a problem among the candidates of its spec that take it.
/// - A row of `tuned` that serves the problem decides, if its entry is a candidate.
/// - A problem that asks for it gets a balanced entry.
/// - Else the bulk plan of least modelled time is taken, of entries with less than twice the query rows.
/// - Else, straight to registers, the smallest entry that holds all query rows of a KV head is taken, or the largest.
///
/// Errors: those of paged_attention_check; no_matching_entry; or what the candidates of the requested kind refuse.
inline Status paged_attention_select(const PagedAttentionProblem& p,
                                     std::span<const PagedAttentionEntry* const> candidates, const ArchFacts& facts,
                                     PagedAttentionPlan& plan, std::span<const TunedPagedAttention> tuned) {
  plan = {};
  plan.candidates = candidates;
  if (Status s = paged_attention_check(p, facts); !s.ok()) return s;
  for (const TunedPagedAttention& row : tuned) {
    if (!row.serves(p)) continue;
    for (const PagedAttentionEntry* e : candidates) {
      if (e->arch != facts.id || !(e->spec == p.spec) || !(e->policy == row.policy)) continue;
      if (!paged_attention_takes(p, e->policy, facts, row.num_splits).ok()) continue;
      plan.entry = e, plan.splits = row.num_splits;
      return {};
    }
  }
  const std::int32_t rows = p.kv_head_rows();
  detail::CheapestPlan bulk, balanced, registers;
  Status none{StatusCode::no_matching_entry, "no entry was built for this spec and architecture"};
  if (p.balanced) none.reason = "no balanced entry was built for this spec and architecture";
  for (const PagedAttentionEntry* e : candidates) {
    if (e->arch != facts.id || !(e->spec == p.spec)) continue;
    if (const Status s = paged_attention_considers(p, *e, facts); !s.ok()) {
      // The reason is rather what is wrong with the problem than what an entry does not do.
      if (none.code == StatusCode::no_matching_entry && e->policy.balanced() == p.balanced) none = s;
      continue;
    }
    const double rank = detail::rank_of(*e, rows);
    if (e->policy.balanced()) {
      constexpr double behind_bulk = 1e9;  // a rank is no time
      balanced.offer(*e, 1, e->policy.bulk() ? paged_attention_bulk_cost(p, e->policy, facts, 1) : behind_bulk + rank);
    } else if (e->policy.bulk()) {
      for (int splits = 1; splits <= max_bulk_splits; splits *= 2) {
        if (!paged_attention_takes(p, e->policy, facts, splits).ok()) continue;
        bulk.offer(*e, splits, paged_attention_bulk_cost(p, e->policy, facts, splits));
      }
    } else {
      registers.offer(*e, paged_attention_splits(p, e->policy, facts), rank);
    }
  }
  if (bulk.plan.entry != nullptr && balanced.cost < bulk.cost) bulk = balanced;
  const detail::CheapestPlan& best = p.balanced                        ? balanced
                                     : bulk.plan.entry != nullptr      ? bulk
                                     : registers.plan.entry != nullptr ? registers
                                                                       : balanced;
  if (best.plan.entry == nullptr) return none;
  plan.entry = best.plan.entry, plan.splits = best.plan.splits;
  return {};
}

/// The same with the library's own tuned tables (tuned/tables.hpp).
inline Status paged_attention_select(const PagedAttentionProblem& p,
                                     std::span<const PagedAttentionEntry* const> candidates, const ArchFacts& facts,
                                     PagedAttentionPlan& plan) {
  return paged_attention_select(p, candidates, facts, plan, tuned_paged_attention(facts.id));
}

}  // namespace tilewave
