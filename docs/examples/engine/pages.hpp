// SPDX-License-Identifier: MIT
// The pages of the cache on the host, part 3 of the tutorial: who has which, and which may be used again. Pages whose
// tokens are complete are found again by these tokens and all before them, so a prompt that begins as an earlier one
// need not be computed.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "error.hpp"

namespace engine {

class PagePool {
 public:
  PagePool(std::int32_t pages, std::int32_t page_tokens) : page_tokens_(page_tokens), pages_(pages) {
    for (std::int32_t page = 0; page < pages; ++page) pages_[page].idle_at = idle_.insert(idle_.end(), page);
  }

  /// Pages that take() can give: those that nobody has.
  std::int32_t available() const { return static_cast<std::int32_t>(idle_.size()); }

  /// A page for new tokens, the one that was idle longest; -1 if there is none.
  std::int32_t take() {
    if (idle_.empty()) return -1;
    const std::int32_t page = idle_.front();
    idle_.pop_front();
    Page& p = pages_[page];
    if (p.known) known_.erase(*std::exchange(p.known, std::nullopt));
    p.holders = 1;
    return page;
  }

  /// One holder fewer. The page keeps its tokens until it is taken again, the least recently idle first.
  void release(std::int32_t page) {
    Page& p = pages_[page];
    if (p.holders < 1) throw Error("page " + std::to_string(page) + " was given back by one who does not have it");
    if (--p.holders > 0) return;
    // A page without known tokens is of use to nobody, so it goes first.
    p.idle_at = idle_.insert(p.known ? idle_.end() : idle_.begin(), page);
  }

  /// The longest known beginning of some tokens: its pages, each with one holder more, and the key of the last.
  struct Beginning {
    std::vector<std::int32_t> pages;
    std::uint64_t key = 0;
  };
  /// Finds whole pages alone. At least one token is left over: something must be computed to have logits.
  Beginning reuse(std::span<const std::int32_t> tokens) {
    Beginning found;
    const auto size = static_cast<std::size_t>(page_tokens_);
    for (; size < tokens.size(); tokens = tokens.subspan(size)) {
      const auto next = known_.find({found.key, {tokens.begin(), tokens.begin() + page_tokens_}});
      if (next == known_.end()) break;
      const auto [page, key] = next->second;
      if (pages_[page].holders++ == 0) idle_.erase(pages_[page].idle_at);
      found.pages.push_back(page);
      found.key = key;
    }
    return found;
  }

  /// `page` now holds a whole page of tokens behind the page of key `before` (0: it is the first). Gives its key.
  std::uint64_t publish(std::int32_t page, std::uint64_t before, std::span<const std::int32_t> tokens) {
    const auto [at, added] = known_.try_emplace({before, {tokens.begin(), tokens.end()}}, Known{page, last_key_ + 1});
    if (added) pages_[page].known = at, ++last_key_;  // else somebody else's page has these tokens already
    return at->second.key;
  }

  /// Throws Error if a page is lost or in two places; for tests and soak runs.
  void check() const {
    std::vector<int> seen(pages_.size());
    for (const std::int32_t page : idle_) ++seen[page];
    for (std::size_t page = 0; page < pages_.size(); ++page) {
      const int expected = pages_[page].holders == 0 ? 1 : 0;
      if (pages_[page].holders < 0 || seen[page] != expected)
        throw Error("page " + std::to_string(page) + " is lost, or free and held at once");
    }
  }

 private:
  /// The page that has some tokens behind the page of a key, by both. Keys are numbers that are never given again, so what
  /// came behind a page is not found any more once it has other tokens.
  struct Known {
    std::int32_t page;
    std::uint64_t key;
  };
  using KnownPages = std::map<std::pair<std::uint64_t, std::vector<std::int32_t>>, Known>;
  struct Page {
    std::int32_t holders = 0;
    std::optional<KnownPages::iterator> known;  // where it is published
    std::list<std::int32_t>::iterator idle_at;  // valid while nobody has the page
  };

  std::int32_t page_tokens_;
  std::vector<Page> pages_;
  std::list<std::int32_t> idle_;  // least recently idle first
  KnownPages known_;
  std::uint64_t last_key_ = 0;
};

}  // namespace engine
