// SPDX-License-Identifier: MIT
// The order in which the library would take the candidates of a config.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace tilewave::bench {

/// Returns plans of all candidates that serve, the most wanted first. Each is the choice among the remaining ones, so
/// the order is that of the op's cost model, whatever it is. `select`(candidates) returns a plan with its `entry`,
/// which is null where none serves.
template <class Entry, class Select>
auto ranked(std::span<const Entry* const> candidates, const Select& select) {
  using Plan = decltype(select(candidates));
  std::vector<Plan> serving;
  std::vector<const Entry*> left;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Plan plan = select(candidates.subspan(i, 1));
    if (plan.entry == nullptr) continue;
    serving.push_back(plan);
    left.push_back(plan.entry);
  }
  std::vector<Plan> plans;
  const auto take = [&](const Entry* entry) {
    const auto at = std::find(left.begin(), left.end(), entry);
    plans.push_back(serving[static_cast<std::size_t>(at - left.begin())]);
    serving.erase(serving.begin() + (at - left.begin()));
    left.erase(at);
  };
  while (!left.empty()) {
    const Entry* entry = select(std::span<const Entry* const>(left)).entry;
    take(entry != nullptr ? entry : left.front());
  }
  return plans;
}

}  // namespace tilewave::bench
