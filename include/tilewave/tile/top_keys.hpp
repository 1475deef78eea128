// SPDX-License-Identifier: MIT
// Finds the best n of many keys without a round for each: sorting networks run in registers, then one merge runs for
// each doubling of the lanes. The best 8 of 256 keys in 16 lanes take a dependent chain of some 40 comparisons and 4
// exchanges of neighbouring lanes. 8 rounds of an argmax over 16 lanes would be 32 exchanges, each waiting for the one
// before.
//
// A key is an integer of 64 bits below 2^62, or of 32 bits. Larger is better, and 0 means that there is none. Keys
// differ, so there are no ties.
#pragma once

#include <cstdint>

#include "tilewave/arch/backend.hpp"

namespace tilewave {

/// n keys, a power of two.
template <int n, class Key = std::uint64_t>
using Keys = Vec<Key, n>;

template <class B, int n, class Key = std::uint64_t>
struct TopKeys {
  static_assert(n > 0 && (n & (n - 1)) == 0 && (sizeof(Key) == 4 || sizeof(Key) == 8),
                "a sorting network has a power of two of keys, of 32 or 64 bits");
  using Own = Keys<n, Key>;

  /// Sorts keys into falling order by Batcher's odd-even merge sort: 19 comparisons for 8 keys, 63 for 16.
  TILEWAVE_DEVICE static void sort(Own& keys) { sort_part<0, n>(keys); }

  /// Keeps the best n of both lists in falling order. Both must be in falling order.
  TILEWAVE_DEVICE static void merge(Own& keys, const Own& others) {
    TILEWAVE_UNROLL
    for (int i = 0; i < n; ++i) keys[i] = B::larger(keys[i], others[n - 1 - i]);  // this gives a bitonic sequence
    TILEWAVE_UNROLL
    for (int step = n / 2; step >= 1; step /= 2) {
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i)
        if ((i & step) == 0) B::order(keys[i], keys[i + step]);
    }
  }

  /// Returns the best n of `count` keys, in falling order.
  template <int count>
  TILEWAVE_DEVICE static Own best(const Keys<count, Key>& keys) {
    static_assert(count % n == 0, "keys come in whole lists of n, which are sorted and merged");
    Own all;
    TILEWAVE_UNROLL
    for (int first = 0; first < count; first += n) {
      Own some;
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i) some[i] = keys[first + i];
      sort(some);
      if (first == 0) {
        all = some;
      } else {
        merge(all, some);
      }
    }
    return all;
  }

  /// Keeps the best n keys of the lanes of an aligned group; each lane's list is in falling order. Every lane of a
  /// group of up to 16 lanes gets the result; in larger groups the last 16 lanes do.
  template <int lanes>
  TILEWAVE_DEVICE static void merge_lanes(Own& keys) {
    step<1, lanes>(keys);
  }

 private:
  template <int first, int count>
  TILEWAVE_DEVICE static void sort_part(Own& keys) {
    if constexpr (count > 1) {
      sort_part<first, count / 2>(keys);
      sort_part<first + count / 2, count / 2>(keys);
      merge_halves<first, count, 1>(keys);
    }
  }
  /// Merges every stride-th of `count` keys, both halves of which are in order.
  template <int first, int count, int stride>
  TILEWAVE_DEVICE static void merge_halves(Own& keys) {
    if constexpr (2 * stride < count) {
      merge_halves<first, count, 2 * stride>(keys);
      merge_halves<first + stride, count, 2 * stride>(keys);
      TILEWAVE_UNROLL
      for (int i = first + stride; i + stride < first + count; i += 2 * stride) B::order(keys[i], keys[i + stride]);
    } else {
      B::order(keys[first], keys[first + stride]);
    }
  }
  template <int m, int lanes>
  TILEWAVE_DEVICE static void step(Own& keys) {
    if constexpr (m < lanes) {
      Own others;
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i) {
        others[i] = B::template other_half<m>(static_cast<std::uint32_t>(keys[i]));
        if constexpr (sizeof(Key) == 8) {
          const std::uint32_t high = B::template other_half<m>(static_cast<std::uint32_t>(keys[i] >> 32));
          others[i] |= std::uint64_t{high} << 32;
        }
      }
      merge(keys, others);
      step<2 * m, lanes>(keys);
    }
  }
};

}  // namespace tilewave
