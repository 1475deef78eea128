// SPDX-License-Identifier: MIT
// The list of specs and policies of each architecture. It feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include <array>
#include <span>
#include <utility>

#include "tilewave/ops/gemm/choice/cost_cdna.hpp"
#include "tilewave/ops/gemm/choice/cost_dense_sm90.hpp"
#include "tilewave/ops/gemm/choice/cost_int4.hpp"
#include "tilewave/ops/gemm/choice/policies_cdna.hpp"
#include "tilewave/ops/gemm/choice/policies_sm90.hpp"
#include "tilewave/ops/gemm/launch.hpp"
#include "tilewave/ops/gemm/tuned/tables.hpp"
#include "tilewave/tile/plan.hpp"

namespace tilewave {

/// A compiled kernel: its spec, its policy and its launch.
struct GemmEntry {
  ArchId arch;
  bool emulated;
  GemmSpec spec;
  GemmPolicy policy;
  Status (*launch)(const GemmProblem&, int splits, hipStream_t);
  int lds_bytes;
};

/// Returns the specs that every architecture serves. The folder specs has further lists, such as those with groups.
constexpr std::array<GemmSpec, 6> gemm_specs(ArchId arch) {
  const DType fp8 = facts_of(arch).fp8;
  return {{{},
           {.a = DType::f16, .b = DType::f16, .out = DType::f16},
           {.a = fp8, .b = fp8, .scale = Scaling::per_row},
           {.a = fp8, .b = fp8, .scale = Scaling::per_tensor},
           {.a = fp8, .b = fp8, .scale = Scaling::per_block},
           {.a = DType::i8, .b = DType::i8, .scale = Scaling::per_row}}};
}

/// The policies that entries of a spec are built for.
constexpr GemmPolicies gemm_policies(ArchId arch, const GemmSpec& s) {
  const ArchFacts& facts = facts_of(arch);
  if (facts.matrix != Matrix::mfma) return s.mx() ? GemmPolicies{} : gemm_sm90_policies(s);
  if (s.four_bit()) return gemm_int4_cdna_policies(facts, s);
  if (s.mx()) return facts.mx ? gemm_scaled_policies(facts, s) : GemmPolicies{};
  return gemm_cdna_policies(arch, s);
}

/// Returns the entries of a spec for the policies that policies_of(arch, spec) lists, or for a part of them.
template <class B, GemmSpec S, GemmPolicies (*policies_of)(ArchId, const GemmSpec&), EntryPart part = EntryPart{}>
constexpr auto gemm_entries_of() {
  constexpr int count = policies_of(B::facts.id, S).count;
  constexpr int first = count * part.number / part.of, end = count * (part.number + 1) / part.of;
  return []<std::size_t... i>(std::index_sequence<i...>) {
    constexpr GemmPolicies policies = policies_of(B::facts.id, S);
    return std::array<GemmEntry, sizeof...(i)>{
        GemmEntry{B::facts.id, B::emulated, S, policies[first + i], &gemm_launch<B, S, policies[first + i]>,
                  sizeof(typename GemmKernel<B, S, policies[first + i], GemmIdentity>::Shared)}...};
  }
  (std::make_index_sequence<end - first>{});
}

/// All entries of one spec on one backend.
template <class B, GemmSpec S, EntryPart part = EntryPart{}>
inline constexpr auto gemm_entries = gemm_entries_of<B, S, gemm_policies, part>();

/// Says whether a product of a few rows is one of a chain: its weights are ready before the product in front is over.
constexpr bool gemm_in_chain(const GemmProblem& p) { return p.b_ready && p.m <= 4 && !p.batch_invariant; }
/// Returns a rank of entries that leave room for the next product of a chain, below the time of any other: the fewer
/// blocks the better, once most SMs have one.
inline double gemm_cost_in_chain(const GemmProblem& p, const GemmPolicy& policy, int splits) {
  const double blocks = static_cast<double>(ceil_div(p.n, policy.columns)) * p.batch * splits;
  return 1e-3 * (blocks < 120 ? 1000 - blocks : blocks / 1000);
}

/// Says whether a product hands on, or takes, squares of a residual stream: one of a chain of more rows.
constexpr bool gemm_of_squares(const GemmProblem& p) {
  return (p.a_squares != nullptr || p.out_squares != nullptr) && p.b_ready && !p.batch_invariant;
}
/// Says whether an entry has the tiles of 64 columns that such chains take the least time by: up to 16 rows two blocks
/// an SM, beside which those of the next product find room, else one; by one or two, so that most SMs have a block and
/// all blocks are there at once. Alone others take less (docs/notebook/2026-11-28-step-two-blocks.md).
constexpr bool gemm_suits_squares(const GemmProblem& p, const GemmPolicy& policy, int splits) {
  const int blocks_an_sm = p.m <= 16 ? 2 : 1;
  if (!gemm_of_squares(p) || !detail::gemm_writes_squares(p.spec, policy)) return false;
  const std::int64_t blocks = ceil_div<std::int64_t>(p.n, policy.columns) * p.batch * splits;
  return policy.rows == (p.m <= 16 ? 16 : 64) && policy.waves_per_simd == blocks_an_sm && splits <= 2 && blocks >= 90 &&
         blocks <= std::int64_t{sm90_facts.compute_units} * blocks_an_sm;
}

/// Returns microseconds that the wave which finds factors of rows costs blocks that share an SM. Gates of 16 rows took
/// 58.9 us where one block an SM took 57.3; at 8 rows they were as long (docs/notebook/2026-11-28-step-squares.md).
constexpr double gemm_norm_us(const GemmProblem& p, const GemmPolicy& policy) {
  return p.a_squares != nullptr && p.m > 8 && policy.waves_per_simd > 1 ? 1.5 : 0.0;
}

/// The functions by which a plan knows its entries; see tile/plan.hpp.
struct GemmRegistry {
  using Spec = GemmSpec;
  using Problem = GemmProblem;
  using Policy = GemmPolicy;
  using Entry = GemmEntry;
  static constexpr auto check = gemm_check;

  static std::size_t workspace_bytes(const GemmProblem& p, const GemmPolicy& policy, const ArchFacts&, int splits) {
    return detail::check_gemm_extents(p).ok() ? gemm_workspace_size(p, policy, splits) : 0;
  }
  static Status considers(const GemmProblem& p, const GemmEntry& e, const ArchFacts& facts) {
    constexpr StatusCode none = StatusCode::no_matching_entry;
    if (e.arch != facts.id) return {none, "built for another architecture"};
    if (!(e.spec == p.spec)) return {none, "built for another spec"};
    if (e.policy.leaves_room() && !gemm_in_chain(p))
      return {none, "for up to four rows of a chain of products, whose weights are ready"};
    if (const Status s = detail::gemm_norm_status(p, e.spec, e.policy); !s.ok()) return s;
    if (const Status s = detail::gemm_batch_invariance(e.spec, e.policy); p.batch_invariant && !s.ok())
      return {none, s.reason};
    return {};
  }
  /// Returns a name such as `t16x64x128.w1x1.s12.tensor.swap.k8.by4`. Where blocks may share K, `by4` says how many do.
  static std::string name(const GemmEntry& e, int splits) {
    return name_of(e.policy) + (e.policy.splits > 1 ? ".by" + std::to_string(splits) : "");
  }
  /// Returns the modelled time in microseconds, by which entries are ranked. It is an order, not a promise.
  static double cost_us(const GemmProblem& p, const GemmEntry& e, int splits) {
    const ArchFacts& facts = facts_of(e.arch);
    if (e.policy.leaves_room() || gemm_suits_squares(p, e.policy, splits))
      return gemm_cost_in_chain(p, e.policy, splits);
    if (facts.matrix == Matrix::mma) {
      return gemm_norm_us(p, e.policy) + (gemm_is_dense_sm90(p.spec) ? gemm_cost_dense_sm90(p, p.m, e.policy, splits)
                                                                     : gemm_cost_sm90(p, p.m, e.policy, splits));
    }
    return p.spec.four_bit() ? gemm_cost_int4(p, p.m, e.policy, splits, facts)
                             : gemm_cost_cdna(p, p.m, e.policy, splits, facts);
  }
};

/// The entry for a problem, and how many blocks share the K of a tile. plan.launch(problem, stream) queues it; see
/// tile/plan.hpp.
using GemmPlan = OpPlan<GemmRegistry>;

/// Sets the plan to the entry and splits that are expected to be fastest for the problem's spec. The choice depends on
/// extents only, and with batch_invariant on N and K alone. If a row of `tuned` serves the problem and its entry is a
/// candidate, that row decides. The overload without `tuned` takes the library's own tables (tuned/tables.hpp).
/// Errors, with a null entry: those of gemm_check, or no_matching_entry.
inline Status gemm_select(const GemmProblem& p, std::span<const GemmEntry* const> candidates, const ArchFacts& facts,
                          GemmPlan& plan, std::span<const TunedGemm> tuned) {
  plan = {};
  plan.candidates = candidates;
  if (Status s = gemm_check(p, facts); !s.ok()) return s;
  for (const TunedGemm& row : tuned) {
    if (!row.serves(p) || row.splits < 1 || row.splits > row.policy.splits || gemm_of_squares(p)) continue;
    for (const GemmEntry* e : candidates) {
      if (!(e->policy == row.policy) || !GemmRegistry::considers(p, *e, facts).ok()) continue;
      plan.entry = e, plan.splits = row.splits;
      return {};
    }
  }
  // With batch_invariant a row's bits do not depend on the rows beside it, so the choice may not either.
  GemmProblem ranked = p;
  if (p.batch_invariant)
    ranked.m = 128, ranked.batch = 1, ranked.groups = min_of(p.groups, 1), ranked.expected_group_rows = 0;
  double best = 0;
  for (const GemmEntry* e : candidates) {
    if (!GemmRegistry::considers(p, *e, facts).ok()) continue;
    for (int splits = 1; splits <= (p.batch_invariant ? 1 : e->policy.splits); ++splits) {
      if (splits > 1 && ceil_div(bytes_of(p.spec.a, p.k), e->policy.depth_bytes) < 2 * splits) break;
      const double cost = GemmRegistry::cost_us(ranked, *e, splits);
      if (plan.entry != nullptr && cost >= best) continue;
      plan.entry = e, plan.splits = splits;
      best = cost;
    }
  }
  if (plan.entry != nullptr) return {};
  return {StatusCode::no_matching_entry, p.batch_invariant
                                             ? "no entry was built for this spec that may be batch-invariant"
                                         : p.rms_norm ? "no entry was built for this spec that serves rms_norm"
                                                      : "no entry was built for this spec"};
}

inline Status gemm_select(const GemmProblem& p, std::span<const GemmEntry* const> candidates, const ArchFacts& facts,
                          GemmPlan& plan) {
  return gemm_select(p, candidates, facts, plan, tuned_gemm(facts.id));
}

/// Pointers to the entries of one spec on one backend, among which a plan is chosen.
template <class B, GemmSpec S>
inline constexpr auto gemm_candidates = candidates_of(gemm_entries<B, S>);

/// Sets the plan on backend B for the one spec S that the caller compiles in. A spec that the backend's chip does not
/// serve compiles as well: the status of gemm_check_spec is then the answer to every problem. Errors: no_matching_entry
/// for a problem of another spec; those of gemm_select.
template <class B, GemmSpec S>
Status gemm_plan(const GemmProblem& p, GemmPlan& plan, std::span<const TunedGemm> tuned = tuned_gemm(B::facts.id)) {
  plan = {};
  constexpr Status served = gemm_check_spec(S, B::facts);
  if constexpr (!served.ok()) {  // its kernels would not compile
    return served;
  } else {
    plan.candidates = gemm_candidates<B, S>;
    if (!(p.spec == S)) return not_the_compiled_spec;
    return gemm_select(p, gemm_candidates<B, S>, B::facts, plan, tuned);
  }
}

}  // namespace tilewave
