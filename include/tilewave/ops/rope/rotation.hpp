// SPDX-License-Identifier: MIT
// A lane's part of a rotated head: two accesses of `unit` elements that rotate together, and their angles.
#pragma once

#include "tilewave/ops/rope/spec.hpp"
#include "tilewave/tile/column_vector.hpp"

namespace tilewave {

/// The position of a lane in a head. Slot s has the accesses that start at dimensions `low` and `high`, and the angles
/// from `column` of the tables on. Slots without angles (!rotates) have two neighbouring accesses of the dimensions
/// behind the rotated ones. Accesses behind the head's end lie outside its window. Pairs of neighbours may rotate from
/// dimension `first` on; slots are then in the order of dimensions.
struct RotationSlot {
  int low, high, column;
  bool rotates;
};

template <class B, RopeSpec S, int unit>
struct Rotation {
  static constexpr bool neighbours = S.pairs == RopePairs::neighbours;
  static constexpr int every = S.full_table ? 2 : 1;          // one of `every` columns of the table is used
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

  /// Loads the angles from a column of a row of the tables on.
  TILEWAVE_DEVICE void load(const Storage<S.table>* cos_row, const Storage<S.table>* sin_row, int column) {
    cos.load(cos_row + column);
    sin.load(sin_row + column);
  }
  /// Rotates the pairs. They become NaN where the position has no row in the tables.
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
