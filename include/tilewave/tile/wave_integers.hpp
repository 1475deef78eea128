// SPDX-License-Identifier: MIT
// Whole numbers over the lanes of a wave: sums of 64 bits, and where a running sum passes a value.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

template <class B>
struct WholeNumbers {
  static constexpr int lanes = B::facts.wave_lanes;

  /// Of numbers below 2^50.
  TILEWAVE_DEVICE static std::uint64_t sum(std::uint64_t number) {
    const std::uint32_t low = B::total(static_cast<std::uint32_t>(number) & 0xffffffu);
    return (std::uint64_t{B::total(static_cast<std::uint32_t>(number >> 24))} << 24) + low;
  }
  /// Over this lane and those before it, the same.
  TILEWAVE_DEVICE static std::uint64_t sum_up_to(std::uint64_t number) {
    const int low = B::sum_up_to(static_cast<int>(static_cast<std::uint32_t>(number) & 0xffffffu));
    return (std::uint64_t(B::sum_up_to(static_cast<int>(number >> 24))) << 24) + static_cast<std::uint32_t>(low);
  }
  TILEWAVE_DEVICE static std::uint32_t shuffle(std::uint32_t word, int lane) { return B::shuffle(word, lane); }
  TILEWAVE_DEVICE static std::uint64_t shuffle(std::uint64_t number, int lane) {
    const std::uint32_t low = B::shuffle(static_cast<std::uint32_t>(number), lane);
    return std::uint64_t{B::shuffle(static_cast<std::uint32_t>(number >> 32), lane)} << 32 | low;
  }

  /// Item `index` of a list is where the running sum passes the value, `rest` of the item before. -1: none is.
  template <class T>
  struct Found {
    std::int32_t index;
    T rest, item;
  };
  /// Lane l has items count * l and so on, of 32 or 64 bits; the same answer in every lane.
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
