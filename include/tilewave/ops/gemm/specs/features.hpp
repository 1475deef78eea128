// SPDX-License-Identifier: MIT
// The list of specs with features beyond gemm_specs(), each feature once. Tests, the benchmark and the ISA gate build
// these. A caller compiles in the specs that it needs with gemm_plan<B, S>.
#pragma once

#include <array>

#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave {

/// Returns specs with preshuffled weights, groups, other outputs, activations, gates of experts, i8 without scales,
/// other layouts and fast sums.
constexpr std::array<GemmSpec, 13> gemm_feature_specs(ArchId arch) {
  constexpr DType bf16 = DType::bf16, f16 = DType::f16, f32 = DType::f32, i8 = DType::i8;
  constexpr GemmWeights preshuffled = GemmWeights::preshuffled;
  const DType fp8 = facts_of(arch).fp8;
  return {{
      {.weights = preshuffled},
      {.a = fp8, .b = fp8, .scale = Scaling::per_row, .weights = preshuffled},
      {.a = fp8, .b = fp8, .out = f16, .scale = Scaling::per_block, .weights = preshuffled},
      {.groups = GemmGroups::contiguous, .activation = ActivationKind::silu},
      {.a = bf16, .b = bf16, .out = f32, .activation = ActivationKind::gelu},
      {.a = f16,
       .b = f16,
       .out = f16,
       .groups = GemmGroups::masked,
       .activation = ActivationKind::swigluoai,
       .gated = true},
      {.a = i8, .b = i8, .out = f32},
      {.layout = GemmLayout::nn},
      {.a = f16, .b = f16, .out = f16, .layout = GemmLayout::tn},
      {.layout = GemmLayout::tt, .activation = ActivationKind::gelu_tanh},
      {.a = i8, .b = i8, .scale = Scaling::per_row, .weights = preshuffled},
      {.out = i8, .activation = ActivationKind::relu, .out_scale = Scaling::per_tensor},
      {.a = fp8, .b = fp8, .scale = Scaling::per_row, .sums = GemmSums::fast},
  }};
}

/// Returns the first and the last of a spec's policies. Preshuffled weights other than i8 have all of them, and so have
/// fast sums where they differ from promoted ones.
constexpr GemmPolicies gemm_feature_policies(ArchId arch, const GemmSpec& s) {
  const GemmPolicies all = gemm_policies(arch, s);
  const bool fast = !facts_of(arch).f32_sums && s.sums == GemmSums::fast;
  if (fast || (s.weights == GemmWeights::preshuffled && s.a != DType::i8) || all.size() < 2) return all;
  GemmPolicies some;
  some.add(all[0]);
  some.add(all.back());
  return some;
}

/// The entries of a spec, under the name in which the generated list of features finds them.
template <class B, GemmSpec S, EntryPart part = EntryPart{}>
inline constexpr auto gemm_feature_entries = gemm_entries_of<B, S, gemm_feature_policies, part>();

}  // namespace tilewave
