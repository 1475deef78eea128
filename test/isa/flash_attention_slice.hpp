// SPDX-License-Identifier: MIT
// The code objects of flash attention: one a spec.
#pragma once

#include "test/isa/gemm_slice.hpp"
#include "tilewave/ops/flash_attention/registry.hpp"

namespace tilewave::test {

/// Whether a spec of flash attention has a kernel through LDS, which is the first of its policies; and whether it gates
/// every change: the default spec on both chips, others by turns.
constexpr bool has_lds_path(ArchId arch, const FlashAttentionSpec& spec) {
  return flash_attention_policies(arch, spec)[0].path == FlashAttentionPath::lds;
}
constexpr bool in_slice(ArchId arch, const FlashAttentionSpec& spec, std::size_t spec_place) {
  return has_turn(arch, spec_place) || spec == FlashAttentionSpec{};
}

}  // namespace tilewave::test
