// SPDX-License-Identifier: MIT
// A column vector holds one value for each column: weights, biases or smooth scales. All rows share it.
#pragma once

#include "tilewave/tile/element.hpp"

namespace tilewave {

/// The values of `unit` neighbouring columns, packed as they were loaded. They are the same for all rows, or a lane
/// loads them from a row of its own.
template <class B, DType T, int unit>
struct ColumnVector {
  static constexpr int per_load = min_of(unit, 16 / size_of(T));
  Packed<T, per_load> parts[unit / per_load];

  TILEWAVE_DEVICE void load(const typename B::template Window<true>& window, int column) {
    TILEWAVE_UNROLL
    for (int i = 0; i < unit / per_load; ++i) {
      parts[i] = window.template load<Packed<T, per_load>>((column + i * per_load) * size_of(T));
    }
  }
  /// Loads from a row of the lane's own, which has all `unit` values.
  TILEWAVE_DEVICE void load(const Storage<T>* first) {
    TILEWAVE_UNROLL
    for (int i = 0; i < unit / per_load; ++i) {
      parts[i] = B::load(reinterpret_cast<const Packed<T, per_load>*>(first + i * per_load));
    }
  }
  TILEWAVE_DEVICE Vec<float, unit> values() const {
    Vec<float, unit> all;
    TILEWAVE_UNROLL
    for (int i = 0; i < unit / per_load; ++i) {
      const Vec<float, per_load> part = widen<B, T, per_load>(parts[i]);
      TILEWAVE_UNROLL
      for (int e = 0; e < per_load; ++e) all[i * per_load + e] = part[e];
    }
    return all;
  }
};

}  // namespace tilewave
