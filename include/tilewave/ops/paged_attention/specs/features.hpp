// SPDX-License-Identifier: MIT
// Specs beyond paged_attention_specs(): lists with every feature once, and one with everything that is served. Tests,
// the ISA gate and benchmarks build them. A caller compiles in the specs that it needs with paged_attention_plan<B, S>.
#pragma once

#include <array>
#include <iterator>
#include <utility>

#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave {

/// Specs with one feature each: head sizes, value layouts, element types and block sizes that the default specs lack.
constexpr std::array<PagedAttentionSpec, 10> paged_attention_feature_specs(ArchId arch) {
  constexpr DType bf16 = DType::bf16, f16 = DType::f16;
  const DType fp8 = facts_of(arch).fp8;
  constexpr ValueLayout tokens = ValueLayout::token_major;
  constexpr Scaling per_token = Scaling::per_token, per_tensor = Scaling::per_tensor;
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

/// Specs with native fp8 products. An architecture with bulk kernels has as many entries of each as of a default spec,
/// and others have none. An engine may name other specs of the kind, with per_head, f16, soft_cap or alibi.
constexpr std::array<PagedAttentionSpec, 2> paged_attention_native_specs(ArchId arch) {
  const DType fp8 = facts_of(arch).fp8;
  return {{{.kv = fp8, .quant = Scaling::per_tensor, .head_size = 64, .native = true},
           {.kv = fp8, .quant = Scaling::per_tensor, .head_size = 128, .native = true}}};
}

template <class B, PagedAttentionSpec S>
inline constexpr auto& paged_attention_native_entries = paged_attention_entries<B, S>;

/// The one entry of a spec, under the name that the generated list of features looks for.
template <class B, PagedAttentionSpec S>
inline constexpr std::array<PagedAttentionEntry, 1> paged_attention_feature_entries{
    paged_attention_entry<B, S, paged_attention_other_policy(B::facts.id, S)>};

/// Specs of caches that kv_cache_write writes and that the other lists lack. A test reads each kind of cache.
constexpr std::array<PagedAttentionSpec, 2> paged_attention_written_specs(ArchId arch) {
  constexpr DType f16 = DType::f16;
  return {
      {{.q = f16, .kv = f16, .out = f16, .head_size = 128},
       {.kv = facts_of(arch).fp8, .quant = Scaling::per_head, .head_size = 128, .values = ValueLayout::token_major}}};
}

template <class B, PagedAttentionSpec S>
inline constexpr auto& paged_attention_written_entries = paged_attention_feature_entries<B, S>;

/// Head sizes. paged_attention_wide_entries has each of them in every combination of types, scales and layouts.
constexpr std::array<int, std::size(paged_attention_head_sizes)> paged_attention_wide_specs(ArchId) {
  return std::to_array(paged_attention_head_sizes);
}

namespace detail {
/// Combination i of 18: six of types and scales, with three layouts each.
constexpr PagedAttentionSpec paged_attention_wide_spec(ArchId arch, int head_size, std::size_t i) {
  const Scaling modes[] = {Scaling::none, Scaling::per_tensor, Scaling::per_token};
  PagedAttentionSpec s{.head_size = head_size};
  s.q = s.out = i / 9 == 0 ? DType::bf16 : DType::f16;
  s.quant = modes[i / 3 % 3];
  s.kv = s.quant == Scaling::none ? s.q : facts_of(arch).fp8;
  s.values = i % 3 == 0 ? ValueLayout::dim_major : ValueLayout::token_major;
  s.any_block_size = i % 3 == 2;
  return s;
}
}  // namespace detail

/// One entry for every spec of a head size that paged_attention_check accepts, all with the policy of untuned specs.
template <class B, int head_size>
inline constexpr auto paged_attention_wide_entries = []<std::size_t... i>(std::index_sequence<i...>) {
  return std::array{
      paged_attention_entry<B, detail::paged_attention_wide_spec(B::facts.id, head_size, i),
                            paged_attention_other_policy(
                                B::facts.id, detail::paged_attention_wide_spec(B::facts.id, head_size, i))>...};
}
(std::make_index_sequence<18>{});

}  // namespace tilewave
