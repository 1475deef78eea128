// SPDX-License-Identifier: MIT
// Files in the shape of what rocprofv3 writes.
#include <filesystem>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/library.hpp"
#include "tools/tilewave/trace/profile.hpp"

namespace trace_tests {
namespace {
using namespace tilewave::tool;
using tilewave::test::Approx;
using tilewave::test::fuzz;
using tilewave::test::status_of;

const std::string code = R"json({"code": [["; void decode<1>(int)", 0, 0, "", 1, 0, 0, 0, 0, 0],
 ["s_waitcnt vmcnt(0) lgkmcnt(0)", 0, 1, "kernel.hpp:81", 1, 256, 10, 5000, 4900, 5],
 ["global_load_dwordx4 v[0:3], v4, s[0:1]", 0, 2, "kernel.hpp:80", 1, 264, 10, 400, 100, 0],
 ["v_mfma_f32_16x16x32_bf16 a[0:3], v[0:3], v[4:7], a[0:3]", 0, 3, "kernel.hpp:81", 1, 272, 20, 600, 200, 0],
 ["s_endpgm", 0, 4, "", 1, 280, 1, 10, 0, 0]], "version": "3.0.0",
 "header": "ISA, _, LineNumber, Source, Codeobj, Vaddr, Hit, Latency, Stall, Idle"})json";
const std::string wave =
    R"json({"name": "w", "duration": 2000, "num_insts": 41, "num_stitched": 41, "wave": {"begin": 5, "end": 2005, "cu": 1,
 "simd": 0, "slot": 0, "id": 0, "instructions": [[5, 9, 0, 1320, 1]], "timeline": [[1, 100], [2, 500], [3, 1320], [4, 80]], "waitcnt": []}})json";
const std::string counters =
    "\"Correlation_Id\",\"Dispatch_Id\",\"Kernel_Name\",\"Counter_Name\",\"Counter_Value\"\n"
    "1,1,\"decode\",\"TCC_HIT_sum\",30\n1,1,\"decode\",\"TCC_MISS_sum\",70\n2,2,\"decode\",\"TCC_HIT_sum\",10\n2,2,\"decode\",\"TCC_MISS_sum\",90\n";
const std::string times =
    "\"Kind\",\"Kernel_Name\",\"Start_Timestamp\",\"End_Timestamp\",\"LDS_Block_Size\",\"Scratch_Size\",\"VGPR_Count\",\"Accum_VGPR_Count\","
    "\"Workgroup_Size_X\",\"Workgroup_Size_Y\",\"Workgroup_Size_Z\"\n\"KERNEL_DISPATCH\",\"decode\",1000,11000,32768,0,124,4,256,1,1\n";

const std::string ncu_details =
    "==PROF== talk, \"with a quote\n\"ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\",\"Rule Name\","
    "\"Rule Type\",\"Rule Description\",\"Estimated Speedup Type\",\"Estimated Speedup\"\n"
    "\"0\",\"sort(Args)\",\"Speed\",\"Duration\",\"us\",\"4.86\",\n\"0\",\"sort(Args)\",\"Launch\",\"Block Size\",\"\",\"1,024\",\n"
    "\"0\",\"sort(Args)\",\"Launch\",\"Registers Per Thread\",\"register/thread\",\"40\",\n"
    "\"0\",\"sort(Args)\",\"Launch\",\"Policy\",\"\",\"Spread\",\n"
    "\"0\",\"sort(Args)\",\"Occupancy\",\"Block Limit Registers\",\"block\",\"1\",\n"
    "\"0\",\"sort(Args)\",\"Occupancy\",\"Block Limit Shared Mem\",\"block\",\"3\",\n"
    "\"0\",\"sort(Args)\",\"Occupancy\",\"Block Limit Warps\",\"block\",\"2\",\n"
    "\"0\",\"sort(Args)\",\"Occupancy\",\"Theoretical Active Warps per SM\",\"warp\",\"32\",\n"
    "\"0\",\"sort(Args)\",\"Warps\",\"\",\"\",\"\",\"CPIStall\",\"OPT\",\"Warps wait, mostly. See the guide.\",\"global\",\"38.5\"\n"
    "\"0\",\"sort(Args)\",\"Warps\",\"\",\"\",\"\",\"Issue\",\"OPT\",\"Slots are empty.\",\"local\",\"84\"\n"
    "\"0\",\"sort(Args)\",\"Warps\",\"\",\"\",\"\",\"Note\",\"INF\",\"Nothing to do.\",\"\",\"\"\n"
    "\"1\",\"sort(Args)\",\"Speed\",\"Duration\",\"ms\",\"1\",\n\"2\",\"sum(Args)\",\"Speed\",\"Duration\",\"us\",\"7\",\n";
const std::string ncu_columns =
    "\"Address\",\"Source\",\"Warp Stall Sampling (All Samples)\",\"Warp Stall Sampling (Not-issued Samples)\",\"Instructions Executed\","
    "\"stall_long_sb\",\"stall_barrier (Not Issued)\",\"stall_long_sb (Not Issued)\"\n";
const std::string ncu_source = "\"Kernel Name\",\"sort(Args)\",\n" + ncu_columns +
                               "\"0x10\",\"      LDG.E R2, [R4]\",\"3\",\"1\",\"512\",\"0\",\"1\",\"0\"\n"
                               "\"0x20\",\"      IADD3 R2, R2\",\"9\",\"8\",\"512\",\"8\",\"1\",\"7\"\n"
                               "\"Kernel Name\",\"sum(Args)\",\n" +
                               ncu_columns +
                               "\"0x10\",\"      EXIT\",\"1\",\"0\",\"1,024\",\"0\",\"0\",\"0\"\n"
                               "\"Kernel Name\",\"sort(Args)\",\n" +
                               ncu_columns +
                               "\"0x10\",\"      LDG.E R2, [R4]\",\"1\",\"0\",\"512\",\"0\",\"0\",\"0\"\n"
                               "\"0x20\",\"      IADD3 R2, R2\",\"4\",\"4\",\"512\",\"4\",\"0\",\"4\"\n";
const std::string ncu_lines =
    "\"File Path\",\"/usr/include/crt.hpp\"\n\"Function Name\",\"sort(Args)\"\n\"Line No\",\"Source\",\"Address\",\"Source\",\"Samples\"\n"
    "\"9\",\"load(\"x\" : \"=f\"(y), 1);\",\"-\",\"-\",\"9\"\n\"\",\"\",\"0x20\",\"IADD3 R2, R2\",\"9\"\n"
    "\"File Path\",\"/a/include/tilewave/ops/sort/kernel.hpp\"\n\"Function Name\",\"sort(Args)\"\n"
    "\"Line No\",\"Source\",\"Address\",\"Source\",\"Samples\"\n"
    "\"58\",\"a += b;\",\"-\",\"-\",\"9\"\n\"\",\"\",\"0x20\",\"IADD3 R2, R2\",\"9\"\n\"\",\"\",\"...\",\"...\",\"-\"\n";

KernelTime launch(double vgpr, double accum, double lds, double block) {
  KernelTime k;
  k.name = "k", k.calls = 1,
  k.launch = {{"vgpr", vgpr}, {"accum_vgpr", accum}, {"lds_bytes", lds}, {"workgroup", block}};
  return k;
}
}  // namespace

TEST_CASE("a thread trace gives hot spots, stall classes and wave states by the profiler's enum") {
  const ThreadTrace t = parse_code(code, "code.json");
  CHECK(t.kernel == "void decode<1>(int)");
  CHECK(t.code.size() == 4);
  CHECK(t.mapped == 3);
  CHECK(t.latency == 6010);
  CHECK(t.stall == 5200);
  const auto spots = by_instruction(t, 10);
  REQUIRE(spots.size() == 3);
  CHECK(spots[0].what == "s_waitcnt vmcnt(0) lgkmcnt(0)");
  CHECK(spots[0].kind == "VMEM-wait");
  const auto lines = by_source(t, 1);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].what == "kernel.hpp:81");
  CHECK(lines[0].stall == 5100);
  CHECK(lines[0].kind == "VMEM-wait");
  const Wave w = parse_wave(wave, "w.json");
  CHECK(w.states == std::array<std::int64_t, 5>{0, 100, 500, 1320, 80});
  CHECK(std::string(wave_states[3]) == "WAIT");
}

TEST_CASE("stall classes go by mnemonic, first match first") {
  const std::pair<const char*, const char*> cases[] = {{"s_waitcnt lgkmcnt(0)", "LDS/SMEM-wait"},
                                                       {"s_waitcnt expcnt(0)", "EXP-wait"},
                                                       {"s_waitcnt 0", "waitcnt"},
                                                       {"s_barrier", "barrier"},
                                                       {"buffer_load_dword v0", "VMEM-load"},
                                                       {"flat_store_dword v0", "VMEM-store"},
                                                       {"ds_read_b128 v0", "LDS"},
                                                       {"s_load_dwordx2 s[0:1]", "SMEM"},
                                                       {"v_fma_f32 v0", "MFMA/FMA"},
                                                       {"v_add_u32 v0", "other"}};
  for (const auto& [text, expected] : cases) CHECK(std::string(stall_class(text)) == expected);
}

TEST_CASE("occupancy names its limiter and the registers of the next step") {
  const auto chips = all_chips();
  const Chip &mi300 = chip_of(chips, "gfx942"), &mi350 = chip_of(chips, "gfx950");
  const auto a = occupancy_of(launch(172, 4, 0, 256), mi350);
  CHECK(a->waves == 2);
  CHECK(a->limiter == "registers");
  CHECK(a->target == 168);
  CHECK(occupancy_of(launch(251, 6, 0, 256), mi350)->waves == 1);
  CHECK(occupancy_of(launch(251, 6, 0, 256), mi350)->target == 256);
  CHECK(occupancy_of(launch(32, 0, 0, 256), mi350)->limiter == "the hardware");
  const auto lds = occupancy_of(launch(64, 0, 32768, 256), mi300);  // two blocks of four waves on four SIMDs
  CHECK(lds->waves == 2);
  CHECK(lds->limiter == "LDS");
  CHECK(occupancy_of(launch(64, 0, 32768, 256), mi350)->waves == 5);
  KernelTime unknown;
  unknown.name = "k", unknown.calls = 1;
  CHECK_FALSE(occupancy_of(unknown, mi300).has_value());
}

TEST_CASE("counters are means over the dispatches of a kernel") {
  const Counters c = means_of(parse_counters(counters, "c.csv"));
  CHECK(c.per_dispatch.at("decode").at("TCC_HIT_sum") == 20);
  CHECK(c.dispatches.at("decode") == 2);
}

TEST_CASE("hot spots are told apart by prologue, loop and what follows") {
  ThreadTrace t = parse_code(code, "code.json");
  for (std::size_t i = 0; i < 4; ++i) t.code[i].hits = i == 1 || i == 2 ? 8 : 4;
  const auto parts = parts_of(t);
  REQUIRE(parts.size() == 3);
  CHECK((parts[1].begin == 1 && parts[1].end == 3 && parts[2].end == 4));
  Profile p;
  p.traces = {t};
  CHECK(report_md(p, nullptr, "T", 5).find("### 2b. loop\n2 instructions") != std::string::npos);
  for (Instruction& i : t.code) i.hits = 4;
  CHECK(parts_of(t).size() == 1);
}

TEST_CASE("pages of ncu give times, occupancy, rules and hot spots by source line") {
  const auto launches = parse_ncu_details(ncu_details, "d.csv");
  REQUIRE(launches.size() == 3);
  CHECK(launches[1].us == Approx(1000));
  REQUIRE(launches[0].rules.size() == 2);
  CHECK(launches[0].rules[0].gain == 38.5);
  CHECK_FALSE(launches[0].rules[1].gain.has_value());  // of one unit's work
  CHECK(launches[0].find("Block Size") == 1024);
  CHECK_FALSE(launches[0].find("Policy").has_value());
  const auto longest = longest_of(launches);
  REQUIRE(longest.size() == 2);
  CHECK(longest[0].us == Approx(1000));
  CHECK(longest[1].kernel == "sum(Args)");
  const char* const untimed = "\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\nk,Grid,,1\n";
  CHECK(status_of([&] { parse_ncu_details(untimed, "d"); }) == Exit::usage);

  const KernelTimes times = parse_kernel_times(ncu_details, "d.csv");
  CHECK(times.kernels[0].calls == 2);
  const auto chips = all_chips();
  const auto occupancy = occupancy_of(times.kernels[0], chip_of(chips, "H200"));
  REQUIRE(occupancy.has_value());
  CHECK(occupancy->waves == 8);
  CHECK(occupancy->limiter == "registers");
  CHECK(occupancy->target == 32);  // of 512 for two blocks of eight waves on a scheduler

  auto traces = parse_ncu_source(ncu_source, "s.csv");
  REQUIRE(traces.size() == 2);
  CHECK(traces[0].unit == "samples");
  CHECK(traces[0].latency == 17);
  CHECK(traces[0].stall == 13);
  add_ncu_lines(ncu_lines, "l.csv", traces);
  CHECK(traces[0].mapped == 1);
  const auto lines = by_source(traces[0], 5);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].what == "ops/sort/kernel.hpp:58");  // not the compiler's header that it was inlined from
  CHECK(lines[0].stall == 12);
  CHECK(lines[0].kind == "long_sb");
  CHECK(by_instruction(traces[0], 5)[1].kind == "barrier");
  add_ncu_lines("", "l.csv", traces);  // compiled without lines
  CHECK(status_of([] { parse_ncu_source("no page", "s"); }) == Exit::usage);

  CHECK(fuzz(ncu_details, [](const std::string& text) { parse_ncu_details(text, "d"); }) > 0);
  CHECK(fuzz(ncu_source, [](const std::string& text) { parse_ncu_source(text, "s"); }) > 0);
  CHECK(fuzz(ncu_lines, [&](const std::string& text) { add_ncu_lines(text, "l", traces); }) > 0);
}

TEST_CASE("a report of ncu's pages has samples where cycles are not known") {
  const auto folder = std::filesystem::temp_directory_path() / "tilewave_ncu_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  write_atomically(folder / "out_ncu.csv", ncu_details);
  write_atomically(folder / "out_ncu_source.csv", ncu_source);
  write_atomically(folder / "out_ncu_lines.csv", ncu_lines);
  const auto chips = all_chips();
  const Profile profile = read_profile(folder.string());
  CHECK(profile.files.size() == 3);
  const std::string report = report_md(profile, &chip_of(chips, "H200"), "T", 5);
  CHECK(report.find("Latency 17 samples, 76.5 % of them stalled.") != std::string::npos);
  CHECK(report.find("| 1 | 12 | 70.6 % | 1024 | long_sb | ops/sort/kernel.hpp:58 |") != std::string::npos);
  CHECK(report.find("| Duration | 1 | ms |") != std::string::npos);
  CHECK(report.find("1. long_sb: 70.6 % of all samples stall here") != std::string::npos);
  CHECK(report_json(profile, nullptr, 5).find("\"Duration, ms\": 1.0") != std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("a report says what was in the trace and nothing else") {
  const auto folder = std::filesystem::temp_directory_path() / "tilewave_trace_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "ui_output_agent_1_dispatch_2");
  CHECK(status_of([&] { read_profile(folder.string()); }) == Exit::usage);
  write_atomically(folder / "out_kernel_trace.csv", times);
  const auto chips = all_chips();
  const Chip& chip = chip_of(chips, "gfx942");
  std::string report = report_md(read_profile(folder.string()), &chip, "T", 5);
  CHECK(report.find("| decode | 1 | 10.000 |") != std::string::npos);
  CHECK(report.find("## 1. Wave states\nNot in the trace") != std::string::npos);
  write_atomically(folder / "ui_output_agent_1_dispatch_2" / "code.json", code);
  CHECK(status_of([&] { read_profile(folder.string()); }) == Exit::usage);  // an empty shell
  write_atomically(folder / "ui_output_agent_1_dispatch_2" / "se0_sm0_sl0_wv0.json", wave);
  write_atomically(folder / "pass_1" / "out_counter_collection.csv", counters);
  const Profile profile = read_profile(folder.string());
  report = report_md(profile, &chip, "T", 5);
  CHECK(report.find("| EXEC | 500 | 25.0 % |") != std::string::npos);
  CHECK(report.find("| L2 hit rate | 0.2000 |") != std::string::npos);
  CHECK(report.find("1. VMEM-wait: 81.5 % of all cycles stall here") != std::string::npos);
  CHECK(report_json(profile, nullptr, 5).find("\"occupancy\": null") != std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("any bytes make the parsers of traces return or refuse") {
  CHECK(status_of([] { parse_code(R"({"code": []})", "c"); }) == Exit::usage);
  CHECK(status_of([] { parse_code(R"({"code": [["s_nop", 0, 1, "", 1, 2, 1, 5, 6, 0]]})", "c"); }) == Exit::usage);
  CHECK(status_of([] { parse_wave(R"({"duration": 1, "num_insts": 1, "wave": {"timeline": [[5, 1]]}})", "w"); }) ==
        Exit::usage);
  CHECK(fuzz(code, [](const std::string& text) {
          const ThreadTrace t = parse_code(text, "c");
          by_source(t, 5);
          std::size_t end = 0;
          for (const Part& part : parts_of(t)) {
            if (part.begin != end) throw std::logic_error("parts that do not follow each other");
            end = part.end;
          }
          if (end != t.code.size()) throw std::logic_error("parts that are not all");
        }) > 0);
  CHECK(fuzz(wave, [](const std::string& text) { parse_wave(text, "w"); }) > 0);
  CHECK(fuzz(counters, [](const std::string& text) {
          if (parse_counters(text, "c").empty()) throw std::logic_error("no counter, no error");
        }) > 0);
}

TEST_CASE("a library ranks ops by headroom and says nothing that was not traced") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / "tilewave_trace_library";
  fs::remove_all(root);
  const auto put = [&](const std::string& file, const std::string& text) {
    fs::create_directories((root / "in" / file).parent_path());
    write_atomically(root / "in" / file, text);
  };
  const auto bench = [](const char* us) {
    return "name,us,model_us,err,roof_us\na," + std::string(us) + ",0,2\nb," + us + ",0,8\n";
  };
  put("norm/x_kernel_trace.csv", times);
  put("norm/bench.csv", bench("8,nan"));
  put("gemm/code.json", code);
  put("gemm/se0_sm0_sl0_wv0.json", wave);
  put("gemm/bench.csv", bench("nan,40"));
  put("gemm/capture.sh", "#!/bin/sh\necho ran >ran.txt\n");
  put("pa/x_kernel_trace.csv", times);
  LibraryOptions o{.from = (root / "in").string(), .out = (root / "out").string()};
  const std::vector<LibraryPage> pages = write_library(o, nullptr);
  REQUIRE(pages.size() == 3);
  const Json json = library_json(pages);
  CHECK((json[0].at("op") == "gemm" && json[0].at("modelled") == true && json[2].at("of_roof").is_null()));
  CHECK(json[1].at("of_roof").get<double>() == Approx(.5));
  const std::string index = read_file((root / "out/README.md").string());
  CHECK(index.find("| [gemm](gemm/REPORT.md) | 90.0 % | 10.0 % | 86.5 % | a model |") != index.npos);
  CHECK(index.find("| [norm](norm/REPORT.md) | 50.0 % | 50.0 % | not in the trace | hardware |") != index.npos);
  CHECK(index.find("[gemm]") < index.find("[norm]"));
  CHECK(index.find("[norm]") < index.find("[pa]"));
  const std::string gemm = read_file((root / "out/gemm/REPORT.md").string());
  CHECK(gemm.find("kernel.hpp:81") != gemm.npos);
  CHECK(gemm.find("`echo ran >ran.txt`") != gemm.npos);
  CHECK(gemm.find("by modelled time") != gemm.npos);
  CHECK(gemm.find("Not in the trace: no counter_collection CSV") != gemm.npos);
  // One that cannot be read leaves no half of a library.
  put("wrong/bench.csv", bench("8,nan"));
  o.out = (root / "none").string();
  CHECK(status_of([&] { write_library(o, nullptr); }) == Exit::usage);
  CHECK_FALSE(fs::exists(root / "none"));
  put("wrong/x_kernel_trace.csv", times);
  put("wrong/bench.csv", "name,us,err,roof_us\na,8,1,2\n");
  CHECK(status_of([&] { write_library(o, nullptr); }) == Exit::usage);
  CHECK(fuzz(
            bench("8,nan"),
            [&](const std::string& text) {
              write_atomically(root / "in/norm/bench.csv", text);
              library_page(root / "in/norm", nullptr, 3);
            },
            60) > 0);
  fs::remove_all(root);
}

TEST_CASE("a library is prepared of what benchmarks print, whatever that is") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / "tilewave_trace_prepare";
  fs::remove_all(root);
  fs::create_directories(root / "bin");
  // Prints its rows, and notes what it was called with.
  const auto bench = [&](const std::string& op, const std::string& rows, int status) {
    const fs::path program = root / "bin" / ("bench_" + op);
    write_atomically(program, "#!/bin/sh\necho \"$@\" >>'" + (root / op).string() + "'\ncat <<'E'\n" + rows +
                                  "E\nexit " + std::to_string(status) + "\n");
    fs::permissions(program, fs::perms::owner_all);
  };
  const std::string rows =
      "banner\nname,model_us,us\na/iterations:1,3,4\nb(x)/iterations:1,7,3\nc/iterations:1,nan,nan\n";
  bench("norm", rows, 0);
  bench("gemm", "", 2);  // knows no such configuration
  LibraryOptions o{.from = (root / "in").string(), .out = ""};
  o.benches = (root / "bin").string(), o.configs = {"--batch=1"};
  CHECK(prepare_library(o) == std::vector<std::string>{"gemm"});
  CHECK_FALSE(fs::exists(root / "in/gemm"));
  CHECK(fs::is_directory(root / "in/norm/trace"));
  const std::string called = read_file((root / "norm").string());
  CHECK(called.find("--batch=1 --arch=gfx950 --model-time --benchmark_format=csv\n") == 0);
  CHECK(called.find("--benchmark_filter=^(b\\(x\\))") != called.npos);
  CHECK(read_file((root / "in/norm/capture.sh").string()).find("--model-trace=") != std::string::npos);
  o.profiler = "ncu";
  CHECK(prepare_library(o) ==
        std::vector<std::string>{"gemm"});  // what is recorded is the row that takes longest there
  const std::string script = read_file((root / "in/norm/capture.sh").string());
  CHECK((script.find("^(a)") != std::string::npos && script.find("ncu --import") != std::string::npos));
  o.profiler = "model";
  // The first configuration that has rows is run, and an op without any is left out.
  write_atomically(root / "bin/bench_gemm", "#!/bin/sh\necho \"$@\" >>'" + (root / "gemm").string() +
                                                "'\ncase \"$1\" in --experts) exit 2 ;; esac\ncat <<'E'\n" + rows +
                                                "E\n");
  fs::permissions(root / "bin/bench_gemm", fs::perms::owner_all);
  o.configs = {"--experts", "--dense"};
  fs::remove(root / "gemm");
  CHECK(prepare_library(o).empty());
  CHECK(read_file((root / "gemm").string())
            .find("--experts --arch=gfx950 --model-time --benchmark_format=csv\n--dense --arch") == 0);
  CHECK(read_file((root / "in/gemm/capture.sh").string()).find(" --dense ") != std::string::npos);
  o.profiler = "ncu";
  CHECK(prepare_library(o).empty());
  CHECK(read_file((root / "in/gemm/capture.sh").string()).find(" --dense ") != std::string::npos);
  o.profiler = "model", o.configs = {"--experts"};
  CHECK(prepare_library(o) == std::vector<std::string>{"gemm"});
  bench("norm", "no table", 0);
  CHECK(status_of([&] { prepare_library(o); }) == Exit::usage);
  bench("norm", rows, 1);
  CHECK(status_of([&] { prepare_library(o); }) == Exit::failed);
  o.benches = (root / "in").string();
  CHECK(status_of([&] { prepare_library(o); }) == Exit::usage);
  fs::remove_all(root);

  CHECK(slowest_row(parse_csv(rows, "rows", "name"), "model_us") == "b(x)");
  CHECK(status_of([&] { slowest_row(parse_csv("name,model_us\na,nan\n", "rows", "name"), "model_us"); }) ==
        Exit::usage);
  CHECK(fuzz(rows, [](const std::string& text) { slowest_row(parse_csv(text, "rows", "name"), "model_us"); }) > 0);
}

}  // namespace trace_tests
