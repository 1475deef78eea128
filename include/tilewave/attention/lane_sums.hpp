// SPDX-License-Identifier: MIT
// A lane's sums of values of wave groups' products, in parts that products take one after the other.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave {

/// Each part has `columns` columns of a lane's two rows. Element 4 j + 2 h + e of a part is row h, column 8 j +
/// 2 (l % 4) + e of the part.
template <class B, int count, int columns>
struct LaneSums {
  static constexpr int parts = count, part_size = columns / 2, size = parts * part_size;
  Vec<float, part_size> of[parts];

  /// Returns element i, as if there were one part.
  TILEWAVE_DEVICE float at(int i) const { return of[i / part_size][i % part_size]; }
  /// Keeps the compiler from moving accesses of these registers across products.
  TILEWAVE_DEVICE void fence() {
    TILEWAVE_UNROLL
    for (int part = 0; part < parts; ++part) B::group_mma_fence(of[part]);
  }
  /// Multiplies each row by its factor.
  TILEWAVE_DEVICE void scale(const Vec<float, 2>& factor) {
    TILEWAVE_UNROLL
    for (int part = 0; part < parts; ++part) {
      TILEWAVE_UNROLL
      for (int i = 0; i < part_size; ++i) of[part][i] *= factor[i / 2 % 2];
    }
  }
};

}  // namespace tilewave
