// SPDX-License-Identifier: MIT
#include "pages.hpp"

#include <string>

#include "error.hpp"

namespace engine {

PagePool::PagePool(std::int32_t pages, std::int32_t page_tokens) : page_tokens_(page_tokens), pages_(pages) {
  for (std::int32_t page = 0; page < pages; ++page) pages_[page].idle_at = idle_.insert(idle_.end(), page);
}

std::int32_t PagePool::take() {
  if (idle_.empty()) return -1;
  const std::int32_t page = idle_.front();
  idle_.pop_front();
  Page& p = pages_[page];
  if (p.known) known_.erase(*std::exchange(p.known, std::nullopt));
  p.holders = 1;
  return page;
}

void PagePool::release(std::int32_t page) {
  Page& p = pages_[page];
  if (p.holders < 1) throw Error("page " + std::to_string(page) + " was given back by one who does not have it");
  if (--p.holders > 0) return;
  // A page without known tokens is of use to nobody, so it goes first.
  p.idle_at = idle_.insert(p.known ? idle_.end() : idle_.begin(), page);
}

PagePool::Beginning PagePool::reuse(std::span<const std::int32_t> tokens) {
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

std::uint64_t PagePool::publish(std::int32_t page, std::uint64_t before, std::span<const std::int32_t> tokens) {
  const auto [at, added] = known_.try_emplace({before, {tokens.begin(), tokens.end()}}, Known{page, last_key_ + 1});
  if (added) pages_[page].known = at, ++last_key_;  // else somebody else's page has these tokens already
  return at->second.key;
}

void PagePool::check() const {
  std::vector<int> seen(pages_.size());
  for (const std::int32_t page : idle_) ++seen[page];
  for (std::size_t page = 0; page < pages_.size(); ++page) {
    const int expected = pages_[page].holders == 0 ? 1 : 0;
    if (pages_[page].holders < 0 || seen[page] != expected)
      throw Error("page " + std::to_string(page) + " is lost, or free and held at once");
  }
}

}  // namespace engine
