// SPDX-License-Identifier: MIT
// The list of specs for the first half of a feed-forward layer, silu(gate) * up. Some are dense, some are for experts,
// and some quantise their output for the second half.
#pragma once

#include "tilewave/ops/gemm/specs/features.hpp"

namespace tilewave {

constexpr std::array<GemmSpec, 7> gemm_gated_specs(ArchId arch) {
  constexpr ActivationKind silu = ActivationKind::silu;
  const DType fp8 = facts_of(arch).fp8;
  return {{{.activation = silu, .gated = true},
           {.a = fp8, .b = fp8, .scale = Scaling::per_row, .activation = silu, .gated = true},
           {.a = fp8,
            .b = fp8,
            .scale = Scaling::per_block,
            .groups = GemmGroups::contiguous,
            .activation = silu,
            .gated = true},
           {.a = fp8,
            .b = fp8,
            .out = fp8,
            .scale = Scaling::per_row,
            .activation = silu,
            .gated = true,
            .out_scale = Scaling::per_tensor},
           {.out = fp8, .activation = silu, .gated = true, .out_scale = Scaling::per_group},
           {.a = fp8,
            .b = fp8,
            .out = fp8,
            .scale = Scaling::per_block,
            .groups = GemmGroups::contiguous,
            .activation = silu,
            .gated = true,
            .out_scale = Scaling::per_group},
           {.a = fp8,
            .b = fp8,
            .scale = Scaling::per_row,
            .weights = GemmWeights::preshuffled,
            .groups = GemmGroups::contiguous,
            .activation = silu,
            .gated = true}}};
}

constexpr GemmPolicies gemm_gated_policies(ArchId arch, const GemmSpec& s) { return gemm_feature_policies(arch, s); }

/// The entries of a spec, under the name in which the generated list of gated specs finds them.
template <class B, GemmSpec S, EntryPart part = EntryPart{}>
inline constexpr auto gemm_gated_entries = gemm_entries_of<B, S, gemm_gated_policies, part>();

}  // namespace tilewave
