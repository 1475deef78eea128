// SPDX-License-Identifier: MIT
// Clears what is stored for tokens that nobody attends. A slot of the cache that is not in use may hold anything, and
// its probability of 0 times NaN would be NaN.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave {

/// Ones in a word of elements where their tokens lie in [first, end). The word's first element is of `token`, and each
/// has `element_bytes`, 1 or 2.
template <int element_bytes>
TILEWAVE_DEVICE std::uint32_t attended_mask(std::int32_t token, std::int32_t first, std::int32_t end) {
  constexpr int per_word = 4 / element_bytes;
  constexpr std::uint32_t element_mask = element_bytes == 1 ? 0xffu : 0xffffu;
  std::uint32_t mask = 0;
  TILEWAVE_UNROLL
  for (int e = 0; e < per_word; ++e) {
    const auto t = static_cast<std::uint32_t>(token + e - first);  // a token before `first` becomes huge
    if (t < static_cast<std::uint32_t>(end - first)) mask |= element_mask << (e * 8 * element_bytes);
  }
  return mask;
}

/// Zeroes the elements of a unit of V whose tokens lie outside [first, end). The unit holds 16 bytes of consecutive
/// tokens, from `token` on, of one head dimension.
template <int element_bytes>
TILEWAVE_DEVICE void zero_outside(Chunk& unit, std::int32_t token, std::int32_t first, std::int32_t end) {
  TILEWAVE_UNROLL
  for (int w = 0; w < 4; ++w) unit[w] &= attended_mask<element_bytes>(token + w * (4 / element_bytes), first, end);
}

}  // namespace tilewave
