// SPDX-License-Identifier: MIT
// The simulated 64-bit address space: buffers far apart, every access outside them an error.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/machine/instruction.hpp"

namespace tilewave::sim {

struct Region {
  std::uint64_t base = 0, size = 0;
  std::uint8_t* data = nullptr;
  bool writable = false;
  std::string name;
  std::uint64_t cache_base =
      0;  // where caches see it: the base, or what it would be if it were not where this machine put it

  bool holds(std::uint64_t address, std::uint64_t bytes) const {
    return address >= base && bytes <= size && address - base <= size - bytes;
  }
};

/// The contents of pages before they were first written.
class Journal {
 public:
  void note(const Region& region, std::uint64_t address, std::uint64_t bytes);
  void restore();

 private:
  std::unordered_map<std::uint8_t*, std::vector<std::uint8_t>> pages_;
  std::uint8_t* last_ = nullptr;
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
  /// Maps memory at the address that it has on this machine.
  void map_in_place(std::string name, std::uint8_t* data, std::uint64_t size, bool writable) {
    regions_.push_back({reinterpret_cast<std::uint64_t>(data), size, data, writable, std::move(name), next_base(size)});
  }
  /// Forget every region from index `count` on.
  void truncate(std::size_t count) {
    if (count < regions_.size()) next_ = regions_[count].cache_base;
    regions_.resize(count);
  }
  std::size_t count() const { return regions_.size(); }

  /// The bytes at an address, or an Error that says which region is nearest. `hint` remembers the last region used.
  std::uint8_t* access(std::uint64_t address, std::uint64_t bytes, bool write, const Region*& hint) const {
    if (!hint || !hint->holds(address, bytes)) hint = &find(address, bytes);
    if (write && !hint->writable) refuse_write(address, *hint);
    if (write && journal) journal->note(*hint, address, bytes);
    if (touched) touched->push_back({address, static_cast<std::uint32_t>(bytes), write});
    return hint->data + (address - hint->base);
  }
  std::uint64_t address_of(const std::string& name) const;
  const std::vector<Region>& regions() const { return regions_; }

  /// Receives accesses for the clock, lane after lane; null: they are not recorded. It is for one thread at a time.
  mutable std::vector<Touch>* touched = nullptr;
  /// Receives pages before they are written, for one thread at a time; null: they are not kept.
  mutable Journal* journal = nullptr;

 private:
  const Region& find(std::uint64_t address, std::uint64_t bytes) const;
  std::uint64_t next_base(std::uint64_t size);
  [[noreturn]] static void refuse_write(std::uint64_t address, const Region& region);

  std::vector<Region> regions_;
  std::uint64_t next_ = 0x7e0000000000;  // all 64 address bits matter: high half in use, low half above 2^31 at times
};

/// Undoes everything that is written while it lives.
class Undo {
 public:
  explicit Undo(const Memory& memory) : memory_(memory) { memory_.journal = &journal_; }
  ~Undo() {
    memory_.journal = nullptr;
    journal_.restore();
  }
  Undo(Undo&&) = delete;

 private:
  const Memory& memory_;
  Journal journal_;
};

template <class T>
T load_bytes(const std::uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

std::string hex(std::uint64_t value);

}  // namespace tilewave::sim
