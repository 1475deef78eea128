// SPDX-License-Identifier: MIT
// Specs beyond flash_attention_specs(): a short list with every feature once, and a long one with each feature by
// itself. Tests build them. A caller compiles in the specs that it needs with flash_attention_plan<B, S>.
#pragma once

#include "tilewave/ops/flash_attention/registry.hpp"

namespace tilewave {

/// Specs that share out the features which the default specs lack: trees of drafts, other layouts of V, ALiBi, scales
/// of tokens and of heads, outputs in fp8, head sizes that are no multiple of 64.
constexpr ValueList<FlashAttentionSpec> flash_attention_feature_specs(ArchId arch) {
  constexpr DType f16 = DType::f16;
  const DType fp8 = facts_of(arch).fp8;
  ValueList<FlashAttentionSpec> specs;
  specs.add({.storage = KvStorage::paged, .values = ValueLayout::dim_major, .bit_mask = true});
  specs.add({.kv = fp8,
             .quant = Scaling::per_token,
             .head_size = 64,
             .value_size = 64,
             .storage = KvStorage::paged,
             .alibi = true});
  specs.add({.q = f16, .kv = f16, .out = fp8, .head_size = 80, .value_size = 80});
  specs.add({.q = fp8,
             .kv = fp8,
             .out = fp8,
             .quant = Scaling::per_head,
             .head_size = 96,
             .value_size = 96,
             .storage = KvStorage::paged,
             .values = ValueLayout::dim_major});
  return specs;
}

/// Specs with one feature each, in the types and head sizes that the other lists lack.
constexpr ValueList<FlashAttentionSpec> flash_attention_wide_specs(ArchId arch) {
  constexpr DType bf16 = DType::bf16, f16 = DType::f16;
  const DType fp8 = facts_of(arch).fp8;
  constexpr KvStorage paged = KvStorage::paged;
  constexpr ValueLayout dims = ValueLayout::dim_major;
  ValueList<FlashAttentionSpec> specs;
  for (const int size : {72, 80, 96, 112, 192}) specs.add({.head_size = size, .value_size = size});
  specs.add({.q = f16, .kv = f16, .out = f16, .head_size = 80, .value_size = 80, .soft_cap = true});
  specs.add({.q = f16, .kv = f16, .out = f16, .head_size = 192});
  specs.add({.out = fp8, .head_size = 192, .value_size = 192});
  specs.add({.out = fp8});
  specs.add({.alibi = true});
  specs.add({.soft_cap = true, .alibi = true, .bit_mask = true});
  specs.add({.storage = paged, .values = dims});
  specs.add({.head_size = 256, .value_size = 256, .storage = paged, .values = dims});
  specs.add({.head_size = 112, .value_size = 112, .storage = paged, .bit_mask = true});
  specs.add({.kv = fp8, .quant = Scaling::per_tensor, .storage = paged});
  specs.add({.kv = fp8, .quant = Scaling::per_head, .storage = paged, .values = dims});
  specs.add({.kv = fp8, .quant = Scaling::per_token, .storage = paged, .values = dims, .bit_mask = true});
  specs.add({.kv = fp8, .quant = Scaling::per_head, .head_size = 64, .value_size = 64});
  specs.add({.q = f16, .kv = fp8, .out = f16, .quant = Scaling::per_token, .storage = paged});
  specs.add({.q = fp8, .kv = fp8, .out = f16, .quant = Scaling::per_head, .head_size = 192});
  for (const int size : {64, 192, 256})
    specs.add({.q = fp8, .kv = fp8, .quant = Scaling::per_tensor, .head_size = size, .value_size = size});
  specs.add({.q = fp8, .kv = fp8, .out = bf16, .quant = Scaling::per_tensor, .storage = paged});
  return specs;
}

template <class B, FlashAttentionSpec S>
inline constexpr auto& flash_attention_feature_entries = flash_attention_entries<B, S>;
template <class B, FlashAttentionSpec S>
inline constexpr auto& flash_attention_wide_entries = flash_attention_entries<B, S>;

}  // namespace tilewave
