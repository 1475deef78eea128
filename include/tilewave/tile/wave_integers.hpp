// SPDX-License-Identifier: MIT
// Integers over the lanes of a wave: sums of 64 bits, and a search for where a running sum exceeds a value.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

template <class B>
struct WaveIntegers {
  static constexpr int lanes = B::facts.wave_lanes;

  /// Returns the sum over all lanes of numbers below 2^50.
  TILEWAVE_DEVICE static std::uint64_t sum(std::uint64_t number) {
    const std::uint32_t low = B::total(static_cast<std::uint32_t>(number) & 0xffffffu);
    return (std::uint64_t{B::total(static_cast<std::uint32_t>(number >> 24))} << 24) + low;
  }
  /// Returns the sum over this lane and those before it. Numbers are below 2^50.
  TILEWAVE_DEVICE static std::uint64_t sum_up_to(std::uint64_t number) {
    const int low = B::sum_up_to(static_cast<int>(static_cast<std::uint32_t>(number) & 0xffffffu));
    return (std::uint64_t(B::sum_up_to(static_cast<int>(number >> 24))) << 24) + static_cast<std::uint32_t>(low);
  }
  TILEWAVE_DEVICE static std::uint32_t shuffle(std::uint32_t word, int lane) { return B::shuffle(word, lane); }
  TILEWAVE_DEVICE static std::uint64_t shuffle(std::uint64_t number, int lane) {
    const std::uint32_t low = B::shuffle(static_cast<std::uint32_t>(number), lane);
    return std::uint64_t{B::shuffle(static_cast<std::uint32_t>(number >> 32), lane)} << 32 | low;
  }

  /// The running sum exceeds the value at item `index` of a list, which is -1 if it never does. `rest` is the value
  /// less the items before.
  template <class T>
  struct Found {
    std::int32_t index;
    T rest, item;
  };
  /// Searches the items of all lanes: lane l has items count * l and on, of 32 or 64 bits. Every lane gets the same
  /// answer.
  template <class T, int count>
  TILEWAVE_DEVICE static Found<T> find(const Vec<T, count>& items, std::uint64_t value) {
    const int lane = B::lane_id();
    std::uint64_t own = 0;
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i) own += items[i];
    const std::uint64_t end = sum_up_to(own);
    const bool here = value < end && value >= end - own;
    std::uint64_t rest = value - (end - own);
    T item = items[0];
    int at = 0;
    TILEWAVE_UNROLL
    for (int i = 1; i < count; ++i) {
      if (at == i - 1 && rest >= item) {
        rest -= item;
        item = items[i];
        at = i;
      }
    }
    const int found = static_cast<int>(B::total(here ? static_cast<std::uint32_t>(lane * count + at + 1) : 0u)) - 1;
    const int owner = found < 0 ? 0 : found / count;
    return {found, shuffle(static_cast<T>(rest), owner), shuffle(item, owner)};
  }
};

}  // namespace tilewave
