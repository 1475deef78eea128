// SPDX-License-Identifier: MIT
#include "sim/clock/cache_clock.hpp"

#include <algorithm>
#include <bit>

namespace tilewave::sim {
namespace {

constexpr const CommonClock& k = common_clock;

/// Spreads lines over channels and chooses which of them another XCD has fetched: the same in every run.
std::uint64_t mixed(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x7fb5d329728ea185;
  x ^= x >> 27;
  x *= 0x81dadef4bc2dd44d;
  return x ^ x >> 33;
}

}  // namespace

Cache::Cache(int bytes, int ways, int line)
    : ways_(static_cast<std::size_t>(ways)),
      set_bits_(std::countr_zero(static_cast<unsigned>(bytes / line / ways))),
      lines_(static_cast<std::size_t>(bytes / line), ~std::uint64_t{0}),
      ready_(lines_.size()),
      ages_(lines_.size()),
      youngest_(lines_.size() / ways_) {
  for (std::size_t i = 0; i < ages_.size(); ++i) {
    const std::size_t way = i % ways_;
    ages_[i] = {static_cast<std::uint8_t>((way + 1) % ways_), static_cast<std::uint8_t>((way + ways_ - 1) % ways_)};
  }
}

double* Cache::find(std::uint64_t line) {
  const std::size_t set = set_of(line), first = set * ways_;
  std::uint64_t found = ways_;  // without an early end, so that the compiler compares many at once
  for (std::uint64_t i = 0; i < ways_; ++i) found = lines_[first + i] == line ? i : found;
  if (found == ways_) return nullptr;
  make_youngest(set, static_cast<std::uint8_t>(found));
  return &ready_[first + found];
}

void Cache::insert(std::uint64_t line, double ready) {
  const std::size_t set = set_of(line), first = set * ways_;
  const std::uint8_t oldest = ages_[first + youngest_[set]].younger;  // the ring's other end
  youngest_[set] = oldest;
  lines_[first + oldest] = line, ready_[first + oldest] = ready;
}

void Cache::make_youngest(std::size_t set, std::uint8_t way) {
  Age* const ring = &ages_[set * ways_];
  const std::uint8_t was = youngest_[set];
  if (way == was) return;
  const Age out = ring[way];
  ring[out.younger].older = out.older, ring[out.older].younger = out.younger;
  const std::uint8_t oldest = ring[was].younger;
  ring[way] = {was, oldest};
  ring[was].younger = way, ring[oldest].older = way;
  youngest_[set] = way;
}

XcdMemory::XcdMemory(const Chip& chip, double mhz, const std::map<std::uint64_t, double>& first, const Memory& memory)
    : memory_(memory),
      mall_rate_(chip.hbm_tbs * chip.mall_ratio * 1e6 / mhz / chip.xcds),
      hbm_rate_(chip.hbm_tbs * 1e6 / mhz / chip.xcds),
      l1_(static_cast<std::size_t>(chip.cus), Cache(k.l1_bytes, k.l1_ways, k.line)),
      l2_(k.l2_bytes, k.l2_ways, k.line),
      channel_free_(static_cast<std::size_t>(k.l2_channels)),
      tags_free_(static_cast<std::size_t>(chip.cus)),
      arrivals_(static_cast<std::size_t>(chip.cus)),
      known_(memory.count()) {
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const auto share = first.find(memory.regions()[i].base);
    if (share != first.end()) known_[i].first = share->second;
  }
}

std::map<std::uint64_t, double> XcdMemory::touched_bytes() const {
  std::map<std::uint64_t, double> touched;
  for (std::size_t i = 0; i < known_.size(); ++i)
    if (known_[i].touched > 0) touched[memory_.regions()[i].base] = known_[i].touched;
  return touched;
}

const Region* XcdMemory::region_of(std::uint64_t address) const {
  if (last_ && last_->holds(address, 1)) return last_;
  for (const Region& region : memory_.regions())
    if (region.holds(address, 1)) return last_ = &region;
  return last_ = nullptr;
}

std::uint64_t XcdMemory::line_of(std::uint64_t address) const {
  const Region* region = region_of(address);
  return (region ? address - region->base + region->cache_base : address) / static_cast<std::uint64_t>(k.line);
}

double XcdMemory::beyond_l2(double t, std::uint64_t line, const Region* region) {
  bool cold = true;
  if (region) {
    Known& known = known_[static_cast<std::size_t>(region - memory_.regions().data())];
    if (known.lines.empty()) known.lines.resize(region->size / static_cast<std::uint64_t>(k.line) + 2);
    auto seen = known.lines[line - region->cache_base / static_cast<std::uint64_t>(k.line)];
    cold = !seen && (known.first >= 1 || static_cast<double>(mixed(line) >> 11) * 0x1p-53 < known.first);
    if (!seen) known.touched += k.line;
    seen = true;
  }
  mall_free_ = std::max(mall_free_, t) + k.line / mall_rate_;
  traffic_.mall += k.line;
  if (!cold) return mall_free_ + k.mall_latency - k.l2_latency;
  hbm_free_ = std::max(hbm_free_, t) + k.line / hbm_rate_;
  hbm_busy_ += k.line / hbm_rate_;
  traffic_.hbm += k.line;
  return std::max(mall_free_, hbm_free_) + k.hbm_latency - k.l2_latency;
}

void XcdMemory::write_back(double t) {
  written_ = hbm_free_ = std::max(hbm_free_, t) + k.line / hbm_rate_;
  hbm_busy_ += k.line / hbm_rate_;
  traffic_.hbm += k.line;
}

double XcdMemory::through_l2(double t, std::uint64_t line, double stored_bytes, const Region* region, Access access) {
  double& free = channel_free_[mixed(line) % channel_free_.size()];
  const double taken =
      access == Access::load ? k.line / k.l2_channel : std::max(1.0, stored_bytes / (k.l2_channel / 2));
  free = std::max(free, t) + taken;
  l2_busy_ += taken / k.l2_channels;
  traffic_.l2 += k.line;
  const double here = free + k.l2_latency;
  if (double* ready = l2_.find(line)) return std::max(*ready, here);
  double ready = here;
  const double hbm = traffic_.hbm;
  if (access == Access::store) {  // allocated without being read; written back to memory once
    write_back(t);
  } else {
    ready = beyond_l2(free, line, region) + k.l2_latency;
    if (access == Access::atomic) write_back(free);  // read, changed, and written as a store is
  }
  if (access != Access::load) traffic_.posted += traffic_.hbm - hbm;
  l2_.insert(line, ready);
  return ready;
}

double XcdMemory::access(int cu, double t, const std::vector<Touch>& touched, Access access) {
  double done = t;
  double& tags = tags_free_[static_cast<std::size_t>(cu)];
  for (std::size_t i = 0; i < touched.size();) {
    const std::uint64_t first = line_of(touched[i].address);
    const Region* const region = last_;  // of that line
    double bytes = 0;                    // neighbours mostly share a line
    for (; i < touched.size() && line_of(touched[i].address) == first; ++i) bytes += touched[i].bytes;
    tags = std::max(tags, t) + 1;
    traffic_.l1 += k.line;
    double ready;
    if (access != Access::load) {
      ready = through_l2(tags, first, bytes, region, access);
    } else if (double* hit = l1_[static_cast<std::size_t>(cu)].find(first)) {
      ready = std::max(*hit, tags + k.l1_latency);
    } else {
      ready = through_l2(tags, first, 0, region, Access::load);
      l1_[static_cast<std::size_t>(cu)].insert(first, ready);
      arrivals_[static_cast<std::size_t>(cu)].push(ready);
    }
    done = std::max(done, ready);
  }
  return done;
}

double XcdMemory::scalar(double t, std::uint64_t address) {
  const std::uint64_t line = line_of(address);
  return through_l2(t, line, 0, last_, Access::load);
}

double XcdMemory::room(int cu, double t) {
  Arrivals& lines = arrivals_[static_cast<std::size_t>(cu)];
  if (static_cast<int>(lines.size()) < k.outstanding_lines) return t;
  while (!lines.empty() && lines.top() <= t) lines.pop();
  return static_cast<int>(lines.size()) < k.outstanding_lines ? t : lines.top();
}

}  // namespace tilewave::sim
