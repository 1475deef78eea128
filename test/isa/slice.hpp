// SPDX-License-Identifier: MIT
// The code objects of paged attention and GEMM, and which of them gate every change; the others wait for the label
// full.
#pragma once

#include <array>

#include "tilewave/ops/flash_attention/registry.hpp"
#include "tilewave/ops/mla_decode/registry.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::test {

/// Neighbours in a list take turns: one is gated on gfx950, the next on gfx942.
constexpr bool has_turn(ArchId arch, std::size_t place) { return place % 2 == (arch == ArchId::gfx942); }

/// The `place`-th policy of the `spec_place`-th spec. Tests of bundles export entries of one spec on both chips.
constexpr bool in_slice(ArchId arch, const PagedAttentionSpec& spec, std::size_t spec_place, std::size_t place) {
  return has_turn(arch, spec_place + place) || (spec.quant == Scaling::per_token && spec.head_size == 128);
}

/// Whether a spec of flash attention has a kernel through LDS, which is the first of its policies; and whether it gates
/// every change: the default spec on both chips, others by turns.
constexpr bool has_lds_path(ArchId arch, const FlashAttentionSpec& spec) {
  return flash_attention_policies(arch, spec)[0].path == FlashAttentionPath::lds;
}
constexpr bool in_slice(ArchId arch, const FlashAttentionSpec& spec, std::size_t spec_place) {
  return has_turn(arch, spec_place) || spec == FlashAttentionSpec{};
}

/// The specs of latent decode that have code objects, one for each policy: bf16, and fp8 q. The first policy of each gates
/// every change.
inline constexpr std::array mla_decode_objects{0, 4};
constexpr bool in_slice(ArchId arch, const MlaDecodeSpec& spec, std::size_t place) {
  return place == 0 && (spec == MlaDecodeSpec{}) == (arch == ArchId::gfx950);
}

/// The specs of each list of GEMM that have a code object, with all their policies.
inline constexpr std::array gemm_objects{0, 2, 4, 5};
inline constexpr std::array gemm_feature_objects{0, 1, 2, 7};
inline constexpr std::array gemm_gated_objects{1, 2, 4, 6};
inline constexpr std::array gemm_int4_objects{0, 1, 2, 4, 5, 3};  // int4, then MXFP4, zero points, MXFP4 gated
inline constexpr std::array gemm_mx_objects{0, 1, 9, 2, 4, 3, 6, 5, 7};
inline constexpr std::array gemm_moe_objects{0, 2, 3};  // gathered; gathered fp8; scattered fp8
#define GEMM_LISTS(each) each(gemm) each(gemm_feature) each(gemm_gated) each(gemm_int4) each(gemm_mx) each(gemm_moe)
/// True if the architecture has the list.
constexpr bool has_list(ArchId arch, std::string_view list) { return list != "gemm_mx" || facts_of(arch).mx; }

}  // namespace tilewave::test
