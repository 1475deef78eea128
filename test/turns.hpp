// SPDX-License-Identifier: MIT
// Which entries a test case goes through where there are more than it has time for.
#pragma once

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "test/catch_compat.hpp"
#include "tilewave/core/hip.hpp"

namespace tilewave::test {

/// In the emulated room a test case takes every second entry of each spec, and all of a spec with one: so an entry meets half
/// of the test cases, every test case all specs, and the slice takes half the time. Which half, the name of the test case
/// and the number of the spec tell. All of them on a GPU, which is fast, and with TILEWAVE_ALL_ENTRIES=1, as tests labelled
/// full have it. Entries of a spec are neighbours in `all`.
template <class Entry>
std::vector<const Entry*> in_turn(std::span<const Entry* const> all) {
  if (TILEWAVE_ON_GPU_COMPILER || std::getenv("TILEWAVE_ALL_ENTRIES") != nullptr) return {all.begin(), all.end()};
  std::size_t turn = 0;
  for (const char c : std::string(Catch::getResultCapture().getCurrentTestName()))
    turn += static_cast<unsigned char>(c);
  std::vector<const Entry*> chosen;
  for (std::size_t first = 0, last = 0; first < all.size(); first = last, ++turn) {
    while (last < all.size() && all[last]->arch == all[first]->arch && all[last]->spec == all[first]->spec) ++last;
    for (std::size_t i = first; i < last; ++i) {
      if ((i - first + turn) % 2 == 0 || last - first == 1) chosen.push_back(all[i]);
    }
  }
  return chosen;
}

}  // namespace tilewave::test
