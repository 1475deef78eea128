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
  const double us = timing.cold.median;
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
  const double us = timing.cold.median, roof_us = ceilings.seconds(work) * 1e6;
  ColumnWriter visit;
  visit("ok", ok);
  visit("err", failed());
  visit("max_abs_err", max_abs_err);
  visit("max_rel_err", max_rel_err);
  visit("us", us);
  visit("us_min", timing.cold.min);
  visit("us_q1", timing.cold.q1);
  visit("us_q3", timing.cold.q3);
  visit("us_cold", us);
  visit("us_hot", timing.hot.median);
  visit("cv_pct", timing.cold.noise * 100);
  visit("samples", timing.cold.count);
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
                std::span<const TwinBuffer* const> outputs) {
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
  const Status status = emulated_device ? on_stream() : sampler(arch).measure(on_stream, timing);
  if (!status.ok()) {
    log_(std::string(name_of(status.code)) + ": " + status.reason);
    return false;
  }
  check_hip(hipStreamSynchronize(stream_), "running the kernels");
  return true;
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
