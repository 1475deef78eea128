// SPDX-License-Identifier: MIT
// Entries of some specs, as the tests of ops take them.
#pragma once

#include <utility>
#include <vector>

#include "tilewave/tile/registry.hpp"

#ifndef ENTRY_SHARES
#define ENTRY_SHARES 3  // the label full compiles with 1
#endif

namespace tilewave {

/// Returns every third entry of a row operation's spec from `first` on, and those that take rows of any length. Three
/// specs have every policy between them, and a chip compiles half of them.
template <class Registry, class B, typename Registry::Spec S, std::size_t first>
struct EntryShare {
  static constexpr auto policies = Registry::policies(B::facts.id, S);
  static constexpr bool has(std::size_t i) { return i % ENTRY_SHARES == first % ENTRY_SHARES || !policies[i].held; }
  static constexpr std::size_t size() {
    std::size_t n = 0;
    for (std::size_t i = 0; i < policies.size(); ++i) n += has(i);
    return n;
  }
  static constexpr std::size_t index(std::size_t nth) {
    std::size_t i = 0;
    for (;; ++i)
      if (has(i) && nth-- == 0) return i;
  }
  template <std::size_t... n>
  static constexpr auto all(std::index_sequence<n...>) {
    return OpEntries<Registry, B, S>::all(std::index_sequence<index(n)...>{});
  }
};
template <class Registry, class B, typename Registry::Spec S, std::size_t first>
inline constexpr auto entry_share =
    EntryShare<Registry, B, S, first>::all(std::make_index_sequence<EntryShare<Registry, B, S, first>::size()>{});

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
