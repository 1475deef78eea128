// SPDX-License-Identifier: MIT
#include "cache_clock.hpp"

#include <algorithm>

namespace isa_sim {
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
    : sets_(static_cast<std::size_t>(bytes / line / ways)),
      ways_(static_cast<std::size_t>(ways)),
      entries_(sets_ * ways_) {}

double* Cache::find(std::uint64_t line) {
  Entry* const set = set_of(line);
  for (std::size_t i = 0; i < ways_; ++i)
    if (set[i].line == line) return set[i].used = ++tick_, &set[i].ready;
  return nullptr;
}

void Cache::insert(std::uint64_t line, double ready) {
  Entry* const set = set_of(line);
  Entry* const oldest =
      std::min_element(set, set + ways_, [](const Entry& a, const Entry& b) { return a.used < b.used; });
  *oldest = {line, ++tick_, ready};
}

XcdMemory::XcdMemory(const Chip& chip, double mhz, std::map<std::uint64_t, double> first, const Memory& memory)
    : first_(std::move(first)),
      memory_(memory),
      mall_rate_(chip.hbm_tbs * chip.mall_ratio * 1e6 / mhz / chip.xcds),
      hbm_rate_(chip.hbm_tbs * 1e6 / mhz / chip.xcds),
      l1_(static_cast<std::size_t>(chip.cus), Cache(k.l1_bytes, k.l1_ways, k.line)),
      l2_(k.l2_bytes, k.l2_ways, k.line),
      channel_free_(static_cast<std::size_t>(k.l2_channels)),
      tags_free_(static_cast<std::size_t>(chip.cus)),
      waiting_(static_cast<std::size_t>(chip.cus)) {}

const Region* XcdMemory::region_of(std::uint64_t address) const {
  if (last_ && last_->holds(address, 1)) return last_;
  for (const Region& region : memory_.regions())
    if (region.holds(address, 1)) return last_ = &region;
  return last_ = nullptr;
}

std::uint64_t XcdMemory::line_of(std::uint64_t address) const {
  const Region* region = region_of(address);
  return (region ? address - region->base + region->place : address) / static_cast<std::uint64_t>(k.line);
}

double XcdMemory::beyond_l2(double t, std::uint64_t line, const Region* region) {
  bool cold = seen_.insert(line).second;
  if (cold && region) {
    touched_[region->base] += k.line;
    const auto share = first_.find(region->base);
    if (share != first_.end()) cold = static_cast<double>(mixed(line) >> 11) * 0x1p-53 < share->second;
  }
  mall_free_ = std::max(mall_free_, t) + k.line / mall_rate_;
  traffic_.mall += k.line;
  if (!cold) return mall_free_ + k.mall_latency - k.l2_latency;
  hbm_free_ = std::max(hbm_free_, t) + k.line / hbm_rate_;
  hbm_busy_ += k.line / hbm_rate_;
  traffic_.hbm += k.line;
  return std::max(mall_free_, hbm_free_) + k.hbm_latency - k.l2_latency;
}

double XcdMemory::through_l2(double t, std::uint64_t line, double stored_bytes, const Region* region) {
  const bool store = stored_bytes > 0;
  double& free = channel_free_[mixed(line) % channel_free_.size()];
  const double taken = store ? std::max(1.0, stored_bytes / (k.l2_channel / 2)) : k.line / k.l2_channel;
  free = std::max(free, t) + taken;
  l2_busy_ += taken / k.l2_channels;
  traffic_.l2 += k.line;
  const double here = free + k.l2_latency;
  if (double* ready = l2_.find(line)) return std::max(*ready, here);
  double ready = here;
  if (store) {  // allocated without being read; written back to memory once
    hbm_free_ = std::max(hbm_free_, t) + k.line / hbm_rate_;
    hbm_busy_ += k.line / hbm_rate_;
    traffic_.hbm += k.line;
  } else {
    ready = beyond_l2(free, line, region) + k.l2_latency;
  }
  l2_.insert(line, ready);
  return ready;
}

double XcdMemory::access(int cu, double t, const std::vector<Touch>& touched, bool store) {
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
    if (store) {
      ready = through_l2(tags, first, bytes, region);
    } else if (double* hit = l1_[static_cast<std::size_t>(cu)].find(first)) {
      ready = std::max(*hit, tags + k.l1_latency);
    } else {
      ready = through_l2(tags, first, 0, region);
      l1_[static_cast<std::size_t>(cu)].insert(first, ready);
      waiting_[static_cast<std::size_t>(cu)].push_back(ready);
    }
    done = std::max(done, ready);
  }
  return done;
}

double XcdMemory::scalar(double t, std::uint64_t address) {
  const std::uint64_t line = line_of(address);
  return through_l2(t, line, 0, last_);
}

int XcdMemory::outstanding(int cu, double t) {
  auto& lines = waiting_[static_cast<std::size_t>(cu)];
  if (static_cast<int>(lines.size()) > k.outstanding_lines / 2)
    lines.erase(std::remove_if(lines.begin(), lines.end(), [t](double ready) { return ready <= t; }), lines.end());
  return static_cast<int>(lines.size());
}

}  // namespace isa_sim
