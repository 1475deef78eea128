// SPDX-License-Identifier: MIT
// How flash attention is computed: may change the speed, never the answer beyond summation order.
#pragma once

#include <array>
#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/flash_attention/spec.hpp"

namespace tilewave {

/// How K and V reach the products: straight to registers, whatever their layout (all rooms); through shared memory by
/// the tensor copy engine, for products of wave groups (sm90); through LDS, for the large products of CDNA.
enum class FlashAttentionPath : int { registers, tensor, lds };

constexpr const char* name_of(FlashAttentionPath p) {
  constexpr const char* names[] = {"registers", "tensor", "lds"};
  return names[static_cast<int>(p)];
}

/// A block has `rows` query rows of one head, in `waves` parts, and walks their keys in tiles of `keys`.
struct FlashAttentionPolicy {
  FlashAttentionPath path = FlashAttentionPath::registers;
  int rows = 64;
  int keys = 32;
  int waves = 4;   // that share the rows; with path tensor wave groups
  int stages = 1;  // of K, and of V, in shared memory; with path registers in flight
  int waves_per_simd = 2;
  bool turns = false;  // with path tensor: wave groups begin their products in turn

  friend constexpr bool operator==(const FlashAttentionPolicy&, const FlashAttentionPolicy&) = default;
};

/// `t128x176.w2.s2.tensor`: rows and keys of a tile, waves, stages, path; `.o2` for waves a SIMD that are not 1;
/// `.turns`.
inline std::string name_of(const FlashAttentionPolicy& p) {
  const auto text = [](int i) { return std::to_string(i); };
  return "t" + text(p.rows) + "x" + text(p.keys) + ".w" + text(p.waves) + ".s" + text(p.stages) + "." +
         name_of(p.path) + (p.waves_per_simd > 1 ? ".o" + text(p.waves_per_simd) : "") + (p.turns ? ".turns" : "");
}

/// A list of them.
struct FlashAttentionPolicies {
  std::array<FlashAttentionPolicy, 8> list{};
  int count = 0;
  constexpr void add(const FlashAttentionPolicy& policy) { list[count++] = policy; }
  constexpr std::size_t size() const { return count; }
  constexpr const FlashAttentionPolicy& operator[](std::size_t i) const { return list[i]; }
  constexpr const FlashAttentionPolicy* begin() const { return list.data(); }
  constexpr const FlashAttentionPolicy* end() const { return list.data() + count; }
};

}  // namespace tilewave
