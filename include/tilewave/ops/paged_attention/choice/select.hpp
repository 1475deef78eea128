// SPDX-License-Identifier: MIT
// The choice among entries: which one serves a problem, into how many splits it cuts the context, and why.
#pragma once

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

/// Whether paged_attention_select considers an entry for a problem that passed paged_attention_check: ok, or the reason
/// why not.
inline Status paged_attention_considers(const PagedAttentionProblem& p, const PagedAttentionEntry& e,
                                        const ArchFacts& facts) {
  constexpr StatusCode none = StatusCode::no_matching_entry;
  if (e.arch != facts.id) return {none, "built for another architecture"};
  if (!(e.spec == p.spec)) return {none, "built for another spec"};
  if (p.balanced && !e.policy.balanced()) return {none, "the problem asks for a balanced entry"};
  const bool staged = e.policy.staged();
  const int splits = staged || e.policy.balanced() ? 1 : paged_attention_splits(p, e.policy, facts);
  if (Status s = paged_attention_takes(p, e.policy, facts, splits); !s.ok()) return s;
  const std::int32_t rows = p.mtp * (p.num_q_heads / p.num_kv_heads);
  if (staged && e.policy.block_rows() >= 2 * max_of(rows, 8)) return {none, "half of its query rows would be idle"};
  return {};
}

/// What a plan asks about its entries, see tile/plan.hpp.
struct PagedAttentionRegistry {
  using Spec = PagedAttentionSpec;
  using Problem = PagedAttentionProblem;
  using Policy = PagedAttentionPolicy;
  using Entry = PagedAttentionEntry;
  static constexpr auto check = paged_attention_check;
  static constexpr auto considers = paged_attention_considers;

  static std::size_t workspace_bytes(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                     const ArchFacts& facts, int splits) {
    return paged_attention_workspace_size(p, policy, facts, splits);
  }
  /// `t256.r1.w1x4.p1x4.s8`
  static std::string name(const PagedAttentionEntry& e, int splits) {
    return name_of(e.policy, e.spec) + ".s" + std::to_string(splits);
  }
};

/// An entry, and how many ways the context is split: plan.launch(problem, stream). Its workspace_bytes() are at the
/// same capacities never more, whatever the lengths. See tile/plan.hpp.
using PagedAttentionPlan = OpPlan<PagedAttentionRegistry>;

namespace detail {

/// Order of the entries straight to registers: one for all query rows of a kv head before one that needs several blocks
/// for them; then few rows before many, or many before few.
inline int rank_of(const PagedAttentionEntry& e, std::int32_t rows) {
  const int block_rows = e.policy.block_rows();
  return block_rows >= rows ? block_rows : 2048 - block_rows;
}

/// The cheapest of plans, by a cost that each caller chooses.
struct CheapestPlan {
  PagedAttentionPlan plan;
  double cost = std::numeric_limits<double>::max();
  void offer(const PagedAttentionEntry& e, int splits, double its_cost) {
    if (its_cost >= cost) return;
    plan.entry = &e, plan.splits = splits;
    cost = its_cost;
  }
};

}  // namespace detail

/// Pick the entry and the splits for a problem among the candidates of its spec that take it: balanced if the problem
/// asks for it, else the staged plan of least modelled time, with less than twice the query rows; else, straight to
/// registers, the smallest entry that holds all query rows of a kv head or the largest. A row of `tuned` that serves
/// the problem decides instead, if its entry is a candidate; without `tuned`: one of the library's own tables
/// (tuned_tables.hpp). Errors: those of paged_attention_check; no_matching_entry, or what candidates of the kind that
/// is asked for refuse.
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
  const std::int32_t rows = p.mtp * (p.num_q_heads / p.num_kv_heads);
  detail::CheapestPlan staged, balanced, registers;
  Status none{StatusCode::no_matching_entry, "no entry was built for this spec and architecture"};
  if (p.balanced) none.reason = "no balanced entry was built for this spec and architecture";
  for (const PagedAttentionEntry* e : candidates) {
    if (e->arch != facts.id || !(e->spec == p.spec)) continue;
    if (const Status s = paged_attention_considers(p, *e, facts); !s.ok()) {
      // Rather what is wrong with the problem than what is with an entry.
      if (none.code == StatusCode::no_matching_entry && e->policy.balanced() == p.balanced) none = s;
      continue;
    }
    const double rank = detail::rank_of(*e, rows);
    if (e->policy.balanced()) {
      balanced.offer(*e, 1, e->policy.staged() ? paged_attention_staged_cost(p, e->policy, facts, 1) : rank);
    } else if (e->policy.staged()) {
      for (int splits = 1; splits <= max_staged_splits; splits *= 2) {
        if (!paged_attention_takes(p, e->policy, facts, splits).ok()) continue;
        staged.offer(*e, splits, paged_attention_staged_cost(p, e->policy, facts, splits));
      }
    } else {
      registers.offer(*e, paged_attention_splits(p, e->policy, facts), rank);
    }
  }
  if (staged.plan.entry != nullptr && balanced.cost < staged.cost) staged = balanced;
  const detail::CheapestPlan& best = p.balanced                        ? balanced
                                     : staged.plan.entry != nullptr    ? staged
                                     : registers.plan.entry != nullptr ? registers
                                                                       : balanced;
  if (best.plan.entry == nullptr) return none;
  plan.entry = best.plan.entry, plan.splits = best.plan.splits;
  return {};
}

inline Status paged_attention_select(const PagedAttentionProblem& p,
                                     std::span<const PagedAttentionEntry* const> candidates, const ArchFacts& facts,
                                     PagedAttentionPlan& plan) {
  return paged_attention_select(p, candidates, facts, plan, tuned_paged_attention(facts.id));
}

/// What paged_attention_select thinks of an entry; without an entry, why there is none of a kind.
struct PagedAttentionVerdict {
  const PagedAttentionEntry* entry;
  Status status;
};

/// Why a plan is as it is: a verdict for each candidate of the problem's spec and architecture, then one without an
/// entry for each kind, staged and balanced, of which there is none. Fills `verdicts` as far as it reaches, and returns
/// how many there are. Errors of paged_attention_check: one verdict.
inline std::size_t paged_attention_explain(const PagedAttentionProblem& p,
                                           std::span<const PagedAttentionEntry* const> candidates,
                                           const ArchFacts& facts, std::span<PagedAttentionVerdict> verdicts) {
  std::size_t count = 0;
  const auto add = [&](const PagedAttentionEntry* e, Status s) {
    if (count < verdicts.size()) verdicts[count] = {e, s};
    ++count;
  };
  if (Status s = paged_attention_check(p, facts); !s.ok()) {
    add(nullptr, s);
    return count;
  }
  bool staged = false, balanced = false;
  for (const PagedAttentionEntry* e : candidates) {
    if (e->arch != facts.id || !(e->spec == p.spec)) continue;
    staged = staged || e->policy.staged();
    balanced = balanced || e->policy.balanced();
    add(e, paged_attention_considers(p, *e, facts));
  }
  const Status has_staged = paged_attention_has_staged(facts.id, p.spec);
  if (!staged && !has_staged.ok()) add(nullptr, has_staged);
  if (!staged && has_staged.ok()) add(nullptr, {StatusCode::no_matching_entry, "no staged entry was compiled in"});
  if (!balanced) add(nullptr, {StatusCode::no_matching_entry, "no balanced entry was compiled in"});
  return count;
}

}  // namespace tilewave
