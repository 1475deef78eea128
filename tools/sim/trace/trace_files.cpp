// SPDX-License-Identifier: MIT
// Formats of rocprofv3's decoded thread traces, version 3.0.0: ui_output_agent_<n>_dispatch_<n>.
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "../../tilewave/common/write_file.hpp"
#include "sim/trace/wave_trace.hpp"

namespace tilewave::sim {
namespace {

using nlohmann::json;

class Files {
 public:
  Files(std::string folder, const WaveTrace& trace, const TraceOrigin& origin)
      : folder_(std::move(folder)), trace_(trace), origin_(origin) {
    std::filesystem::create_directories(folder_);
    std::tie(first_, end_) = ops_of_kernel(origin.object, origin.symbol);
    kernel_ = origin.symbol.substr(0, origin.symbol.size() - 3) + " (modelled on " + origin.chip + ", not measured)";
  }

  void write() {
    code();
    waves();
    occupancy();
    states();
    save("snapshots.json", json::object());
    json clock{{"metadata", {{"descriptor", "[gfx_clock, realtime_clock]"}, {"frequency", 100'000'000}}}};
    const auto end = std::llround(origin_.cycles);
    for (int se = 0; se < shader_engines; ++se)
      clock["SE" + std::to_string(se)] = {{0, 0}, {end, std::llround(origin_.cycles / origin_.mhz * 100)}};
    save("realtime.json", clock);
  }

 private:
  void save(const std::string& name, json value) const {
    if (value.is_object()) value["modelled"] = origin_.chip;
    const std::string file = folder_ + "/" + name, why = tilewave::tool::write_whole_file(file, value.dump());
    if (!why.empty()) throw Error("cannot write " + file + ": " + why);
  }
  std::int64_t row_of(std::uint32_t op) const { return static_cast<std::int64_t>(op - first_) + 1; }

  void code() const {
    struct Sums {
      std::int64_t hits = 0, latency = 0, stall = 0, idle = 0;
    };
    std::vector<Sums> sums(end_ - first_);
    for (const TracedWave& wave : trace_.waves()) {
      std::int64_t last = std::llround(wave.begin);
      for (const TraceStep& step : wave.steps) {
        Sums& s = sums.at(step.op - first_);
        const std::int64_t at = std::llround(step.attempt), done = std::llround(step.attempt + step.duration);
        ++s.hits;
        s.idle += std::max<std::int64_t>(0, at - last);
        s.stall += std::llround(step.attempt + step.stall) - at;
        s.latency += done - at;
        last = done;
      }
    }
    json rows = json::array({{"; " + kernel_, 0, 0, "", 1, 0, 0, 0, 0, 0}});
    for (std::size_t i = first_; i < end_; ++i) {
      const Op& op = origin_.object.program.ops[i];
      const Sums& s = sums[i - first_];
      rows.push_back(
          {op.text, 0, row_of(static_cast<std::uint32_t>(i)), "", 1, op.address, s.hits, s.latency, s.stall, s.idle});
    }
    save("code.json", {{"code", rows},
                       {"version", "3.0.0"},
                       {"header", "ISA, _, LineNumber, Source, Codeobj, Vaddr, Hit, Latency, Stall, Idle"}});
  }

  void waves() const {
    json names = json::object();
    for (const TracedWave& w : trace_.waves()) {
      const std::string se = std::to_string(w.cu % shader_engines), simd = std::to_string(w.simd),
                        slot = std::to_string(w.slot), number = std::to_string(w.number);
      const std::string name = "se" + se + "_sm" + simd + "_sl" + slot + "_wv" + number + ".json";
      const std::int64_t begin = std::llround(w.begin), end = std::llround(w.end);
      names[se][simd][slot][number] = {name, begin, end};
      json steps = json::array(), timeline = json::array(), waits = json::array();
      for (const TraceStep& s : w.steps) {
        const std::int64_t at = std::llround(s.attempt);
        steps.push_back({at, s.kind, std::llround(s.attempt + s.stall) - at, std::llround(s.attempt + s.duration) - at,
                         row_of(s.op)});
      }
      for (const StateRun& run : w.states()) timeline.push_back({static_cast<int>(run.state), run.to - run.from});
      for (const auto& [op, producers] : w.producers) {
        json rows = json::array();
        for (const std::uint32_t p : producers) rows.push_back({row_of(p), 0});
        waits.push_back({row_of(op), rows});
      }
      save(name, {{"duration", end - begin},
                  {"name", "SE" + se},
                  {"num_insts", w.steps.size()},
                  {"num_stitched", w.steps.size()},
                  {"wave",
                   {{"begin", begin},
                    {"end", end},
                    {"cu", w.cu / shader_engines},
                    {"simd", w.simd},
                    {"slot", w.slot},
                    {"id", w.number},
                    {"instructions", steps},
                    {"timeline", timeline},
                    {"waitcnt", waits}}}});
    }
    save("filenames.json", {{"counter_names", json::array()},
                            {"gfxip", 9},
                            {"gfxv", "vega"},
                            {"global_begin_time", 0},
                            {"version", "3.0.0"},
                            {"wave_filenames", names}});
  }

  void occupancy() const {
    json out{{"dispatches", {{"0", "0 / 0x0"}, {"1", kernel_}}}, {"version", "3.0.0"}};
    for (int se = 0; se < shader_engines; ++se) out[std::to_string(se)] = json::array();
    std::vector<OccupancyChange> changes = trace_.occupancy();
    std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) { return a.t < b.t; });
    for (const OccupancyChange& c : changes)
      out[std::to_string(c.cu % shader_engines)].push_back(
          {std::llround(c.t), c.cu / shader_engines, c.simd, c.slot, c.starts ? 1 : 0, 1});
    save("occupancy.json", out);
  }

  /// Writes how many waves are in a state, from each time on.
  void states() const {
    std::map<int, std::map<std::int64_t, int>> changes;
    for (const TracedWave& w : trace_.waves())
      for (const StateRun& run : w.states()) {
        ++changes[static_cast<int>(run.state)][run.from];
        --changes[static_cast<int>(run.state)][run.to];
      }
    for (int state = 1; state <= 4; ++state) {
      json counts = json::array(), times = json::array();
      int now = 0;
      for (const auto& [time, change] : changes[state]) {
        if (change == 0) continue;
        counts.push_back(now += change);
        times.push_back(time);
      }
      const std::string name = "wstates" + std::to_string(state) + ".json";
      save(name, {{"name", name}, {"state", counts}, {"time", times}});
    }
  }

  std::string folder_, kernel_;
  const WaveTrace& trace_;
  const TraceOrigin& origin_;
  std::size_t first_ = 0, end_ = 0;
};

}  // namespace

void write_thread_trace(const std::string& folder, const WaveTrace& trace, const TraceOrigin& origin) {
  Files(folder, trace, origin).write();
}

}  // namespace tilewave::sim
