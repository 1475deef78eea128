// SPDX-License-Identifier: MIT
// The list of specs with weights of four bits: dense products of int4 with 16-bit and fp8 rows of A, and the first half
// of experts' feed-forward layers, silu(gate) * up. MXFP4 weights are those of gpt-oss's experts, swigluoai of gate and
// up, and dense under fp8 rows.
#pragma once

#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave {

constexpr std::array<GemmSpec, 5> gemm_int4_specs(ArchId arch) {
  constexpr DType i4 = DType::i4, fp4 = DType::fp4_e2m1;
  constexpr GemmWeights preshuffled = GemmWeights::preshuffled;
  return {{{.b = i4, .scale = Scaling::per_group, .weights = preshuffled, .scale_k = 128},
           {.a = facts_of(arch).fp8, .b = i4, .scale = Scaling::per_group, .weights = preshuffled, .scale_k = 128},
           {.b = i4,
            .scale = Scaling::per_group,
            .weights = preshuffled,
            .groups = GemmGroups::contiguous,
            .activation = ActivationKind::silu,
            .gated = true,
            .scale_k = 32},
           {.b = fp4,
            .scale = Scaling::per_group,
            .weights = preshuffled,
            .groups = GemmGroups::contiguous,
            .activation = ActivationKind::swigluoai,
            .gated = true,
            .scale_k = 32},
           {.a = facts_of(arch).fp8, .b = fp4, .scale = Scaling::per_group, .weights = preshuffled, .scale_k = 32}}};
}

constexpr GemmPolicies gemm_int4_policies(ArchId arch, const GemmSpec& s) { return gemm_policies(arch, s); }

/// The entries of a spec, under the name in which the generated list of int4 specs finds them.
template <class B, GemmSpec S>
inline constexpr auto& gemm_int4_entries = gemm_entries<B, S>;

}  // namespace tilewave
