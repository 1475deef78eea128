// SPDX-License-Identifier: MIT
// tilewave-sim DIR: execute a repro bundle's AMD machine code on the CPU and compare with its expected outputs.
// tilewave-sim --decode FILE.co: list what in it the simulator does not know.
// Exit status: 0 all outputs inside the tolerance, 1 outside, 2 the bundle or the machine code is at fault.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <set>

#include "bundle.hpp"

namespace {

void print(const isa_sim::BundleReport& report) {
  for (const auto& launch : report.launches) {
    const auto& counts = launch.counts;
    std::printf("%s: %llu waves, %llu wave-instructions in %.2f s (%.2f M/s)\n ", launch.name.c_str(),
                static_cast<unsigned long long>(counts.waves), static_cast<unsigned long long>(counts.total()),
                launch.seconds, static_cast<double>(counts.total()) / launch.seconds * 1e-6);
    for (int i = 0; i < isa_sim::class_count; ++i)
      std::printf(" %s %llu", std::string(isa_sim::class_names[i]).c_str(),
                  static_cast<unsigned long long>(counts.instructions[i]));
    std::printf("\n  loaded bytes by bytes per lane:");
    for (const auto& [width, bytes] : counts.loaded)
      std::printf(" %d: %llu", width, static_cast<unsigned long long>(bytes));
    std::printf("; stored %llu; lds %llu; barriers %llu\n", static_cast<unsigned long long>(counts.stored),
                static_cast<unsigned long long>(counts.lds_bytes), static_cast<unsigned long long>(counts.barriers));
  }
  for (const auto& output : report.outputs)
    std::printf("%s: %llu of %llu elements and %llu rows outside, max_abs_err %.3g, max_row_err %.3g%s%s\n",
                output.file.c_str(), static_cast<unsigned long long>(output.outside),
                static_cast<unsigned long long>(output.elements), static_cast<unsigned long long>(output.rows_outside),
                output.max_abs_err, output.max_row_err, output.first.empty() ? "" : "; ", output.first.c_str());
}

/// Instructions of a code object that would stop a run, each once. Exit status 1 if there are any.
int list_unknown(const std::string& path, const std::string& objdump) {
  const isa_sim::CodeObject object = isa_sim::load_code_object(path, objdump);
  std::set<std::string> unknown;
  for (const isa_sim::Op& op : object.program.ops)
    if (op.undecodable) unknown.insert(op.text);
  for (const std::string& text : unknown) std::printf("%s\n", text.c_str());
  std::printf("%s: %zu instructions, %zu not simulated\n", path.c_str(), object.program.ops.size(), unknown.size());
  return unknown.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Executes the AMD machine code of a repro bundle and compares the outputs.");
  std::string directory;
  isa_sim::BundleOptions options{.objdump = "llvm-objdump-22", .write_outputs = {}, .machine = {.threads = 2}};
  bool as_json = false, only_decode = false;
  app.add_option("bundle", directory, "directory with bundle.json, or with --decode a code object")->required();
  app.add_flag("--decode", only_decode, "run nothing: list the instructions of a code object that are not simulated");
  app.add_flag("--json", as_json, "print one JSON object instead of text");
  app.add_option("--objdump", options.objdump, "llvm-objdump to disassemble with")->capture_default_str();
  app.add_option("--threads", options.machine.threads, "blocks simulated at a time")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_flag("--reverse", options.machine.reverse, "run blocks, and waves between barriers, from last to first");
  app.add_option("--max-wave-instructions", options.machine.max_wave_instructions, "give a wave up after this many")
      ->capture_default_str();
  app.add_option("--write-outputs", options.write_outputs, "directory for what the kernels wrote");
  CLI11_PARSE(app, argc, argv);
  try {
    if (only_decode) return list_unknown(directory, options.objdump);
    const isa_sim::BundleReport report = isa_sim::run_bundle(directory, options);
    if (as_json)
      std::cout << report.to_json().dump(1) << "\n";
    else
      print(report);
    return report.pass() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "tilewave-sim: " << error.what() << "\n";
    return 2;
  }
}
