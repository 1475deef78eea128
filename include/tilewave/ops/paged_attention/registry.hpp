// SPDX-License-Identifier: MIT
// One list of policies per architecture and spec: it feeds dispatch, tests, benchmarks, the tuner and the ISA gate.
#pragma once

#include <array>
#include <span>
#include <utility>

#include "tilewave/ops/paged_attention/launch.hpp"

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

namespace detail {

/// By rising number of query rows a block holds: 16, 32, 64. All claim two waves per SIMD, so a lane has 256 registers
/// (255 on sm90) for outputs, Q and the KV ring.
constexpr std::array<PagedAttentionPolicy, 3> register_policies(ArchId arch, const PagedAttentionSpec& s) {
  const bool wide = s.head_size == 256, narrow = s.head_size == 64, fp8 = is_fp8(s.kv);
  // Not const: g++ 12 keeps the const of a copied member in the identity of a template argument, and the kernel that
  // nvcc registered is then not the one that is launched.
  PagedAttentionPrefetch one_tile = narrow ? PagedAttentionPrefetch{1, 2} : PagedAttentionPrefetch{2, 4};
  if (arch == ArchId::sm90) {
    // A wave has half the lanes of gfx9, so its 16 rows take twice the registers: Q lives in shared memory, and fp8,
    // whose tile is 64 tokens of scores, keeps half a tile in flight.
    PagedAttentionPrefetch prefetch = wide             ? PagedAttentionPrefetch{4, fp8 ? 1 : 2}
                                      : narrow || !fp8 ? one_tile
                                                       : PagedAttentionPrefetch{2, 2};
    PagedAttentionPolicy widest =
        s.head_size == 128 && !fp8
            ? PagedAttentionPolicy{.row_tiles = 2, .waves = {2, 2}, .prefetch = {4, 4}, .q_shared = true}
            : PagedAttentionPolicy{.row_tiles = 1, .waves = {4, 1}, .prefetch = prefetch, .q_shared = true};
    return {{{.row_tiles = 1, .waves = {1, 4}, .prefetch = prefetch, .q_shared = true},
             {.row_tiles = 1, .waves = {2, 2}, .prefetch = prefetch, .q_shared = true},
             widest}};
  }
  if (wide) {
    return {{{.row_tiles = 1, .waves = {1, 4}, .prefetch = {2, 2}},
             {.row_tiles = 1, .waves = {2, 2}, .prefetch = {2, 2}},
             {.row_tiles = 1, .waves = {4, 1}, .prefetch = {2, 2}}}};
  }
  PagedAttentionPrefetch one_row_tile = s.quant == QuantMode::per_token ? one_tile : PagedAttentionPrefetch{1, 4};
  return {{{.row_tiles = 1, .waves = {1, 4}, .prefetch = one_row_tile},
           {.row_tiles = 2, .waves = {1, 4}, .prefetch = one_tile, .q_shared = fp8},
           {.row_tiles = 2, .waves = {2, 2}, .prefetch = one_tile, .q_shared = fp8}}};
}

/// 16 or 32 query rows through shared memory, where the room has bulk copies: two blocks an SM and 96 KiB of KV in
/// flight in each. For 16 rows two waves keep up with head_size 128, four with 64 and its smaller loads.
constexpr PagedAttentionPolicy staged_policy(const PagedAttentionSpec& s, int rows) {
  const bool narrow = s.head_size == 64, four_waves = rows > 16 || narrow;
  const int token_waves = four_waves && rows == 16 ? 4 : 2, stage_tokens = 32 * token_waves * (is_fp8(s.kv) ? 2 : 1);
  const int stage_bytes = 2 * stage_tokens * s.head_size * size_of(s.kv);
  PagedAttentionPrefetch prefetch{.slices = 1, .stages = 96 * 1024 / stage_bytes, .stage_tokens = stage_tokens};
  return {.row_tiles = 1,
          .waves = {rows / 16, token_waves},
          .prefetch = prefetch,
          .q_shared = rows > 16,
          .waves_per_simd = four_waves ? 3 : 2};
}

constexpr PagedAttentionPolicy balanced(PagedAttentionPolicy policy) {
  policy.schedule = PagedAttentionSchedule::balanced;
  return policy;
}

}  // namespace detail

/// Policies in the order of paged_attention_policies.
struct PagedAttentionPolicies {
  std::array<PagedAttentionPolicy, 6> list{};
  int count = 0;
  constexpr void add(const PagedAttentionPolicy& policy) { list[count++] = policy; }
  constexpr const PagedAttentionPolicy& operator[](std::size_t i) const { return list[i]; }
  constexpr const PagedAttentionPolicy* begin() const { return list.data(); }
  constexpr const PagedAttentionPolicy* end() const { return list.data() + count; }
  constexpr std::size_t size() const { return count; }
};

/// The policies of a spec: those straight to registers by rising query rows, the smallest of them balanced, then the
/// staged ones.
constexpr PagedAttentionPolicies paged_attention_policies(ArchId arch, const PagedAttentionSpec& s) {
  PagedAttentionPolicies policies;
  for (const PagedAttentionPolicy& policy : detail::register_policies(arch, s)) policies.add(policy);
  const bool staged = arch == ArchId::sm90 && s.head_size <= 128;
  if (!staged) policies.add(detail::balanced(policies.list[0]));
  if (staged) {
    policies.add(detail::staged_policy(s, 16));
    policies.add(detail::staged_policy(s, 32));
    policies.add(detail::balanced(detail::staged_policy(s, 16)));
  }
  return policies;
}

/// The one policy of specs that paged_attention_specs() lacks: 16 query rows a block. A tile of K, then of V, is in
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

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
inline constexpr PagedAttentionEntry paged_attention_entry{
    B::facts.id,
    B::emulated,
    S,
    P,
    &paged_attention_launch<B, S, P>,
    sizeof(typename PagedAttentionKernel<B, S, P>::type::Shared)};

constexpr bool has_paged_attention_policies(ArchId arch, const PagedAttentionSpec& spec) {
  for (const PagedAttentionSpec& known : paged_attention_specs(arch)) {
    if (known == spec) return true;
  }
  return false;
}

/// All entries of one spec on one backend.
template <class B, PagedAttentionSpec S>
inline constexpr auto paged_attention_entries = []<std::size_t... i>(std::index_sequence<i...>) {
  if constexpr (has_paged_attention_policies(B::facts.id, S)) {
    return std::array{paged_attention_entry<B, S, paged_attention_policies(B::facts.id, S)[i]>...};
  } else {
    return std::array{paged_attention_entry<B, S, paged_attention_other_policy(B::facts.id, S)>};
  }
}
(std::make_index_sequence<paged_attention_policies(B::facts.id, S).size()>{});

/// An entry and the run-time part of the policy: how many ways the context is split.
struct PagedAttentionPlan {
  const PagedAttentionEntry* entry = nullptr;
  int num_splits = 1;
};

/// `t256.r1.w1x4.p1x4.s8`: the string bench rows, tests, tables and errors show.
inline std::string name_of(const PagedAttentionPlan& plan) {
  return name_of(plan.entry->policy, plan.entry->spec) + ".s" + std::to_string(plan.num_splits);
}

/// Splits of a problem, from capacities only. Batch-invariant: paged_attention_fixed_splits. Else those that keep the
/// chip busy: the number that minimises modelled time. The unit is one block tile while memory is not yet the limit. A
/// round of blocks costs its tiles, stretched once more than 90 % of the resident blocks compete for memory, plus a
/// start and merge; more than one split adds the combine launch. (Constants fitted to the decode sweep on an H200,
/// 2026-11-21.)
inline int paged_attention_splits(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                  const ArchFacts& facts) {
  if (p.split_tokens > 0) return paged_attention_fixed_splits(p, policy);
  constexpr double saturation = 0.9, block_cost = 1.5, combine_cost = 1.5, combine_cost_per_split = 1.0 / 8;
  const std::int64_t base = paged_attention_grid(p, policy, 1);
  const std::int64_t resident =
      std::int64_t{facts.compute_units} * facts.simds_per_cu * policy.waves_per_simd / policy.waves_per_block();
  const std::int64_t tiles =
      max_of<std::int64_t>(1, ceil_div<std::int64_t>(paged_attention_attended(p), policy.block_tokens(p.spec)));
  int best = 1;
  double best_cost = std::numeric_limits<double>::max();
  for (int splits = 1; splits <= max_splits && splits <= tiles; ++splits) {
    const double rounds = static_cast<double>(ceil_div(base * splits, resident));
    const double busy = static_cast<double>(min_of(base * splits, resident)) / static_cast<double>(resident);
    const double tile_cost = max_of(1.0, busy / saturation);
    const double cost = rounds * (static_cast<double>(ceil_div<std::int64_t>(tiles, splits)) * tile_cost + block_cost) +
                        (splits > 1 ? combine_cost + combine_cost_per_split * splits : 0.0);
    if (cost < best_cost) {
      best_cost = cost;
      best = splits;
    }
  }
  return best;
}

/// Workspace bytes of a plan. At the same capacities never more, whatever the lengths.
inline std::size_t paged_attention_workspace_size(const PagedAttentionProblem& p, const PagedAttentionPlan& plan) {
  return paged_attention_workspace_size(p, plan.entry->policy, facts_of(plan.entry->arch), plan.num_splits);
}

namespace detail {

/// Order of the candidates that take a problem: staged before straight to registers, but with scales per token, whose V
/// is bound by the way to bf16 and has more lanes to convert it without stages; an entry for all query rows of a
/// kv head before one that needs several blocks for them; then few rows before many, or many before few.
inline int rank_of(const PagedAttentionEntry& e, std::int32_t rows) {
  const int block_rows = e.policy.block_rows();
  const bool staged_first = e.spec.quant != QuantMode::per_token;
  return (e.policy.staged() == staged_first ? 0 : 4096) + (block_rows >= rows ? block_rows : 2048 - block_rows);
}

/// Blocks of the clusters that share a context; 0: better balanced over the chip, as few long contexts are. A cluster
/// doubles while that gives idle SMs work, or fills the chip. (Measured on an H200, docs/performance.md.)
inline int staged_splits(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy, const ArchFacts& facts) {
  constexpr int most = 8;
  const std::int64_t items = paged_attention_grid(p, policy, 1), resident = paged_attention_workers(policy, facts);
  const std::int64_t stages = ceil_div<std::int64_t>(paged_attention_attended(p), policy.work_tokens(p.spec));
  // Four waves keep up with an SM's share of bf16.
  const bool one_fills = policy.waves.rows > 1 && !is_fp8(p.spec.kv);
  const std::int64_t useful = one_fills ? facts.compute_units : resident;
  std::int64_t splits = 1;
  while (2 * splits <= most && 2 * splits <= stages && 2 * items * splits <= useful &&
         (2 * items * splits <= facts.compute_units || 20 * items * splits >= 9 * useful)) {
    splits *= 2;
  }
  const bool few_blocks = 4 * items * splits<3 * facts.compute_units, long_context = stages> 32 * splits;
  return few_blocks && long_context ? 0 : static_cast<int>(splits);
}

}  // namespace detail

/// Pick the entry and the splits for a problem: among the candidates of its spec that take it, the smallest that holds
/// all query rows of a kv head, else the largest; balanced if the problem asks for it. Errors: those of
/// paged_attention_check, or no_matching_entry.
inline Status paged_attention_select(const PagedAttentionProblem& p,
                                     std::span<const PagedAttentionEntry* const> candidates, const ArchFacts& facts,
                                     PagedAttentionPlan& plan) {
  plan = {};
  if (Status s = paged_attention_check(p, facts); !s.ok()) return s;
  const std::int32_t rows = p.mtp * (p.num_q_heads / p.num_kv_heads);
  const PagedAttentionEntry *even = nullptr, *balanced = nullptr;
  for (const PagedAttentionEntry* e : candidates) {
    if (e->arch != facts.id || !(e->spec == p.spec)) continue;
    const int splits = p.split_tokens > 0 ? paged_attention_fixed_splits(p, e->policy) : 1;
    if (!paged_attention_takes(p, e->policy, facts, splits).ok()) continue;
    const PagedAttentionEntry*& best = e->policy.balanced() ? balanced : even;
    if (best == nullptr || detail::rank_of(*e, rows) < detail::rank_of(*best, rows)) best = e;
  }
  if (p.balanced && p.split_tokens > 0) {
    return {StatusCode::bad_value, "a call is balanced over its batch or batch-invariant, not both"};
  }
  const PagedAttentionEntry* best = p.balanced || even == nullptr ? balanced : even;
  if (best == nullptr) return {StatusCode::no_matching_entry, "no entry was built for this spec and architecture"};
  if (best->policy.balanced()) {
    plan = {best, 1};
  } else if (best->policy.staged()) {
    const int splits = detail::staged_splits(p, best->policy, facts);
    plan = {splits == 0 && balanced != nullptr ? balanced : best, max_of(splits, 1)};
  } else {
    plan = {best, paged_attention_splits(p, best->policy, facts)};
  }
  return {};
}

/// The plan of a problem on backend B for the one spec S that the caller compiles in: `plan.entry->launch(problem,
/// plan.num_splits, stream)` then queues it, with a workspace of paged_attention_workspace_size(problem, plan). Errors:
/// those of paged_attention_select.
template <class B, PagedAttentionSpec S>
Status paged_attention_plan(const PagedAttentionProblem& p, PagedAttentionPlan& plan) {
  constexpr auto& entries = paged_attention_entries<B, S>;
  std::array<const PagedAttentionEntry*, entries.size()> candidates{};
  for (std::size_t i = 0; i < entries.size(); ++i) candidates[i] = &entries[i];
  return paged_attention_select(p, candidates, B::facts, plan);
}

}  // namespace tilewave
