// SPDX-License-Identifier: MIT
// All entries of some specs, as the tests of ops take them.
#pragma once

#include <vector>

namespace tilewave {

template <class Entry, class... Lists>
std::vector<const Entry*> pointers_to(const Lists&... lists) {
  std::vector<const Entry*> all;
  const auto add = [&](const auto& list) {
    for (const Entry& entry : list) all.push_back(&entry);
  };
  (add(lists), ...);
  return all;
}

}  // namespace tilewave
