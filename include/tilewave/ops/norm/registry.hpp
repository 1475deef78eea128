// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/norm/launch.hpp"
#include "tilewave/ops/norm/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves: all outputs for bf16 rows, and the plain and per-token fp8 outputs
/// for the other rows, with every type, weight, output and kind. Where there are MX formats, rmsnorm of bf16 writes
/// them. Benchmarks time 16 of these. wide_specs.hpp has other combinations of them.
constexpr ValueList<NormSpec> norm_specs(ArchId arch) {
  ValueList<NormSpec> specs;
  const DType fp8 = facts_of(arch).fp8;
  const auto add = [&](NormKind kind, DType x, DType weight, DType out, Scaling scale) {
    specs.add({kind, x, weight, out, scale});
  };
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    for (const DType x : {DType::bf16, DType::f16, DType::f32}) add(kind, x, x, x, Scaling::none);
    for (const Scaling scale : {Scaling::per_token, Scaling::per_tensor, Scaling::per_group}) {
      add(kind, DType::bf16, DType::bf16, fp8, scale);
    }
    add(kind, DType::bf16, DType::bf16, DType::i8, Scaling::per_token);
    add(kind, DType::bf16, DType::bf16, DType::i8, Scaling::per_tensor);
  }
  add(NormKind::rms, DType::bf16, DType::f32, fp8, Scaling::per_token);
  add(NormKind::layer, DType::f16, DType::f32, DType::f16, Scaling::none);
  add(NormKind::rms, DType::f16, DType::f16, fp8, Scaling::per_token);
  add(NormKind::layer, DType::f32, DType::f32, fp8, Scaling::per_token);
  if (facts_of(arch).mx) {
    for (const DType codes : {DType::fp4_e2m1, fp8}) {
      add(NormKind::rms, DType::bf16, DType::bf16, codes, Scaling::mx);
    }
  }
  return specs;
}

struct NormRegistry : RowRegistry<NormSpec, NormProblem, norm_aligned> {
  static constexpr auto check_spec = norm_check_spec;
  static constexpr auto check = norm_check;
  static constexpr auto policies = norm_policies;
  template <class B, NormSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &norm_launch<B, S, P>;
  }
};

using NormEntry = OpEntry<NormRegistry>;
using NormPlan = OpPlan<NormRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, NormSpec S>
inline constexpr auto& norm_entries = op_entries<NormRegistry, B, S>;
inline constexpr auto norm_select = select_entry<NormRegistry>;
template <class B, NormSpec S>
inline constexpr auto norm_plan = plan_entry<NormRegistry, B, S>;

}  // namespace tilewave
