// SPDX-License-Identifier: MIT
// tilewave-sim DIR: execute a repro bundle's AMD machine code on the CPU and compare with its expected outputs.
// tilewave-sim --launch FILE.json, or --kernel NAME FILE: execute any kernel of a code object, fat binary or executable.
// tilewave-sim --decode FILE: list what in it the simulator does not know. --list FILE: its kernels and their arguments.
// --hazards FILE: instructions in it that come too close, for want of s_nop.
// Exit status: 0 all outputs inside the tolerance, 1 outside, 2 the bundle or the machine code is at fault.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "../tilewave/common/write_file.hpp"
#include "sim/clock/clock.hpp"
#include "sim/machine/hazards.hpp"
#include "sim/programs/bundle.hpp"
#include "sim/programs/json_values.hpp"
#include "sim/programs/launch_file.hpp"
#include "sim/trace/wave_trace.hpp"

namespace {

using tilewave::sim::Counts;

unsigned long long number(std::uint64_t x) { return x; }

void print(const std::string& name, const Counts& counts, double seconds) {
  std::printf("%s: %llu waves, %llu wave-instructions in %.2f s (%.2f M/s)\n ", name.c_str(), number(counts.waves),
              number(counts.total()), seconds, static_cast<double>(counts.total()) / seconds * 1e-6);
  for (int i = 0; i < tilewave::sim::class_count; ++i)
    std::printf(" %s %llu", std::string(tilewave::sim::class_names[i]).c_str(), number(counts.instructions[i]));
  std::printf("\n  loaded bytes by bytes per lane:");
  for (const auto& [width, bytes] : counts.loaded) std::printf(" %d: %llu", width, number(bytes));
  std::printf("; stored %llu; lds %llu; barriers %llu\n", number(counts.stored), number(counts.lds_bytes),
              number(counts.barriers));
}

void print(const tilewave::sim::BundleReport& report) {
  for (const auto& launch : report.launches) print(launch.name, launch.counts, launch.seconds);
  for (const auto& output : report.outputs)
    std::printf("%s: %llu of %llu elements and %llu rows outside, max_abs_err %.3g, max_row_err %.3g%s%s\n",
                output.file.c_str(), number(output.outside), number(output.elements), number(output.rows_outside),
                output.max_abs_err, output.max_row_err, output.first.empty() ? "" : "; ", output.first.c_str());
}

/// Instructions of a code object that would stop a run, each once. Exit status 1 if there are any.
int list_unknown(const std::string& path, const std::string& objdump) {
  const tilewave::sim::CodeObject object = tilewave::sim::load_any_object(path, "", objdump);
  std::set<std::string> unknown;
  for (const tilewave::sim::Op& op : object.program.ops)
    if (op.undecodable) unknown.insert(op.text);
  for (const std::string& text : unknown) std::printf("%s\n", text.c_str());
  std::printf("%s: %zu instructions, %zu not simulated\n", path.c_str(), object.program.ops.size(), unknown.size());
  return unknown.empty() ? 0 : 1;
}

/// Exit status 1 if there are any.
int list_hazards(const std::string& path, const std::string& arch, const std::string& objdump) {
  const tilewave::sim::CodeObject object = tilewave::sim::load_any_object(path, arch, objdump);
  for (const tilewave::sim::Hazard& hazard : object.hazards)
    std::printf("%s\n", tilewave::sim::text_of(hazard, object).c_str());
  std::printf("%s: %zu instructions, %zu hazards\n", path.c_str(), object.program.ops.size(), object.hazards.size());
  return object.hazards.empty() ? 0 : 1;
}

struct Command {
  std::string path, launch_file, kernel, arch;
  std::vector<std::uint32_t> grid{1}, block{64};
  std::uint32_t dynamic_lds = 0;
  std::vector<std::string> arguments;
  bool as_json = false, time = false;
  std::string trace, timeline, annotate;  // files that --time writes
  int top = 20;
  tilewave::sim::ClockOptions clock;
  tilewave::sim::BundleOptions options{.objdump = "llvm-objdump-22", .write_outputs = {}, .machine = {.threads = 2}};
};

void write_text(const std::string& path, const std::string& text) {
  const std::string why = tilewave::tool::write_whole_file(path, text);
  if (!why.empty()) throw tilewave::sim::Error("cannot write " + path + ": " + why);
}

int run_any(const Command& c) {
  nlohmann::json description;
  std::string directory = ".";
  if (!c.launch_file.empty()) {
    std::ifstream in(c.launch_file);
    if (!in || std::filesystem::is_directory(c.launch_file)) throw tilewave::sim::Error("cannot read " + c.launch_file);
    description = tilewave::sim::parse_json({std::istreambuf_iterator<char>(in), {}}, c.launch_file);
    directory = std::filesystem::path(c.launch_file).parent_path().string();
    if (!description.is_object()) throw tilewave::sim::Error(c.launch_file + " is no JSON object");
    if (!c.path.empty()) description["file"] = std::filesystem::absolute(c.path).string();
  } else {
    description = {{"file", c.path},
                   {"kernel", c.kernel},
                   {"arch", c.arch},
                   {"grid", c.grid},
                   {"block", c.block},
                   {"dynamic_lds", c.dynamic_lds},
                   {"args", nlohmann::json::array()}};
    for (const std::string& text : c.arguments) description["args"].push_back(tilewave::sim::argument_from_text(text));
  }
  tilewave::sim::FileLaunch run =
      tilewave::sim::read_launch(description, directory.empty() ? "." : directory, c.options.objdump);
  if (c.time) {
    tilewave::sim::WaveTrace trace;
    const tilewave::sim::ClockReport report =
        tilewave::sim::time_launch(run.object, run.launch, run.memory, c.clock, &trace);
    const tilewave::sim::TraceOrigin origin{run.object, run.launch.symbol, report.chip, report.cycles, report.mhz};
    if (!c.trace.empty()) tilewave::sim::write_thread_trace(c.trace, trace, origin);
    if (!c.timeline.empty()) write_text(c.timeline, tilewave::sim::timeline_svg(trace, origin));
    if (!c.annotate.empty()) write_text(c.annotate, report.annotated(run.object, run.launch.symbol));
    if (c.as_json)
      std::cout << report.to_json(run.object).dump(1) << "\n";
    else
      std::cout << report.to_text(run.object, c.top);
    return 0;
  }
  const auto start = std::chrono::steady_clock::now();
  const Counts counts = tilewave::sim::run_launch(run.object, run.launch, run.memory, c.options.machine);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  nlohmann::ordered_json out{{"kernel", run.launch.symbol.substr(0, run.launch.symbol.size() - 3)},
                             {"counts", tilewave::sim::to_json(counts)},
                             {"seconds", seconds}};
  if (!c.as_json) print(out["kernel"], counts, seconds);
  for (std::size_t i = 0; i < run.buffers.size(); ++i) {
    const auto& [name, pages] = run.buffers[i];
    const std::string hash = tilewave::sim::hex(run.hash(i));
    if (!c.as_json) std::printf("%s: %zu bytes, hash %s\n", name.c_str(), pages->size(), hash.c_str());
    out["buffers"].push_back({{"name", name}, {"bytes", pages->size()}, {"hash", hash}});
    if (c.options.write_outputs.empty()) continue;
    std::filesystem::create_directories(c.options.write_outputs);
    run.write(i, c.options.write_outputs + "/" + name);
  }
  if (c.as_json) std::cout << out.dump(1) << "\n";
  return 0;
}

/// CLI::Range takes what is no number for one in range.
std::string frequency(const std::string& text) {
  double mhz = 0;
  const bool is = CLI::detail::lexical_cast(text, mhz) && mhz >= 1 && mhz <= 1e5;
  return is ? "" : "no clock in MHz between 1 and 100000: " + text;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Executes AMD machine code on the CPU: repro bundles, or any kernel of a file.");
  Command c;
  auto& machine = c.options.machine;
  bool only_decode = false, only_list = false, only_hazards = false;
  app.add_option("path", c.path, "a repro bundle, or with another mode a code object, fat binary or executable");
  app.add_flag("--decode", only_decode, "run nothing: list the instructions of the file that are not simulated");
  app.add_flag("--hazards", only_hazards, "run nothing: list instructions of the file that need s_nop between them");
  app.add_flag("--list", only_list, "run nothing: list the kernels of the file and their arguments");
  app.add_option("--launch", c.launch_file, "JSON with file, kernel, grid, block, dynamic_lds, buffers, args");
  auto* kernel = app.add_option("--kernel", c.kernel, "run this kernel of the file");
  app.add_option("--arch", c.arch, "gfx942 or gfx950, of a file with code for both");
  app.add_option("--grid", c.grid, "blocks, one to three numbers")->delimiter(',')->needs(kernel);
  app.add_option("--block", c.block, "work-items, one to three numbers")->delimiter(',')->needs(kernel);
  app.add_option("--lds", c.dynamic_lds, "bytes of LDS beyond the kernel's own")->needs(kernel);
  app.add_option("--arg", c.arguments,
                 "in order: 7, 1.5, f32:1, buffer:BYTES[:FILL], hex:00ff; or NAME=..., @OFFSET=...")
      ->needs(kernel);
  auto* time =
      app.add_flag("--time", c.time, "model the launch's time instead of executing it whole (docs/reference/clock.md)");
  app.add_option("--chip", c.clock.chip, "MI300X, MI300A, MI308X, MI325X, MI350X or MI355X")->needs(time);
  app.add_option("--mhz", c.clock.mhz, "a clock held by other means")->check(frequency)->needs(time);
  app.add_flag("--warm", c.clock.warm, "inputs lie in the last-level cache")->needs(time);
  app.add_option("--timed-instructions", c.clock.instructions, "wave instructions to time before extrapolating")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1000}, std::uint64_t{1} << 40))
      ->needs(time);
  app.add_option("--trace", c.trace, "folder for thread-trace files, as rocprofv3 decodes them, of some waves")
      ->needs(time);
  app.add_option("--timeline", c.timeline, "file for a picture of the same waves, SVG")->needs(time);
  app.add_option("--annotate", c.annotate, "file for the kernel's disassembly with hits, issue and stall clk")
      ->needs(time);
  app.add_option("--top", c.top, "instructions listed")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30))
      ->needs(time);
  app.add_flag("--json", c.as_json, "print one JSON object instead of text");
  app.add_option("--objdump", c.options.objdump, "llvm-objdump to disassemble with")->capture_default_str();
  app.add_option("--threads", machine.threads, "blocks simulated at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_flag("--reverse", machine.reverse, "run blocks, and waves between barriers, from last to first");
  app.add_flag("!--no-lds-races", machine.races,
               "report no LDS races: for waves that locks or flags order, not barriers");
  app.add_option("--max-wave-instructions", machine.max_wave_instructions, "give a wave up after this many")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 60));
  app.add_option("--write-outputs", c.options.write_outputs, "directory for what the kernels wrote");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return std::string("tilewave-sim: ") + error.what() + " (--help lists the options)\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) ? 2 : 0;
  }
  try {
    if (c.path.empty() && c.launch_file.empty()) throw tilewave::sim::Error("nothing to run: give a path or --launch");
    if (only_decode) return list_unknown(c.path, c.options.objdump);
    if (only_hazards) return list_hazards(c.path, c.arch, c.options.objdump);
    if (only_list) {
      std::cout << tilewave::sim::list_kernels(tilewave::sim::load_any_object(c.path, c.arch, c.options.objdump));
      return 0;
    }
    if (!c.launch_file.empty() || !c.kernel.empty()) return run_any(c);
    if (std::filesystem::is_regular_file(c.path))
      throw tilewave::sim::Error(c.path + " is no repro bundle: give --kernel, or --list for what it holds");
    const tilewave::sim::BundleReport report = tilewave::sim::run_bundle(c.path, c.options);
    if (c.as_json)
      std::cout << report.to_json().dump(1) << "\n";
    else
      print(report);
    return report.pass() ? 0 : 1;
  } catch (const std::exception& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');  // of a name in a document
    std::cerr << "tilewave-sim: " << text << "\n";
    return 2;
  }
}
