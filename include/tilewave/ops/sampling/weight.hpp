// SPDX-License-Identifier: MIT
// Probabilities as integers, whose sums are the same in any order. Every room, wave size and split of a row therefore
// draws the same token. They are made of f32 operations that all rooms round alike.
#pragma once

#include "tilewave/core/dtype.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/philox.hpp"

namespace tilewave {

/// Integers that order the logits of a type, with as many steps as the type has. -0 is next to +0: code that must not
/// separate equals compares the logits themselves.
template <DType X>
struct LogitOrder {
  static constexpr int unused = X == DType::bf16 ? 16 : X == DType::f16 ? 13 : 0;  // unused low bits of a logit in f32

  TILEWAVE_HOST_DEVICE static constexpr std::uint32_t key(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    return (bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u)) >> unused;
  }
  TILEWAVE_HOST_DEVICE static constexpr float logit(std::uint32_t key) {
    const std::uint32_t low = (1u << unused) - 1, bits = key << unused;
    return __builtin_bit_cast(float, bits >> 31 != 0 ? bits ^ 0x80000000u : ~(bits | low));
  }
};
/// Returns the least f32 above x, which must be finite.
TILEWAVE_HOST_DEVICE constexpr float next_above(float x) {
  using Order = LogitOrder<DType::f32>;
  return Order::logit(Order::key(x == 0.0f ? 0.0f : x) + 1);
}

/// The weights of a row's logits: 2^(31 + exponent), truncated to an integer. The exponent is that of the probability,
/// up to a constant of the row of at most 0.5. Weights are right within 2e-7 relative or 1, and 0 from 33 powers of two
/// below the largest on. All of max_vocabulary sum to no more than 2^49.5. Where the largest is within 4096 powers of
/// two of 1, as models make it, the exponent is that of the logit itself, less an integer; otherwise it is that of its
/// f32 difference to the largest.
template <class B>
struct Weigher {
  float base, factor, origin, shift, lowest;
  bool plain;  // true if the base is 0

  /// Takes the largest logit of a row, and the powers of two of one unit of logit, which are positive.
  TILEWAVE_DEVICE Weigher(float largest, float powers) : factor(powers) {
    constexpr float ones = 0x1.8p23f;  // a sum with it has no fraction
    plain = abs_of(largest) * factor <= 4096.0f;
    base = plain ? 0.0f : largest;
    shift = plain ? B::subtract(fused(largest, factor, ones), ones) : 0.0f;
    origin = ones + 31.0f - shift;
    lowest = B::subtract(shift, 40.0f) * B::reciprocal(factor);  // rooms differ in it, but not in which logits weigh 0
  }

  /// Returns one of two, member by member: compilers would otherwise choose between their addresses in memory.
  TILEWAVE_DEVICE static Weigher either(bool first, const Weigher& a, const Weigher& b) {
    Weigher one = b;
    one.base = first ? a.base : b.base;
    one.factor = first ? a.factor : b.factor;
    one.origin = first ? a.origin : b.origin;
    one.shift = first ? a.shift : b.shift;
    one.lowest = first ? a.lowest : b.lowest;
    one.plain = first ? a.plain : b.plain;
    return one;
  }
  /// Returns the weights of any two logits; a NaN weighs 0.
  TILEWAVE_DEVICE Vec<std::uint32_t, 2> weights(float x, float y) const {
    return weights_of({{Max{}(distance(x), lowest), Max{}(distance(y), lowest)}});
  }
  TILEWAVE_DEVICE std::uint32_t weight(float x) const { return weights(x, x)[0]; }
  /// Returns the weights of two logits of a plain row, which must not lie much below `lowest`.
  TILEWAVE_DEVICE Vec<std::uint32_t, 2> weights_of(const Vec<float, 2>& x) const {
    const auto both = [](float v) { return Vec<float, 2>{{v, v}}; };
    // The nearest integer is in the low bits of the sum.
    const Vec<float, 2> sum = B::fused(x, both(factor), both(origin)), whole = B::subtract(sum, both(origin));
    const Vec<float, 2> part = B::fused(x, both(factor), {{-whole[0], -whole[1]}});
    // 2^part for part from -0.5 to 0.5. The polynomial of degree 5 has the least relative error, 9.2e-8, among those
    // that are exact at 0.
    Vec<float, 2> power = B::fused(part, both(0.0013264707522466779f), both(0.00967151764780283f));
    power = B::fused(part, power, both(0.05550733953714371f));
    power = B::fused(part, power, both(0.24022242426872253f));
    power = B::fused(part, power, both(0.6931470036506653f));
    power = B::fused(part, power, both(1.0f));
    Vec<std::uint32_t, 2> weights;
    TILEWAVE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t bits =
          __builtin_bit_cast(std::uint32_t, power[i]) + (__builtin_bit_cast(std::uint32_t, sum[i]) << 23);
      weights[i] = static_cast<std::uint32_t>(__builtin_bit_cast(float, bits));
    }
    return weights;
  }
  TILEWAVE_DEVICE float exponent(float x) const { return fused(distance(x), factor, -shift); }

 private:
  TILEWAVE_DEVICE float distance(float x) const { return x == base ? 0.0f : B::subtract(x, base); }
};

/// Returns the high 64 bits of a product.
TILEWAVE_HOST_DEVICE constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_low = a & 0xffffffffu, a_high = a >> 32, b_low = b & 0xffffffffu, b_high = b >> 32;
  const std::uint64_t up = a_high * b_low, down = a_low * b_high;
  const std::uint64_t middle = (a_low * b_low >> 32) + (up & 0xffffffffu) + (down & 0xffffffffu);
  return a_high * b_high + (up >> 32) + (down >> 32) + (middle >> 32);
}

/// Returns 64 random bits. The high half of their product with `end` is an integer below `end`, drawn evenly: none is
/// more than 2^-14 of 2^-64 likelier than another.
TILEWAVE_HOST_DEVICE constexpr std::uint64_t drawn_bits(std::uint64_t seed, std::uint64_t offset, std::uint32_t row,
                                                        std::uint32_t attempt) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const Vec<std::uint32_t, 4> words =
      philox4x32({{attempt, row, low(offset), high(offset)}}, {{low(seed), high(seed)}});
  return std::uint64_t{words[1]} << 32 | words[0];
}

/// Returns the least weight that min_p leaves, where the likeliest token weighs `most`: that part of it, rounded down,
/// or 0 if min_p is off.
TILEWAVE_HOST_DEVICE constexpr std::uint32_t least_weight(std::uint32_t most, float min_p) {
  if (!(min_p > 0.0f)) return 0;
  if (min_p >= 1.0f) return most;
  return static_cast<std::uint32_t>(std::uint64_t{most} * static_cast<std::uint32_t>(min_p * 0x1p32f) >> 32);
}

/// Returns the sum that the fewest largest weights must reach: p < 1 of `sum`, rounded down, but at least 1.
TILEWAVE_HOST_DEVICE constexpr std::uint64_t needed(std::uint64_t sum, float p) {
  const auto fraction = p > 0.0f ? static_cast<std::uint32_t>(p * 0x1p32f) : 0u;
  return max_of<std::uint64_t>(multiply_high(sum, std::uint64_t{fraction} << 32), 1);
}

}  // namespace tilewave
