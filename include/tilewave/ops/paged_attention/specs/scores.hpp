// SPDX-License-Identifier: MIT
// Specs with what the default ones lack between product and masks, or in their scales. Tests and bundles run these few.
// An engine names the spec that it wants, see paged_attention_plan.
#pragma once

#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave {

constexpr std::array<PagedAttentionSpec, 4> paged_attention_score_specs(ArchId arch) {
  const DType fp8 = facts_of(arch).fp8;
  return {{{.kv = DType::bf16, .quant = Scaling::none, .head_size = 64, .soft_cap = true},
           {.kv = DType::bf16, .quant = Scaling::none, .head_size = 64, .alibi = true},
           {.kv = fp8, .quant = Scaling::per_head, .head_size = 64},
           {.kv = fp8, .quant = Scaling::per_token, .head_size = 128, .soft_cap = true, .alibi = true}}};
}

/// The one entry of a spec, with the policy of 16 query rows.
template <class B, PagedAttentionSpec S>
inline constexpr std::array<PagedAttentionEntry, 1> paged_attention_score_entries{
    paged_attention_entry<B, S, paged_attention_policies(B::facts.id, S)[0]>};

}  // namespace tilewave
