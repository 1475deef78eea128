// SPDX-License-Identifier: MIT
// The bytes with which tests fill memory before a kernel runs, so that values it must not use and values it must write
// both show.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace tilewave::test {

/// A byte of what no kernel may use: gaps between rows, tokens that nobody sees, workspaces. NaN as any type of floats,
/// and as an index beyond every table.
inline constexpr std::uint8_t unread_byte = 0xff;

/// A byte of what a kernel must write or leave alone. A repeated byte that is no answer of any test in a type of 16
/// bits
/// or more: neither NaN, infinity or 0, nor -1 as indices of pads are. Of 8-bit codes each may be an answer; this one
/// is
/// none that stands for NaN, for 0 or for the largest value.
inline constexpr std::uint8_t unwritten_byte = 0xcd;
inline constexpr std::uint16_t unwritten_half = 0xcdcd;
inline constexpr std::int32_t unwritten_word = static_cast<std::int32_t>(0xcdcdcdcdu);

/// True if nothing was written to bytes that were unwritten_byte.
inline bool all_unwritten(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == unwritten_byte; });
}

}  // namespace tilewave::test
