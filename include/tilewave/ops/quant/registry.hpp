// SPDX-License-Identifier: MIT
// Each architecture has one list of specs and policies, which feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/quant/launch.hpp"
#include "tilewave/ops/quant/policy.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves. bf16 and f16 go to fp8 and i8 with every scale, f32 with one a
/// row, and on sm90 to fp8 with those of groups. Codes go back to bf16 with every scale, to f16 and f32 with one a row.
/// Where there are MX formats, bf16 goes to all of them with mx scales.
constexpr ValueList<QuantSpec> quant_specs(ArchId arch) {
  ValueList<QuantSpec> specs;
  for (const DType codes : {facts_of(arch).fp8, DType::i8}) {
    for (const Scaling scale : {Scaling::per_token, Scaling::per_tensor, Scaling::per_group}) {
      specs.add({DType::bf16, codes, scale});
      specs.add({DType::f16, codes, scale});
      specs.add({codes, DType::bf16, scale});
    }
    specs.add({DType::f32, codes, Scaling::per_token});
    specs.add({codes, DType::f16, Scaling::per_token});
    specs.add({codes, DType::f32, Scaling::per_token});
  }
  if (arch == ArchId::sm90) specs.add({DType::f32, facts_of(arch).fp8, Scaling::per_group});
  if (facts_of(arch).mx) {
    for (const DType codes : {DType::fp4_e2m1, facts_of(arch).fp8, DType::fp6_e2m3, DType::fp6_e3m2})
      specs.add({DType::bf16, codes, Scaling::mx});
  }
  return specs;
}

struct QuantRegistry : RowRegistry<QuantSpec, QuantProblem, quant_aligned> {
  static constexpr auto check_spec = quant_check_spec;
  static constexpr auto check = quant_check;
  static constexpr auto policies = quant_policies;
  static std::size_t workspace_bytes(const QuantProblem& p, const RowPolicy&, const ArchFacts&, int) {
    return quant_workspace_size(p);
  }
  template <class B, QuantSpec S, RowPolicy P>
  static constexpr auto launch() {
    return &quant_launch<B, S, P>;
  }
};

using QuantEntry = OpEntry<QuantRegistry>;
using QuantPlan = OpPlan<QuantRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan of one spec
/// (tile/registry.hpp).
template <class B, QuantSpec S>
inline constexpr auto& quant_entries = op_entries<QuantRegistry, B, S>;
inline constexpr auto quant_select = select_entry<QuantRegistry>;
template <class B, QuantSpec S>
inline constexpr auto quant_plan = plan_entry<QuantRegistry, B, S>;

}  // namespace tilewave
