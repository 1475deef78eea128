// SPDX-License-Identifier: MIT
// A policy says how flash attention is computed. It may change the speed, never the answer beyond the order of
// summation.
#pragma once

#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/value_list.hpp"
#include "tilewave/ops/flash_attention/spec.hpp"

namespace tilewave {

/// The path of K and V to the products. `registers` loads them straight to registers, whatever their layout (all
/// rooms). `tensor` brings them through shared memory by the tensor copy engine, for products of wave groups (sm90).
/// `lds` brings them through LDS, for the products of 32 x 32 of CDNA.
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
  int waves = 4;   // waves that share the rows; with path tensor, wave groups
  int stages = 1;  // stages of K, and of V, in shared memory; with path registers, in flight
  int waves_per_simd = 2;
  // With path tensor wave groups begin their products in turn. With path lds the two waves of a SIMD take turns, one
  // multiplies and the other makes probabilities.
  bool turns = false;
  int cluster = 1;  // with path tensor: blocks that have neighbouring row tiles and fetch K and V for each other

  friend constexpr bool operator==(const FlashAttentionPolicy&, const FlashAttentionPolicy&) = default;

  /// Returns whether its kernels can share out the keys of a row tile. With three wave groups or clusters this was
  /// slower wherever it was of use.
  constexpr bool splits_keys() const { return path == FlashAttentionPath::tensor && waves == 2 && cluster == 1; }
};

/// Returns the name of a policy, as `t128x176.w2.s2.tensor`: rows and keys of a tile, waves, stages, path. `.o2`
/// follows for two waves per SIMD, `.turns` if they take turns, and `.c2` for two blocks of a cluster.
inline std::string name_of(const FlashAttentionPolicy& p) {
  const auto text = [](int i) { return std::to_string(i); };
  return "t" + text(p.rows) + "x" + text(p.keys) + ".w" + text(p.waves) + ".s" + text(p.stages) + "." +
         name_of(p.path) + (p.waves_per_simd > 1 ? ".o" + text(p.waves_per_simd) : "") + (p.turns ? ".turns" : "") +
         (p.cluster > 1 ? ".c" + text(p.cluster) : "");
}

using FlashAttentionPolicies = ValueList<FlashAttentionPolicy, 8>;

}  // namespace tilewave
