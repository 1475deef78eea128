// SPDX-License-Identifier: MIT
#include "bench/harness/model_time.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "bench/harness/chip_kernels.hpp"
#include "sim/clock/clock.hpp"
#include "sim/trace/wave_trace.hpp"

namespace tilewave::bench {
namespace {

namespace fs = std::filesystem;

/// Adds source lines to the code.json of a thread trace, from the code object's line table.
void add_source_lines(const fs::path& folder, const fs::path& object) {
  const fs::path file = folder / "code.json", address_list = folder / "addresses";
  nlohmann::json trace = nlohmann::json::parse(std::ifstream(file));
  std::ofstream addresses(address_list);
  for (const auto& row : trace["code"]) addresses << tilewave::sim::hex(row[5].get<std::uint64_t>()) << "\n";
  addresses.close();
  const std::string lines = folder / "lines";
  const std::string command = std::string(TILEWAVE_MODEL_ADDR2LINE) + " -e '" + object.string() + "' < '" +
                              address_list.string() + "' > '" + lines + "' 2> /dev/null";
  if (std::system(command.c_str()) != 0) throw std::runtime_error("no source lines: " + command);
  std::ifstream in(lines);
  const std::string root = TILEWAVE_MODEL_SOURCES "/";
  for (auto& row : trace["code"]) {
    std::string line;
    std::getline(in, line);
    if (line.starts_with(root)) row[3] = line.substr(root.size(), line.find(' ') - root.size());
  }
  std::ofstream(file) << trace.dump();
  fs::remove(address_list);
  fs::remove(lines);
}

using Bytes = std::span<std::uint8_t>;

/// Returns all tensors: first those that arguments point to, in their order, then the others by size. Their addresses
/// differ from run to run, and modelled caches see them in this order.
std::vector<Bytes> in_order(const host::detail::Allocations& all, const std::vector<std::uint8_t>& arguments) {
  using Key = std::pair<std::size_t, std::size_t>;  // index of the argument, bytes
  std::vector<std::pair<Key, Bytes>> keyed;
  for (const auto& [pointer, pages] : all.pages) {
    auto* const first = static_cast<std::uint8_t*>(pointer);
    const Bytes tensor(first, reinterpret_cast<std::uint8_t*>(pages.end()));
    std::size_t at = 0;
    for (std::uint64_t word; at + 8 <= arguments.size(); at += 8) {
      std::memcpy(&word, arguments.data() + at, 8);
      if (word - reinterpret_cast<std::uint64_t>(first) < tensor.size()) break;
    }
    keyed.push_back({{at, tensor.size()}, tensor});
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Bytes> tensors;
  for (const auto& [key, tensor] : keyed) tensors.push_back(tensor);
  return tensors;
}

class SimulatorClock final : public ModelClock, private host::LaunchWatcher {
 public:
  SimulatorClock(ArchId arch, const std::string& chip) : arch_(arch) {
    const bool gfx950 = arch == ArchId::gfx950;
    options_.instructions = model_time.instructions;
    options_.chip =
        tilewave::sim::chip_named(chip, gfx950 ? tilewave::sim::Arch::gfx950 : tilewave::sim::Arch::gfx942).name;
  }

  ModelledTime time(const std::function<Status()>& call) override {
    total_ = {.us = 0, .error = 0, .clk = 0, .bound = "none", .chip = options_.chip};
    longest_ = busy_us_ = 0;
    watching = this;
    const Status status = call();
    watching = nullptr;
    if (!status.ok()) throw std::runtime_error(std::string(name_of(status.code)) + ": " + status.reason);
    if (!total_.known()) throw std::runtime_error("the call launched nothing that takes time");
    return total_;
  }

 private:
  Status launched(const host::SeenLaunch& seen) override {
    try {
      time(seen);
      return {};
    } catch (const std::exception& error) {
      reason_ = error.what();
      return {StatusCode::launch_failed, reason_.c_str()};
    }
  }

  void time(const host::SeenLaunch& seen) {
    if (!kernels_) kernels_.emplace(arch_, model_time.trace.empty() ? "" : "-g1");  // this reads all headers
    const tilewave::sim::CodeObject& object = kernels_->object_of(seen.kernel);
    const tilewave::sim::Launch launch = chip_launch(object, seen);
    tilewave::sim::Memory memory;
    host::detail::Allocations& all = host::detail::allocations();
    const std::lock_guard lock(all.mutex);
    for (const auto& tensor : in_order(all, launch.kernarg))
      memory.map_in_place("a tensor", tensor.data(), tensor.size(), true);
    tilewave::sim::WaveTrace trace;
    const tilewave::sim::ClockReport report =
        tilewave::sim::time_launch(object, launch, memory, options_, model_time.trace.empty() ? nullptr : &trace);
    if (!model_time.trace.empty()) write_trace(object, launch, report, trace, kernels_->file_of(seen.kernel));
    // The error is weighted by the time of each launch.
    total_.error = (total_.error * total_.us + report.spread * report.us) / (total_.us + report.us);
    total_.us += report.us;
    total_.clk += report.cycles;
    busy_us_ += report.us - report.launch_us;
    total_.mhz = total_.clk / busy_us_;
    if (report.us > longest_) longest_ = report.us, total_.bound = report.bound;
  }

  /// Writes the launch as rocprofv3 would, in a folder of its own. Every file says that nothing was measured.
  void write_trace(const tilewave::sim::CodeObject& object, const tilewave::sim::Launch& launch,
                   const tilewave::sim::ClockReport& report, const tilewave::sim::WaveTrace& trace,
                   const fs::path& file) {
    const fs::path root = model_time.trace, folder = root / ("launch-" + std::to_string(++launches_));
    tilewave::sim::write_thread_trace(folder.string(), trace,
                                      {object, launch.symbol, report.chip, report.cycles, report.mhz});
    add_source_lines(folder, file);
    std::ofstream out(root / "model_kernel_trace.csv", launches_ == 1 ? std::ios::trunc : std::ios::app);
    if (launches_ == 1) {
      out << "Kind,Kernel_Name,Start_Timestamp,End_Timestamp,VGPR_Count,Accum_VGPR_Count,LDS_Block_Size,"
             "Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z,model_clk,model_mhz\n";
    }
    const tilewave::sim::KernelDescriptor& kernel = object.kernels.at(launch.symbol);
    const auto ns = static_cast<std::int64_t>(report.us * 1000);
    out << "KERNEL_DISPATCH,\"" << launch.symbol.substr(0, launch.symbol.size() - 3) << " (modelled on " << report.chip
        << ", not measured)\"," << now_ns_ << "," << now_ns_ + ns << "," << kernel.vgprs << "," << kernel.agprs << ","
        << kernel.lds_bytes << "," << launch.block[0] << ",1,1," << launch.grid_blocks[0] * launch.block[0] << ",1,1,"
        << std::llround(report.cycles) << "," << std::llround(report.mhz) << "\n";
    now_ns_ += ns;
    if (!out.flush()) throw std::runtime_error("cannot write " + root.string());
  }

  ArchId arch_;
  int launches_ = 0;
  std::int64_t now_ns_ = 0;
  std::optional<ChipKernels> kernels_;
  tilewave::sim::ClockOptions options_;
  ModelledTime total_;
  double longest_ = 0, busy_us_ = 0;
  std::string reason_;
};

std::unique_ptr<ModelClock> make(ArchId arch, const std::string& chip) {
  if (arch == ArchId::sm90) throw std::invalid_argument("--model-time models gfx942 and gfx950");
  try {
    return std::make_unique<SimulatorClock>(arch, chip);
  } catch (const tilewave::sim::Error& error) {
    throw std::invalid_argument(std::string("--model-chip: ") + error.what());
  }
}

const bool clock_registered = (make_model_clock = make, true);

}  // namespace
}  // namespace tilewave::bench
