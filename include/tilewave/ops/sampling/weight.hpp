// SPDX-License-Identifier: MIT
// Probabilities as whole numbers, of which sums are the same in any order: what lets every room, wave size and split of
// a row draw the same token. Made of f32 operations that all rooms round alike.
#pragma once

#include "tilewave/core/dtype.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/philox.hpp"

namespace tilewave {

/// Logits in whole numbers that order them, those of a type in as many steps as it has. -0 is next to +0: who must not
/// part equals compares the logits themselves.
template <DType X>
struct LogitOrder {
  static constexpr int unused = X == DType::bf16 ? 16 : X == DType::f16 ? 13 : 0;  // low bits of a logit in f32

  TILEWAVE_HOST_DEVICE static constexpr std::uint32_t key(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    return (bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u)) >> unused;
  }
  TILEWAVE_HOST_DEVICE static constexpr float logit(std::uint32_t key) {
    const std::uint32_t low = (1u << unused) - 1, bits = key << unused;
    return __builtin_bit_cast(float, bits >> 31 != 0 ? bits ^ 0x80000000u : ~(bits | low));
  }
};
/// The least f32 above x, which is finite.
TILEWAVE_HOST_DEVICE constexpr float next_above(float x) {
  using Order = LogitOrder<DType::f32>;
  return Order::logit(Order::key(x == 0.0f ? 0.0f : x) + 1);
}

/// What a row's logits weigh: 2^(31 + exponent), cut to a whole number; the exponent is that of the probability but for
/// what is the same in all of a row, 0.5 at most. Within 2e-7 relative or 1; 0 from 33 powers of two below the largest
/// on. No more than 2^49.5 of all max_vocabulary. Where the largest is within 4096 powers of two of 1, as what models
/// make is, the exponent is that of the logit itself, less a whole number; else of its f32 difference to the largest.
template <class B>
struct Weigher {
  float base, factor, origin, shift, lowest;
  bool plain;  // the base is 0

  /// Of a row with this largest logit; a logit is so many powers of two, positive.
  TILEWAVE_DEVICE Weigher(float largest, float powers) : factor(powers) {
    constexpr float ones = 0x1.8p23f;  // a sum with it has no fraction
    plain = abs_of(largest) * factor <= 4096.0f;
    base = plain ? 0.0f : largest;
    shift = plain ? B::subtract(fused(largest, factor, ones), ones) : 0.0f;
    origin = ones + 31.0f - shift;
    lowest = B::subtract(shift, 40.0f) * B::reciprocal(factor);  // rooms differ in it, but not in what weighs 0
  }

  /// One of two, member by member: compilers would choose between their places in memory.
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
  /// Of any two logits; of NaN 0.
  TILEWAVE_DEVICE Vec<std::uint32_t, 2> weights(float x, float y) const {
    return weights_of({{Max{}(distance(x), lowest), Max{}(distance(y), lowest)}});
  }
  TILEWAVE_DEVICE std::uint32_t weight(float x) const { return weights(x, x)[0]; }
  /// Of two that are no less than `lowest`, nor much; of a plain row.
  TILEWAVE_DEVICE Vec<std::uint32_t, 2> weights_of(const Vec<float, 2>& x) const {
    const auto both = [](float v) { return Vec<float, 2>{{v, v}}; };
    // The nearest whole number, in the low bits of a sum.
    const Vec<float, 2> sum = B::fused(x, both(factor), both(origin)), whole = B::subtract(sum, both(origin));
    const Vec<float, 2> part = B::fused(x, both(factor), {{-whole[0], -whole[1]}});
    // 2^part, part from -0.5 to 0.5: the least relative error of degree 5 that is exact at 0, 9.2e-8.
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

/// The high 64 bits of a product.
TILEWAVE_HOST_DEVICE constexpr std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_low = a & 0xffffffffu, a_high = a >> 32, b_low = b & 0xffffffffu, b_high = b >> 32;
  const std::uint64_t up = a_high * b_low, down = a_low * b_high;
  const std::uint64_t middle = (a_low * b_low >> 32) + (up & 0xffffffffu) + (down & 0xffffffffu);
  return a_high * b_high + (up >> 32) + (down >> 32) + (middle >> 32);
}

/// 64 bits at random. Of their product with `end` the high half is a whole number below it, drawn evenly: none is
/// more than 2^-14 of 2^-64 likelier than another.
TILEWAVE_HOST_DEVICE constexpr std::uint64_t drawn_bits(std::uint64_t seed, std::uint64_t offset, std::uint32_t row,
                                                        std::uint32_t attempt) {
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const Vec<std::uint32_t, 4> words =
      philox4x32({{attempt, row, low(offset), high(offset)}}, {{low(seed), high(seed)}});
  return std::uint64_t{words[1]} << 32 | words[0];
}

/// What min_p asks of a weight, where the likeliest weighs `most`: so much of it, rounded down; 0 if it is off.
TILEWAVE_HOST_DEVICE constexpr std::uint32_t least_weight(std::uint32_t most, float min_p) {
  if (!(min_p > 0.0f)) return 0;
  if (min_p >= 1.0f) return most;
  return static_cast<std::uint32_t>(std::uint64_t{most} * static_cast<std::uint32_t>(min_p * 0x1p32f) >> 32);
}

/// Of a sum of weights the part that the fewest largest must reach: p < 1 of it, rounded down, but never nothing.
TILEWAVE_HOST_DEVICE constexpr std::uint64_t needed(std::uint64_t sum, float p) {
  const auto fraction = p > 0.0f ? static_cast<std::uint32_t>(p * 0x1p32f) : 0u;
  return max_of<std::uint64_t>(multiply_high(sum, std::uint64_t{fraction} << 32), 1);
}

}  // namespace tilewave
