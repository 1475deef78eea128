// SPDX-License-Identifier: MIT
// Which entries a test case goes through where there are more than it has time for.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "test/catch_compat.hpp"
#include "tilewave/core/hip.hpp"

namespace tilewave::test {

/// Whether all are to be taken: on a GPU, which is fast, and with TILEWAVE_ALL_ENTRIES=1, as tests labelled full have it.
inline bool all_entries() { return TILEWAVE_ON_GPU_COMPILER || std::getenv("TILEWAVE_ALL_ENTRIES") != nullptr; }

/// Else a test case takes every third entry of each spec, of two one and of one it: so an entry meets a third
/// of the test cases, every test case all specs, and the slice takes a third of the time. Which third, the name of the test
/// case and the number of the spec tell. Entries of a spec are neighbours in `all`.
template <class Entry>
std::vector<const Entry*> in_turn(std::span<const Entry* const> all) {
  if (all_entries()) return {all.begin(), all.end()};
  std::size_t turn = 0;
  for (const char c : std::string(Catch::getResultCapture().getCurrentTestName()))
    turn += static_cast<unsigned char>(c);
  std::vector<const Entry*> chosen;
  for (std::size_t first = 0, last = 0; first < all.size(); first = last, ++turn) {
    while (last < all.size() && all[last]->arch == all[first]->arch && all[last]->spec == all[first]->spec) ++last;
    const std::size_t turns = std::min<std::size_t>(3, last - first);
    for (std::size_t i = first; i < last; ++i) {
      if ((i - first + turn) % turns == 0) chosen.push_back(all[i]);
    }
  }
  return chosen;
}

}  // namespace tilewave::test
