// SPDX-License-Identifier: MIT
// One list of specs and policies per architecture: it feeds dispatch, tests, benchmarks, the tuner and the ISA gate.
#pragma once

#include "tilewave/ops/activation/launch.hpp"
#include "tilewave/ops/activation/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// The specs every architecture serves: of models as they are (Llama, Qwen, DeepSeek and Mixtral silu, Gemma gelu_tanh,
/// GPT-OSS swigluoai, Nemotron relu2), and one of each function, type and output between them; to MX formats, where
/// there are, silu and GPT-OSS's.
constexpr SpecList<ActivationSpec> activation_specs(ArchId arch) {
  using enum ActivationKind;
  using enum Gating;
  constexpr DType bf16 = DType::bf16, f16 = DType::f16, f32 = DType::f32;
  const DType fp8 = facts_of(arch).fp8;
  SpecList<ActivationSpec> specs;
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
  template <class B, ActivationSpec S, RowPolicy P>
  static constexpr int lds_bytes() {
    return S.tiled() ? 0 : sizeof(typename Activation<B, S, P>::Shared);
  }
};

using ActivationEntry = OpEntry<ActivationRegistry>;
using ActivationPlan = OpPlan<ActivationRegistry>;

/// All entries of one spec on one backend; the choice among entries; the plan for one spec. See tile/registry.hpp.
template <class B, ActivationSpec S>
inline constexpr auto& activation_entries = op_entries<ActivationRegistry, B, S>;
inline constexpr auto activation_select = select_entry<ActivationRegistry>;
template <class B, ActivationSpec S>
inline constexpr auto activation_plan = plan_entry<ActivationRegistry, B, S>;

}  // namespace tilewave
