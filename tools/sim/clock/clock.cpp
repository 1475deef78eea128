// SPDX-License-Identifier: MIT
#include "sim/clock/clock.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/clock/schedule.hpp"
#include "sim/trace/wave_trace.hpp"

namespace tilewave::sim {
namespace {

struct Occupancy {
  int blocks;
  std::string_view limiter;
};

Occupancy occupancy(const Context& c) {
  const ArchClock& clock = arch_clock(c.object.arch);
  const int registers = c.kernel.vgprs + c.kernel.agprs, waves = static_cast<int>(c.waves());
  const int by_registers = std::min(8, registers ? 512 / ((registers + 7) / 8 * 8) : 8) * 4 / waves;
  const auto lds = static_cast<int>((c.lds_bytes() + static_cast<std::size_t>(clock.lds_granule) - 1)) /
                   clock.lds_granule * clock.lds_granule;
  const int by_lds = lds ? clock.lds_bytes / lds : 32, by_waves = 32 / waves;
  const int blocks = std::max(1, std::min({by_registers, by_lds, by_waves}));
  return {blocks, blocks == by_lds && by_lds < by_registers ? "LDS" : by_registers < by_waves ? "registers" : "waves"};
}

/// Runs the passes that time a launch, and keeps what each tells about the next.
class LaunchTimer {
 public:
  LaunchTimer(const Context& context, const Chip& chip, const ClockOptions& options, int resident, double mhz)
      : context_(context),
        chip_(chip),
        options_(options),
        resident_(resident),
        how_{.mhz = mhz, .budget = short_budget(), .resident = resident} {}

  /// Runs a pass. Where blocks wait for each other every XCD is timed, to its end if it can be.
  void run() {
    try {
      if (!how_.whole_chip && !work_) work_.emplace(context_, xcds(), options_.instructions);
      for (bool again = true; again;) {
        if (work_) how_.xcd = work_->xcd(), how_.blocks_differ = work_->differ();
        if (how_.trace) *how_.trace = WaveTrace();
        pass_ = run_pass(context_, chip_, how_);
        again = work_ && !work_->differ() && pass_.blocks_done < pass_.blocks_all && pass_.blocks_done > 0 &&
                pass_.most > pass_.least + pass_.least / 4;
        if (again) work_->distinguish(context_, xcds());
      }
    } catch (const BlocksWait&) {
      work_.reset();
      how_.whole_chip = true, how_.blocks_differ = false;
      how_.budget = options_.instructions * xcds();
      pass_ = run_pass(context_, chip_, how_);
    }
    if (complete()) return;
    if (work_ && (work_->differ() || pass_.blocks_done == 0)) pass_.block_instructions = work_->mean();
    if (pass_.block_instructions == 0)
      throw Error("no block ends in the instructions that are timed, and blocks wait for each other: time more");
  }

  /// Takes from a short pass how much of each region others will have fetched, and lets the next pass be a long one.
  void prepare_long_pass(const Memory& memory, double mhz, WaveTrace* trace) {
    all_ = static_cast<double>(pass_.block_instructions) * static_cast<double>(pass_.blocks_all);
    block_instructions_ = pass_.block_instructions;
    const double progress = progress_of_pass();
    for (const Region& region : memory.regions()) {
      const auto touched = pass_.touched.find(region.base);
      if (touched == pass_.touched.end()) continue;
      const double share = static_cast<double>(region.size) * progress / (chip_.xcds * touched->second);
      how_.first[region.base] = options_.warm ? 0 : std::clamp(share, 1.0 / chip_.xcds, 1.0);
    }
    how_.mhz = mhz;
    how_.trace = trace;
    if (!how_.whole_chip) how_.budget = options_.instructions;
  }

  /// Throws Error if what was timed does not tell what the rest of the blocks take.
  void check_rest_is_known() const {
    if (complete() || !work_) return;
    if (work_->shared())
      throw Error("what a block of this launch does hangs on those before it: time more, all of it if need be");
    if (work_->unknown() && (work_->differ() || pass_.blocks_done == 0))
      throw Error("a block takes more than 16 times the instructions that are timed: time more");
  }

  /// Adds to the report the cycles of blocks that the pass did not time. Returns the share of the cycles in which the
  /// XCD empties.
  double add_rest(ClockReport& report) {
    instructions_ = all_;
    if (complete()) return 0;
    return how_.blocks_differ ? add_differing_rest(report) : add_like_rest(report);
  }

  /// The clock that the chip holds. Work of the VALU alone lowers no clock (docs/reference/clock.md).
  double held_mhz() const { return chip_.mhz_under(std::min(1.0, pass_.matrix_duty), std::min(1.0, pass_.valu_duty)); }
  bool complete() const { return pass_.blocks_done == pass_.blocks_all; }
  bool whole_chip() const { return how_.whole_chip; }
  Pass& pass() { return pass_; }
  /// The share of the instructions that were timed, of those of the blocks that the pass stands for.
  double timed_share() const {
    return complete() ? 1 : static_cast<double>(pass_.instructions) / std::max(instructions_, 1.0);
  }
  /// The work of the launch over that of the blocks that the pass stands for.
  double launch_over_pass() const {
    if (how_.whole_chip) return 1;
    return work_ && work_->differ() ? work_->launch_over_xcd()
                                    : static_cast<double>(context_.blocks()) / static_cast<double>(pass_.blocks_all);
  }

 private:
  std::uint64_t xcds() const { return static_cast<std::uint64_t>(chip_.xcds); }
  std::uint64_t short_budget() const {
    constexpr std::uint64_t shows_waits = 20'000;  // instructions
    return std::max(options_.instructions / 8, std::min(options_.instructions, shows_waits));
  }
  /// The part of all bytes that the pass has read: bytes, since blocks load first, or instructions where no block has
  /// ended.
  double progress_of_pass() const {
    const double all_loaded = static_cast<double>(pass_.block_loaded) * static_cast<double>(pass_.blocks_all);
    return std::min(1.0, all_loaded > 0 && !how_.blocks_differ
                             ? static_cast<double>(pass_.loaded) / all_loaded
                             : static_cast<double>(pass_.instructions) / std::max(all_, 1.0));
  }
  double add_differing_rest(ClockReport& report) {
    Pass lone;
    if (resident_ > 1 && !knows_lone_blocks(pass_)) {
      how_.from = pass_.unfinished.empty() ? 0 : pass_.unfinished.front().index;
      how_.resident = 1, how_.budget = short_budget(), how_.trace = nullptr;
      lone = run_pass(context_, chip_, how_);
    }
    const std::vector<double> rates = rates_of(pass_, lone);
    const Rest rest = rest_of(pass_, *work_, rates, static_cast<std::size_t>(chip_.cus));
    instructions_ = static_cast<double>(pass_.instructions) + rest.instructions;
    report.cycles += rest.clk;
    const double full = *std::max_element(rates.begin(), rates.end()) * chip_.cus;
    report.spread = work_->error() * rest.instructions / instructions_;
    if (report.spread > 0.25) throw Error("blocks differ too much for those that were counted: time more instructions");
    return std::max(0.0, rest.clk - rest.instructions / full) / report.cycles;
  }
  /// Blocks that are alike run in rounds of full CUs. A block that is alone on its CU in the last round is faster where
  /// several share one.
  double add_like_rest(ClockReport& report) const {
    report.spread = pass_.spread;
    const double slots = static_cast<double>(chip_.cus) * resident_ * (how_.whole_chip ? chip_.xcds : 1),
                 blocks = static_cast<double>(pass_.blocks_all);
    if (blocks <= slots) {
      report.cycles += std::max(0.0, all_ - static_cast<double>(pass_.instructions)) / pass_.steady_rate;
      return 0;
    }
    const double round = static_cast<double>(block_instructions_) * slots / pass_.steady_rate;
    const double rounds = std::floor(blocks / slots), rest = blocks / slots - rounds;
    report.cycles = round * (rounds + (rest > 0 ? std::max(rest, 1.0 / resident_) : 0));
    return (report.cycles - all_ / pass_.steady_rate) / report.cycles;
  }

  const Context& context_;
  const Chip& chip_;
  const ClockOptions& options_;
  int resident_;
  PassOptions how_;
  Pass pass_;
  std::optional<BlockWork> work_;  // none where blocks wait for each other
  std::uint64_t block_instructions_ = 0;
  double all_ = 0, instructions_ = 0;  // of all of the XCD's blocks: as the short pass knew it, and the long one
};

std::string bound_of(const ClockReport& report, double tail) {
  if (tail > 0.3) return "tail";
  const auto most =
      static_cast<std::size_t>(std::max_element(report.busy.begin(), report.busy.begin() + 6) - report.busy.begin());
  return report.busy[most] > 0.55 ? std::string(bound_names[most]) : "latency";
}

}  // namespace

ClockReport time_launch(const CodeObject& object, const Launch& launch, Memory& memory, const ClockOptions& options,
                        WaveTrace* trace) {
  const Chip& chip = chip_named(options.chip, object.arch);
  const MachineOptions machine{.checks = false};
  const Context context(object, launch, memory, machine);
  const Occupancy fits = occupancy(context);
  ClockReport report;
  report.chip = chip.name;
  report.blocks_per_cu = fits.blocks;
  report.waves_per_simd = fits.blocks * static_cast<int>(context.waves()) / 4;
  report.limiter = fits.limiter;
  report.launch_us = chip.launch_us_of(static_cast<double>(context.blocks()));
  report.mhz = options.mhz > 0 ? options.mhz : chip.mhz;

  // A short pass tells how much of what this XCD misses others have fetched, and about how busy the matrix units are.
  LaunchTimer timer(context, chip, options, fits.blocks, report.mhz);
  timer.run();
  report.whole_chip = timer.whole_chip();
  if (options.mhz <= 0) report.mhz = timer.held_mhz();
  timer.prepare_long_pass(memory, report.mhz, trace);
  timer.run();
  if (options.mhz <= 0) report.mhz = timer.held_mhz();  // the longer pass knows better

  Pass& pass = timer.pass();
  report.complete = timer.complete();
  timer.check_rest_is_known();
  report.cycles = pass.cycles;
  const double tail = timer.add_rest(report);
  report.timed_share = timer.timed_share();
  if (!report.complete) {
    check_peaks(pass, report);
    // Stores are not waited for: what they write has to go through memory all the same.
    const double hbm = chip.hbm_tbs * 1e6 / report.mhz / chip.xcds * (timer.whole_chip() ? chip.xcds : 1);
    report.cycles = std::max(report.cycles, pass.traffic.posted / report.timed_share / hbm);
  }
  report.matrix_duty = pass.matrix_duty, report.issue_duty = pass.valu_duty;
  report.us = report.launch_us + report.cycles / report.mhz;
  const double scale = timer.launch_over_pass() / std::max(report.timed_share, 1e-9);
  report.tflops = pass.flops * scale / report.us * 1e-6;
  report.hbm_gbs = pass.traffic.hbm * scale / report.us * 1e-3;
  for (std::size_t i = 0; i < 6; ++i) report.busy[i] = pass.busy[i];
  report.busy[6] = tail;
  report.bound = bound_of(report, tail);
  report.ops = std::move(pass.ops);
  return report;
}

}  // namespace tilewave::sim
