// SPDX-License-Identifier: MIT
#include "bench/harness/model_time.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/core/demangle.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

#include "sim/clock.hpp"
#include "sim/launch_file.hpp"
#include "sim/wave_trace.hpp"
#include "tilewave/arch/host/launch.hpp"

namespace tilewave::bench {
namespace {

namespace fs = std::filesystem;

std::string whole_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::uint64_t hash(std::uint64_t h, const std::string& text) {  // FNV-1a
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}
std::string hash_name(const std::string& text) { return isa_sim::hex(hash(0xcbf29ce484222325, text)).substr(2); }

/// Kernels of an AMD room by their types, compiled when they are first asked for. Code objects lie in the build folder by
/// what they were made of: the type, and every header it may include.
class Kernels {
 public:
  explicit Kernels(ArchId arch)
      : arch_(name_of(arch)), command_(std::string(TILEWAVE_MODEL_COMMAND) + (model_time.trace.empty() ? "" : " -g1")) {
    std::vector<fs::path> headers{TILEWAVE_MODEL_SOURCES "/bench/harness/traffic.hpp"};
    for (const auto& file : fs::recursive_directory_iterator(TILEWAVE_MODEL_SOURCES "/include"))
      if (file.path().extension() == ".hpp") headers.push_back(file.path());
    std::sort(headers.begin(), headers.end());
    std::string all = command_;
    for (const fs::path& header : headers) all += header.string() + whole_file(header);
    folder_ = fs::path(TILEWAVE_MODEL_CACHE) / (arch_ + "-" + hash_name(all));
    fs::create_directories(folder_);
  }

  /// `type` is a kernel of the emulated room.
  const isa_sim::CodeObject& object_of(const std::type_info& type) {
    const std::string name = for_chip(boost::core::demangle(type.name()));
    const auto known = objects_.find(name);
    if (known != objects_.end()) return known->second;
    const fs::path file = file_of(type);
    if (!fs::exists(file)) {
      const std::string kernel = "tilewave::" + arch_ + "::entry<" + name + ">(const typename " + name + "::Args)";
      compile(file, "template __global__ void " + kernel + ";\n",
              "-Xclang -fno-validate-pch -Xclang -include-pch -Xclang '" + headers().string() + "' -o ");
    }
    return objects_.emplace(name, isa_sim::load_code_object(file.string(), TILEWAVE_MODEL_OBJDUMP)).first->second;
  }
  fs::path file_of(const std::type_info& type) const {
    return folder_ / (hash_name(for_chip(boost::core::demangle(type.name()))) + ".co");
  }

 private:
  /// Debian's libstdc++ writes class-type template arguments as C++ does: nothing else is to be replaced.
  std::string for_chip(std::string type) const {
    const std::string backend = "tilewave::host::Backend<";
    for (std::size_t at; (at = type.find(backend)) != std::string::npos;)
      type.replace(at, type.find('>', at) + 1 - at, "tilewave::" + arch_ + "::Backend");
    return type;
  }

  fs::path headers() {
    const fs::path file = folder_ / "kernels.pch";
    if (!fs::exists(file)) {
      compile(file,
              "#include <tilewave/arch/" + arch_ + "/backend.hpp>\n#include <tilewave/tilewave.hpp>\n" +
                  "#include <bench/harness/traffic.hpp>\n",
              "-fsyntax-only -Xclang -emit-pch -Xclang -o -Xclang ");
    }
    return file;
  }

  /// Files have a name of this process first: others may be at the same ones.
  void compile(const fs::path& file, const std::string& text, const std::string& options) const {
    const std::string mine = file.string() + "." + std::to_string(getpid()), log = file.string() + ".log";
    const fs::path source = file.string() + ".hip";
    std::ofstream(mine) << text;
    fs::rename(mine, source);
    const std::string command = command_ + " --offload-arch=" + arch_ + " '" + source.string() + "' " + options + "'" +
                                mine + "' 2> '" + log + "'";
    if (std::system(command.c_str()) != 0 || !fs::exists(mine))
      throw std::runtime_error("the kernel does not compile for " + arch_ + ": see " + log);
    fs::rename(mine, file);
  }

  std::string arch_, command_;
  fs::path folder_;
  std::map<std::string, isa_sim::CodeObject> objects_;
};

/// Source lines into the code.json of a thread trace, from the code object's line table.
void add_source_lines(const fs::path& folder, const fs::path& object) {
  const fs::path file = folder / "code.json", places = folder / "addresses";
  nlohmann::json trace = nlohmann::json::parse(whole_file(file));
  std::ofstream addresses(places);
  for (const auto& row : trace["code"]) addresses << isa_sim::hex(row[5].get<std::uint64_t>()) << "\n";
  addresses.close();
  const std::string lines = folder / "lines";
  const std::string command = std::string(TILEWAVE_MODEL_ADDR2LINE) + " -e '" + object.string() + "' < '" +
                              places.string() + "' > '" + lines + "' 2> /dev/null";
  if (std::system(command.c_str()) != 0) throw std::runtime_error("no source lines: " + command);
  std::ifstream in(lines);
  const std::string root = TILEWAVE_MODEL_SOURCES "/";
  for (auto& row : trace["code"]) {
    std::string line;
    std::getline(in, line);
    if (line.starts_with(root)) row[3] = line.substr(root.size(), line.find(' ') - root.size());
  }
  std::ofstream(file) << trace.dump();
  fs::remove(places);
  fs::remove(lines);
}

class SimulatorClock final : public ModelClock, private host::LaunchWatcher {
 public:
  SimulatorClock(ArchId arch, const std::string& chip) : arch_(arch) {
    const bool gfx950 = arch == ArchId::gfx950;
    options_.instructions = model_time.instructions;
    options_.chip = isa_sim::chip_named(chip, gfx950 ? isa_sim::Arch::gfx950 : isa_sim::Arch::gfx942).name;
  }

  ModelledTime time(const std::function<Status()>& call) override {
    total_ = {.us = 0, .error = 0, .bound = "none", .chip = options_.chip};
    longest_ = 0;
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
    if (!kernels_) kernels_.emplace(arch_);  // reads all headers
    const isa_sim::CodeObject& object = kernels_->object_of(seen.kernel);
    if (object.kernels.size() != 1) throw std::runtime_error("a code object of one kernel has several");
    isa_sim::Launch launch{.symbol = object.kernels.begin()->first,
                           .grid_blocks = {static_cast<std::uint32_t>(seen.shape.grid), 1, 1},
                           .block = {static_cast<std::uint32_t>(seen.shape.block), 1, 1},
                           .dynamic_lds_bytes = 0,
                           .kernarg = {}};
    launch.kernarg = isa_sim::hidden_arguments(object, launch);
    for (const isa_sim::KernelArgument& argument : object.arguments.at(launch.symbol)) {
      if (argument.kind.starts_with("hidden_")) continue;
      if (argument.bytes != seen.args_bytes) throw std::runtime_error("the chip's kernel takes other arguments");
      std::copy_n(static_cast<const std::uint8_t*>(seen.args), seen.args_bytes,
                  launch.kernarg.begin() + static_cast<std::ptrdiff_t>(argument.offset));
    }
    isa_sim::Memory memory;
    host::detail::Allocations& all = host::detail::allocations();
    const std::lock_guard lock(all.mutex);
    for (const auto& [pointer, pages] : all.pages) {
      auto* const first = static_cast<std::uint8_t*>(pointer);
      memory.map_in_place("a tensor", first, static_cast<std::uint64_t>((std::uint8_t*)pages.end() - first), true);
    }
    isa_sim::WaveTrace trace;
    const isa_sim::ClockReport report =
        isa_sim::time_launch(object, launch, memory, options_, model_time.trace.empty() ? nullptr : &trace);
    if (!model_time.trace.empty()) write_trace(object, launch, report, trace, kernels_->file_of(seen.kernel));
    // The share of the error in the sum.
    total_.error = (total_.error * total_.us + report.spread * report.us) / (total_.us + report.us);
    total_.us += report.us;
    if (report.us > longest_) longest_ = report.us, total_.bound = report.bound;
  }

  /// The launch as rocprofv3 tells of one, in a folder of its own; all say that nothing was measured.
  void write_trace(const isa_sim::CodeObject& object, const isa_sim::Launch& launch, const isa_sim::ClockReport& report,
                   const isa_sim::WaveTrace& trace, const fs::path& file) {
    const fs::path root = model_time.trace, folder = root / ("launch-" + std::to_string(++launches_));
    isa_sim::write_thread_trace(folder.string(), trace,
                                {object, launch.symbol, report.chip, report.cycles, report.mhz});
    add_source_lines(folder, file);
    std::ofstream out(root / "model_kernel_trace.csv", launches_ == 1 ? std::ios::trunc : std::ios::app);
    if (launches_ == 1) {
      out << "Kind,Kernel_Name,Start_Timestamp,End_Timestamp,VGPR_Count,Accum_VGPR_Count,LDS_Block_Size,"
             "Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z\n";
    }
    const isa_sim::KernelDescriptor& kernel = object.kernels.at(launch.symbol);
    const auto ns = static_cast<std::int64_t>(report.us * 1000);
    out << "KERNEL_DISPATCH,\"" << launch.symbol.substr(0, launch.symbol.size() - 3) << " (modelled on " << report.chip
        << ", not measured)\"," << now_ns_ << "," << now_ns_ + ns << "," << kernel.vgprs << "," << kernel.agprs << ","
        << kernel.lds_bytes << "," << launch.block[0] << ",1,1," << launch.grid_blocks[0] * launch.block[0] << ",1,1\n";
    now_ns_ += ns;
    if (!out.flush()) throw std::runtime_error("cannot write " + root.string());
  }

  ArchId arch_;
  int launches_ = 0;
  std::int64_t now_ns_ = 0;
  std::optional<Kernels> kernels_;
  isa_sim::ClockOptions options_;
  ModelledTime total_;
  double longest_ = 0;
  std::string reason_;
};

std::unique_ptr<ModelClock> make(ArchId arch, const std::string& chip) {
  if (arch == ArchId::sm90) throw std::invalid_argument("--model-time models gfx942 and gfx950");
  try {
    return std::make_unique<SimulatorClock>(arch, chip);
  } catch (const isa_sim::Error& error) {
    throw std::invalid_argument(std::string("--model-chip: ") + error.what());
  }
}

const bool registered = (make_model_clock = make, true);

}  // namespace
}  // namespace tilewave::bench
