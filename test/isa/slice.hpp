// SPDX-License-Identifier: MIT
// Which code objects of paged attention and GEMM gate every change; the others wait for the label full. CMake has the same
// turns for GEMM (code_objects.cmake).
#pragma once

#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::test {

/// Neighbours in a list take turns: one is gated on gfx950, the next on gfx942.
constexpr bool has_turn(ArchId arch, std::size_t place) { return place % 2 == (arch == ArchId::gfx942); }

/// The `place`-th policy of the `spec_place`-th spec. Tests of bundles export entries of one spec on both chips.
constexpr bool in_slice(ArchId arch, const PagedAttentionSpec& spec, std::size_t spec_place, std::size_t place) {
  return has_turn(arch, spec_place + place) || (spec.quant == QuantMode::per_token && spec.head_size == 128);
}

}  // namespace tilewave::test
