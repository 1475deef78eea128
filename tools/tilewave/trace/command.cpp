// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/diff.hpp"
#include "tools/tilewave/trace/library.hpp"
#include "tools/tilewave/trace/profile.hpp"

namespace tilewave::tool {

namespace {

struct Options {
  std::string folder, next, arch, out, title = "Profile", benches, config, note, kernel = ".*", what = "times",
                                       profiler = "rocprofv3", hardware;
  std::vector<std::string> command, counters{"SQ_INSTS_VALU", "SQ_INSTS_MFMA", "SQ_INSTS_VMEM", "SQ_WAVES"};
  int top = 15;
  std::string library_profiler = "model", model_arch = "gfx950";
  bool json = false, captures = false;
};

int report(const Options& o) {
  const Profile profile = read_profile(o.folder);
  std::vector<Chip> chips;
  const Chip* chip = nullptr;
  if (!o.arch.empty()) chips = all_chips(o.hardware), chip = &chip_of(chips, o.arch);
  const auto top = static_cast<std::size_t>(o.top);
  const std::string text = o.json ? report_json(profile, chip, top) : report_md(profile, chip, o.title, top);
  if (o.out.empty()) {
    fmt::print("{}", text);
  } else {
    write_atomically(o.out, text);
  }
  return 0;
}

int diff(const Options& o) {
  const Profile base = read_profile(o.folder), next = read_profile(o.next);
  std::vector<Chip> chips;
  const Chip* chip = nullptr;
  if (!o.arch.empty()) chips = all_chips(o.hardware), chip = &chip_of(chips, o.arch);
  const ProfileDiff changes = diff_of(base, next, chip);
  const auto top = static_cast<std::size_t>(o.top);
  const std::string text = o.json ? diff_json(changes, top) : diff_md(changes, o.folder, o.next, top);
  if (o.out.empty()) {
    fmt::print("{}", text);
  } else {
    write_atomically(o.out, text);
  }
  return 0;
}

int library(const Options& o) {
  std::vector<Chip> chips;
  const Chip* chip = nullptr;
  if (!o.arch.empty()) chips = all_chips(o.hardware), chip = &chip_of(chips, o.arch);
  LibraryOptions options;
  options.from = o.folder, options.out = o.out;
  options.capture = o.captures, options.top = static_cast<std::size_t>(o.top);
  options.benches = o.benches, options.note = o.note;
  if (!o.config.empty()) options.configs = {o.config};
  options.arch = o.model_arch;
  options.profiler = o.library_profiler;
  const std::string configs = join(options.configs, ", ");
  std::vector<std::string> left_out;
  const auto print_json = [&](const Json& index, const Json& ops) {
    fmt::print("{}", dump({{"schema", "tilewave.trace_library/1"},
                           {"index", index},
                           {"config", configs},
                           {"left_out", left_out},
                           {"ops", ops}}));
  };
  if (!o.benches.empty()) {
    left_out = prepare_library(options);
    if (!left_out.empty() && !o.json) fmt::print("no row of {}: {}\n", configs, join(left_out, ", "));
    if (options.profiler != "model" && !o.captures) {
      if (o.json) {
        print_json(nullptr, Json::array());  // nothing is ranked yet
      } else {
        fmt::print("{}/*/capture.sh: run them on the GPU, or add --capture\n", o.folder);
      }
      return 0;
    }
  }
  const std::vector<LibraryPage> pages = write_library(options, chip);
  if (o.json) {
    print_json(o.out + "/README.md", library_json(pages));
  } else {
    fmt::print("{} ops: {}/README.md\n", pages.size(), o.out);
  }
  return 0;
}

/// A word for /bin/sh, as it is where it may be.
std::string quoted(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-=./,:+") ==
          std::string::npos)
    return word;
  return shell_word(word);
}

std::string yaml_quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out + "\"";
}

std::string att_input(const Options& o) {
  return fmt::format(
      "jobs:\n  - kernel_include_regex: {}\n    kernel_iteration_range: \"[2]\"\n    output_file: att\n    output_directory: {}\n    output_format: [json, csv]\n"
      "    truncate_kernels: false\n    sys_trace: true\n    advanced_thread_trace: true\n    att_target_cu: 1\n    att_shader_engine_mask: \"0xf\"\n"
      "    att_simd_select: \"0xf\"\n    att_buffer_size: \"0x6000000\"\n",
      yaml_quoted(o.kernel), yaml_quoted(o.folder));
}

int capture(const Options& o) {
  std::vector<std::string> words;
  for (const std::string& word : o.command) words.push_back(quoted(word));
  const std::string command = join(words, " "), folder = quoted(o.folder);
  std::string line;
  if (o.profiler == "ncu") {
    line =
        o.what == "times"
            // By default a kernel's name is its function's, which all of ours share.
            ? fmt::format(
                  "ncu --csv --kernel-name-base demangled --kernel-name {} --metrics gpu__time_duration.sum {} >{}/out_ncu.csv",
                  quoted("regex:" + o.kernel), command, folder)
            : std::string(trim(ncu_script(o.kernel, "", command, folder)));
  } else if (o.what == "times") {
    line = fmt::format("rocprofv3 --kernel-trace --stats -f csv -d {} -o out -- {}", folder, command);
  } else if (o.what == "counters") {
    // Several passes in one run have hung gfx942, so each run counts four, and never with a thread trace.
    constexpr std::size_t most = 4;
    for (std::size_t at = 0; at < o.counters.size(); at += most) {
      const std::vector<std::string> some(o.counters.begin() + at,
                                          o.counters.begin() + std::min(at + most, o.counters.size()));
      const std::string in =
          o.counters.size() <= most ? folder : quoted(o.folder + fmt::format("/pmc_{}", at / most + 1));
      line += fmt::format("{}rocprofv3 --pmc {} --kernel-include-regex {} -f csv -d {} -o out -- {}",
                          at > 0 ? "\n" : "", join(some, " "), quoted(o.kernel), in, command);
    }
  } else {
    write_atomically(std::filesystem::path(o.folder) / "att.yaml", att_input(o));
    line = fmt::format("rocprofv3 -i {}/att.yaml -- {}", folder, command);
  }
  write_atomically(
      std::filesystem::path(o.folder) / "capture.sh",
      fmt::format("#!/bin/sh\n# Needs the GPU to itself: tilewave gpu wait -- sh capture.sh\nset -e\n{}\n", line));
  fmt::print("{}\n", line);
  return 0;
}

}  // namespace

void add_trace(Command& tilewave) {
  auto o = std::make_shared<Options>();
  Command trace =
      tilewave.add("trace", "what rocprofv3 or ncu recorded: times, occupancy, hot spots, hints; and how to record it");
  trace.needs_subcommand();
  trace.example("  tilewave trace report DIR --arch gfx950 --out REPORT.md");
  Command show = trace.add("report", "REPORT.md of all that a folder holds");
  show.option(
          "FOLDER", o->folder,
          "with *kernel_trace.csv, *kernel_stats.csv, *counter_collection.csv, *results.json, *results.db, *ncu.csv, thread traces "
          "(code.json), at any depth")
      .required();
  show.option("--arch", o->arch, "chip or architecture, for occupancy");
  show.option("--out", o->out, "file instead of stdout");
  show.option("--title", o->title, "of the report");
  show.option("--top", o->top, "rows of each table (default: 15)").range(1, 10000);
  show.option("--hardware", o->hardware, "folder to read instead of the docs/reference/hardware this was built with");
  show.flag("--json", o->json, "the report as JSON");
  show.example("  tilewave trace report profiles/pa --arch MI350X --out profiles/pa/REPORT.md");
  show.run([o] { return report(*o); });
  Command changes = trace.add("diff", "what changed between two captures: by kernel, by counter and by instruction");
  changes.option("BASE", o->folder, "folder of the first capture, as for report").required();
  changes.option("NEW", o->next, "folder of the second").required();
  changes.option("--arch", o->arch, "chip or architecture, for occupancy");
  changes.option("--out", o->out, "file instead of stdout");
  changes.option("--top", o->top, "rows of each table (default: 15)").range(1, 10000);
  changes.option("--hardware", o->hardware,
                 "folder to read instead of the docs/reference/hardware this was built with");
  changes.flag("--json", o->json, "the changes as JSON");
  changes.example("  tilewave trace diff profiles/before profiles/after --arch MI350X");
  changes.run([o] { return diff(*o); });
  Command all = trace.add("library", "a report for every op of a folder, and a page that ranks them by headroom");
  all.option("FOLDER", o->folder, "a folder for each op: what `trace report` takes, and its bench.csv and capture.sh")
      .required();
  all.option("--out", o->out, "folder for README.md and OP/REPORT.md").required();
  all.option("--arch", o->arch, "chip or architecture, for occupancy");
  all.option("--top", o->top, "rows of each table (default: 15)").range(1, 10000);
  all.option("--hardware", o->hardware, "folder to read instead of the docs/reference/hardware this was built with");
  all.option("--note", o->note, "on every page: device, date and commit");
  all.flag("--capture", o->captures, "run each capture.sh first");
  all.option("--benches", o->benches, "folder of our benchmarks: make FOLDER from all of them first");
  all.flag("--json", o->json, "the ranking as JSON, too");
  all.option("--profiler", o->library_profiler,
             "with --benches: model (default: times and traces of the simulator's clock), ncu or rocprofv3")
      .one_of({"model", "ncu", "rocprofv3"});
  all.option("--model-arch", o->model_arch, "with --benches: gfx942 or gfx950 (default)").one_of({"gfx942", "gfx950"});
  all.option(
      "--config", o->config,
      "with --benches: what they run (default: --model=llama3-70b --tp=8 --batch=64; where that has no call of an op "
      "gpt-oss-120b's, or the op's own sweep)");
  all.example(
      "  tilewave trace library profiles --benches build/host/bench --arch MI355X --out docs/notebook/profiles/gfx950\n"
      "  tilewave trace library profiles --benches build/sm90/bench --profiler ncu --capture --out docs/notebook/profiles/h200");
  all.run([o] { return library(*o); });
  Command write =
      trace.add("capture", "write capture.sh, which records a command, and what it needs, and print its line");
  write.option("FOLDER", o->folder, "for the script and what it records").required();
  write.option("COMMAND", o->command, "after --: a benchmark with a filter that leaves one row").required();
  write.option("--what", o->what, "times (default), counters, or att: the thread trace")
      .one_of({"times", "counters", "att"});
  write.option("--profiler", o->profiler, "rocprofv3 (default) or ncu").one_of({"rocprofv3", "ncu"});
  write.option("--kernel", o->kernel, "regular expression of kernels (default: all)");
  write
      .option(
          "--counter", o->counters,
          "again for each, or with commas; a run for every four (default: SQ_INSTS_VALU, SQ_INSTS_MFMA, SQ_INSTS_VMEM, "
          "SQ_WAVES)")
      .each();
  write.example(
      "  tilewave trace capture profiles/pa --what att --kernel decode -- bench_pa --benchmark_filter='/bs64/mtp1/.*b64/'");
  write.run([o] { return capture(*o); });
}

}  // namespace tilewave::tool
