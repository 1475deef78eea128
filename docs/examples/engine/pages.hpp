// SPDX-License-Identifier: MIT
// The pages of the cache on the host: who has which, and which may be used again. Pages whose tokens are complete are
// found again by these tokens and all before them, so a prompt that begins as an earlier one need not be computed.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
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
  /// `page` now holds a whole page of tokens behind the pages of key `before` (0: it is the first). Gives its key.
  std::uint64_t publish(std::int32_t page, std::uint64_t before, std::span<const std::int32_t> tokens);

  /// Throws Error if a page is lost or in two places; for tests and soak runs.
  void check() const;

 private:
  struct Page {
    std::int32_t holders = 0;
    std::uint64_t key = 0;                      // 0: not published
    std::vector<std::int32_t> tokens;           // of the page, as published
    std::int32_t before = -1;                   // the page in front, as published
    std::list<std::int32_t>::iterator idle_at;  // valid while nobody has the page
  };
  void forget(std::int32_t page);
  std::int32_t find(std::uint64_t key, std::int32_t before, std::span<const std::int32_t> tokens) const;

  std::int32_t page_tokens_;
  std::vector<Page> pages_;
  std::list<std::int32_t> idle_;  // least recently idle first
  std::unordered_map<std::uint64_t, std::int32_t> published_;
};

}  // namespace engine
