// SPDX-License-Identifier: MIT
// The code objects of all ops but row operations (row_objects.hpp), and which of them gate every change; the others wait
// for the label full.
#pragma once

#include <array>

#include "test/isa/flash_attention_slice.hpp"
#include "tilewave/ops/mla_decode/registry.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::test {

/// The `place`-th policy of the `spec_place`-th spec. Tests of bundles export entries of one spec on both chips.
constexpr bool in_slice(ArchId arch, const PagedAttentionSpec& spec, std::size_t spec_place, std::size_t place) {
  return has_turn(arch, spec_place + place) || (spec.quant == Scaling::per_token && spec.head_size == 128);
}

/// The specs of latent decode that have code objects, one for each policy: bf16, and fp8 q. The first policy of each gates
/// every change.
inline constexpr std::array mla_decode_objects{0, 4};
constexpr bool in_slice(ArchId arch, const MlaDecodeSpec& spec, std::size_t place) {
  return place == 0 && (spec == MlaDecodeSpec{}) == (arch == ArchId::gfx950);
}

}  // namespace tilewave::test
