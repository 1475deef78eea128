// SPDX-License-Identifier: MIT
// The order of GemmWeights::fragments: MXFP4 codes as the lanes of a wave group hold them for wgmma, whose operand of
// 64 rows by 16 k is in registers.
#pragma once

#include <cstdint>

#include "tilewave/core/hip.hpp"

namespace tilewave {

/// Where a code lies: a word of 32 bits, and bits of it. A word has the eight codes that a lane multiplies in 16 k: two
/// neighbours of k for each of four registers, one in each half. The register is a mask of the word that was shifted,
/// for three of the four; no four places that are shifts of each other fill a half, so the fourth takes what is left.
struct GemmFragment {
  std::int64_t word;
  int magnitude, sign;  // the lowest bit of the magnitude, whose other two are at `upper` and above; the sign
  int upper;

  /// Returns the code of four bits as its word has it.
  TILEWAVE_HOST_DEVICE constexpr std::uint32_t placed(std::uint32_t code) const {
    return (code & 1u) << magnitude | (code >> 1 & 3u) << upper | (code >> 3 & 1u) << sign;
  }
  /// Returns the code of four bits that a word has there.
  TILEWAVE_HOST_DEVICE constexpr std::uint32_t code_of(std::uint32_t bits) const {
    return (bits >> magnitude & 1u) | (bits >> upper & 3u) << 1 | (bits >> sign & 1u) << 3;
  }
};

/// Returns where value k of a row of B[N, K] lies. Sixteen rows by 32 k are 64 words, two of each lane.
TILEWAVE_HOST_DEVICE constexpr GemmFragment gemm_fragment(std::int64_t row, std::int64_t k, std::int64_t columns) {
  const int lane = static_cast<int>(row % 8 * 4 + k % 8 / 2), slice = static_cast<int>(k % 32 / 16);
  const int reg = static_cast<int>(row % 16 / 8 + 2 * (k % 16 / 8)), half = static_cast<int>(k % 2) * 16;
  const std::int64_t word = ((row / 16 * (columns / 32) + k / 32) * 32 + lane) * 2 + slice;
  switch (reg) {
    case 0: return {word, half, half + 9, half + 1};
    case 1: return {word, half + 4, half + 13, half + 5};
    case 2: return {word, half + 10, 16 - half + 3, half + 11};  // rotated by four: the signs change halves
    default: return {word, half + 14, half + 15, half + 7};
  }
}

}  // namespace tilewave
