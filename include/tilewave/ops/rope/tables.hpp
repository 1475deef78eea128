// SPDX-License-Identifier: MIT
// Angles by position, on the host, as configs of models describe them: the cosines and sines that rope, and every other
// op that rotates heads, reads from a table. They are computed in double, once, when a model is loaded.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

namespace tilewave {

/// How frequencies are scaled for a longer context. Linear divides all of them by the factor. The other two divide low
/// frequencies, keep high ones, and do both in part in between: llama3 by wave lengths, yarn by dimensions.
enum class RopeScaling : int { linear, llama3, yarn };

/// Frequencies theta^(-2 i / rotary) of the pairs i of a head, scaled. The names are those of "rope_scaling" in a
/// model's config.json.
struct RopeFrequencies {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::linear;
  double factor = 1.0;
  double original_positions = 8192.0;                    // llama3, yarn: the context before it was made longer
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3: turns in that context, from which part is kept
  double beta_fast = 32.0, beta_slow = 1.0;              // yarn: the same
  bool truncate = true;                                  // yarn: the part that is kept ends at whole dimensions
  double attention_factor = 1.0;                         // yarn: multiplies cosines and sines

  /// Returns the angle between two positions, in radians, for pair i of a head with `rotary` rotated dimensions.
  double of_pair(int i, int rotary) const {
    const double frequency = std::pow(theta, -2.0 * i / rotary), kept = kept_of(i, rotary, frequency);
    return frequency * (kept + (1.0 - kept) / factor);
  }

 private:
  /// Returns the part of a frequency that is not divided by the factor.
  double kept_of(int i, int rotary, double frequency) const {
    constexpr double circle = 2.0 * std::numbers::pi;
    const auto ramp = [](double x, double none, double all) {
      return std::fmin(std::fmax((x - none) / (all - none), 0.0), 1.0);
    };
    if (scaling == RopeScaling::linear) return 0.0;
    if (scaling == RopeScaling::llama3)
      return ramp(original_positions * frequency / circle, low_freq_factor, high_freq_factor);
    // The dimension of which a wave goes through the original context so often.
    const auto dimension = [&](double turns) {
      return rotary * std::log(original_positions / (turns * circle)) / (2.0 * std::log(theta));
    };
    double fast = dimension(beta_fast), slow = dimension(beta_slow);
    if (truncate) fast = std::floor(fast), slow = std::ceil(slow);
    fast = std::fmax(fast, 0.0), slow = std::fmin(slow, rotary - 1.0);
    return ramp(i, fast == slow ? slow + 0.001 : slow, fast);
  }
};

/// Tables of [positions, rotary / 2] each.
struct RopeTables {
  std::vector<float> cos, sin;
};
inline RopeTables rope_tables(const RopeFrequencies& frequencies, int rotary, std::int32_t positions) {
  const int half = rotary / 2;
  RopeTables tables;
  tables.cos.resize(static_cast<std::size_t>(positions) * half);
  tables.sin.resize(tables.cos.size());
  for (int i = 0; i < half; ++i) {
    const double frequency = frequencies.of_pair(i, rotary);
    for (std::int32_t position = 0; position < positions; ++position) {
      const std::size_t at = static_cast<std::size_t>(position) * half + i;
      tables.cos[at] = static_cast<float>(std::cos(position * frequency) * frequencies.attention_factor);
      tables.sin[at] = static_cast<float>(std::sin(position * frequency) * frequencies.attention_factor);
    }
  }
  return tables;
}

}  // namespace tilewave
