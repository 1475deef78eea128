// SPDX-License-Identifier: MIT
// Splits a row of Q into two fp8 terms, for products with fp8 keys as they are stored. Two terms hold the eight bits of
// a bf16 significand.
#pragma once

#include "tilewave/ops/paged_attention/registers/layout.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

/// L is a PagedAttentionLayout with fp8_keys. A row is multiplied by the power of two that brings its largest element
/// to [2^7, 2^8). An element x becomes two terms: x rounded to fp8, and the rest rounded to fp8. Their sum is x for
/// elements down to 2^-10 of the row's largest, where the last of eight bits is fp8's smallest number. Smaller elements
/// are off by at most 2^-18 of the largest. Both terms are multiplied into the same accumulator.
template <class L>
struct SplitQuery {
  using B = typename L::Room;
  using Map = typename L::Map;
  static constexpr int terms = 2, steps = L::steps / terms;  // products that take a unit for one term
  static_assert(L::rows_per_lane == 1 && L::unit == 16 && L::steps == 4,
                "two fp8 terms are for atoms with one row a lane and units of 16 bytes of fp8 keys");

  /// Splits the lane's Q operands, pairs of bf16, in place. Each unit then has the operands of the first term, followed
  /// by those of the second. Returns the power of two that the row was divided by, or NaN for infinities, which fp8
  /// lacks.
  TILEWAVE_DEVICE static float run(typename L::RowsOperand (&q)[L::q_operands]) {
    std::uint32_t top = 0;  // magnitudes are ordered by exponent and mantissa, so integers compare them
    each_word(
        q, [&](std::uint32_t& pair, int) { top = max_of(top, max_of(pair << 16 & 0x7fffffffu, pair & 0x7fff0000u)); });
    top = max_of(top, B::shuffle_xor(top, Map::lane_of(0, 1)));
    top = max_of(top, B::shuffle_xor(top, Map::lane_of(0, 2)));
    constexpr int power = 7;
    const std::uint32_t exponent = min_of(max_of(top >> 23, 15u), 254u);  // any exponent serves zeros and infinities
    const float factor = __builtin_bit_cast(float, (127 + power + 127 - exponent) << 23);
    TILEWAVE_UNROLL
    for (int u = 0; u < L::k_units; ++u) split_unit(&q[u * L::steps], factor);
    return top >= 0x7f800000u ? __builtin_nanf("") : __builtin_bit_cast(float, (exponent - power) << 23);
  }

  /// The operand of K for product `step` of a unit: 8 bytes, the same for both terms.
  TILEWAVE_DEVICE static typename B::KvOperand keys(const Chunk& unit, int step) {
    return {{unit[step % steps * 2], unit[step % steps * 2 + 1]}};
  }

 private:
  template <class F>
  TILEWAVE_DEVICE static void each_word(typename L::RowsOperand (&q)[L::q_operands], F f) {
    TILEWAVE_UNROLL
    for (int i = 0; i < L::q_operands; ++i) {
      f(q[i][0], 2 * i);
      f(q[i][1], 2 * i + 1);
    }
  }

  TILEWAVE_DEVICE static void split_unit(typename L::RowsOperand* q, float factor) {
    Vec<std::uint32_t, 4> first, second;  // of four elements a word
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const Vec<float, 2> low = pair_of(q[w][0]), high = pair_of(q[w][1]);
      const float x[] = {low[0] * factor, low[1] * factor, high[0] * factor, high[1] * factor};
      first[w] = B::pack_fp8(x[0], x[1], x[2], x[3]);
      const Vec<std::uint32_t, 2> back = B::widen_fp8(first[w]);
      const Vec<float, 2> first_low = pair_of(back[0]), first_high = pair_of(back[1]);
      second[w] = B::pack_fp8(x[0] - first_low[0], x[1] - first_low[1], x[2] - first_high[0], x[3] - first_high[1]);
    }
    TILEWAVE_UNROLL
    for (int step = 0; step < steps; ++step) {
      q[step] = {{first[2 * step], first[2 * step + 1]}};
      q[steps + step] = {{second[2 * step], second[2 * step + 1]}};
    }
  }
  /// The two bf16 of a word.
  TILEWAVE_DEVICE static Vec<float, 2> pair_of(std::uint32_t word) { return widen<B, DType::bf16, 2>({{word}}); }
};

}  // namespace tilewave
