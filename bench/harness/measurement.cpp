// SPDX-License-Identifier: MIT
#include "bench/harness/measurement.hpp"

#include <cmath>
#include <exception>
#include <map>

#include "bench/harness/device_sheet.hpp"
#include "bench/harness/model_time.hpp"

namespace tilewave::bench {

namespace {

Device found_device(ArchId arch) {
  if (model_time.on) {
    const std::string chip = chip_modelled(arch);
    return {chip, facts_with(arch, sheet_named(chip))};
  }
#if TILEWAVE_ON_GPU_COMPILER
  int device = 0;
  char name[256] = "";
  check_hip(hipGetDevice(&device), "asking for the device");
  check_hip(hipDeviceGetName(name, sizeof(name), device), "asking for the device's name");
  return {name, facts_with(arch, sheet_of(name))};
#else
  return {arch == ArchId::gfx942 ? "MI300X" : arch == ArchId::gfx950 ? "MI350X" : "H200", facts_of(arch)};
#endif
}

}  // namespace

const Device& device_of(ArchId arch) {
  static std::map<ArchId, Device> devices;
  const auto found = devices.find(arch);
  return found != devices.end() ? found->second : devices.emplace(arch, found_device(arch)).first->second;
}

std::vector<std::pair<const char*, double>> Measurement::console() const {
  const double us = timing.main.own.cold.median;
  if (timing.modelled.known())
    return {{"err", 0},
            {"model_us", timing.modelled.us},
            {"model_clk", timing.modelled.clk},
            {"model_mhz", timing.modelled.mhz}};
  return {{"err", !ok},
          {"max_rel_err", max_rel_err},
          {"gbps", static_cast<double>(work.bytes) / us * 1e-3},
          {"roof_pct", ceilings.seconds(work) * 1e8 / us}};
}

Columns Measurement::columns() const {
  const double us = timing.main.own.cold.median, roof_us = ceilings.seconds(work) * 1e6;
  ColumnWriter visit;
  visit("ok", ok);
  visit("err", failed());
  visit("max_abs_err", max_abs_err);
  visit("max_rel_err", max_rel_err);
  visit("us", us);
  visit("us_min", timing.main.own.cold.min);
  visit("us_q1", timing.main.own.cold.q1);
  visit("us_q3", timing.main.own.cold.q3);
  visit("us_cold", us);
  visit("us_hot", timing.main.own.hot.median);
  visit("cv_pct", timing.main.own.cold.noise * 100);
  visit("samples", timing.main.own.cold.count);
  visit("gbps", static_cast<double>(work.bytes) / us * 1e-3);
  visit("tflops", static_cast<double>(work.flops) / us * 1e-6);
  visit("bytes_ideal", work.bytes);
  visit("flops", work.flops);
  visit("roof_us", roof_us);
  visit("roof_pct", roof_us / us * 100);
  visit("model_us", timing.modelled.us);
  visit("model_clk", timing.modelled.clk);
  visit("model_mhz", timing.modelled.mhz);
  visit("model_error_pct", timing.modelled.error * 100);
  visit("model_bound", timing.modelled.bound);
  visit("model_chip", timing.modelled.chip);
  visit("state", name_of(state == StateChoice::both ? StateChoice::rested : state));
  visit("sm_mhz", timing.main.own.sensors.sm_mhz);
  visit("power_w", timing.main.own.sensors.power_w);
  visit("peer", timing.peer);
  visit("peer_us", timing.main.peer.cold.median);
  visit("peer_ratio", timing.main.peer.cold.median / us);
  visit("peer_sm_mhz", timing.main.peer.sensors.sm_mhz);
  visit("peer_power_w", timing.main.peer.sensors.power_w);
  visit("peer_rel_err", peer_rel_err);
  visit("floor_us", timing.main.floor.median);
  visit("over_floor", us / timing.main.floor.median);
  const StateTiming& sustained = timing.sustained;
  visit("sustained_us", sustained.own.cold.median);
  visit("sustained_sm_mhz", sustained.own.sensors.sm_mhz);
  visit("sustained_power_w", sustained.own.sensors.power_w);
  visit("sustained_peer_us", sustained.peer.cold.median);
  visit("sustained_peer_ratio", sustained.peer.cold.median / sustained.own.cold.median);
  visit("sustained_peer_sm_mhz", sustained.peer.sensors.sm_mhz);
  visit("sustained_peer_power_w", sustained.peer.sensors.power_w);
  visit("sustained_floor_us", sustained.floor.median);
  return visit.columns;
}

Meter::Meter(const MeasureOptions& options, Log log) : options_(options), log_(std::move(log)) {}

Meter::~Meter() {
  if (has_stream_) (void)hipStreamDestroy(stream_);
}

void Meter::make_stream() {
  if (has_stream_) return;
  check_hip(hipStreamCreate(&stream_), "creating a stream");
  has_stream_ = true;
}

Measurement Meter::fill(ArchId arch, const std::function<void(Measurement&)>& body) {
  Measurement row;
  row.state = options_.state;
  try {
    make_stream();
    row.ceilings = ceilings(arch);
    body(row);
  } catch (const std::exception& error) {
    row.ok = false;
    log_(error.what());
  }
  return row;
}

bool Meter::run(ArchId arch, const std::function<Status(hipStream_t)>& launch, Timing& timing,
                std::span<const TwinBuffer* const> outputs, const Beside& beside) {
  make_stream();
  const auto on_stream = [&]() -> Status { return launch(stream_); };
  if (model_time.on) {
    if (!clock_) clock_ = model_clock(arch);
    timing.modelled = clock_->time(on_stream);
    return false;
  }
  if (bundle_request.on()) {
    export_launches(bundle_request, arch, on_stream, outputs);
    return true;
  }
  const Status status = emulated_device ? on_stream() : measure(arch, {"own", launch}, beside, timing);
  if (!status.ok()) {
    log_(std::string(name_of(status.code)) + ": " + status.reason);
    return false;
  }
  check_hip(hipStreamSynchronize(stream_), "running the kernels");
  return true;
}

Status Meter::measure(ArchId arch, const Side& own, const Beside& beside, Timing& timing) {
  constexpr std::size_t tries = 5;  // samples of each candidate, of which the fastest is then measured
  Sampler& sampler = this->sampler(arch);
  std::vector<Side> sides{own};
  const auto add_fastest = [&](std::vector<Side> candidates) {
    const std::size_t best = sampler.fastest(candidates, tries);
    if (best == candidates.size()) return false;
    sides.push_back(std::move(candidates[best]));
    return true;
  };
  const bool has_peer = !beside.peers.empty() && add_fastest(beside.peers);
  if (has_peer && beside.prepare_peer) beside.prepare_peer();
  std::optional<ReadFloor> floor;
  std::vector<Side> reads;
  if (beside.floor_bytes > 0) {
    floor.emplace(arch, beside.floor_bytes, stream_);
    for (std::size_t i = 0; i < floor->policies(); ++i)
      reads.push_back({"read", [&floor, i](hipStream_t stream) { return floor->launch(i, stream); }});
  }
  const bool has_floor = !reads.empty() && add_fastest(std::move(reads));

  const auto measure_in = [&](ChipState state, StateTiming& found) {
    std::vector<SideTiming> of_sides;
    if (const Status status = sampler.measure(sides, state, of_sides); !status.ok()) return status;
    found.own = of_sides.front();
    if (has_peer) found.peer = of_sides[1];
    if (has_floor) found.floor = of_sides.back().cold;
    return Status{};
  };
  if (has_peer) timing.peer = sides[1].name;
  if (options_.state != StateChoice::both) return measure_in(static_cast<ChipState>(options_.state), timing.main);
  const Status status = measure_in(ChipState::rested, timing.main);
  return status.ok() ? measure_in(ChipState::sustained, timing.sustained) : status;
}

const Ceilings& Meter::ceilings(ArchId arch) {
  if (!ceilings_) {
    const bool measure = !emulated_device && options_.measure_ceilings && !options_.ceiling_gbps;
    const Device& device = device_of(arch);
    ceilings_ = measure ? measured_ceilings(arch, stream_)
                        : Ceilings::all(options_.ceiling_gbps ? *options_.ceiling_gbps * 1e9
                                                              : device.facts.hbm_bytes_per_second);
    if (std::isnan(ceilings_->read))
      log_("no data sheet of " + device.name + " is known: --ceiling-gbps says its ceiling");
    const auto gbps = [](double bytes_per_second) { return std::to_string(bytes_per_second * 1e-9); };
    log_("ceilings in GB/s: read " + gbps(ceilings_->read) + ", copy " + gbps(ceilings_->copy) + ", write " +
         gbps(ceilings_->write) +
         (measure                 ? std::string(" (measured)")
          : options_.ceiling_gbps ? std::string(" (given)")
                                  : " (data sheet of " + device.name + ")"));
  }
  return *ceilings_;
}

Sampler& Meter::sampler(ArchId arch) {
  if (!sampler_) sampler_.emplace(facts_of(arch), StopRule{.max_seconds = options_.max_seconds}, stream_);
  return *sampler_;
}

}  // namespace tilewave::bench
