// SPDX-License-Identifier: MIT
#include "sim/clock/schedule.hpp"

#include <algorithm>
#include <queue>

namespace tilewave::sim {
namespace {

constexpr const CommonClock& k = common_clock;
// A block takes no less time than its start and its first answer from memory.
constexpr double shortest = k.block_start + k.wave_start + k.l2_latency;

bool known(const std::vector<Crowd>& crowds, std::size_t blocks) {
  double clk = 0;
  for (const Crowd& c : crowds) clk += c.clk;
  return blocks < crowds.size() && crowds[blocks].instructions > 0 && crowds[blocks].clk > 0.01 * clk;
}

/// A CU and what is left of its blocks, in instructions.
struct BusyUnit {
  std::vector<double> left;
  double t = 0;

  double rate(const std::vector<double>& rates) const {  // of each block
    return rates[std::min(left.size(), rates.size() - 1)] / static_cast<double>(left.size());
  }
  double next(const std::vector<double>& rates) const {
    return t + *std::min_element(left.begin(), left.end()) / rate(rates);
  }
};

/// The ended ones of the launch must have taken what blocks take that were executed alone.
void check_counts(const Pass& pass, const BlockWork& work) {
  if (pass.blocks_done < 16) return;
  double counted = 0;
  for (std::uint64_t i = 0; i < pass.started; ++i) counted += static_cast<double>(work.of(i));
  for (const Unfinished& u : pass.unfinished) counted -= static_cast<double>(work.of(u.index));
  const double took = static_cast<double>(pass.done_instructions);
  if (counted > 2 * took || took > 2 * counted)
    throw Error("blocks of this launch take other instructions than each alone: time more of it");
}

}  // namespace

bool knows_lone_blocks(const Pass& pass) { return known(pass.crowds, 1); }

std::vector<double> rates_of(const Pass& pass, const Pass& lone) {
  std::vector<double> rates(pass.crowds.size());
  for (std::size_t i = 1; i < rates.size(); ++i)
    if (known(pass.crowds, i)) rates[i] = pass.crowds[i].instructions / pass.crowds[i].clk;
  if (rates[1] == 0 && known(lone.crowds, 1)) rates[1] = lone.crowds[1].instructions / lone.crowds[1].clk;
  for (std::size_t i = 1, before = 0; i < rates.size(); ++i) {
    if (rates[i] == 0) {  // between two that are known, or as the last of them
      std::size_t after = i;
      while (after < rates.size() && rates[after] == 0) ++after;
      const double a = before ? rates[before] : 0, span = static_cast<double>(after - before);
      rates[i] = after == rates.size() ? a : a + (rates[after] - a) * static_cast<double>(i - before) / span;
    }
    before = i;
  }
  return rates;
}

Rest rest_of(const Pass& pass, const BlockWork& work, const std::vector<double>& rates, std::size_t cus) {
  if (*std::max_element(rates.begin(), rates.end()) <= 0) throw Error("too little was timed: time more instructions");
  check_counts(pass, work);
  Rest rest;
  std::vector<BusyUnit> units(cus);
  for (const Unfinished& u : pass.unfinished) {
    const std::uint64_t all = work.of_longer(u.index, u.instructions);
    if (all == 0 && u.instructions > work.most() + work.most() / 4)
      throw Error("a block runs longer than any that was counted: time more instructions");
    const double left = all ? static_cast<double>(all - u.instructions) : 1;
    units[u.unit].left.push_back(left);
    rest.instructions += left;
  }
  using Event = std::pair<double, std::size_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  for (std::size_t i = 0; i < cus; ++i)
    if (!units[i].left.empty()) events.emplace(units[i].next(rates), i);
  std::uint64_t next = pass.started;
  while (!events.empty()) {
    const auto [t, i] = events.top();
    events.pop();
    BusyUnit& unit = units[i];
    const double rate = unit.rate(rates), done = (t - unit.t) * rate;
    const double fewest = 1e-6 + *std::min_element(unit.left.begin(), unit.left.end());
    for (double& left : unit.left) {
      const bool ends = left <= fewest;
      left -= done;
      if (!ends) continue;
      left = -1;
      if (next == pass.blocks_all) continue;
      const auto all = static_cast<double>(work.of(next++));
      rest.instructions += all;
      left = std::max(all, shortest * rate);
    }
    std::erase(unit.left, -1);
    unit.t = rest.clk = t;
    if (!unit.left.empty()) events.emplace(unit.next(rates), i);
  }
  return rest;
}

void check_peaks(const Pass& pass, const ClockReport& report) {
  const double timed = report.cycles * report.timed_share;
  const auto refuse = [](const std::string& what) {
    throw Error("extrapolated to more than the chip's " + what + ": time more instructions");
  };
  if (report.timed_share > 1.02) throw Error("more was timed than the launch was said to have: time more instructions");
  if (pass.matrix_duty * pass.timed > 1.05 * timed) refuse("matrix units can do");
  if (pass.valu_duty * pass.timed > 1.05 * timed) refuse("SIMDs can issue");
}

}  // namespace tilewave::sim
