// SPDX-License-Identifier: MIT
// The largest of packed elements. 16-bit pairs are compared without widening where the room has an operation for it.
#pragma once

#include "tilewave/arch/pairs.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/tile/row.hpp"

namespace tilewave {

/// A running maximum that takes n packed elements at a time. It is -inf until a number is added, and a number wins over
/// NaN.
template <class B, DType X, int n>
class MaxOfPacked {
  static constexpr bool pairs = PairBackend<B> && size_of(X) == 2 && n > 1;

 public:
  TILEWAVE_DEVICE void add(const Packed<X, n>& packed) {
    if constexpr (pairs) {
      pair_ = B::template larger_pair<X>(pair_, max_pair(packed));
    } else {
      const Vec<float, n> v = canonical(widen<B, X, n>(packed));
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i) value_ = Max{}(value_, v[i]);
    }
  }
  TILEWAVE_DEVICE float value() const {
    if constexpr (pairs) {
      return fold(widen<B, X, 2>({{pair_}}), Max{});
    } else {
      return value_;
    }
  }
  /// Returns the largest of these elements alone, or NaN if all of them are NaN.
  TILEWAVE_DEVICE static float of(const Packed<X, n>& packed) {
    if constexpr (pairs) {
      return fold(widen<B, X, 2>({{max_pair(packed)}}), Max{});
    } else {
      return fold(canonical(widen<B, X, n>(packed)), Max{});
    }
  }
  /// Returns the values unchanged, but canonical, so that Max takes one operation each.
  TILEWAVE_DEVICE static Vec<float, n> canonical(Vec<float, n> v) {
    TILEWAVE_UNROLL
    for (int i = 0; i + 1 < n; i += 2) {
      const Vec<float, 2> pair = B::canonical({{v[i], v[i + 1]}});
      v[i] = pair[0];
      v[i + 1] = pair[1];
    }
    return v;
  }

 private:
  TILEWAVE_DEVICE static std::uint32_t max_pair(Packed<X, n> packed) {
    TILEWAVE_UNROLL
    for (int step = Packed<X, n>::size / 2; step > 0; step /= 2) {
      TILEWAVE_UNROLL
      for (int w = 0; w < step; ++w) packed[w] = B::template larger_pair<X>(packed[w], packed[w + step]);
    }
    return packed[0];
  }

  std::uint32_t pair_ = X == DType::bf16 ? 0xff80ff80u : 0xfc00fc00u;
  float value_ = minus_infinity;
};

}  // namespace tilewave
