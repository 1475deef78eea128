// SPDX-License-Identifier: MIT
#include "sim/clock/timed_pass.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/clock/compute_unit.hpp"

namespace tilewave::sim {
namespace {

constexpr const CommonClock& k = common_clock;
// A pass ends before its budget where a longer one would say the same: once every place has seen several whole blocks
// and their rate holds, or, where all blocks run at once and none is at its end, from half of the budget on. Else, of few
// rounds, the start and the end of blocks weigh too much.
constexpr std::size_t budget_marks = 256, enough_rounds = 3;
constexpr double steady_spread = 0.01;
constexpr std::uint64_t many_rounds = 6;

struct Xcd {
  Xcd(const Context& c, const std::vector<Pace>& paces, std::vector<OpClock>& ops, const Chip& chip,
      const PassOptions& o, std::uint64_t number)
      : memory(chip, o.mhz, o.first, c.memory),
        launch{.context = c,
               .paces = paces,
               .clock = arch_clock(c.object.arch),
               .memory = memory,
               .ops = ops,
               .trace = number == (o.whole_chip ? 0 : o.xcd) ? o.trace : nullptr,
               .whole_chip = o.whole_chip},
        next(number + o.from * static_cast<std::uint64_t>(chip.xcds)),
        step(static_cast<std::uint64_t>(chip.xcds)) {
    for (int i = 0; i < chip.cus; ++i) units.emplace_back(launch, i);
  }
  Xcd(Xcd&&) = delete;

  /// False if there is none left.
  bool start_block(std::size_t unit, double t) {
    if (next >= launch.context.blocks()) return false;
    units[unit].start_block(next, t);
    ++started;
    next += step;
    return true;
  }

  XcdMemory memory;
  TimedLaunch launch;
  std::vector<ComputeUnit> units;
  std::uint64_t next, step;  // of its blocks, which go round robin over XCDs
  std::uint64_t started = 0;
};

/// Finds which of many events comes next, and the first of those at the same time, by a tree of pairs that each know
/// the earlier of two.
class Upcoming {
 public:
  explicit Upcoming(std::size_t count) : leaves_(std::bit_ceil(count)), tree_(2 * leaves_) {
    for (std::size_t i = 0; i < leaves_; ++i) set(i, never);
  }
  void set(std::size_t i, double t) {
    std::size_t at = leaves_ + i;
    for (tree_[at] = {t, i}; at > 1; at /= 2) tree_[at / 2] = std::min(tree_[at], tree_[at ^ 1]);
  }
  std::pair<double, std::size_t> first() const { return tree_[1]; }

 private:
  std::size_t leaves_;
  std::vector<std::pair<double, std::size_t>> tree_;
};

/// The progress of a pass: time and instructions.
struct Mark {
  double t;
  std::uint64_t instructions;
};

double rate(const Mark& from, const Mark& to) {
  return to.t > from.t ? static_cast<double>(to.instructions - from.instructions) / (to.t - from.t) : 0;
}

/// The rate of the later half of what was timed, and by how much of it the two halves of that differ. Over whole rounds
/// of blocks where there were several: inside one, blocks that began together are all in the same of their phases.
struct Steady {
  Steady(const std::vector<Mark>& marks, const std::vector<Mark>& rounds) {
    const bool whole = rounds.size() >= enough_rounds;
    const std::vector<Mark>& of = whole ? rounds : marks;
    const std::size_t n = of.size(), from = whole ? n / 2 - 1 : n / 2, middle = whole ? (from + n - 1) / 2 : n * 3 / 4;
    const double a = tilewave::sim::rate(of[from], of[middle]), b = tilewave::sim::rate(of[middle], of.back());
    rate = tilewave::sim::rate(of[from], of.back());
    spread = std::fabs(a - b) / std::max(a + b, 1e-9) * 2;
  }
  double rate, spread;
};

/// The work of CUs by how many blocks they had, from any time on.
class Crowds {
 public:
  Crowds(std::size_t units, std::size_t resident) : last_(units), all_(resident + 1) {}
  void note(std::size_t unit, std::size_t blocks, double t, std::uint64_t instructions) {
    all_[blocks].clk += t - last_[unit];
    all_[blocks].instructions += static_cast<double>(instructions);
    last_[unit] = t;
  }
  void mark() { marks_.push_back(all_); }
  std::vector<Crowd> later_half() const {
    std::vector<Crowd> later = all_;
    for (std::size_t i = 0; i < later.size() && marks_.size() > 8; ++i) {
      later[i].clk -= marks_[marks_.size() / 2][i].clk;
      later[i].instructions -= marks_[marks_.size() / 2][i].instructions;
    }
    return later;
  }

 private:
  std::vector<double> last_;  // of each unit
  std::vector<Crowd> all_;
  std::vector<std::vector<Crowd>> marks_;
};

using Xcds = std::vector<std::unique_ptr<Xcd>>;

/// Starts one block for each CU before any CU gets its second.
void start_first_blocks(const Xcds& all, std::size_t cus, const PassOptions& o, double waves, Upcoming& events) {
  for (std::size_t x = 0; x < all.size(); ++x) {
    double start = 0;
    for (int r = 0; r < o.resident; ++r)
      for (std::size_t i = 0; i < cus && all[x]->start_block(i, start); ++i) start += waves;
    for (std::size_t i = 0; i < cus; ++i) events.set(x * cus + i, all[x]->units[i].next());
  }
}

/// Adds up what units and memories of all XCDs did in t clk.
void sum_up(const Xcds& all, const Chip& chip, double t, Pass& pass) {
  double valu = 0, matrix = 0, lds = 0, vmem = 0, active = 0, l2 = 0, hbm = 0;
  for (const auto& xcd : all) {
    for (const ComputeUnit& unit : xcd->units) {
      valu += unit.valu_busy, matrix += unit.matrix_busy, lds += unit.lds_busy, vmem += unit.vmem_busy;
      active += unit.valu_busy + unit.vmem_busy > 0;
    }
    const Traffic& traffic = xcd->memory.traffic();
    pass.traffic.l1 += traffic.l1, pass.traffic.l2 += traffic.l2;
    pass.traffic.mall += traffic.mall, pass.traffic.hbm += traffic.hbm, pass.traffic.posted += traffic.posted;
    l2 += xcd->memory.l2_busy(), hbm += xcd->memory.hbm_busy();
    pass.flops += xcd->launch.matrix_flops, pass.loaded += xcd->launch.loaded;
  }
  const auto xcds_timed = static_cast<double>(all.size());
  active = std::max(active, 1.0) * std::max(t, 1.0);
  pass.busy = {valu / 4 / active,
               matrix / 4 / active,
               lds / active,
               vmem / active,
               std::min(1.0, l2 / xcds_timed / std::max(t, 1.0)),  // some of it is still to come when the pass ends
               std::min(1.0, hbm / xcds_timed / std::max(t, 1.0))};
  const double of_all = active / std::max(t, 1.0) / chip.cus / xcds_timed;
  pass.valu_duty = pass.busy[0] * of_all, pass.matrix_duty = pass.busy[1] * of_all;
}

}  // namespace

Pass run_pass(const Context& c, const Chip& chip, const PassOptions& o) {
  const Undo undo(c.memory);  // the next pass finds semaphores as they were
  const std::vector<Pace> pace = paces(c.object);
  Pass pass;
  pass.ops.resize(pace.size());
  Xcds all;
  const auto xcds = static_cast<std::uint64_t>(chip.xcds), timed = o.whole_chip ? xcds : 1;
  const std::uint64_t first = o.whole_chip ? 0 : o.xcd;
  for (std::uint64_t x = 0; x < timed; ++x) all.push_back(std::make_unique<Xcd>(c, pace, pass.ops, chip, o, first + x));
  pass.blocks_all = o.whole_chip ? c.blocks() : (c.blocks() - first + xcds - 1) / xcds;
  const auto cus = static_cast<std::size_t>(chip.cus);
  Upcoming events(all.size() * cus);
  start_first_blocks(all, cus, o, c.waves(), events);
  std::vector<Mark> marks, rounds;  // of instructions; of blocks, as many as there are places
  std::vector<std::unique_ptr<TimedBlock>> finished;
  std::uint64_t block_instructions = 0, block_loaded = 0;
  double t = 0;
  const auto slots = static_cast<std::uint64_t>(cus) * static_cast<std::uint64_t>(o.resident) * timed;
  const bool sampled = pass.blocks_all >= many_rounds * slots && !o.blocks_differ;
  Crowds crowds(all.size() * cus, static_cast<std::size_t>(o.resident));
  for (bool steady = false; events.first().first < never && pass.instructions < o.budget && !steady;) {
    const auto [time, i] = events.first();
    t = std::max(t, time);
    Xcd& xcd = *all[i / cus];
    ComputeUnit& unit = xcd.units[i % cus];
    const std::uint64_t before = xcd.launch.instructions;
    const std::size_t blocks = unit.blocks().size();
    unit.step(time, finished);
    crowds.note(i, blocks, time, xcd.launch.instructions - before);
    pass.instructions += xcd.launch.instructions - before;
    for (auto& block : finished) {
      ++pass.blocks_done;
      block_instructions += block->instructions, block_loaded += block->loaded;
      pass.least = std::min(pass.least, block->instructions), pass.most = std::max(pass.most, block->instructions);
      xcd.start_block(i % cus, time + k.block_start);
    }
    finished.clear();
    events.set(i, unit.next());
    if (marks.empty() || pass.instructions >= marks.back().instructions + o.budget / budget_marks) {
      marks.push_back({t, pass.instructions});
      crowds.mark();
      steady = pass.blocks_all <= slots && pass.blocks_done == 0 && marks.size() > budget_marks / 2 &&
               Steady(marks, rounds).spread < steady_spread / 2;
    }
    if (pass.blocks_done >= (rounds.size() + 1) * slots) {
      rounds.push_back({t, pass.instructions});
      steady = sampled && rounds.size() >= enough_rounds && Steady(marks, rounds).spread < steady_spread / 2;
    }
  }
  pass.cycles = pass.timed = t;
  // Stored data has to reach memory before the launch has ended.
  if (pass.blocks_done == pass.blocks_all)
    for (const auto& xcd : all) pass.cycles = std::max(pass.cycles, xcd->memory.written());
  if (pass.blocks_done) {
    pass.block_instructions = block_instructions / pass.blocks_done;
    pass.block_loaded = block_loaded / pass.blocks_done;
    pass.done_instructions = block_instructions;
  }
  if (marks.size() > 8) {
    const Steady steady(marks, rounds);
    pass.steady_rate = steady.rate, pass.spread = steady.spread;
  } else {
    pass.steady_rate = static_cast<double>(pass.instructions) / std::max(t, 1.0);
  }
  sum_up(all, chip, t, pass);
  pass.touched = all[0]->memory.touched_bytes();
  pass.crowds = crowds.later_half();
  for (std::size_t i = 0; i < cus; ++i)
    for (const auto& block : all[0]->units[i].blocks())
      pass.unfinished.push_back({i, block->number / xcds, block->instructions});
  pass.started = all[0]->started;
  return pass;
}

}  // namespace tilewave::sim
