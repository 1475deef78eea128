// SPDX-License-Identifier: MIT
// The lists of specs of a layer of experts: first products gather tokens or have masked groups, second ones scatter to
// slots. Second products whose rows stay in order are in the list of grouped specs, but those of MXFP4 in fragments.
#pragma once

#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave {

constexpr ValueList<GemmSpec> gemm_moe_specs(ArchId arch) {
  constexpr ActivationKind silu = ActivationKind::silu;
  constexpr GemmGroups contiguous = GemmGroups::contiguous;
  constexpr Scaling block = Scaling::per_block;
  const DType fp8 = facts_of(arch).fp8;
  ValueList<GemmSpec> specs;
  for (const GemmSpec& s : {GemmSpec{.groups = contiguous, .activation = silu, .gated = true, .gathered = true},
                            GemmSpec{.groups = contiguous, .scattered = true},
                            GemmSpec{.a = fp8,
                            .b = fp8,
                            .out = fp8,
                            .scale = block,
                            .groups = contiguous,
                            .activation = silu,
                            .gated = true,
                            .out_scale = Scaling::per_group,
                            .gathered = true},
                            GemmSpec{.a = fp8, .b = fp8, .scale = block, .groups = contiguous, .scattered = true},
                            GemmSpec{.groups = GemmGroups::masked, .activation = silu, .gated = true},
                            GemmSpec{.a = fp8,
                            .b = fp8,
                            .out = fp8,
                            .scale = block,
                            .groups = GemmGroups::masked,
                            .activation = silu,
                            .gated = true,
                            .out_scale = Scaling::per_group}})
    specs.add(s);
  if (facts_of(arch).matrix != Matrix::mma) return specs;
  // These have rows that were copied before, and h that a launch of its own quantises.
  specs.add({.groups = contiguous, .activation = silu, .gated = true});
  GemmSpec f32_h{.a = fp8, .b = fp8, .out = DType::f32, .scale = block, .groups = contiguous, .gated = true};
  f32_h.activation = silu, f32_h.gathered = true;
  specs.add(f32_h);
  GemmSpec second{.b = DType::fp4_e2m1,
                  .scale = Scaling::per_group,
                  .weights = GemmWeights::fragments,
                  .groups = contiguous,
                  .scale_k = 32};
  GemmSpec first = second;
  first.activation = ActivationKind::swigluoai, first.gated = first.gathered = true;
  specs.add(first);
  specs.add(second);
  first.gathered = false;
  specs.add(first);
  return specs;
}

/// Returns the first and second products of the wide list of layers (moe_wide_specs).
constexpr ValueList<GemmSpec> gemm_moe_wide_specs(ArchId arch) {
  const GemmSpec plain{.weights = GemmWeights::preshuffled, .groups = GemmGroups::contiguous};
  GemmSpec int4 = plain, blocks = plain;
  int4.b = DType::i4, int4.scale = Scaling::per_group, int4.scale_k = 32;
  GemmSpec awq = int4, mxfp4 = int4;
  awq.scale_k = 128, awq.zero_points = true;
  mxfp4.b = DType::fp4_e2m1;
  blocks.a = blocks.b = facts_of(arch).fp8, blocks.scale = Scaling::per_block;
  ValueList<GemmSpec> specs;
  const auto add = [&](const GemmSpec& second, ActivationKind activation) {
    GemmSpec first = second;
    first.activation = activation, first.gated = first.gathered = true;
    if (second.scale == Scaling::per_block) first.out = first.a, first.out_scale = Scaling::per_group;
    specs.add(first);
    specs.add(second);
  };
  add(int4, ActivationKind::silu);
  add(awq, ActivationKind::silu);
  if (facts_of(arch).matrix == Matrix::mma) return specs;
  add(mxfp4, ActivationKind::swigluoai);
  add(plain, ActivationKind::silu);
  add(blocks, ActivationKind::silu);
  return specs;
}

constexpr GemmPolicies gemm_moe_policies(ArchId arch, const GemmSpec& s) { return gemm_policies(arch, s); }

/// The entries of a spec, under the names in which the generated lists of these specs find them.
template <class B, GemmSpec S, EntryPart part = EntryPart{}>
inline constexpr auto& gemm_moe_entries = gemm_entries<B, S, part>;
template <class B, GemmSpec S, EntryPart part = EntryPart{}>
inline constexpr auto& gemm_moe_wide_entries = gemm_entries<B, S, part>;

}  // namespace tilewave
