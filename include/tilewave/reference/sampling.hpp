// SPDX-License-Identifier: MIT
// Sampling as plain loops in double. It is the oracle of tests and benchmarks, and independent of the kernels' code.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "tilewave/ops/sampling/problem.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::reference {

struct SampledRow {
  std::vector<double> probabilities;  // probabilities of the draw; all 0 where nothing can be drawn
  std::vector<double> logprobs;       // log probability that is reported for a token
};

template <class T>
T value_of(const RowValue<T>& v, std::int32_t row) {
  return v.data == nullptr ? v.value : v.data[v.shared ? 0 : row];
}

/// Returns one row of a problem whose tensors are on the host. Filters keep tokens that miss them by no more than
/// `slack` of a probability of 1.
inline SampledRow sampled_row(const SamplingProblem& p, std::int32_t row, double slack = 0) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::int32_t n = p.columns;
  std::vector<float> x(n);
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int32_t c = 0; c < n; ++c) {
    x[c] = static_cast<float>(element(p.spec.x, p.x, row * p.row_stride + c));
    if (x[c] > largest) largest = x[c];
  }
  SampledRow r{std::vector<double>(n, 0.0), std::vector<double>(n, -infinity)};
  if (largest == -infinity) return r;
  std::vector<float> below(n);
  for (std::int32_t c = 0; c < n; ++c) {
    below[c] = x[c] == largest ? 0.0f : std::isnan(x[c]) ? std::numeric_limits<float>::infinity() : largest - x[c];
  }
  const double temperature = value_of(p.temperature, row);
  const bool greedy = !(temperature >= 1e-5f);

  double all = 0;
  const double of_logprobs = greedy || p.raw_logprobs ? 1 : temperature;
  for (const float b : below) all += std::exp(-b / of_logprobs);
  for (std::int32_t c = 0; c < n; ++c) r.logprobs[c] = -below[c] / of_logprobs - std::log(all);
  if (greedy) {
    r.probabilities[std::find(below.begin(), below.end(), 0.0f) - below.begin()] = 1;
    return r;
  }

  std::vector<std::int32_t> order(n);  // tokens, the largest logit first
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return below[a] < below[b]; });
  const std::int32_t k = value_of(p.top_k, row);
  std::int32_t kept = n;
  if (k > 0 && k < n) {
    for (kept = k; kept < n && below[order[kept]] == below[order[k - 1]];) ++kept;
  }
  std::vector<double> weight(n, 0.0);
  double sum = 0;
  for (std::int32_t i = 0; i < kept; ++i) sum += weight[order[i]] = std::exp(-below[order[i]] / temperature);
  const double top_p = value_of(p.top_p, row), min_p = value_of(p.min_p, row);
  double above = 0, equals = 0, total = 0;  // above: probability of tokens larger than i, without its equals
  for (std::int32_t i = 0; i < kept; ++i) {
    const std::int32_t c = order[i];
    if (i > 0 && below[c] != below[order[i - 1]]) above += std::exchange(equals, 0.0);
    equals += weight[c];
    const bool of_top_p = !(top_p < 1) || above < std::max(top_p * sum, 1e-9) + slack * sum;
    const bool of_min_p = !(min_p > 0) || weight[c] >= std::min(min_p, 1.0) - slack;
    if (of_top_p && of_min_p) total += r.probabilities[c] = weight[c];
  }
  for (double& probability : r.probabilities) probability /= total;
  return r;
}

}  // namespace tilewave::reference
