// SPDX-License-Identifier: MIT
// Memory seen from one XCD: L1 of its CUs, its L2, its share of MALL and HBM. Each level is a latency and a bandwidth;
// requests queue where the bandwidth is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <queue>
#include <vector>

#include "sim/clock/chip.hpp"
#include "sim/machine/memory.hpp"

namespace tilewave::sim {

/// Lines of a set, the least recently used one leaves; a line knows when it arrives.
class Cache {
 public:
  /// Sets must be a power of two, ways at most 256.
  Cache(int bytes, int ways, int line);
  /// The time a line is there, or nothing; a found line becomes the youngest.
  double* find(std::uint64_t line);
  void insert(std::uint64_t line, double ready);

 private:
  /// A ring through the ways of a set, from the youngest to the oldest.
  struct Age {
    std::uint8_t older, younger;
  };
  /// The set depends on all bits of the address, as on chips: otherwise rows a power of two apart would share a few
  /// sets.
  std::size_t set_of(std::uint64_t line) const {
    return (line ^ line >> set_bits_ ^ line >> 2 * set_bits_) & ((std::size_t{1} << set_bits_) - 1);
  }
  void make_youngest(std::size_t set, std::uint8_t way);

  std::size_t ways_;
  int set_bits_;
  std::vector<std::uint64_t> lines_;  // apart: a set is searched at every access
  std::vector<double> ready_;
  std::vector<Age> ages_;
  std::vector<std::uint8_t> youngest_;  // of each set
};

enum class Access : std::uint8_t { load, store, atomic };

struct Traffic {
  double l1 = 0, l2 = 0, mall = 0, hbm = 0;  // bytes
  double posted = 0;                         // those of HBM for stores and atomics
};

class XcdMemory {
 public:
  /// `mhz` turns bytes a second into bytes a clk; `first` is the share of a region's L2 misses that no other XCD has
  /// fetched before (by region base; 1 if absent).
  XcdMemory(const Chip& chip, double mhz, const std::map<std::uint64_t, double>& first, const Memory& memory);

  /// Returns when the data of an access by CU `cu` at time `t` is there; `touched` has its lanes' addresses.
  double access(int cu, double t, const std::vector<Touch>& touched, Access access);
  /// Returns the same for a scalar load or an instruction line, which goes through L2 and not L1.
  double scalar(double t, std::uint64_t address);
  /// The time from which CU `cu` may ask for more lines: `t`, or when the next of too many has arrived.
  double room(int cu, double t);
  const Traffic& traffic() const { return traffic_; }
  /// Bytes of each region (by base) that this XCD has touched.
  std::map<std::uint64_t, double> touched_bytes() const;
  double l2_busy() const { return l2_busy_; }
  double hbm_busy() const { return hbm_busy_; }
  /// Returns when everything that was stored is in memory.
  double written() const { return written_; }

 private:
  /// Lines arriving at a CU, the next one first.
  using Arrivals = std::priority_queue<double, std::vector<double>, std::greater<>>;
  /// The lines of a region that this XCD has asked for; `first` is the first of them.
  struct Known {
    std::vector<bool> lines;
    double touched = 0, first = 1;
  };
  double through_l2(double t, std::uint64_t line, double stored_bytes, const Region* region, Access access);
  void write_back(double t);
  double beyond_l2(double t, std::uint64_t line, const Region* region);
  const Region* region_of(std::uint64_t address) const;
  /// Uses the region's cache_base, not the address where this machine has it.
  std::uint64_t line_of(std::uint64_t address) const;

  const Memory& memory_;
  double mall_rate_, hbm_rate_;  // bytes a clk of this XCD
  std::vector<Cache> l1_;
  Cache l2_;
  std::vector<double> channel_free_;
  double mall_free_ = 0, hbm_free_ = 0, l2_busy_ = 0, hbm_busy_ = 0, written_ = 0;
  std::vector<double> tags_free_;
  std::vector<Arrivals> arrivals_;  // of each CU
  std::vector<Known> known_;        // of each region
  mutable const Region* last_ = nullptr;
  Traffic traffic_;
};

}  // namespace tilewave::sim
