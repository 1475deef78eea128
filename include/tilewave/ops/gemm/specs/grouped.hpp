// SPDX-License-Identifier: MIT
// The list of specs with many products in one launch, as a layer of experts has them.
#pragma once

#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave {

constexpr std::array<GemmSpec, 4> gemm_grouped_specs(ArchId arch) {
  const DType fp8 = facts_of(arch).fp8;
  return {{{.groups = GemmGroups::contiguous},
           {.groups = GemmGroups::masked},
           {.a = fp8, .b = fp8, .scale = Scaling::per_block, .groups = GemmGroups::contiguous},
           {.a = fp8, .b = fp8, .scale = Scaling::per_block, .groups = GemmGroups::masked}}};
}

/// The entries of a spec, under the name in which the generated list of grouped specs finds them.
template <class B, GemmSpec S, EntryPart part = EntryPart{}>
inline constexpr auto& gemm_grouped_entries = gemm_entries<B, S, part>;

}  // namespace tilewave
