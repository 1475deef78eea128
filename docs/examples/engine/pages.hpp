// SPDX-License-Identifier: MIT
// The pages of the cache on the host: who has which, and which may be used again. Pages whose tokens are complete are
// found again by these tokens and all before them, so a prompt that begins as an earlier one need not be computed.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace engine {

class PagePool {
 public:
  PagePool(std::int32_t pages, std::int32_t page_tokens);

  std::int32_t page_tokens() const { return page_tokens_; }
  /// Pages that take() can give: those that nobody has.
  std::int32_t available() const { return static_cast<std::int32_t>(idle_.size()); }

  /// A page for new tokens, the one that was idle longest; -1 if there is none.
  std::int32_t take();
  /// One holder fewer. The page keeps its tokens until it is taken again, the least recently idle first.
  void release(std::int32_t page);
  /// The longest known beginning of some tokens: its pages, each with one holder more, and the key of the last.
  struct Beginning {
    std::vector<std::int32_t> pages;
    std::uint64_t key = 0;
  };
  /// Finds whole pages alone. At least one token is left over: something must be computed to have logits.
  Beginning reuse(std::span<const std::int32_t> tokens);
  /// `page` now holds a whole page of tokens behind the page of key `before` (0: it is the first). Gives its key.
  std::uint64_t publish(std::int32_t page, std::uint64_t before, std::span<const std::int32_t> tokens);

  /// Throws Error if a page is lost or in two places; for tests and soak runs.
  void check() const;

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
