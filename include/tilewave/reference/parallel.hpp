// SPDX-License-Identifier: MIT
// Loops of references and verification on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tilewave::reference {

/// Returns the threads to use: `threads`, or one for each core if it is 0.
inline int cores(int threads) {
  return threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

/// Runs body(i) for every i in [0, count), on up to `threads` threads, or one for each core if `threads` is 0. Items
/// are handed out in order.
template <class Body>
void parallel_for(std::int64_t count, int threads, const Body& body) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::thread> helpers;
  for (std::int64_t i = 1; i < std::min<std::int64_t>(cores(threads), count); ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace tilewave::reference
