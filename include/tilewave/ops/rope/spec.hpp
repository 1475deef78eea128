// SPDX-License-Identifier: MIT
// The spec says what a rotary position embedding computes. Changing it changes the answer.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// The two dimensions of a head that rotate together by angle i. halves (NeoX): i and i + R / 2, where R dimensions are
/// rotated; neighbours (GPT-J): 2i and 2i + 1.
enum class RopePairs : int { halves, neighbours };

constexpr bool is_pairs(RopePairs p) { return p == RopePairs::halves || p == RopePairs::neighbours; }
constexpr const char* name_of(RopePairs p) {
  return p == RopePairs::halves ? "halves" : p == RopePairs::neighbours ? "neighbours" : "unknown";
}

/// (a, b) becomes (a cos - b sin, b cos + a sin), in f32, rounded once. The tables decide the angles, and thereby
/// linear, YaRN or Llama-3 scaling: reference/rope.hpp makes each.
struct RopeSpec {
  DType x = DType::bf16;      // type of q and k: bf16, f16 or f32
  DType table = DType::bf16;  // type of cos and sin: x's or f32
  RopePairs pairs = RopePairs::halves;
  bool full_table = false;  // tables have each angle twice, R columns in the order of dimensions; otherwise R / 2

  friend constexpr bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

/// Returns the spec whose kernel computes this one: for a full table of halves the kernel reads its first half.
constexpr RopeSpec kernel_spec(RopeSpec s) {
  s.full_table = s.full_table && s.pairs == RopePairs::neighbours;
  return s;
}

/// The name is like `rope.halves.bf16.table_f32`, with `.full` for a full table.
inline std::string name_of(const RopeSpec& s) {
  return "rope." + std::string(name_of(s.pairs)) + "." + std::string(name_of(s.x)) + ".table_" +
         std::string(name_of(s.table)) + (s.full_table ? ".full" : "");
}

}  // namespace tilewave
