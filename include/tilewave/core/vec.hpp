// SPDX-License-Identifier: MIT
// Vec<T, N> holds N elements that live in registers and move as one aligned load or store.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewave/core/config.hpp"

namespace tilewave {

namespace detail {
constexpr std::size_t vec_alignment(std::size_t bytes) {
  // A power-of-two size up to 16 bytes is one instruction; anything else is moved element by element.
  return (bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16) ? bytes : (bytes % 16 == 0 ? 16 : 1);
}
constexpr std::size_t max_size(std::size_t a, std::size_t b) { return a > b ? a : b; }
}  // namespace detail

template <class T, int N>
struct alignas(detail::max_size(alignof(T), detail::vec_alignment(sizeof(T) * N))) Vec {
  T data[N];

  TILEWAVE_HOST_DEVICE constexpr T& operator[](int i) { return data[i]; }
  TILEWAVE_HOST_DEVICE constexpr const T& operator[](int i) const { return data[i]; }
  static constexpr int size = N;
};

namespace detail {
template <int bytes>
struct Unsigned;
template <>
struct Unsigned<1> {
  using type = std::uint8_t;
};
template <>
struct Unsigned<2> {
  using type = std::uint16_t;
};
template <>
struct Unsigned<4> {
  using type = std::uint32_t;
};
}  // namespace detail

/// The unsigned integer of 1, 2 or 4 bytes.
template <int bytes>
using UnsignedOf = typename detail::Unsigned<bytes>::type;

/// 16 bytes of any element type: the widest access one lane makes in every room.
using Chunk = Vec<std::uint32_t, 4>;

}  // namespace tilewave
