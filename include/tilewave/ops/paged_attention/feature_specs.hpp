// SPDX-License-Identifier: MIT
// Specs beyond paged_attention_specs(): every feature once, with one policy each. Tests, the ISA gate and benchmarks
// build these; a caller compiles in the specs it needs with paged_attention_plan<B, S> or entries of its own.
#pragma once

#include <array>

#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave {

/// A feature a spec: head sizes, value layouts, element types and block sizes that the default specs lack.
constexpr std::array<PagedAttentionSpec, 10> paged_attention_feature_specs(ArchId arch) {
  constexpr DType bf16 = DType::bf16, f16 = DType::f16;
  const DType fp8 = facts_of(arch).fp8;
  constexpr ValueLayout tokens = ValueLayout::token_major;
  constexpr QuantMode per_token = QuantMode::per_token, per_tensor = QuantMode::per_tensor;
  return {{
      {.kv = bf16, .head_size = 80},
      {.kv = fp8, .quant = per_token, .head_size = 96},
      {.kv = bf16, .head_size = 112, .values = tokens},
      {.kv = fp8, .quant = per_tensor, .head_size = 192, .values = tokens},
      {.kv = bf16, .head_size = 128, .values = tokens},
      {.kv = fp8, .quant = per_token, .head_size = 128, .values = tokens},
      {.kv = bf16, .head_size = 64, .values = tokens, .any_block_size = true},
      {.kv = fp8, .quant = per_token, .head_size = 128, .values = tokens, .any_block_size = true},
      {.q = f16, .kv = f16, .out = f16, .head_size = 128, .values = tokens},
      {.q = f16, .kv = fp8, .out = f16, .quant = per_token, .head_size = 64},
  }};
}

/// 16 query rows a block, for any spec that is served. A tile of K, then of V, is in flight, or as much of it as leaves
/// registers for the outputs of wide heads.
constexpr PagedAttentionPolicy paged_attention_feature_policy(ArchId arch, const PagedAttentionSpec& s) {
  const bool sm90 = arch == ArchId::sm90, wide = s.head_size > (sm90 ? 128 : 192);
  PagedAttentionPrefetch prefetch{.slices = !wide ? 1 : sm90 ? s.head_size / 64 : 2, .stages = 2};
  if (sm90 && is_fp8(s.kv) && s.head_size > 64) prefetch.stages = 1;
  return {.row_tiles = 1, .waves = {1, 4}, .prefetch = prefetch, .q_shared = sm90};
}

template <class B, PagedAttentionSpec S>
inline constexpr std::array<PagedAttentionEntry, 1> paged_attention_feature_entries{
    paged_attention_entry<B, S, paged_attention_feature_policy(B::facts.id, S)>};

}  // namespace tilewave
