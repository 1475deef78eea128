// SPDX-License-Identifier: MIT
// One list of policies per architecture and spec: it feeds dispatch, tests, benchmarks, the tuner and the ISA gate.
#pragma once

#include <array>
#include <span>
#include <utility>

#include "tilewave/ops/paged_attention/cost.hpp"
#include "tilewave/ops/paged_attention/launch.hpp"
#include "tilewave/ops/paged_attention/tuned_tables.hpp"

namespace tilewave {

/// A compiled kernel: what it computes, how, and how to start it.
struct PagedAttentionEntry {
  ArchId arch;
  bool emulated;
  PagedAttentionSpec spec;
  PagedAttentionPolicy policy;
  Status (*launch)(const PagedAttentionProblem&, int num_splits, hipStream_t);
  int lds_bytes;  // of one decode block
};

/// The specs every architecture serves, head_size outermost.
constexpr std::array<PagedAttentionSpec, 9> paged_attention_specs(ArchId arch) {
  std::array<PagedAttentionSpec, 9> specs{};
  const DType fp8 = facts_of(arch).fp8;
  int n = 0;
  for (int head_size : {64, 128, 256}) {
    specs[n++] = {.kv = DType::bf16, .quant = QuantMode::none, .head_size = head_size};
    specs[n++] = {.kv = fp8, .quant = QuantMode::per_tensor, .head_size = head_size};
    specs[n++] = {.kv = fp8, .quant = QuantMode::per_token, .head_size = head_size};
  }
  return specs;
}

/// Policies in the order of paged_attention_policies.
struct PagedAttentionPolicies {
  std::array<PagedAttentionPolicy, 11> list{};
  int count = 0;
  constexpr void add(const PagedAttentionPolicy& policy) { list[count++] = policy; }
  constexpr const PagedAttentionPolicy& operator[](std::size_t i) const { return list[i]; }
  constexpr const PagedAttentionPolicy* begin() const { return list.data(); }
  constexpr const PagedAttentionPolicy* end() const { return list.data() + count; }
  constexpr std::size_t size() const { return count; }
};

namespace detail {

/// By rising number of query rows a block holds: 16, 32, 64; where staged entries serve most problems, 16 alone. Two
/// waves per SIMD leave a lane 256 registers (255 on sm90) for outputs, Q and the KV ring, three 168 and four 128.
constexpr PagedAttentionPolicies register_policies(ArchId arch, const PagedAttentionSpec& s, bool staged) {
  const bool wide = s.head_size == 256, narrow = s.head_size == 64, fp8 = is_fp8(s.kv);
  // Not const: g++ 12 keeps the const of a copied member in the identity of a template argument, and the kernel that
  // nvcc registered is then not the one that is launched.
  PagedAttentionPrefetch one_tile = narrow ? PagedAttentionPrefetch{1, 2} : PagedAttentionPrefetch{2, 4};
  PagedAttentionPolicies policies;
  if (arch == ArchId::sm90) {
    // A wave has half the lanes of gfx9, so its 16 rows take twice the registers: Q lives in shared memory, and fp8,
    // whose tile is 64 tokens of scores, keeps half a tile in flight.
    PagedAttentionPrefetch prefetch = wide             ? PagedAttentionPrefetch{4, fp8 ? 1 : 2}
                                      : narrow || !fp8 ? one_tile
                                                       : PagedAttentionPrefetch{2, 2};
    policies.add({.row_tiles = 1, .waves = {1, 4}, .prefetch = prefetch, .q_shared = true});
    if (staged) return policies;
    policies.add({.row_tiles = 1, .waves = {2, 2}, .prefetch = prefetch, .q_shared = true});
    policies.add({.row_tiles = 1, .waves = {4, 1}, .prefetch = prefetch, .q_shared = true});
    return policies;
  }
  if (wide) {
    policies.add({.row_tiles = 1, .waves = {1, 4}, .prefetch = {2, 2}});
    policies.add({.row_tiles = 1, .waves = {2, 2}, .prefetch = {2, 2}});
    policies.add({.row_tiles = 1, .waves = {4, 1}, .prefetch = {2, 2}});
    return policies;
  }
  // A wave more has more in flight than a second tile of each: 16 rows in 16 bits leave registers for it.
  PagedAttentionPrefetch one_row_tile = !fp8                              ? PagedAttentionPrefetch{1, 2}
                                        : s.quant == QuantMode::per_token ? one_tile
                                                                          : PagedAttentionPrefetch{1, 4};
  const int waves = narrow ? 3 : 2, of_two_tiles = s.quant == QuantMode::per_token ? 2 : waves;
  policies.add({.row_tiles = 1, .waves = {1, 4}, .prefetch = one_row_tile, .waves_per_simd = fp8 ? waves : waves + 1});
  for (const int rows : {1, 2}) {
    policies.add({.row_tiles = 2,
                  .waves = {rows, 4 / rows},
                  .prefetch = one_tile,
                  .q_shared = fp8,
                  .waves_per_simd = of_two_tiles});
  }
  return policies;
}

/// Blocks of a staged entry that an SM holds, and wave groups of each.
struct StagedBlocks {
  int per_sm = 2, groups = 1;
};

/// 8, 16 or 32 query rows through shared memory, where the room has bulk copies and wave groups: two blocks an SM, 96
/// KiB of KV on its way in each; or one of two groups with twice that, for problems that have no two blocks for an SM;
/// or three with 64 KiB, for those whose blocks would leave a second round of two half empty, or do little each.
constexpr PagedAttentionPolicy staged_policy(const PagedAttentionSpec& s, int rows, StagedBlocks blocks = {}) {
  // Stages of 32 or 16 KiB, but 64 tokens at least; for registers, and the probabilities of 32 rows, fewer. Native
  // products need fewer registers, but with 32 rows take long enough for a stage to want six of them.
  const bool three = blocks.per_sm == 3, half = three || (s.native && rows == 32);
  const int bytes_per_token = 2 * s.head_size * size_of(s.kv);
  const int most_tokens = rows == 8 ? 256 : (s.native ? 4096 : 2048) / rows;
  const int stage_tokens = max_of(64, min_of((half ? 16 : 32) * 1024 / bytes_per_token, most_tokens));
  const int ring = blocks.groups * (three ? 64 : 96) * 1024;
  // Scales of tokens may leave room for a stage less. Of a block's share of 228 KiB 1 KiB is the driver's; Q, two
  // stages' probabilities and what waves tell each other take some for each query row, barriers for each stage.
  const bool per_token = s.quant == QuantMode::per_token;
  const int row_bytes = (s.head_size + 2 * stage_tokens) * (s.native ? 1 : 2) + 20;
  const int room = 228 * 1024 / blocks.per_sm - 1024 - 32 - blocks.groups * rows * row_bytes;
  const int stage_bytes = stage_tokens * (bytes_per_token + (per_token ? 8 : 0)) + (per_token ? 16 : 48);
  const int stages = min_of(ring / (stage_tokens * bytes_per_token), align_down(room / stage_bytes, blocks.groups));
  // As many waves fetch as registers reach for: small pages want them.
  PagedAttentionPrefetch prefetch{
      .slices = 1, .stages = stages, .stage_tokens = stage_tokens, .waves = three ? 1 : 2 * blocks.groups};
  return {
      .row_tiles = rows / 8, .waves = {1, 4 * blocks.groups}, .prefetch = prefetch, .waves_per_simd = three ? 4 : 3};
}

constexpr PagedAttentionPolicy balanced(PagedAttentionPolicy policy) {
  policy.schedule = PagedAttentionSchedule::balanced;
  return policy;
}

}  // namespace detail

/// The policy straight to registers of specs without tuned ones: 16 query rows a block. A tile of K, then of V, is in
/// flight, or as much of it as leaves registers for the outputs of wide heads.
constexpr PagedAttentionPolicy paged_attention_other_policy(ArchId arch, const PagedAttentionSpec& s) {
  const bool sm90 = arch == ArchId::sm90;
  const int tiles = value_tiles(atom_of(arch), s).count;
  const bool wide = tiles > (sm90 ? 16 : 12);
  PagedAttentionPrefetch prefetch{.slices = !wide ? 1 : sm90 ? tiles / 8 : 2, .stages = 2};
  if (sm90 && is_fp8(s.kv) && s.head_size > 64) {
    prefetch.stages = 1;
    if (s.any_block_size && !wide) prefetch.slices = 2;  // a tile has 8 addresses of K tokens
  }
  return {.row_tiles = 1, .waves = {1, 4}, .prefetch = prefetch, .q_shared = sm90};
}

/// Whether a spec has entries that bring KV through shared memory: ok, or no_matching_entry with the reason.
constexpr Status paged_attention_has_staged(ArchId arch, const PagedAttentionSpec& s) {
  constexpr StatusCode none = StatusCode::no_matching_entry;
  if (arch != ArchId::sm90) return {none, "staged entries need bulk copies and wave groups, which only sm90 has"};
  if (s.values != ValueLayout::dim_major) return {none, "there are no staged entries for token_major values"};
  if (s.head_size != 64 && s.head_size != 128) return {none, "there are staged entries for head_size 64 and 128 alone"};
  return {};
}

/// The policies of a spec. Those straight to registers by rising query rows, the smallest of them balanced, or the
/// staged ones; for native products the staged ones alone, so on other architectures none. Head sizes and layouts that
/// nothing was tuned for have one policy, and it balanced.
constexpr PagedAttentionPolicies paged_attention_policies(ArchId arch, const PagedAttentionSpec& s) {
  const bool staged = paged_attention_has_staged(arch, s).ok();
  if (s.native && !(staged && paged_attention_check_native(s).ok())) return {};
  PagedAttentionPolicies policies;
  const bool tuned = s.head_size == 64 || s.head_size == 128 || s.head_size == 256;
  if (s.values != ValueLayout::dim_major || !tuned) {
    policies.add(paged_attention_other_policy(arch, s));
    policies.add(detail::balanced(policies.list[0]));
    return policies;
  }
  if (!s.native) policies = detail::register_policies(arch, s, staged);
  if (!staged) {
    policies.add(detail::balanced(policies.list[0]));
    return policies;
  }
  for (const int rows : {8, 16, 32}) policies.add(detail::staged_policy(s, rows));
  for (const int rows : {8, 16, 32}) {
    policies.add(detail::balanced(detail::staged_policy(s, rows)));
    if (rows == 32) continue;
    policies.add(detail::staged_policy(s, rows, {.per_sm = 1, .groups = 2}));
    policies.add(detail::staged_policy(s, rows, {.per_sm = 3}));
  }
  return policies;
}

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
inline constexpr PagedAttentionEntry paged_attention_entry{
    B::facts.id,
    B::emulated,
    S,
    P,
    &paged_attention_launch<B, S, P>,
    sizeof(typename PagedAttentionKernel<B, S, P>::type::Shared)};

/// The entries of a spec for a list of policies, which policies_of(arch, spec) gives.
template <class B, PagedAttentionSpec S, PagedAttentionPolicies (*policies_of)(ArchId, const PagedAttentionSpec&)>
constexpr auto paged_attention_entries_of() {
  return []<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<PagedAttentionEntry, sizeof...(i)>{
        paged_attention_entry<B, S, policies_of(B::facts.id, S)[i]>...};
  }
  (std::make_index_sequence<policies_of(B::facts.id, S).size()>{});
}

/// All entries of one spec on one backend.
template <class B, PagedAttentionSpec S>
inline constexpr auto paged_attention_entries = paged_attention_entries_of<B, S, paged_attention_policies>();

/// An entry and the run-time part of the policy: how many ways the context is split.
struct PagedAttentionPlan {
  const PagedAttentionEntry* entry = nullptr;
  int num_splits = 1;
};

/// `t256.r1.w1x4.p1x4.s8`: the string bench rows, tests, tables and errors show.
inline std::string name_of(const PagedAttentionPlan& plan) {
  return name_of(plan.entry->policy, plan.entry->spec) + ".s" + std::to_string(plan.num_splits);
}

/// Workspace bytes of a plan. At the same capacities never more, whatever the lengths.
inline std::size_t paged_attention_workspace_size(const PagedAttentionProblem& p, const PagedAttentionPlan& plan) {
  return paged_attention_workspace_size(p, plan.entry->policy, facts_of(plan.entry->arch), plan.num_splits);
}

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
    plan = {&e, splits};
    cost = its_cost;
  }
};

}  // namespace detail

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
  if (Status s = paged_attention_check(p, facts); !s.ok()) return s;
  for (const TunedPagedAttention& row : tuned) {
    if (!row.serves(p)) continue;
    for (const PagedAttentionEntry* e : candidates) {
      if (e->arch != facts.id || !(e->spec == p.spec) || !(e->policy == row.policy)) continue;
      if (!paged_attention_takes(p, e->policy, facts, row.num_splits).ok()) continue;
      plan = {e, row.num_splits};
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
  plan = best.plan;
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

namespace detail {

/// All entries of one spec on one backend, as candidates.
template <class B, PagedAttentionSpec S>
constexpr auto paged_attention_candidates() {
  constexpr auto& entries = paged_attention_entries<B, S>;
  std::array<const PagedAttentionEntry*, entries.size()> candidates{};
  for (std::size_t i = 0; i < entries.size(); ++i) candidates[i] = &entries[i];
  return candidates;
}

inline Status check_compiled(const PagedAttentionProblem& p, const PagedAttentionSpec& compiled) {
  if (p.spec == compiled) return {};
  return {StatusCode::no_matching_entry, "problem.spec is not the spec that this call was compiled for"};
}

}  // namespace detail

/// The plan of a problem on backend B for the one spec S that the caller compiles in: `plan.entry->launch(problem,
/// plan.num_splits, stream)` then queues it, with a workspace of paged_attention_workspace_size(problem, plan). Errors:
/// no_matching_entry for a problem of another spec; those of paged_attention_select.
template <class B, PagedAttentionSpec S>
Status paged_attention_plan(const PagedAttentionProblem& p, PagedAttentionPlan& plan) {
  plan = {};
  if (Status s = detail::check_compiled(p, S); !s.ok()) return s;
  const auto candidates = detail::paged_attention_candidates<B, S>();
  return paged_attention_select(p, candidates, B::facts, plan);
}

/// paged_attention_explain for what paged_attention_plan<B, S> chooses among: at most paged_attention_entries<B, S>,
/// and two.
template <class B, PagedAttentionSpec S>
std::size_t paged_attention_explain(const PagedAttentionProblem& p, std::span<PagedAttentionVerdict> verdicts) {
  if (Status s = detail::check_compiled(p, S); !s.ok()) {
    if (!verdicts.empty()) verdicts[0] = {nullptr, s};
    return 1;
  }
  const auto candidates = detail::paged_attention_candidates<B, S>();
  return paged_attention_explain(p, candidates, B::facts, verdicts);
}

}  // namespace tilewave
