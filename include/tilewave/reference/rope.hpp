// SPDX-License-Identifier: MIT
// Rotary position embeddings as plain loops in double, the oracle of tests and benchmarks. It also has the angles of
// models in use, with their scaling to longer contexts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "tilewave/ops/rope/problem.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::reference {

/// The angle i of a position is position * frequency[i]; its cos and sin are multiplied by `magnitude`.
struct RopeAngles {
  std::vector<double> frequency;
  double magnitude = 1;
};

/// Returns base^(-2 i / rotary): Su et al. 2021, "RoFormer".
inline RopeAngles rope_angles(int rotary, double base) {
  RopeAngles a;
  for (int i = 0; i < rotary / 2; ++i) a.frequency.push_back(std::pow(base, -2.0 * i / rotary));
  return a;
}
/// Returns the angles of positions divided by a factor: Chen et al. 2023, "position interpolation".
inline RopeAngles rope_linear_angles(int rotary, double base, double factor) {
  RopeAngles a = rope_angles(rotary, base);
  for (double& f : a.frequency) f /= factor;
  return a;
}
/// Returns the angles of Llama 3.1's rope_scaling: waves longer than length / low_factor are slowed by `factor`, those
/// shorter than length / high_factor are not, and a ramp lies between. Llama 3.1 uses 8, 1, 4 and 8192.
inline RopeAngles rope_llama3_angles(int rotary, double base, double factor, double low_factor, double high_factor,
                                     double length) {
  RopeAngles a = rope_angles(rotary, base);
  for (double& f : a.frequency) {
    const double rotations = length * f / (2 * std::numbers::pi);
    const double kept = std::clamp((rotations - low_factor) / (high_factor - low_factor), 0.0, 1.0);
    f = kept * f + (1 - kept) * f / factor;
  }
  return a;
}
/// Returns the angles of YaRN, Peng et al. 2023. Frequencies that rotate more than `fast` times in the original length
/// stay, those that rotate less than `slow` times are slowed by `factor`, and a ramp over the dimensions lies between.
/// The magnitude is larger.
inline RopeAngles rope_yarn_angles(int rotary, double base, double factor, double length, double fast = 32,
                                   double slow = 1) {
  RopeAngles a = rope_angles(rotary, base);
  const auto dimension = [&](double rotations) {
    return rotary * std::log(length / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const double low = std::max(std::floor(dimension(fast)), 0.0);
  const double high = std::min(std::ceil(dimension(slow)), rotary - 1.0);
  for (int i = 0; i < rotary / 2; ++i) {
    const double slowed = std::clamp((i - low) / std::max(high - low, 0.001), 0.0, 1.0);
    a.frequency[i] *= slowed / factor + (1 - slowed);
  }
  a.magnitude = 0.1 * std::log(factor) + 1;
  return a;
}

/// Returns the index of the angle in a column of a table.
constexpr int rope_angle_of(const RopeSpec& s, int rotary, int column) {
  if (!s.full_table) return column;
  return s.pairs == RopePairs::halves ? column % (rotary / 2) : column / 2;
}
/// rope_cos and rope_sin return the value of row `position` and a column of the tables of a spec.
inline double rope_cos(const RopeSpec& s, const RopeAngles& a, std::int64_t position, int column) {
  const int rotary = 2 * static_cast<int>(a.frequency.size());
  return a.magnitude * std::cos(static_cast<double>(position) * a.frequency[rope_angle_of(s, rotary, column)]);
}
inline double rope_sin(const RopeSpec& s, const RopeAngles& a, std::int64_t position, int column) {
  const int rotary = 2 * static_cast<int>(a.frequency.size());
  return a.magnitude * std::sin(static_cast<double>(position) * a.frequency[rope_angle_of(s, rotary, column)]);
}

inline std::int64_t index_at(const void* data, IndexType type, std::int64_t i) {
  return type == IndexType::i64 ? static_cast<const std::int64_t*>(data)[i] : static_cast<const std::int32_t*>(data)[i];
}

/// Rotates the first `rotary` dimensions of a head by the angles of a position. They become NaN where the tables have
/// no such row. Tables are on the host.
inline void rope_rotate(const RopeSpec& s, const void* cos, const void* sin, std::int64_t stride,
                        std::int32_t table_rows, std::int32_t rotary, std::int64_t position,
                        std::vector<double>& head) {
  const std::vector<double> x = head;
  const bool known = position >= 0 && position < table_rows, halves = s.pairs == RopePairs::halves;
  for (int i = 0; i < rotary / 2; ++i) {
    const int a = halves ? i : 2 * i, b = halves ? i + rotary / 2 : 2 * i + 1;
    const std::int64_t column = s.full_table ? a : i;
    const auto at = [&](const void* table) {
      return known ? element(s.table, table, position * stride + column) : std::numeric_limits<double>::quiet_NaN();
    };
    head[a] = x[a] * at(cos) - x[b] * at(sin);
    head[b] = x[b] * at(cos) + x[a] * at(sin);
  }
}

/// Returns head `head` of a token before rounding; the heads of k follow those of q. All tensors are on the host.
inline std::vector<double> rope_head(const RopeProblem& p, std::int32_t token, std::int32_t head) {
  const bool is_k = head >= p.q_heads;
  const HeadStrides& s = is_k ? p.k_strides : p.q_strides;
  const std::int64_t first = token * s.token + (is_k ? head - p.q_heads : head) * s.head;
  std::vector<double> values(p.head_size);
  for (int d = 0; d < p.head_size; ++d) values[d] = element(p.spec.x, is_k ? p.k : p.q, first + d);
  rope_rotate(p.spec, p.cos, p.sin, p.table_stride, p.table_rows, p.rotary,
              index_at(p.positions, p.position_type, token), values);
  return values;
}

}  // namespace tilewave::reference
