// SPDX-License-Identifier: MIT
// Values that every row shares, one a column: weights, biases, smooth scales.
#pragma once

#include "tilewave/tile/element.hpp"

namespace tilewave {

/// Values for `unit` columns that every row shares, or that a lane has of one.
template <class B, DType T, int unit>
struct ColumnValues {
  static constexpr int per_load = min_of(unit, 16 / size_of(T));
  Packed<T, per_load> parts[unit / per_load];

  TILEWAVE_DEVICE void load(const typename B::template Window<true>& window, int column) {
    TILEWAVE_UNROLL
    for (int i = 0; i < unit / per_load; ++i) {
      parts[i] = window.template load<Packed<T, per_load>>((column + i * per_load) * size_of(T));
    }
  }
  /// Of a lane's own row, all of them there.
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
