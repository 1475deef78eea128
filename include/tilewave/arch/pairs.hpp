// SPDX-License-Identifier: MIT
// Optional primitives of a room for pairs of 16-bit floats in a word.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

/// A room that compares two bf16 or f16 in one operation (docs/reference/primitives.md).
template <class B>
concept PairBackend = Backend<B> && requires(std::uint32_t word) {
  { B::template larger_pair<DType::bf16>(word, word) } -> std::same_as<std::uint32_t>;
  { B::template larger_pair<DType::f16>(word, word) } -> std::same_as<std::uint32_t>;
};

}  // namespace tilewave
