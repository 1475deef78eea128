// SPDX-License-Identifier: MIT
// The code objects of attention and of GEMM (gemm_slice.hpp), and which of them gate every change; the others wait for the
// label full.
#pragma once

#include <array>

#include "test/isa/gemm_slice.hpp"
#include "tilewave/ops/flash_attention/registry.hpp"
#include "tilewave/ops/mla_decode/registry.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::test {

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

}  // namespace tilewave::test
