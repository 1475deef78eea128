// SPDX-License-Identifier: MIT
// Sums of references, which are most of the time of a test on the emulated device.
#pragma once

#include <cstdint>

namespace tilewave::reference {

/// Four sums side by side: an addition waits for the one before it, so one alone takes four times as long.
struct FourSums {
  double lanes[4] = {};
  void add(int lane, double value) { lanes[lane] += value; }
  double sum() const { return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]); }
};
/// Calls add(lane, k) for each k below `count`, the lanes in turn.
template <class Add>
void for_four(std::int32_t count, const Add& add) {
  std::int32_t k = 0;
  for (; k + 4 <= count; k += 4) add(0, k), add(1, k + 1), add(2, k + 2), add(3, k + 3);
  for (; k < count; ++k) add(0, k);
}

}  // namespace tilewave::reference
