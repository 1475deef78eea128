// SPDX-License-Identifier: MIT
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011) gives random words
// as a function of a counter and a key.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave {

TILEWAVE_HOST_DEVICE constexpr Vec<std::uint32_t, 4> philox4x32(Vec<std::uint32_t, 4> counter,
                                                                Vec<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xd2511f53u} * counter[0];
    const std::uint64_t odd = std::uint64_t{0xcd9e8d57u} * counter[2];
    counter = {{static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(odd),
                static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(even)}};
    key = {{key[0] + 0x9e3779b9u, key[1] + 0xbb67ae85u}};
  }
  return counter;
}

}  // namespace tilewave
