// SPDX-License-Identifier: MIT
// The list of specs with MX scales: fp4, fp6, fp8, and fp4 weights with rows of fp8 and fp6; preshuffled weights; and
// the first half of experts' feed-forward layers, silu(gate) * up. Only CDNA4 (gfx950) has entries for them.
#pragma once

#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave {

constexpr std::array<GemmSpec, 10> gemm_mx_specs(ArchId arch) {
  constexpr DType fp4 = DType::fp4_e2m1, e2m3 = DType::fp6_e2m3, e3m2 = DType::fp6_e3m2;
  constexpr Scaling mx = Scaling::mx;
  const DType fp8 = facts_of(arch).fp8;
  return {{{.a = fp4, .b = fp4, .scale = mx},
           {.a = fp8, .b = fp8, .scale = mx},
           {.a = fp8, .b = fp4, .scale = mx},
           {.a = fp4, .b = fp4, .out = DType::f16, .scale = mx, .weights = GemmWeights::preshuffled},
           {.a = e2m3, .b = e2m3, .scale = mx},
           {.a = e3m2, .b = e3m2, .scale = mx},
           {.a = e2m3, .b = fp4, .scale = mx},
           {.a = e2m3, .b = fp4, .scale = mx, .weights = GemmWeights::preshuffled},
           {.a = fp8,
            .b = fp4,
            .scale = mx,
            .weights = GemmWeights::preshuffled,
            .groups = GemmGroups::contiguous,
            .activation = ActivationKind::silu,
            .gated = true},
           {.a = fp8, .b = fp4, .scale = mx, .weights = GemmWeights::preshuffled}}};
}

/// Returns the policies of a spec: all, or for specs with groups the first and the last.
constexpr GemmPolicies gemm_mx_policies(ArchId arch, const GemmSpec& s) {
  const GemmPolicies all = gemm_policies(arch, s);
  if (s.groups == GemmGroups::one || all.size() < 2) return all;
  GemmPolicies some;
  some.add(all[0]);
  some.add(all.back());
  return some;
}

/// The entries of a spec, under the name in which the generated list of MX specs finds them.
template <class B, GemmSpec S>
inline constexpr auto gemm_mx_entries = gemm_entries_of<B, S, gemm_mx_policies>();

}  // namespace tilewave
