// SPDX-License-Identifier: MIT
// The specs of layers of experts, and the plan on one backend. A layer's kernels are those of other ops: their lists
// have the entries that these specs ask for.
#pragma once

#include "tilewave/ops/moe/launch.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that an architecture serves with the entries of the library's lists. sm90 has gpt-oss, too.
constexpr ValueList<MoeSpec> moe_specs(ArchId arch) {
  const DType bf16 = DType::bf16, fp8 = facts_of(arch).fp8;
  constexpr MoeRouting logits = MoeRouting::logits, given = MoeRouting::given;
  ValueList<MoeSpec> specs;
  const auto add = [&](DType x, DType weights, Scaling scale, MoeRouting routing) -> MoeSpec& {
    MoeSpec s;
    s.x = x, s.weights = weights, s.scale = scale, s.routing = routing;
    specs.add(s);
    return specs.back();
  };
  add(bf16, bf16, Scaling::none, logits);
  add(bf16, bf16, Scaling::none, given);
  add(bf16, bf16, Scaling::none, logits).weight = MoeWeight::input;
  add(bf16, bf16, Scaling::none, logits).shared = true;
  add(bf16, fp8, Scaling::per_block, logits);
  add(bf16, fp8, Scaling::per_block, given);
  add(bf16, fp8, Scaling::per_block, logits).shared = true;
  add(fp8, fp8, Scaling::per_block, given);
  add(bf16, bf16, Scaling::none, MoeRouting::masked);
  add(fp8, fp8, Scaling::per_block, MoeRouting::masked);
  add(bf16, bf16, Scaling::none, logits).logits = DType::f32;
  add(bf16, fp8, Scaling::per_block, logits).logits = DType::f32;
  if (facts_of(arch).matrix != Matrix::mma) return specs;
  MoeSpec& mxfp4 = add(bf16, DType::fp4_e2m1, Scaling::per_group, logits);
  mxfp4.scale_k = 32, mxfp4.activation = ActivationKind::swigluoai, mxfp4.fragments = true;
  return specs;
}

/// Returns the specs of the wide list, which bench_moe_wide and tests of the label full have: int4 with scales
/// of 32 columns, as Kimi-K2-Thinking has them, and with scales and zero points of 128, as AWQ has; on CDNA MXFP4 and
/// weights of bf16 and fp8 blocks in strips.
constexpr ValueList<MoeSpec> moe_wide_specs(ArchId arch) {
  ValueList<MoeSpec> specs;
  MoeSpec int4{.weights = DType::i4, .scale = Scaling::per_group, .scale_k = 32}, awq = int4;
  awq.scale_k = 128, awq.zero_points = true;
  specs.add(int4);
  specs.add(awq);
  if (facts_of(arch).matrix == Matrix::mma) return specs;
  MoeSpec mxfp4 = int4, strips, blocks;
  mxfp4.weights = DType::fp4_e2m1, mxfp4.activation = ActivationKind::swigluoai;
  strips.preshuffled = blocks.preshuffled = true;
  blocks.weights = facts_of(arch).fp8, blocks.scale = Scaling::per_block;
  for (const MoeSpec& s : {mxfp4, strips, blocks}) specs.add(s);
  return specs;
}

/// All entries of one spec on one backend: one for each policy.
template <class B, MoeSpec S>
inline constexpr auto moe_entries = [] {
  constexpr auto policies = moe_policies(B::facts.id, S);
  std::array<MoeEntry, policies.size()> entries{};
  Status (*choose)(const MoeProblem&, const MoeCalls&, hipStream_t) = nullptr;
  if constexpr (S.routing == MoeRouting::logits) choose = &moe_choose_launch<B, S>;
  for (std::size_t i = 0; i < policies.size(); ++i)
    entries[i] = {B::facts.id, B::emulated, S, policies[i], &moe_route_launch<B>, &moe_copy_launch<B>, choose};
  return entries;
}();
/// The same under the name in which the generated list of the wide specs finds them.
template <class B, MoeSpec S>
inline constexpr auto& moe_wide_entries = moe_entries<B, S>;

namespace detail {

/// Returns the entries that quantise x or h of a type, or none.
template <class B, MoeSpec S, DType type, bool any>
constexpr auto moe_quants() {
  if constexpr (any) {
    return op_candidates<QuantRegistry, B, QuantSpec{type, S.operand(), moe_quant_scaling(S)}>;
  } else {
    return std::array<const QuantEntry*, 0>{};
  }
}
/// Returns the entries of the first product of a policy other than the usual one, or none.
template <class B, MoeSpec S, MoePolicy P>
constexpr auto moe_first_products() {
  if constexpr (P == MoePolicy{}) {
    return std::array<const GemmEntry*, 0>{};
  } else {
    return gemm_candidates<B, moe_first_spec(S, P)>;
  }
}

/// Returns several lists of pointers to entries, in order, as one.
template <class Entry, std::size_t... counts>
constexpr auto joined_candidates(const std::array<const Entry*, counts>&... lists) {
  std::array<const Entry*, (counts + ...)> all{};
  std::size_t count = 0;
  const auto add = [&](const auto& list) {
    for (const Entry* e : list) all[count++] = e;
  };
  (add(lists), ...);
  return all;
}

/// The entries of the parts of a layer, of which a spec leaves out some. Products are those of the usual policy, of
/// rows that are copied and of h in f32: others are chosen among lists that a program has.
template <class B, MoeSpec S>
struct MoePartsOf {
  static constexpr MoeSpec spec = S;
  static constexpr auto layers = candidates_of(moe_entries<B, S>);
  static constexpr MoePolicy copies{.rows = moe_may_copy(B::facts.id, S) ? MoeRows::copied : MoeRows::gathered};
  static constexpr MoePolicy keeps{.h = moe_may_keep_h(B::facts.id, S) ? MoeH::f32 : MoeH::quantised};
  static constexpr auto products =
      joined_candidates(gemm_candidates<B, moe_first_spec(S)>, gemm_candidates<B, moe_second_spec(S)>,
                        moe_first_products<B, S, copies>(), moe_first_products<B, S, keeps>());
  /// Those of x, or of h in 16 bits, and those of h in f32.
  static constexpr DType type = is_fp8(S.x) ? S.out : S.x;
  static constexpr bool of_16_bits = S.quantises_x() || S.quantises_h(), of_f32 = moe_may_keep_h(B::facts.id, S);
  static constexpr auto quants =
      joined_candidates(moe_quants<B, S, type, of_16_bits>(), moe_quants<B, S, DType::f32, of_f32>());
  static MoeParts parts() {
    MoeParts all;
    all.layers = layers, all.products = products;
    if constexpr (S.routing == MoeRouting::logits)
      all.gating = op_candidates<TopkGatingRegistry, B, TopkGatingSpec{S.logits}>;
    if constexpr (!S.masked()) {
      all.sort = op_candidates<MoeSortRegistry, B, MoeSortSpec{}>;
      all.sum = op_candidates<MoeReduceRegistry, B, MoeReduceSpec{S.out}>;
    }
    all.quant = quants;
    return all;
  }
};

}  // namespace detail

/// Sets the plan on backend B for the one spec S that the caller compiles in, with all entries of its parts.
/// Errors: no_matching_entry for a problem of another spec; those of moe_select.
template <class B, MoeSpec S>
Status moe_plan(const MoeProblem& p, MoePlan& plan) {
  plan = {};
  constexpr Status served = moe_check_spec(S, B::facts);
  if constexpr (!served.ok()) {  // its kernels would not compile
    return served;
  } else {
    if (!(p.spec == S)) return not_the_compiled_spec;
    return moe_select(p, detail::MoePartsOf<B, S>::parts(), B::facts, plan);
  }
}

}  // namespace tilewave
