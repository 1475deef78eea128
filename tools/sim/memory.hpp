// SPDX-License-Identifier: MIT
// The simulated 64-bit address space: buffers far apart, every access outside them an error.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "op.hpp"

namespace isa_sim {

struct Region {
  std::uint64_t base = 0, size = 0;
  std::uint8_t* data = nullptr;
  bool writable = false;
  std::string name;

  bool holds(std::uint64_t address, std::uint64_t bytes) const {
    return address >= base && bytes <= size && address - base <= size - bytes;
  }
};

struct Touch {
  std::uint64_t address;
  std::uint32_t bytes;
  bool write;
};

class Memory {
 public:
  /// Place `size` bytes of the caller's memory at a new address, 4 KiB aligned, 10 GiB from the next.
  std::uint64_t map(std::string name, std::uint8_t* data, std::uint64_t size, bool writable);
  /// The same at the address the memory has on this machine.
  void map_in_place(std::string name, std::uint8_t* data, std::uint64_t size, bool writable) {
    regions_.push_back({reinterpret_cast<std::uint64_t>(data), size, data, writable, std::move(name)});
  }
  /// Forget every region from index `count` on.
  void truncate(std::size_t count) { regions_.resize(count); }
  std::size_t count() const { return regions_.size(); }

  /// The bytes at an address, or an Error that says which region is nearest. `hint` remembers the last region used.
  std::uint8_t* access(std::uint64_t address, std::uint64_t bytes, bool write, const Region*& hint) const {
    if (!hint || !hint->holds(address, bytes)) hint = &find(address, bytes);
    if (write && !hint->writable) refuse_write(address, *hint);
    if (touched) touched->push_back({address, static_cast<std::uint32_t>(bytes), write});
    return hint->data + (address - hint->base);
  }
  std::uint64_t address_of(const std::string& name) const;
  const std::vector<Region>& regions() const { return regions_; }

  /// Where accesses are noted for the clock, lane after lane; null: nowhere. For one thread at a time.
  mutable std::vector<Touch>* touched = nullptr;

 private:
  const Region& find(std::uint64_t address, std::uint64_t bytes) const;
  [[noreturn]] static void refuse_write(std::uint64_t address, const Region& region);

  std::vector<Region> regions_;
  std::uint64_t next_ = 0x7e0000000000;  // all 64 address bits matter: high half in use, low half above 2^31 at times
};

template <class T>
T load_bytes(const std::uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

std::string hex(std::uint64_t value);

}  // namespace isa_sim
