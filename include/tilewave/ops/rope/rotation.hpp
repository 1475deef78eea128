// SPDX-License-Identifier: MIT
// A lane's share of a head that is rotated: two pieces of `unit` elements that turn together, and their angles.
#pragma once

#include "tilewave/ops/rope/spec.hpp"
#include "tilewave/tile/column_vector.hpp"

namespace tilewave {

/// Where a lane stands in a head: slot s has the pieces that start at dimensions `low` and `high`, and angles from
/// `column` of the tables on. Slots without angles (!rotates) are those of the dimensions behind the rotated ones, two
/// neighbouring pieces each; behind the head's end come pieces that a window of the head does not have. Pairs of
/// neighbours may turn from dimension `first` on; slots are then in the order of dimensions.
struct RotationSlot {
  int low, high, column;
  bool rotates;
};

template <class B, RopeSpec S, int unit>
struct Rotation {
  static constexpr bool neighbours = S.pairs == RopePairs::neighbours;
  static constexpr int every = S.full_table ? 2 : 1;          // of the table's columns is read
  static constexpr int width = unit == 1 ? 1 : unit * every;  // columns that are loaded

  TILEWAVE_DEVICE static RotationSlot slot(int slot, int rotary, int first = 0) {
    const int apart = 2 * unit * slot;
    if constexpr (neighbours) {
      return {apart, apart + unit, (apart - first) / 2 * every, apart >= first && apart < first + rotary};
    } else {
      const bool rotates = apart < rotary;
      const int low = rotates ? unit * slot : apart;
      return {low, low + (rotates ? rotary / 2 : unit), unit * every * slot, rotates};
    }
  }

  ColumnVector<B, S.table, width> cos, sin;

  /// From a column of a row of the tables on.
  TILEWAVE_DEVICE void load(const Storage<S.table>* cos_row, const Storage<S.table>* sin_row, int column) {
    cos.load(cos_row + column);
    sin.load(sin_row + column);
  }
  /// NaN where the position has no row in the tables.
  TILEWAVE_DEVICE void rotate(bool known, Vec<float, unit>& low, Vec<float, unit>& high) const {
    const Vec<float, width> c = cos.values(), s = sin.values();
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) {
      float& a = !neighbours ? low[e] : 2 * e < unit ? low[2 * e % unit] : high[2 * e % unit];
      float& b = !neighbours || unit == 1 ? high[e] : 2 * e < unit ? low[(2 * e + 1) % unit] : high[(2 * e + 1) % unit];
      const float x = a, y = b, cosine = known ? c[e * width / unit] : __builtin_nanf("");
      a = x * cosine - y * s[e * width / unit];
      b = y * cosine + x * s[e * width / unit];
    }
  }
};

}  // namespace tilewave
