// SPDX-License-Identifier: MIT
// The choice of experts as plain loops in double. It is the oracle of tests and benchmarks, and independent of the
// kernels' code.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tilewave/ops/topk_gating/problem.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::reference {

struct GatedToken {
  std::vector<double> choice;        // the value by which each expert is chosen
  std::vector<std::int32_t> chosen;  // chosen experts, best first
  std::vector<double> weights;       // weights of the chosen experts
};

/// Returns one token of a problem whose tensors are on the host.
inline GatedToken gated_token(const TopkGatingProblem& p, std::int32_t token) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> x(p.experts), score(p.experts);
  double top = -infinity, sum = 0;
  for (std::int32_t e = 0; e < p.experts; ++e) {
    x[e] = element(p.spec.x, p.logits, token * p.logits_stride + e);
    if (x[e] > top) top = x[e];
  }
  if (top == -infinity) top = 0;
  for (const double v : x)
    if (!std::isnan(v)) sum += std::exp(v - top);
  for (std::int32_t e = 0; e < p.experts; ++e) {
    score[e] = p.score == GatingScore::sigmoid ? 1 / (1 + std::exp(-x[e]))
               : sum == 0 && !std::isnan(x[e]) ? 0
                                               : std::exp(x[e] - top) / sum;
  }

  const bool two_best = p.groups > 1 && p.group_score == GroupScore::two_best;
  GatedToken t;
  t.choice = p.bias != nullptr || two_best ? score : x;
  for (std::int32_t e = 0; e < p.experts && p.bias != nullptr; ++e) t.choice[e] += p.bias[e];

  // NaN comes last, and ties go by index
  const auto ranked = [](std::vector<std::int32_t>& all, const std::vector<double>& by) {
    std::sort(all.begin(), all.end(), [&](int a, int b) {
      if (std::isnan(by[a]) != std::isnan(by[b])) return std::isnan(by[b]);
      return by[a] > by[b] || (!(by[a] < by[b]) && a < b);
    });
  };
  const std::int32_t size = p.experts / p.groups;
  std::vector<double> group_scores(p.groups);
  for (std::int32_t g = 0; g < p.groups; ++g) {
    std::vector<double> of_group;
    for (std::int32_t e = g * size; e < (g + 1) * size; ++e)
      of_group.push_back(std::isnan(t.choice[e]) ? -infinity : t.choice[e]);
    std::sort(of_group.rbegin(), of_group.rend());
    group_scores[g] = two_best ? of_group[0] + of_group[1] : of_group[0];
    if (std::isnan(group_scores[g])) group_scores[g] = of_group[0];  // NaN comes of +inf and -inf
  }
  std::vector<std::int32_t> groups(p.groups);
  std::iota(groups.begin(), groups.end(), 0);
  ranked(groups, group_scores);
  groups.resize(p.kept_groups);
  std::sort(groups.begin(), groups.end());
  for (const std::int32_t g : groups)
    for (std::int32_t e = g * size; e < (g + 1) * size; ++e) t.chosen.push_back(e);
  ranked(t.chosen, t.choice);
  t.chosen.resize(p.topk);

  double of_chosen = 0;
  for (const std::int32_t e : t.chosen) of_chosen += score[e];
  const double factor = p.renormalise ? p.scale / (of_chosen < 1e-20 ? 1e-20 : of_chosen) : p.scale;
  for (const std::int32_t e : t.chosen) t.weights.push_back(score[e] * factor);
  return t;
}

}  // namespace tilewave::reference
