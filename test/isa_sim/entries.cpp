// SPDX-License-Identifier: MIT
// Executes the compiled paged-attention entries of both AMD chips, feature and score specs included: exports a repro bundle for
// each entry and case, runs its machine code in the simulator and compares with the reference. One line per run; exit
// status 1 if any is wrong. --full: every entry, and every class of shapes; else those that test/isa gates with every change.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "bench/ops/paged_attention/bundle.hpp"
#include "sim/programs/bundle.hpp"
#include "test/isa/slice.hpp"
#include "tilewave/ops/paged_attention/specs/features.hpp"
#include "tilewave/ops/paged_attention/specs/scores.hpp"

namespace {

using namespace tilewave;
using bench::PagedAttentionCase;

struct Options {
  std::string code_objects, scratch, arch, filter;
  bool full = false, stop = false;
  tilewave::sim::BundleOptions simulator;
  tilewave::sim::LoadedObjects loaded;
};

struct Shape {
  int block_size, mtp, context_length, num_q_heads, num_kv_heads;
  bool trans_v, kv_varlen;
  int sliding_window, splits;
};

// The slice: each entry takes the next two. 9, 19 and 70 splits are one, three and nine batches of combine; a balanced
// entry cuts as it will.
constexpr Shape slice_shapes[] = {
    {64, 2, 300, 8, 1, true, true, 0, 3},         {16, 1, 519, 8, 1, false, true, 0, 1},
    {1024, 4, 1027, 16, 2, true, false, 0, 9},    {128, 3, 700, 10, 1, false, true, 128, 2},
    {16, 4, 130, 64, 2, true, true, 0, 1},        {1024, 1, 1027, 4, 4, false, true, 0, 5},
    {64, 2, 1027, 32, 4, false, false, 1023, 19}, {128, 1, 33, 16, 1, true, true, 7, 70},
};

// 64 row groups that each attend 6 or 11 stages: more than a chip has balanced blocks, so they go from group to group.
constexpr Shape many_groups{16, 8, 1300, 128, 1, true, false, 0, 1};

PagedAttentionCase case_for(ArchId arch, const PagedAttentionSpec& spec, const Shape& shape, std::uint64_t seed) {
  PagedAttentionCase c = bench::case_of(arch, spec);
  c.block_size = spec.any_block_size ? shape.block_size / 2 + 1 : shape.block_size;
  c.mtp = shape.mtp;
  c.context_length = shape.context_length;
  c.num_q_heads = shape.num_q_heads;
  c.num_kv_heads = shape.num_kv_heads;
  c.trans_v = shape.trans_v;
  if (c.layout != bench::KvLayout::units && shape.trans_v) c.layout = bench::KvLayout::hnd;
  c.kv_varlen = shape.kv_varlen;
  c.sliding_window = shape.sliding_window;
  c.distinct_pages = true;
  c.inputs = bench::Inputs::varied;
  c.seed = seed;
  return c;
}

std::vector<Shape> full_shapes() {
  std::vector<Shape> shapes;
  for (const int block_size : {16, 64, 128, 1024})
    for (const int mtp : {1, 2, 4})
      for (const auto& [q_heads, kv_heads] : {std::pair{8, 1}, {16, 2}, {64, 4}})
        for (const bool trans_v : {true, false})
          for (const int window : {0, 128})
            for (const int splits : {1, 9, 70})
              shapes.push_back({block_size, mtp, 1027, q_heads, kv_heads, trans_v, window == 0, window, splits});
  return shapes;
}

/// Write `value` to the first `count` elements of a file.
template <class T>
void overwrite(const std::string& path, std::size_t count, T value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (std::size_t i = 0; i < count; ++i) file.write(reinterpret_cast<const char*>(&value), sizeof value);
  file.close();
  if (!file) throw tilewave::sim::Error("cannot change " + path);
}

/// Make the bundle's first sequence empty: its rows are 0, their lse -inf.
void empty_first_sequence(const std::string& directory, const PagedAttentionCase& c) {
  const std::size_t rows = static_cast<std::size_t>(c.mtp) * c.num_q_heads;
  overwrite(directory + "/context_lengths.bin", 1, std::int32_t{0});
  overwrite(directory + "/out.expected.f32.bin", rows * c.head_size, 0.0f);
  overwrite(directory + "/lse.expected.f32.bin", rows, -std::numeric_limits<float>::infinity());
}

/// One run; prints its line and says whether it passed. Where lengths vary, the first sequence is empty.
bool run_one(const Options& options, const PagedAttentionCase& c, const PagedAttentionEntry& entry, int splits) {
  const PagedAttentionPlan plan{&entry, splits};
  const std::string name = bench::name_of(c) + " " + plan.name();
  const std::string directory = options.scratch + "/bundle";
  if (bench::export_bundle(directory, c, plan, options.code_objects) != 0) {
    std::printf("FAIL %s: not exported\n", name.c_str());
    return false;
  }
  try {
    if (c.kv_varlen) empty_first_sequence(directory, c);
    const tilewave::sim::BundleReport report = tilewave::sim::run_bundle(directory, options.simulator);
    double seconds = 0, instructions = 0;
    for (const auto& launch : report.launches) {
      seconds += launch.seconds;
      instructions += static_cast<double>(launch.counts.total());
    }
    std::printf("%s %s: %.0f instructions, %.3f s", report.pass() ? "ok  " : "FAIL", name.c_str(), instructions,
                seconds);
    for (const auto& output : report.outputs)
      std::printf(", %s %.2g%s%s", output.file.c_str(), output.max_abs_err, output.first.empty() ? "" : " ",
                  output.first.c_str());
    std::printf("\n");
    return report.pass();
  } catch (const tilewave::sim::Error& error) {
    std::printf("FAIL %s: %s\n", name.c_str(), error.what());
    return false;
  }
}

std::vector<PagedAttentionEntry> entries_of(ArchId arch, bool full) {
  std::vector<PagedAttentionEntry> entries;
  std::size_t place = 0;
  for (const PagedAttentionSpec& spec : paged_attention_specs(arch)) {
    std::size_t policy_place = 0;
    for (const PagedAttentionPolicy& policy : paged_attention_policies(arch, spec))
      if (test::in_slice(arch, spec, place, policy_place++) || full)
        entries.push_back({arch, true, spec, policy, nullptr, 0});
    ++place;
  }
  for (const PagedAttentionSpec& spec : paged_attention_feature_specs(arch))
    entries.push_back({arch, true, spec, paged_attention_other_policy(arch, spec), nullptr, 0});
  for (const PagedAttentionSpec& spec : paged_attention_score_specs(arch))
    entries.push_back({arch, true, spec, paged_attention_policies(arch, spec)[0], nullptr, 0});
  return entries;
}

int run(const Options& options) {
  int runs = 0, failures = 0;
  for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950}) {
    if (!options.arch.empty() && options.arch != name_of(arch)) continue;
    std::size_t entry_number = 0;
    for (const PagedAttentionEntry& entry : entries_of(arch, options.full)) {
      std::vector<Shape> shapes = full_shapes();
      if (!options.full) {
        constexpr std::size_t count = std::size(slice_shapes);
        shapes = {slice_shapes[entry_number % count], slice_shapes[(entry_number + 3) % count]};
      }
      if (entry.policy.balanced()) shapes.push_back(many_groups);
      ++entry_number;
      for (const Shape& shape : shapes) {
        const PagedAttentionCase c = case_for(arch, entry.spec, shape, 100 + entry_number);
        if (!options.filter.empty() && (bench::name_of(c) + " ").find(options.filter) == std::string::npos) continue;
        ++runs;
        failures += !run_one(options, c, entry, entry.policy.balanced() ? 1 : shape.splits);
        if (failures && options.stop) return 1;
      }
    }
  }
  std::printf("%d runs, %d wrong\n", runs, failures);
  return runs == 0 || failures ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.simulator.objdump = "llvm-objdump-22";
  options.simulator.machine.threads = 2;
  CLI::App app("Runs every compiled paged-attention entry in the ISA simulator.");
  app.add_option("code_objects", options.code_objects, "directory with entries.json")->required();
  app.add_option("scratch", options.scratch, "directory for bundles, created")->required();
  app.add_option("--arch", options.arch, "gfx942 or gfx950 (default: both)");
  app.add_option("--filter", options.filter, "only cases whose name holds this");
  app.add_option("--objdump", options.simulator.objdump, "llvm-objdump to disassemble with")->capture_default_str();
  app.add_flag("--reverse", options.simulator.machine.reverse, "run blocks and waves from last to first");
  app.add_flag("--full", options.full, "every entry, with every class of shapes");
  app.add_flag("--stop", options.stop, "stop at the first wrong run and leave its bundle in the scratch directory");
  CLI11_PARSE(app, argc, argv);
  std::filesystem::create_directories(options.scratch);
  options.simulator.loaded = &options.loaded;
  return run(options);
}
