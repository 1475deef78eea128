// SPDX-License-Identifier: MIT
// The ladder of docs/reference/ops/flash_attention.md as entries of bench_flash_attention. A build with
// TILEWAVE_GENERATED_ENTRIES=bench/ladder has them. Each rung is a policy of the library's kernels that has one idea more
// than the rung below.
#pragma once

#include "tilewave/ops/flash_attention/registry.hpp"

namespace tilewave {

/// Returns the specs of the ladder: heads of 128, in bf16 and in fp8.
constexpr std::array<FlashAttentionSpec, 2> flash_attention_generated_specs(ArchId arch) {
  const DType fp8 = facts_of(arch).fp8;
  return {FlashAttentionSpec{},
          FlashAttentionSpec{.q = fp8, .kv = fp8, .out = DType::bf16, .quant = Scaling::per_tensor}};
}

constexpr FlashAttentionPolicies flash_attention_generated_policies(ArchId arch, const FlashAttentionSpec& s) {
  FlashAttentionPolicies all;
  const auto add = [&](const FlashAttentionPolicy& p) {
    if (flash_attention_policy_status(arch, s, p).ok()) all.add(p);
  };
  // Waves of sixteen rows read K and V straight from memory.
  add({.path = FlashAttentionPath::registers, .rows = 64, .keys = AtomFacts::groups * s.unit(), .waves = 4});
  if (facts_of(arch).tensor_copies) {
    const auto groups = [&](int count, int keys, bool turns) {
      add({.path = FlashAttentionPath::tensor,
           .rows = 64 * count,
           .keys = keys,
           .waves = count,
           .stages = 2,
           .waves_per_simd = 1,
           .turns = turns});
    };
    groups(1, 64, false);                     // the copy engine, rings, products of one wave group
    groups(1, 128, false);                    // larger tiles
    groups(2, 128, false);                    // one group's softmax may lie beside the other's products
    groups(2, 128, true);                     // and does, since they begin in turn
    groups(3, is_fp8(s.kv) ? 96 : 80, true);  // a third group fills what two leave
    return all;
  }
  const auto waves = [&](int stages, bool turns) {
    add({.path = FlashAttentionPath::lds, .rows = 256, .keys = 64, .waves = 8, .stages = stages, .turns = turns});
  };
  const bool direct = facts_of(arch).direct_copies;
  if (direct) waves(4, false);  // K and V straight into LDS, exponentials between products
  waves(direct ? 4 : 2, true);  // the two waves of a SIMD multiply and do softmax in turn
  return all;
}

template <class B, FlashAttentionSpec S>
inline constexpr auto flash_attention_generated_entries = [] {
  constexpr auto policies = flash_attention_generated_policies(B::facts.id, S);
  return []<std::size_t... i>(std::index_sequence<i...>) {
    return std::array<FlashAttentionEntry, sizeof...(i)>{
        FlashAttentionEntry{B::facts.id, B::emulated, S, policies[i], &flash_attention_launch<B, S, policies[i]>}...};
  }
  (std::make_index_sequence<policies.size()>{});
}();

}  // namespace tilewave
