// SPDX-License-Identifier: MIT
// Probabilities as whole numbers, of which sums are the same in any order: what lets every room, wave size and split of
// a row draw the same token. Made of f32 operations that all rooms round alike.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/core/philox.hpp"

namespace tilewave {

/// How far a logit is below the row's largest, as the bits of that f32 difference: it orders tokens, 0 is the largest.
/// NaN, and -inf beside numbers, are beyond `last_key`.
inline constexpr std::uint32_t last_key = 0x7f7fffffu;

template <class B>
TILEWAVE_DEVICE std::uint32_t key_of(float x, float largest) {
  return x == largest ? 0u : __builtin_bit_cast(std::uint32_t, B::subtract(largest, x));
}

TILEWAVE_DEVICE float difference_of(std::uint32_t key) { return __builtin_bit_cast(float, key); }

inline constexpr int weight_bits = 31;

/// 2^31 of the largest logit; that times 2^(-difference * scale) of any other, within 2e-7 relative or half of 1, so 0
/// from 32 powers of two on. `key` is at most last_key, scale positive. No more than 2^49 of all max_vocabulary.
template <class B>
TILEWAVE_DEVICE std::uint32_t weight_of(std::uint32_t key, float scale) {
  const float product = difference_of(key) * scale;
  const float below = product < 40.0f ? product : 40.0f;
  // The nearest whole number, in the low bits of a sum; a conversion takes Hopper four times as long as one.
  constexpr float ones = 0x1p23f;
  const float sum = B::subtract(below, -ones), part = B::subtract(below, B::subtract(sum, ones));
  const std::uint32_t whole = __builtin_bit_cast(std::uint32_t, sum) - __builtin_bit_cast(std::uint32_t, ones);
  // 2^-part, part from -0.5 to 0.5: the least relative error of degree 5 that is exact at 0, 9.2e-8.
  float power = fused(part, -0.0013264707522466779f, 0.00967151764780283f);
  power = fused(part, power, -0.05550733953714371f);
  power = fused(part, power, 0.24022242426872253f);
  power = fused(part, power, -0.6931470036506653f);
  power = fused(part, power, 1.0f);
  const float weight =
      __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, power) + ((weight_bits - whole) << 23));
  return static_cast<std::uint32_t>(weight + 0.5f);
}

/// The high 64 bits of a product.
TILEWAVE_HOST_DEVICE constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_low = a & 0xffffffffu, a_high = a >> 32, b_low = b & 0xffffffffu, b_high = b >> 32;
  const std::uint64_t up = a_high * b_low, down = a_low * b_high;
  const std::uint64_t middle = (a_low * b_low >> 32) + (up & 0xffffffffu) + (down & 0xffffffffu);
  return a_high * b_high + (up >> 32) + (down >> 32) + (middle >> 32);
}

/// A whole number below `end`, drawn evenly: no number is more than 2^-14 of 2^-64 likelier than another.
TILEWAVE_HOST_DEVICE constexpr std::uint64_t drawn_below(std::uint64_t end, std::uint64_t seed, std::uint64_t offset,
                                                         std::uint32_t row, std::uint32_t attempt) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const Vec<std::uint32_t, 4> words =
      philox4x32({{attempt, row, low(offset), high(offset)}}, {{low(seed), high(seed)}});
  return multiply_high(std::uint64_t{words[1]} << 32 | words[0], end);
}

/// Of a sum of weights the part that the fewest largest must reach: p < 1 of it, rounded down, but never nothing.
TILEWAVE_HOST_DEVICE constexpr std::uint64_t needed(std::uint64_t sum, float p) {
  const auto fraction = p > 0.0f ? static_cast<std::uint32_t>(p * 0x1p32f) : 0u;
  return max_of<std::uint64_t>(multiply_high(sum, std::uint64_t{fraction} << 32), 1);
}

}  // namespace tilewave
