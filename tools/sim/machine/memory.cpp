// SPDX-License-Identifier: MIT
#include "sim/machine/memory.hpp"

#include <algorithm>
#include <cstdio>

namespace tilewave::sim {

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

void Journal::note(const Region& region, std::uint64_t address, std::uint64_t bytes) {
  constexpr std::uint64_t page = 4096;
  const std::uint64_t offset = address - region.base;
  for (std::uint64_t at = offset / page * page; at < offset + bytes; at += page) {
    std::uint8_t* const first = region.data + at;
    if (first == last_) continue;
    last_ = first;
    if (const auto [kept, added] = pages_.try_emplace(first); added)
      kept->second.assign(first, first + std::min(page, region.size - at));
  }
}

void Journal::restore() {
  for (const auto& [first, bytes] : pages_) std::copy(bytes.begin(), bytes.end(), first);
  pages_.clear();
  last_ = nullptr;
}

std::uint64_t Memory::next_base(std::uint64_t size) {
  constexpr std::uint64_t page = 4096, gap = 0x2'8000'0000;  // 10 GiB, so that bit 31 of bases varies
  const std::uint64_t cache_base = next_;
  next_ = cache_base + (size + page - 1) / page * page + gap;
  return cache_base;
}

std::uint64_t Memory::map(std::string name, std::uint8_t* data, std::uint64_t size, bool writable) {
  const std::uint64_t base = next_base(size);
  regions_.push_back({base, size, data, writable, std::move(name), base});
  return base;
}

std::uint64_t Memory::address_of(const std::string& name) const {
  for (const Region& region : regions_)
    if (region.name == name) return region.base;
  throw Error("no buffer is named " + name);
}

const Region& Memory::find(std::uint64_t address, std::uint64_t bytes) const {
  const Region* nearest = nullptr;
  std::uint64_t distance = ~std::uint64_t{0};
  for (const Region& region : regions_) {
    if (region.holds(address, bytes)) return region;
    const std::uint64_t end = region.base + region.size;
    const std::uint64_t away = address < region.base ? region.base - address : address >= end ? address - end : 0;
    if (away < distance) distance = away, nearest = &region;
  }
  std::string where = "address " + hex(address) + " (" + std::to_string(bytes) + " bytes) is outside every buffer";
  if (nearest && distance < (std::uint64_t{1} << 32))
    where += "; nearest is " + nearest->name + ": offset " +
             std::to_string(static_cast<std::int64_t>(address - nearest->base)) + " of " +
             std::to_string(nearest->size);
  throw Error(where);
}

void Memory::refuse_write(std::uint64_t address, const Region& region) {
  throw Error("address " + hex(address) + " is inside " + region.name + ", which is read-only");
}

}  // namespace tilewave::sim
