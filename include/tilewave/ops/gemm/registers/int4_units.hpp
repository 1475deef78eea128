// SPDX-License-Identifier: MIT
// How the lanes of CDNA share the codes of preshuffled weights of four bits.
#pragma once

#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave {

/// The loads of a step. A lane's load of codes is a unit: 8 k of a column for one atom of 32 k, or 16 k for two. Lane
/// group u of an atom takes k 8 u to 8 u + 7 of each 32. Where both atoms have one scale, or lanes scale the codes that
/// they have, it takes the 16 k from 16 u on of each 64 instead, which lie side by side in memory.
template <GemmSpec S, bool scaled_codes>
struct GemmInt4Units {
  static constexpr int step_k = 128;
  static constexpr int products = S.scale_k >= 64 || scaled_codes ? 2 : 1;  // atoms of a unit along K
  static constexpr int lane_k = 8 * products, wave_k = 4 * lane_k;          // k of a unit, of a lane and of its wave
  static constexpr int per_step = step_k / wave_k;                          // units of a step
  static constexpr int code_bytes = wave_k * 8;                             // of a unit of sixteen rows
  static constexpr int a_words = lane_k * size_of(S.a) / 4;                 // of a lane's unit of a row of A
};

}  // namespace tilewave
