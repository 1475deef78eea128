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

  // A short pass tells how much of what this XCD misses others have fetched, and about how busy the matrix units are. Where
  // blocks wait for each other every XCD is timed, to its end if it can be.
  report.mhz = options.mhz > 0 ? options.mhz : chip.mhz;
  constexpr std::uint64_t shows_waits = 20'000;  // instructions
  const std::uint64_t short_budget = std::max(options.instructions / 8, std::min(options.instructions, shows_waits));
  PassOptions how{.mhz = report.mhz, .budget = short_budget, .resident = fits.blocks};
  Pass pass;
  std::optional<BlockWork> work;  // none where blocks wait for each other
  const auto xcds = static_cast<std::uint64_t>(chip.xcds);
  const auto run = [&] {
    try {
      if (!how.whole_chip && !work) work.emplace(context, xcds, options.instructions);
      for (bool again = true; again;) {
        if (work) how.xcd = work->xcd(), how.blocks_differ = work->differ();
        if (how.trace) *how.trace = WaveTrace();
        pass = run_pass(context, chip, how);
        again = work && !work->differ() && pass.blocks_done < pass.blocks_all && pass.blocks_done > 0 &&
                pass.most > pass.least + pass.least / 4;
        if (again) work->distinguish(context, xcds);
      }
    } catch (const BlocksWait&) {
      work.reset();
      how.whole_chip = true, how.blocks_differ = false;
      how.budget = options.instructions * xcds;
      pass = run_pass(context, chip, how);
    }
    if (pass.blocks_done == pass.blocks_all) return;
    if (work && (work->differ() || pass.blocks_done == 0)) pass.block_instructions = work->mean();
    if (pass.block_instructions == 0)
      throw Error("no block ends in the instructions that are timed, and blocks wait for each other: time more");
  };
  run();
  report.whole_chip = how.whole_chip;
  const std::uint64_t block_instructions = pass.block_instructions;
  const double all = static_cast<double>(block_instructions) * static_cast<double>(pass.blocks_all);
  // The part of all bytes that it has read: bytes, since blocks load first, or instructions where no block has ended.
  const double all_loaded = static_cast<double>(pass.block_loaded) * static_cast<double>(pass.blocks_all);
  const double progress =
      std::min(1.0, all_loaded > 0 && !how.blocks_differ ? static_cast<double>(pass.loaded) / all_loaded
                                                         : static_cast<double>(pass.instructions) / std::max(all, 1.0));
  for (const Region& region : memory.regions()) {
    const auto touched = pass.touched.find(region.base);
    if (touched == pass.touched.end()) continue;
    const double share = static_cast<double>(region.size) * progress / (chip.xcds * touched->second);
    how.first[region.base] = options.warm ? 0 : std::clamp(share, 1.0 / chip.xcds, 1.0);
  }
  // Work of the VALU alone lowers no clock (docs/reference/clock.md).
  const auto held = [&] { return chip.mhz_under(std::min(1.0, pass.matrix_duty), std::min(1.0, pass.valu_duty)); };
  if (options.mhz <= 0) report.mhz = held();
  how.mhz = report.mhz;
  how.trace = trace;
  if (!how.whole_chip) how.budget = options.instructions;
  run();
  if (options.mhz <= 0) report.mhz = held();  // the longer pass knows better

  report.complete = pass.blocks_done == pass.blocks_all;
  if (!report.complete && work && work->shared())
    throw Error("what a block of this launch does hangs on those before it: time more, all of it if need be");
  if (!report.complete && work && work->unknown() && (work->differ() || pass.blocks_done == 0))
    throw Error("a block takes more than 16 times the instructions that are timed: time more");
  report.cycles = pass.cycles;
  double tail = 0, instructions = all;  // of all of the XCD's blocks
  if (!report.complete && how.blocks_differ) {
    Pass lone;
    if (fits.blocks > 1 && !knows_lone_blocks(pass)) {
      how.from = pass.unfinished.empty() ? 0 : pass.unfinished.front().index;
      how.resident = 1, how.budget = short_budget, how.trace = nullptr;
      lone = run_pass(context, chip, how);
    }
    const std::vector<double> rates = rates_of(pass, lone);
    const Rest rest = rest_of(pass, *work, rates, static_cast<std::size_t>(chip.cus));
    instructions = static_cast<double>(pass.instructions) + rest.instructions;
    report.cycles += rest.clk;
    const double full = *std::max_element(rates.begin(), rates.end()) * chip.cus;
    tail = std::max(0.0, rest.clk - rest.instructions / full) / report.cycles;
    report.spread = work->error() * rest.instructions / instructions;
    if (report.spread > 0.25) throw Error("blocks differ too much for those that were counted: time more instructions");
  } else if (!report.complete) {
    report.spread = pass.spread;
    const double slots = static_cast<double>(chip.cus) * fits.blocks * (how.whole_chip ? chip.xcds : 1),
                 blocks = static_cast<double>(pass.blocks_all);
    if (blocks <= slots) {
      report.cycles += std::max(0.0, all - static_cast<double>(pass.instructions)) / pass.steady_rate;
    } else {
      // Rounds of full CUs, then what is left over: a block alone on its CU is faster where several share one.
      const double round = static_cast<double>(block_instructions) * slots / pass.steady_rate;
      const double rounds = std::floor(blocks / slots), rest = blocks / slots - rounds;
      report.cycles = round * (rounds + (rest > 0 ? std::max(rest, 1.0 / fits.blocks) : 0));
      tail = (report.cycles - all / pass.steady_rate) / report.cycles;
    }
  }
  report.timed_share = report.complete ? 1 : static_cast<double>(pass.instructions) / std::max(instructions, 1.0);
  if (!report.complete) {
    check_peaks(pass, report);
    // Stores are not waited for: what they write has to go through memory all the same.
    const double hbm = chip.hbm_tbs * 1e6 / report.mhz / chip.xcds * (how.whole_chip ? chip.xcds : 1);
    report.cycles = std::max(report.cycles, pass.traffic.posted / report.timed_share / hbm);
  }
  report.matrix_duty = pass.matrix_duty, report.issue_duty = pass.valu_duty;
  report.us = report.launch_us + report.cycles / report.mhz;
  const double launch_over_xcd = how.whole_chip ? 1
                                 : work && work->differ()
                                     ? work->launch_over_xcd()
                                     : static_cast<double>(context.blocks()) / static_cast<double>(pass.blocks_all);
  const double scale = launch_over_xcd / std::max(report.timed_share, 1e-9);
  report.tflops = pass.flops * scale / report.us * 1e-6;
  report.hbm_gbs = pass.traffic.hbm * scale / report.us * 1e-3;
  for (std::size_t i = 0; i < 6; ++i) report.busy[i] = pass.busy[i];
  report.busy[6] = tail;
  const auto most = std::max_element(report.busy.begin(), report.busy.begin() + 6) - report.busy.begin();
  report.bound = tail > 0.3 ? "tail"
                 : report.busy[static_cast<std::size_t>(most)] > 0.55
                     ? std::string(bound_names[static_cast<std::size_t>(most)])
                     : "latency";
  report.ops = std::move(pass.ops);
  return report;
}

}  // namespace tilewave::sim
