// SPDX-License-Identifier: MIT
#include "clock.hpp"

#include <algorithm>
#include <cmath>

#include "timed_pass.hpp"

namespace isa_sim {
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

/// Instructions of a block, executed without time.
std::uint64_t count_block(const Context& c, std::uint64_t number) {
  const Undo undo(c.memory);
  Block block;
  c.start(block, number);
  std::uint64_t count = 0;
  for (bool running = true; running; ++block.epoch) {
    running = false;
    for (const auto& w : block.waves) w->published = w->arrived;
    for (const auto& w : block.waves) {
      if (w->status == WaveStatus::at_barrier) w->status = WaveStatus::running;
      int waiting = 0;
      for (; w->status == WaveStatus::running; ++count) {
        const Class cls = c.object.program.ops[w->pc].cls;
        waiting = cls <= Class::valu || cls == Class::vmem || cls == Class::lds ? 0 : waiting + 1;
        if (waiting > longest_wait) throw BlocksWait();
        if (cls == Class::mfma)
          ++w->pc;
        else
          c.step(*w);
      }
      running |= w->status != WaveStatus::ended;
    }
  }
  return count;
}

/// The mean of blocks all over the launch: the middle one, those of the quarters, and so on, while they take few instructions.
std::uint64_t count_blocks(const Context& c, std::uint64_t budget) {
  constexpr std::uint64_t most = 63;
  std::uint64_t sum = 0, counted = 0;
  for (std::uint64_t parts = 2; parts <= most + 1; parts *= 2) {
    for (std::uint64_t i = 1; i < parts; i += 2, ++counted) {
      if (counted > 0 && sum + sum / counted > budget) return sum / counted;
      sum += count_block(c, c.blocks() * i / parts);
    }
  }
  return sum / counted;
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
  report.launch_us = chip.launch_us;

  // A short pass tells how much of what this XCD misses others have fetched, and about how busy the matrix units are. Where
  // blocks wait for each other every XCD is timed, to its end if it can be.
  report.mhz = options.mhz > 0 ? options.mhz : chip.mhz;
  constexpr std::uint64_t shows_waits = 20'000;  // instructions
  const std::uint64_t short_budget = std::max(options.instructions / 8, std::min(options.instructions, shows_waits));
  PassOptions how{.mhz = report.mhz, .budget = short_budget, .resident = fits.blocks};
  Pass pass;
  std::uint64_t counted = 0;
  const auto run = [&] {
    try {
      pass = run_pass(context, chip, how);
      // Blocks that have ended say little of others where they differ: the shorter ones end first.
      if (!how.whole_chip && pass.blocks_done < pass.blocks_all && (pass.block_instructions == 0 || pass.blocks_differ))
        pass.block_instructions = counted ? counted : counted = count_blocks(context, options.instructions / 16);
    } catch (const BlocksWait&) {
      how.whole_chip = true;
      how.budget = options.instructions * static_cast<std::uint64_t>(chip.xcds);
      pass = run_pass(context, chip, how);
    }
    if (pass.block_instructions == 0)
      throw Error("no block ends in the instructions that are timed, and blocks wait for each other: time more");
  };
  run();
  report.whole_chip = how.whole_chip;
  const std::uint64_t block_instructions = pass.block_instructions;
  const double all = static_cast<double>(block_instructions) * static_cast<double>(pass.blocks_all);
  // How much of all it has read: by bytes, since blocks load first, or where no block has ended by instructions.
  const double all_loaded = static_cast<double>(pass.block_loaded) * static_cast<double>(pass.blocks_all);
  const double progress = std::min(1.0, all_loaded > 0 && !pass.blocks_differ
                                            ? static_cast<double>(pass.loaded) / all_loaded
                                            : static_cast<double>(pass.instructions) / std::max(all, 1.0));
  for (const Region& region : memory.regions()) {
    const auto touched = pass.touched.find(region.base);
    if (touched == pass.touched.end()) continue;
    const double share = static_cast<double>(region.size) * progress / (chip.xcds * touched->second);
    how.first[region.base] = options.warm ? 0 : std::clamp(share, 1.0 / chip.xcds, 1.0);
  }
  const auto held = [&] {  // what the VALU does alone costs no clock (docs/reference/clock.md)
    return chip.mhz -
           std::min(1.0, pass.matrix_duty) * (chip.mhz_matrix + chip.mhz_matrix_valu * std::min(1.0, pass.valu_duty));
  };
  if (options.mhz <= 0) report.mhz = held();
  how.mhz = report.mhz;
  how.trace = trace;
  if (!how.whole_chip) how.budget = options.instructions;
  run();
  if (options.mhz <= 0) report.mhz = held();  // the longer pass knows better

  report.complete = pass.blocks_done == pass.blocks_all;
  report.timed_share = report.complete ? 1 : std::min(1.0, static_cast<double>(pass.instructions) / std::max(all, 1.0));
  report.cycles = pass.cycles;
  double tail = 0;
  if (!report.complete) {
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
  report.us = report.launch_us + report.cycles / report.mhz;
  const double scale =
      static_cast<double>(context.blocks()) / static_cast<double>(pass.blocks_all) / std::max(report.timed_share, 1e-9);
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

}  // namespace isa_sim
