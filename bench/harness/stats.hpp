// SPDX-License-Identifier: MIT
// Order statistics and noise of a set of time samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace tilewave::bench {

/// Statistics of time samples. Without samples all are NaN, and count is 0.
struct SampleStats {
  static constexpr double none = std::numeric_limits<double>::quiet_NaN();
  double min = none, q1 = none, median = none, q3 = none;
  double mean = none;
  double noise = none;  // standard deviation (n - 1) / mean; NaN below two samples
  std::size_t count = 0;
};

/// Returns a quantile by linear interpolation between order statistics (R's type 7, numpy's default). `sorted` is not
/// empty.
inline double quantile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

inline SampleStats stats_of(std::vector<double> samples) {
  SampleStats s;
  s.count = samples.size();
  if (samples.empty()) return s;
  std::sort(samples.begin(), samples.end());
  s.min = samples.front();
  s.q1 = quantile(samples, 0.25);
  s.median = quantile(samples, 0.5);
  s.q3 = quantile(samples, 0.75);
  double sum = 0, squares = 0;
  for (const double x : samples) sum += x;
  s.mean = sum / static_cast<double>(samples.size());
  for (const double x : samples) squares += (x - s.mean) * (x - s.mean);
  if (samples.size() > 1) s.noise = std::sqrt(squares / static_cast<double>(samples.size() - 1)) / s.mean;
  return s;
}

/// Running mean and variance (Welford 1962), for a stop rule that is asked after every sample.
class RunningNoise {
 public:
  void add(double x) {
    const double delta = x - mean_;
    mean_ += delta / static_cast<double>(++count_);
    squares_ += delta * (x - mean_);
  }
  std::size_t count() const { return count_; }
  double noise() const {
    return count_ < 2 ? SampleStats::none : std::sqrt(squares_ / static_cast<double>(count_ - 1)) / mean_;
  }

 private:
  std::size_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

/// Says when to stop sampling: by nvbench's rule (stdev / mean below max_noise after min_samples), or when time is up.
struct StopRule {
  double max_noise = 0.005;
  std::size_t min_samples = 10;
  double max_seconds = 0.3;

  bool done(const RunningNoise& noise, double seconds) const {
    if (noise.count() < min_samples) return false;
    return noise.noise() < max_noise || seconds >= max_seconds;
  }
};

}  // namespace tilewave::bench
