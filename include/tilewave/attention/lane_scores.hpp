// SPDX-License-Identifier: MIT
// What a lane does with its scores of one tile of wave groups' products: maxima, and exponents with their sums.
#pragma once

#include <cstdint>

#include "tilewave/core/math.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave {

/// A lane has two rows, h = 0 and 1: element 4 j + 2 h + e of its scores is column 8 j + 2 (l % 4) + e of the tile.
/// Maxima and sums of a row are taken in two chains, so that one need not wait for the other. Scores of columns behind
/// `columns` are left alone.
template <class B, int columns>
struct LaneScores {
  /// Calls f with the index of each element of row h.
  template <class F>
  TILEWAVE_DEVICE static void each(int h, const F& f) {
    TILEWAVE_UNROLL
    for (int j = 0; j < columns / 8; ++j) {
      f(4 * j + 2 * h);
      f(4 * j + 2 * h + 1);
    }
  }
  /// Returns the largest of the lane's scores of row h.
  template <int count>
  TILEWAVE_DEVICE static float largest(const Vec<float, count>& scores, int h) {
    float parts[chains];
    TILEWAVE_UNROLL
    for (int c = 0; c < chains; ++c) parts[c] = scores[4 * c + 2 * h];
    each(h, [&](int i) TILEWAVE_INLINE_LAMBDA { parts[chain(i)] = Max{}(parts[chain(i)], scores[i]); });
    return Max{}(parts[0], parts[1]);
  }
  /// Replaces the scores of row h by 2^(score * scale + offset), and returns the sum of these.
  template <int count>
  TILEWAVE_DEVICE static float exponentiate(Vec<float, count>& scores, int h, float scale, float offset) {
    float parts[chains] = {};
    each(h, [&](int i) TILEWAVE_INLINE_LAMBDA {
      scores[i] = B::exp2(fused(scores[i], scale, offset));
      parts[chain(i)] += scores[i];
    });
    return Sum{}(parts[0], parts[1]);
  }

 private:
  static constexpr int chains = 2;
  TILEWAVE_HOST_DEVICE static constexpr int chain(int i) { return i / 4 % chains; }
};

}  // namespace tilewave
