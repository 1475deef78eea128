// SPDX-License-Identifier: MIT
// Every reader of tables and of JSON refuses files that are no such thing, and reads files made by a grammar.
#include <fmt/format.h>

#include <filesystem>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/grammar.hpp"
#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/compare.hpp"
#include "tools/tilewave/gpu/devices.hpp"
#include "tools/tilewave/trace/diff.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::fuzz_json;
using tilewave::test::fuzz_table;
using tilewave::test::status_of;
using tilewave::test::Table;

std::string refusal(const std::function<void()>& call) {
  std::string message;
  CHECK(status_of(call, &message) == Exit::usage);
  return message;
}
std::string refused_csv(const std::string& text, const std::string& header = "") {
  return refusal([&] { parse_csv(text, "f.csv", header); });
}
std::string refused_json(const std::string& text) {
  return refusal([&] { parse_json(text, "f.json"); });
}
std::string utf16(const std::string& text) {
  std::string out = "\xff\xfe";
  for (const char c : text) out += c, out += '\0';
  return out;
}

std::string words_of(const KernelTimes& times) {
  std::vector<std::string> kernels;
  for (const KernelTime& k : times.kernels) {
    kernels.push_back(fmt::format("{} {} {} {} {} {} {}", k.name, k.calls, k.total_us, k.min_us, k.max_us,
                                  k.overlapping, k.overlapped));
    for (const auto& [key, value] : k.launch) kernels.back() += fmt::format(" {}={}", key, value);
  }
  std::sort(kernels.begin(), kernels.end());
  return times.format + ": " + join(kernels, "; ");
}
std::string words_of(const std::vector<CounterRow>& rows) {
  std::string out;
  const Counters counters = means_of(rows);
  for (const auto& [kernel, means] : counters.per_dispatch) {
    out += fmt::format("{} ({}):", kernel, counters.dispatches.at(kernel));
    for (const auto& [name, value] : means) out += fmt::format(" {}={}", name, value);
  }
  return out;
}
std::string words_of(const GpuList& list) {
  std::string out = list.tool;
  for (const Gpu& g : list.gpus)
    out += fmt::format("; {} {} {} {} {} {}", g.index, g.name, g.use_pct.value_or(-1), g.used_bytes.value_or(-1),
                       g.processes.size(), why_busy(g));
  return out;
}
/// Returns everything that is made of a trace, so that nothing of a strange one is left out.
std::string words_of(const ThreadTrace& trace) {
  Profile p;
  p.traces = {trace};
  return report_md(p, nullptr, "T", 50) + report_json(p, nullptr, 50) + diff_md(diff_of(p, p, nullptr), "a", "b", 50);
}

const Table trace_table{
    {"Kind", "Agent_Id", "Queue_Id", "Dispatch_Id", "Kernel_Name", "Start_Timestamp", "End_Timestamp", "VGPR_Count",
     "Accum_VGPR_Count", "SGPR_Count", "LDS_Block_Size", "Scratch_Size", "Workgroup_Size_X", "Workgroup_Size_Y",
     "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"},
    {{"KERNEL_DISPATCH", "Agent 2", "1", "1", "k<int, 3>(\"a\")", "1000", "21000", "124", "4", "64", "0", "0", "256",
      "1", "1", "65536", "1", "1"},
     {"KERNEL_DISPATCH", "Agent 2", "1", "2", "fill", "15000", "16000", "8", "0", "16", "512", "4", "64", "2", "1",
      "64", "2", "1"},
     {"MEMORY_COPY", "Agent 2", "1", "3", "copy", "0", "1", "0", "0", "0", "0", "0", "1", "1", "1", "1", "1", "1"},
     {"KERNEL_DISPATCH", "Agent 3", "2", "4", "k<int, 3>(\"a\")", "9007199254740993", "9007199254741993", "124", "4",
      "64", "0", "0", "256", "1", "1", "65536", "1", "1"}}};
const Table counter_table{{"Dispatch_Id", "Process_Id", "Kernel_Name", "Counter_Name", "Counter_Value"},
                          {{"1", "7", "k, l", "SQ_WAVES", "64"},
                           {"1", "7", "k, l", "SQ_WAVES", "66"},
                           {"2", "7", "k, l", "SQ_WAVES", "32"},
                           {"1", "8", "k, l", "SQ_INSTS_VALU", "1e3"}}};
const Table stats_table{{"Name", "Calls", "TotalDurationNs", "AverageNs", "MinNs", "MaxNs"},
                        {{"k", "3", "3000", "1000", "900", "1200"}, {"l", "1", "5", "5", "5", "5"}}};
const Table details_table{{"ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"},
                          {{"0", "sort(Args)", "Duration", "us", "4.86"},
                           {"0", "sort(Args)", "Block Size", "", "1,024"},
                           {"0", "sort(Args)", "Registers Per Thread", "register/thread", "40"},
                           {"1", "sum(Args)", "Duration", "ms", "1"}}};
const Table bench_table{
    {"name", "block_size", "mtp", "us", "err", "arch", "bytes_ideal"},
    {{"a/16", "16", "1", "100", "0", "gfx950", "3e9"}, {"a/64", "64", "1", "50", "0", "gfx950", "3e9"}}};

const char* const code =
    R"json({"code": [["; void decode<1>(int)", 0, 0, "", 1, 0, 0, 0, 0, 0], ["s_waitcnt vmcnt(0)", 0, 1, "k.hpp:81", 1, 256, 10, 5000, 4900, 5],
 ["v_mfma_f32_16x16x32_bf16 a[0:3], v[0:3], v[4:7], a[0:3]", 0, 3, "k.hpp:80", 0, 139876543210496, 20, 600, 200, 0],
 ["s_endpgm", 0, 4, "", 1, 280, 1, 10, 0, 0]], "version": "3.0.0"})json";
const char* const wave = R"json({"name": "w", "duration": 2000, "num_insts": 41, "wave": {"begin": 5, "end": 2005,
 "instructions": [[5, 9, 0, 1320, 1]], "timeline": [[1, 100], [2, 500], [3, 1320], [4, 80]]}})json";
const char* const results =
    R"json({"rocprofiler-sdk-tool": [{"metadata": {"pid": 7}, "kernel_symbols": [{"kernel_id": 0},
 {"kernel_id": 1, "kernel_name": "_Z1kv.kd", "formatted_kernel_name": "k()", "arch_vgpr_count": 124, "accum_vgpr_count": 4, "sgpr_count": 16}],
 "counters": [{"id": {"handle": 50}, "name": "SQ_WAVES"}], "callback_records": {"counter_collection": [{"dispatch_data": {"dispatch_info":
 {"dispatch_id": 1, "kernel_id": 1}}, "records": [{"counter_id": {"handle": 50}, "value": 40.0}, {"counter_id": {"handle": 50}, "value": 24.0}]}]},
 "buffer_records": {"kernel_dispatch": [{"start_timestamp": 10, "end_timestamp": 3010, "dispatch_info": {"agent_id": {"handle": 9},
 "queue_id": {"handle": 1}, "kernel_id": 1, "dispatch_id": 1, "private_segment_size": 0, "group_segment_size": 64,
 "workgroup_size": {"x": 64, "y": 2, "z": 2}, "grid_size": {"x": 640, "y": 2, "z": 2}}}]}}]})json";
const char* const amd_smi =
    R"json({"gpu_data": [{"gpu": 0, "usage": {"gfx_activity": {"value": 100, "unit": "%"}, "umc_activity": {"value": 0}},
 "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}}},
 {"gpu": 1, "usage": {"gfx_activity": "N/A", "gfx_busy_inst": {"xcp_0": [{"value": 3, "unit": "%"}, "N/A"]}},
 "mem_usage": {"total_vram": "N/A"}}]})json";
const char* const rocm_smi =
    R"json({"card0": {"GPU use (%)": "0", "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "297000000",
 "Card Series": "AMD Instinct MI300X"}, "card1": {"GPU use (%)": "100"}, "system": {"PID4711": "python3, 1, 149000000000, 0, 44"}})json";
}  // namespace

TEST_CASE("what is no UTF-8 table or JSON is called what it is") {
  CHECK(refused_csv(utf16("a,b\n1,2\n")) == "f.csv is UTF-16: save it as UTF-8");
  CHECK(refused_csv("\xfe\xff" + std::string("\0a\0b", 4)) == "f.csv is UTF-16: save it as UTF-8");
  CHECK(refused_csv(std::string("\xff\xfe\0\0a\0\0\0", 8)) == "f.csv is UTF-32: save it as UTF-8");
  CHECK(refused_csv(std::string("a,b\n\0,2\n", 8)).find("zero bytes") != std::string::npos);
  CHECK(refused_json(utf16("{}")) == "f.json is UTF-16: save it as UTF-8");
  CHECK(refused_json(std::string("{}\0", 3)).find("zero bytes") != std::string::npos);
  CHECK(refused_json("") == "f.json is empty: it is no JSON");
  CHECK(refused_json("\xef\xbb\xbf \n") == "f.json is empty: it is no JSON");
  CHECK(parse_json("\xef\xbb\xbf{\"a\": 1}", "f").at("a") == 1);
  const std::string folder = std::filesystem::temp_directory_path().string();
  CHECK(refusal([&] { read_csv(folder); }) == folder + " is a folder");
}

TEST_CASE("a fault of a header is on the header's line") {
  CHECK(refused_csv("talk\nmore talk\n\na,\"b\n1,2\n", "a") == "f.csv:4: a quote that is never closed");
  CHECK(refused_csv("\n\na,a\n1,2\n") == "f.csv:3: column 'a' comes twice");
  CHECK(refused_csv("a,,b\n1,2,3\n") == "f.csv:1: a column without a name");
  CHECK(refused_csv("talk\na,b\n\n1,2,3\n", "a") == "f.csv:4: 3 fields where the header has 2");
  const Csv csv = parse_csv(
      "\xef\xbb\xbf"
      "a,b\n1,2\n\xef\xbb\xbf"
      "a,b\n3,4\n",
      "f");  // two files behind one another
  REQUIRE(csv.rows.size() == 2);
  CHECK(csv.lines[1] == 4);
  CHECK(csv.rows[1][0] == "3");
}

TEST_CASE("tables by a grammar are read the same however they are written, or refused") {
  const auto times = [](const std::string& text) { return words_of(parse_kernel_times(text, "t")); };
  CHECK(fuzz_table(trace_table, times) > 0);
  CHECK(fuzz_table(stats_table, times) > 0);
  CHECK(fuzz_table(details_table, times) > 0);
  CHECK(fuzz_table(counter_table, [](const std::string& text) { return words_of(parse_counters(text, "c")); }) > 0);
  const Csv base =
      parse_csv("name,block_size,mtp,us,err,arch,bytes_ideal\nx,16,1,90,0,gfx950,3e9\ny,64,1,60,0,gfx950,3e9\n", "b");
  CompareOptions options;
  options.map.ignored = {"a column nobody knows"};
  const auto verdict = [&](const std::string& text) {
    const Comparison c = compare(base, parse_csv(text, "n", "us"), options);
    return fmt::format("{} {} {}", word_of(c.verdict), c.score, c.reason);
  };
  CHECK(fuzz_table(bench_table, verdict, true, 800) > 0);
}

TEST_CASE("JSON by a grammar is read the same however it is written, or refused") {
  CHECK(fuzz_json(code, [](const std::string& text) { return words_of(parse_code(text, "c")); }) > 0);
  CHECK(fuzz_json(wave, [](const std::string& text) {
          const Wave w = parse_wave(text, "w");
          return fmt::format("{} {} {}", w.duration, w.instructions, fmt::join(w.states, " "));
        }) > 0);
  CHECK(fuzz_json(
            results,
            [](const std::string& text) {
              const Recording r = parse_results_json(text, "r");
              return words_of(times_of(r.dispatches, "r")) + words_of(r.counters);
            },
            true, 800) > 0);
  CHECK(fuzz_json(amd_smi, [](const std::string& text) { return words_of(parse_amd_smi(text, "")); }) > 0);
  CHECK(fuzz_json(rocm_smi, [](const std::string& text) {
          // Cards in any order are the same cards.
          GpuList list = parse_rocm_smi(text);
          std::sort(list.gpus.begin(), list.gpus.end(), [](const Gpu& a, const Gpu& b) { return a.index < b.index; });
          return words_of(list);
        }) > 0);
}
