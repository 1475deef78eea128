// SPDX-License-Identifier: MIT
// Specs that only combine properties of those in norm_specs(). Tests labelled full and the ISA gate compile them; an
// engine names the spec that it wants, see norm_plan.
#pragma once

#include "tilewave/ops/norm/registry.hpp"

namespace tilewave {

constexpr std::array<NormSpec, 8> norm_wide_specs(ArchId arch) {
  std::array<NormSpec, 8> specs{};
  const DType fp8 = facts_of(arch).fp8;
  int n = 0;
  const auto add = [&](const NormSpec& spec) {
    for (const NormSpec& known : norm_specs(arch))
      if (known == spec) return;
    for (int i = 0; i < n; ++i)
      if (specs[i] == spec) return;
    specs[n++] = spec;
  };
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const DType x : {DType::bf16, DType::f16, DType::f32}) {
      add({kind, x, DType::f32, x, Scaling::none});
      for (const DType weight : {x, DType::f32}) add({kind, x, weight, fp8, Scaling::per_token});
    }
  }
  return specs;
}

/// The entries of a wide spec, under the name by which its list is found.
template <class B, NormSpec S>
inline constexpr auto& norm_wide_entries = norm_entries<B, S>;

}  // namespace tilewave
