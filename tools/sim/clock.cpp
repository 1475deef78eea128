// SPDX-License-Identifier: MIT
#include "clock.hpp"

#include <algorithm>
#include <cmath>
#include <queue>

#include "compute_unit.hpp"

namespace isa_sim {
namespace {

constexpr const CommonClock& k = common_clock;

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

/// What one pass over an XCD found.
struct Pass {
  double cycles = 0, steady_rate = 0, spread = 0;
  std::uint64_t instructions = 0;
  std::uint64_t blocks_done = 0, blocks_all = 0, block_instructions = 0;
  double matrix_duty = 0, flops = 0;
  Traffic traffic;
  std::map<std::uint64_t, double> touched;
  std::array<double, 6> busy{};
  std::vector<OpClock> ops;
};

Pass run_pass(const Context& c, const Chip& chip, double mhz, const std::map<std::uint64_t, double>& first,
              std::uint64_t budget, int resident) {
  const std::vector<Pace> pace = paces(c.object);
  XcdMemory memory(chip, mhz, first, c.memory);
  Pass pass;
  pass.ops.resize(pace.size());
  TimedLaunch launch{
      .context = c, .paces = pace, .clock = arch_clock(c.object.arch), .memory = memory, .ops = pass.ops};
  std::vector<ComputeUnit> units;
  for (int i = 0; i < chip.cus; ++i) units.emplace_back(launch, i);
  // Blocks go round robin over XCDs; this one gets every eighth, one for each CU before any CU gets its second.
  const auto xcds = static_cast<std::uint64_t>(chip.xcds);
  pass.blocks_all = (c.blocks() + xcds - 1) / xcds;
  std::uint64_t next = 0;
  double start = 0;
  using Event = std::pair<double, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  for (int r = 0; r < resident; ++r)
    for (int i = 0; i < chip.cus && next < pass.blocks_all; ++i, ++next) {
      units[static_cast<std::size_t>(i)].start_block(next * xcds, start);
      start += c.waves();
    }
  for (int i = 0; i < chip.cus; ++i)
    if (units[static_cast<std::size_t>(i)].blocks()) events.emplace(units[static_cast<std::size_t>(i)].next(), i);
  std::vector<std::pair<double, std::uint64_t>> marks;  // time, instructions
  std::vector<std::unique_ptr<TimedBlock>> finished;
  std::uint64_t block_instructions = 0;
  double t = 0;
  while (!events.empty() && launch.instructions < budget) {
    const auto [time, i] = events.top();
    events.pop();
    t = std::max(t, time);
    ComputeUnit& unit = units[static_cast<std::size_t>(i)];
    unit.step(time, finished);
    for (auto& block : finished) {
      ++pass.blocks_done;
      block_instructions += block->instructions;
      if (next < pass.blocks_all) unit.start_block(next++ * xcds, time + k.block_start);
    }
    finished.clear();
    if (unit.next() < never) events.emplace(unit.next(), i);
    if (marks.empty() || launch.instructions >= marks.back().second + budget / 256)
      marks.emplace_back(t, launch.instructions);
  }
  pass.cycles = t;
  pass.instructions = launch.instructions;
  if (pass.blocks_done) pass.block_instructions = block_instructions / pass.blocks_done;
  const std::size_t half = marks.size() / 2, quarter = marks.size() * 3 / 4;
  const auto rate = [&](std::size_t from, std::size_t to) {
    const double clk = marks[to].first - marks[from].first;
    return clk > 0 ? static_cast<double>(marks[to].second - marks[from].second) / clk : 0;
  };
  if (marks.size() > 8) {
    pass.steady_rate = rate(half, marks.size() - 1);
    const double a = rate(half, quarter), b = rate(quarter, marks.size() - 1);
    pass.spread = std::fabs(a - b) / std::max(a + b, 1e-9) * 2;
  } else {
    pass.steady_rate = static_cast<double>(launch.instructions) / std::max(t, 1.0);
  }
  double valu = 0, matrix = 0, lds = 0, vmem = 0, active = 0;
  for (const ComputeUnit& unit : units) {
    valu += unit.valu_busy, matrix += unit.matrix_busy, lds += unit.lds_busy, vmem += unit.vmem_busy;
    active += unit.valu_busy + unit.vmem_busy > 0;
  }
  active = std::max(active, 1.0) * std::max(t, 1.0);
  pass.busy = {valu / 4 / active,
               matrix / 4 / active,
               lds / active,
               vmem / active,
               memory.l2_busy() / std::max(t, 1.0),
               memory.hbm_busy() / std::max(t, 1.0)};
  pass.matrix_duty = pass.busy[1] * active / std::max(t, 1.0) / chip.cus;
  pass.flops = launch.matrix_flops;
  pass.traffic = memory.traffic();
  pass.touched = memory.touched_bytes();
  return pass;
}

/// Instructions of one block, executed without time.
std::uint64_t count_block(const Context& c) {
  Block block;
  c.start(block, 0);
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
        if (waiting > longest_wait) throw Error("a wave waits in a loop for another block, which is not modelled");
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

}  // namespace

ClockReport time_launch(const CodeObject& object, const Launch& launch, Memory& memory, const ClockOptions& options) {
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

  // A short pass tells how much of what this XCD misses others have fetched, and about how busy the matrix units are.
  report.mhz = options.mhz > 0 ? options.mhz : chip.mhz;
  Pass pass =
      run_pass(context, chip, report.mhz, {}, std::max<std::uint64_t>(options.instructions / 4, 1), fits.blocks);
  if (pass.block_instructions == 0) pass.block_instructions = count_block(context);
  const std::uint64_t block_instructions = pass.block_instructions;
  const double all = static_cast<double>(block_instructions) * static_cast<double>(pass.blocks_all);
  const double progress = std::min(1.0, static_cast<double>(pass.instructions) / std::max(all, 1.0));
  std::map<std::uint64_t, double> first;
  for (const Region& region : memory.regions()) {
    const auto touched = pass.touched.find(region.base);
    if (touched == pass.touched.end()) continue;
    const double share = static_cast<double>(region.size) * progress / (chip.xcds * touched->second);
    first[region.base] = options.warm ? 0 : std::clamp(share, 1.0 / chip.xcds, 1.0);
  }
  const auto held = [&] { return chip.mhz - (chip.mhz - chip.mhz_matrix) * std::min(1.0, pass.matrix_duty); };
  if (options.mhz <= 0) report.mhz = held();
  pass = run_pass(context, chip, report.mhz, first, options.instructions, fits.blocks);
  if (options.mhz <= 0) report.mhz = held();  // the longer pass knows better

  report.complete = pass.blocks_done == pass.blocks_all;
  report.timed_share = report.complete ? 1 : std::min(1.0, static_cast<double>(pass.instructions) / std::max(all, 1.0));
  report.cycles = pass.cycles;
  double tail = 0;
  if (!report.complete) {
    report.spread = pass.spread;
    const double slots = static_cast<double>(chip.cus) * fits.blocks, blocks = static_cast<double>(pass.blocks_all);
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

nlohmann::ordered_json ClockReport::to_json(const CodeObject& object) const {
  nlohmann::ordered_json out{{"chip", chip},
                             {"us", us},
                             {"bound", bound},
                             {"cycles", cycles},
                             {"mhz", mhz},
                             {"launch_us", launch_us},
                             {"tflops", tflops},
                             {"hbm_gbs", hbm_gbs},
                             {"blocks_per_cu", blocks_per_cu},
                             {"waves_per_simd", waves_per_simd},
                             {"limiter", limiter},
                             {"complete", complete},
                             {"timed_share", timed_share},
                             {"sampling_spread", spread}};
  for (std::size_t i = 0; i < busy.size(); ++i) out["busy"][std::string(bound_names[i])] = busy[i];
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!ops[i].hits) continue;
    nlohmann::ordered_json stalls;
    for (std::size_t s = 1; s < stall_count; ++s)
      if (ops[i].stall[s] > 0) stalls[std::string(stall_names[s])] = ops[i].stall[s];
    out["instructions"].push_back({{"address", object.program.ops[i].address},
                                   {"text", object.program.ops[i].text},
                                   {"hits", ops[i].hits},
                                   {"issue", ops[i].issue},
                                   {"stall", stalls}});
  }
  return out;
}

std::string ClockReport::to_text(const CodeObject& object, int top) const {
  char line[512];
  std::string out;
  const auto add = [&](auto... values) {
    std::snprintf(line, sizeof line, values...);
    out += line;
  };
  add("modelled on %s: %.2f us (%s bound), %.0f clk at %.0f MHz + %.1f us launch; %.1f TFLOP/s, HBM %.0f GB/s\n",
      chip.c_str(), us, bound.c_str(), cycles, mhz, launch_us, tflops, hbm_gbs);
  add("  %d blocks a CU, %d waves a SIMD (limited by %s); timed %.1f %% of the work%s, spread %.1f %%\n  busy:",
      blocks_per_cu, waves_per_simd, limiter.c_str(), 100 * timed_share, complete ? "" : ", the rest extrapolated",
      100 * spread);
  for (std::size_t i = 0; i < busy.size(); ++i) add(" %s %.0f %%", std::string(bound_names[i]).c_str(), 100 * busy[i]);
  out += "\n  clk of all waves: issue, stall (cause), hits, instruction\n";
  std::vector<std::size_t> order;
  const auto total = [&](std::size_t i) {
    double sum = ops[i].issue;
    for (const double s : ops[i].stall) sum += s;
    return sum;
  };
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (ops[i].hits) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return total(a) > total(b); });
  if (static_cast<int>(order.size()) > top) order.resize(static_cast<std::size_t>(top));
  for (const std::size_t i : order) {
    const auto worst = std::max_element(ops[i].stall.begin(), ops[i].stall.end()) - ops[i].stall.begin();
    add("  %12.0f %12.0f %-8s %9llu  %s\n", ops[i].issue, total(i) - ops[i].issue,
        std::string(stall_names[static_cast<std::size_t>(worst)]).c_str(), static_cast<unsigned long long>(ops[i].hits),
        object.program.ops[i].text.c_str());
  }
  return out;
}

}  // namespace isa_sim
