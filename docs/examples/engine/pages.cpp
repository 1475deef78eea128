// SPDX-License-Identifier: MIT
#include "pages.hpp"

#include <algorithm>
#include <string>

#include "error.hpp"

namespace engine {

namespace {

/// The key of a page: a hash of its tokens and of the key of the page before. Tokens are compared as well, so a
/// collision costs a reuse and never an answer.
std::uint64_t key_of(std::uint64_t before, std::span<const std::int32_t> tokens) {
  std::uint64_t hash = before ^ 0x9e3779b97f4a7c15u;
  for (const std::int32_t token : tokens) {  // a round of splitmix64 for each token
    hash += 0x9e3779b97f4a7c15u + static_cast<std::uint32_t>(token);
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
  }
  return hash == 0 ? 1 : hash;
}

}  // namespace

PagePool::PagePool(std::int32_t pages, std::int32_t page_tokens) : page_tokens_(page_tokens), pages_(pages) {
  for (std::int32_t page = 0; page < pages; ++page) pages_[page].idle_at = idle_.insert(idle_.end(), page);
}

void PagePool::forget(std::int32_t page) {
  Page& p = pages_[page];
  if (p.key == 0) return;
  published_.erase(p.key);
  p.key = 0, p.before = -1;
  p.tokens.clear();
}

std::int32_t PagePool::take() {
  if (idle_.empty()) return -1;
  const std::int32_t page = idle_.front();
  idle_.pop_front();
  forget(page);
  pages_[page].holders = 1;
  return page;
}

void PagePool::release(std::int32_t page) {
  Page& p = pages_[page];
  if (p.holders < 1) throw Error("page " + std::to_string(page) + " was given back by one who does not have it");
  if (--p.holders > 0) return;
  // A page without known tokens is of use to nobody, so it goes first.
  p.idle_at = idle_.insert(p.key == 0 ? idle_.begin() : idle_.end(), page);
}

std::int32_t PagePool::find(std::uint64_t key, std::int32_t before, std::span<const std::int32_t> tokens) const {
  const auto found = published_.find(key);
  if (found == published_.end()) return -1;
  const Page& p = pages_[found->second];
  return p.before == before && std::ranges::equal(p.tokens, tokens) ? found->second : -1;
}

PagePool::Beginning PagePool::reuse(std::span<const std::int32_t> tokens) {
  Beginning found;
  const auto size = static_cast<std::size_t>(page_tokens_);
  for (std::size_t first = 0; first + size < tokens.size(); first += size) {
    const std::span<const std::int32_t> part = tokens.subspan(first, size);
    const std::uint64_t key = key_of(found.key, part);
    const std::int32_t page = find(key, found.pages.empty() ? -1 : found.pages.back(), part);
    if (page < 0) break;
    if (pages_[page].holders++ == 0) idle_.erase(pages_[page].idle_at);
    found.pages.push_back(page);
    found.key = key;
  }
  return found;
}

std::uint64_t PagePool::publish(std::int32_t page, std::uint64_t before, std::span<const std::int32_t> tokens) {
  const std::uint64_t key = key_of(before, tokens);
  if (published_.contains(key)) return key;  // somebody else's page has these tokens already
  std::int32_t page_before = -1;
  if (before != 0) {
    const auto found = published_.find(before);
    if (found == published_.end()) return key;  // the page in front is not known, so nobody could come to this one
    page_before = found->second;
  }
  Page& p = pages_[page];
  p.key = key, p.before = page_before;
  p.tokens.assign(tokens.begin(), tokens.end());
  published_[key] = page;
  return key;
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
