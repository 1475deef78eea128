// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/activation/launch.hpp"
#include "tilewave/ops/activation/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves: those of current models (silu for Llama, Qwen, DeepSeek and
/// Mixtral, gelu_tanh for Gemma, swigluoai for GPT-OSS, relu2 for Nemotron), and one for each other function, type and
/// output. Where there are MX formats, silu and GPT-OSS's function write them.
constexpr ValueList<ActivationSpec> activation_specs(ArchId arch) {
  using enum ActivationKind;
  using enum Gating;
  constexpr DType bf16 = DType::bf16, f16 = DType::f16, f32 = DType::f32;
  const DType fp8 = facts_of(arch).fp8;
  ValueList<ActivationSpec> specs;
  for (const ActivationSpec& spec : {ActivationSpec{silu, halves, bf16, bf16},
                                     {silu, halves, bf16, fp8, Scaling::per_token},
                                     {silu, halves, bf16, fp8, Scaling::per_group},
                                     {silu, halves, bf16, fp8, Scaling::per_tensor},
                                     {silu, halves, f16, f16},
                                     {gelu_tanh, halves, bf16, bf16},
                                     {gelu, plain, bf16, bf16},
                                     {gelu, halves, f32, f32},
                                     {swigluoai, interleaved, bf16, bf16},
                                     {swigluoai, interleaved, bf16, fp8, Scaling::per_token},
                                     {relu2, plain, bf16, bf16},
                                     {relu, plain, f16, DType::i8, Scaling::per_tensor}}) {
    specs.add(spec);
  }
  if (facts_of(arch).mx) {
    specs.add({silu, halves, bf16, DType::fp4_e2m1, Scaling::mx});
    specs.add({silu, halves, bf16, fp8, Scaling::mx});
    specs.add({swigluoai, interleaved, bf16, DType::fp4_e2m1, Scaling::mx});
  }
  return specs;
}

struct ActivationRegistry : TileRegistry<ActivationSpec, ActivationProblem, activation_aligned> {
  using Rows = RowRegistry<ActivationSpec, ActivationProblem, activation_aligned>;
  static constexpr auto check_spec = activation_check_spec;
  static constexpr auto check = activation_check;
  static constexpr auto policies = activation_policies;
  static Status takes(const RowPolicy& policy, const Problem& p, const ArchFacts& facts) {
    return p.spec.tiled() ? TileRegistry::takes(policy, p, facts) : Rows::takes(policy, p, facts);
  }
  static bool better(const RowPolicy& a, const RowPolicy& b, const Problem& p, const ArchFacts& facts) {
    return p.spec.tiled() ? TileRegistry::better(a, b, p, facts) : Rows::better(a, b, p, facts);
  }
  template <class B, ActivationSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &activation_launch<B, S, P>;
  }
};

using ActivationEntry = OpEntry<ActivationRegistry>;
using ActivationPlan = OpPlan<ActivationRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, ActivationSpec S>
inline constexpr auto& activation_entries = op_entries<ActivationRegistry, B, S>;
inline constexpr auto activation_select = select_entry<ActivationRegistry>;
template <class B, ActivationSpec S>
inline constexpr auto activation_plan = plan_entry<ActivationRegistry, B, S>;

}  // namespace tilewave
