// SPDX-License-Identifier: MIT
// The list of specs with weights of four bits: dense products of int4 with 16-bit and fp8 rows of A, with zero points
// too, and of MXFP4, and the first half of feed-forward layers, dense and of experts. These are silu(gate) * up of
// int4, and swigluoai of MXFP4, as gpt-oss has it. MXFP4 under bf16 lies as fragments on sm90, where int4 may also be
// rounded with its scales. The wide list has what combines these.
#pragma once

#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave {

namespace detail {

/// Returns the spec of weights of four bits under rows of bf16.
constexpr GemmSpec four_bit_spec(DType b, int scale_k) {
  return {.b = b, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = scale_k};
}
/// Returns the order in which an architecture takes MXFP4 under bf16 fastest.
constexpr GemmSpec in_best_order(ArchId arch, GemmSpec s) {
  if (s.mxfp4() && s.a == DType::bf16 && facts_of(arch).matrix == Matrix::mma) s.weights = GemmWeights::fragments;
  return s;
}
/// Returns the spec of experts' gates and ups, in contiguous groups.
constexpr GemmSpec four_bit_gated_spec(DType b, ActivationKind activation) {
  GemmSpec s = four_bit_spec(b, 32);
  s.groups = GemmGroups::contiguous;
  s.activation = activation;
  s.gated = true;
  return s;
}

}  // namespace detail

/// Specs of a list that is longer on some architectures.
struct GemmSpecs {
  GemmSpec all[8];
  std::size_t count;
  constexpr std::size_t size() const { return count; }
  constexpr const GemmSpec& operator[](std::size_t i) const { return all[i]; }
  constexpr const GemmSpec* begin() const { return all; }
  constexpr const GemmSpec* end() const { return all + count; }
};

/// The last one, int4 that is rounded with its scales, is for sm90.
constexpr GemmSpecs gemm_int4_specs(ArchId arch) {
  constexpr DType i4 = DType::i4, fp4 = DType::fp4_e2m1;
  GemmSpec fp8_rows = detail::four_bit_spec(i4, 128), zeros = fp8_rows, gated = fp8_rows, rounded = fp8_rows;
  fp8_rows.a = facts_of(arch).fp8;
  zeros.zero_points = true;
  gated.activation = ActivationKind::silu, gated.gated = true;
  rounded.sums = GemmSums::fast;
  return {{detail::four_bit_spec(i4, 128), fp8_rows, detail::four_bit_gated_spec(i4, ActivationKind::silu),
           detail::in_best_order(arch, detail::four_bit_gated_spec(fp4, ActivationKind::swigluoai)),
           detail::in_best_order(arch, detail::four_bit_spec(fp4, 32)), zeros, gated, rounded},
          facts_of(arch).matrix == Matrix::mma ? 8u : 7u};
}

/// Where int4 is not rounded with its scales, rows of f16 come last.
constexpr GemmSpecs gemm_int4_wide_specs(ArchId arch) {
  constexpr DType i4 = DType::i4, fp4 = DType::fp4_e2m1;
  GemmSpec fp8_rows = detail::four_bit_spec(fp4, 32), f16_rows = fp8_rows, groups = fp8_rows;
  fp8_rows.a = facts_of(arch).fp8;
  f16_rows.a = f16_rows.out = DType::f16;
  groups.groups = GemmGroups::masked;
  GemmSpec zeros = detail::four_bit_spec(i4, 64), gated_zeros = detail::four_bit_gated_spec(i4, ActivationKind::silu);
  zeros.a = zeros.out = DType::f16;
  zeros.zero_points = gated_zeros.zero_points = true;
  GemmSpec contiguous = detail::in_best_order(arch, groups);
  contiguous.groups = GemmGroups::contiguous;
  GemmSpec int4_f16 = detail::four_bit_spec(i4, 128);
  int4_f16.a = int4_f16.out = DType::f16;
  return {{fp8_rows, f16_rows, groups, contiguous, zeros, gated_zeros, int4_f16},
          facts_of(arch).matrix == Matrix::mma ? 6u : 7u};
}

constexpr GemmPolicies gemm_int4_policies(ArchId arch, const GemmSpec& s) { return gemm_policies(arch, s); }

/// The entries of a spec, under the names in which the generated lists find them.
template <class B, GemmSpec S, EntryPart part = EntryPart{}>
inline constexpr auto& gemm_int4_entries = gemm_entries<B, S, part>;
template <class B, GemmSpec S, EntryPart part = EntryPart{}>
inline constexpr auto& gemm_int4_wide_entries = gemm_entries<B, S, part>;

}  // namespace tilewave
