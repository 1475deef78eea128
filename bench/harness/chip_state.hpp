// SPDX-License-Identifier: MIT
// The state a chip is in when samples are taken, and what its sensors say meanwhile. A chip that has rested runs above the clock
// that its power limit leaves it after a second of matrix products: times of the two are not to be mixed.
#pragma once

#include <limits>

namespace tilewave::bench {

/// as_is: as the row finds the chip. rested: idle for rest_seconds before the row and for pause_seconds before each round.
/// sustained: behind load_seconds of the same calls back to back.
enum class ChipState : int { as_is, rested, sustained };

constexpr const char* name_of(ChipState s) {
  constexpr const char* names[] = {"as_is", "rested", "sustained"};
  return names[static_cast<int>(s)];
}

inline constexpr double rest_seconds = 0.3, pause_seconds = 0.006, load_seconds = 1;
inline constexpr double sensor_seconds = 0.03;  // from one reading to the next: the driver renews none sooner

/// NaN where the driver does not tell.
struct SensorReading {
  double sm_mhz = std::numeric_limits<double>::quiet_NaN();
  double power_w = std::numeric_limits<double>::quiet_NaN();  // of the whole board
};

/// Of the current device: by NVML, which is loaded when it is first asked; NaN of any other device and where it is missing.
SensorReading read_sensors();

/// Means of readings, each of those that told something.
class SensorMean {
 public:
  void add(const SensorReading& r) {
    add(r.sm_mhz, mhz_, mhz_count_);
    add(r.power_w, power_, power_count_);
  }
  SensorReading mean() const {
    return {mhz_count_ > 0 ? mhz_ / mhz_count_ : SensorReading{}.sm_mhz,
            power_count_ > 0 ? power_ / power_count_ : SensorReading{}.power_w};
  }

 private:
  static void add(double value, double& sum, int& count) {
    if (value == value) sum += value, ++count;
  }

  double mhz_ = 0, power_ = 0;
  int mhz_count_ = 0, power_count_ = 0;
};

}  // namespace tilewave::bench
