// SPDX-License-Identifier: MIT
// The files that rocprofv3 leaves of replays, of several passes and of several processes, and the registers that
// kernels reserve.
#include <unistd.h>

#include <filesystem>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/code_object.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/trace/profile.hpp"
#include "tools/tilewave/trace/registers.hpp"

namespace trace_runs_tests {
namespace {
using namespace tilewave::tool;
using tilewave::test::status_of;
namespace fs = std::filesystem;

class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(fs::temp_directory_path() / ("tilewave_trace_runs_" + name + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  void put(const std::string& file, const std::string& text) const { write_atomically(path_ / file, text); }
  std::string at(const std::string& file) const { return (path_ / file).string(); }
  Profile read() const { return read_profile(path_.string()); }

 private:
  fs::path path_;
};

const std::string counter_columns = "Dispatch_Id,Process_Id,Kernel_Name,Counter_Name,Counter_Value\n";
const std::string trace_columns =
    "Kind,Agent_Id,Queue_Id,Kernel_Name,Start_Timestamp,End_Timestamp,VGPR_Count,Accum_VGPR_Count,LDS_Block_Size,"
    "Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z\n";
std::string launch(const std::string& kernel, const std::string& times, const std::string& registers = "32,8",
                   const std::string& queue = "\"Agent 2\",1") {
  return "KERNEL_DISPATCH," + queue + ",\"" + kernel + "\"," + times + "," + registers + ",0,256,1,1\n";
}

double of(const Profile& p, const std::string& counter) { return p.counters->per_dispatch.at("k").at(counter); }
const KernelTime& kernel_of(const Profile& p, const std::string& name) {
  for (const KernelTime& k : p.times->kernels)
    if (k.name == name) return k;
  throw std::logic_error("no kernel " + name);
}

std::string code_of(const std::string& kernel, const std::string& instructions) {
  return R"json({"code": [["; )json" + kernel + R"json(",0,0,"",1,0,0,0,0,0],)json" + instructions +
         R"json(], "version": "3.0.0"})json";
}
const std::string wave =
    R"json({"name": "w", "duration": 9, "num_insts": 1, "wave": {"instructions": [], "timeline": [[2, 9]]}})json";
}  // namespace

TEST_CASE("counters of a dispatch that is replayed, or counted in two passes, are not added up") {
  const Folder folder("passes");
  folder.put(
      "replay_counter_collection.csv",
      counter_columns + "1,7,k,SQ_WAVES,64\n1,7,k,SQ_INSTS_VALU,90\n1,7,k,SQ_WAVES,64\n1,7,k,SQ_INSTS_VALU,110\n");
  Profile p = folder.read();
  CHECK(of(p, "SQ_WAVES") == 64);
  CHECK(of(p, "SQ_INSTS_VALU") == 100);
  CHECK(p.counters->dispatches.at("k") == 1);
  // Each pass is a run of its own, thus another process: two dispatches there, and the same two again.
  fs::remove(folder.at("replay_counter_collection.csv"));
  folder.put(
      "pmc_1/host/11_counter_collection.csv",
      counter_columns + "1,11,k,SQ_WAVES,64\n2,11,k,SQ_WAVES,32\n1,11,k,SQ_INSTS_VALU,900\n2,11,k,SQ_INSTS_VALU,300\n");
  folder.put(
      "pmc_2/host/12_counter_collection.csv",
      counter_columns + "1,12,k,SQ_WAVES,64\n2,12,k,SQ_WAVES,32\n1,12,k,SQ_INSTS_MFMA,30\n2,12,k,SQ_INSTS_MFMA,10\n");
  p = folder.read();
  CHECK(of(p, "SQ_WAVES") == 48);
  CHECK(of(p, "SQ_INSTS_VALU") == 600);
  CHECK(of(p, "SQ_INSTS_MFMA") == 20);
  CHECK(p.counters->dispatches.at("k") == 2);
}

TEST_CASE("processes with the same numbers of dispatches are not one") {
  const Folder folder("processes");
  for (const std::string pid : {"7", "8", "9"}) {
    folder.put(pid + "_counter_collection.csv", counter_columns + "1," + pid + ",k,SQ_WAVES," + pid + "0\n");
    folder.put(pid + "_kernel_trace.csv",
               trace_columns + launch("k", "0,1000") + launch("only_in_" + pid, "2000," + pid + "000"));
    folder.put(pid + "_kernel_stats.csv", "Name,Calls,TotalDurationNs\nk,99,990000\n");  // known from the trace
  }
  folder.put("rank/7_kernel_stats.csv", "Name,Calls,TotalDurationNs\nk,2,8000\n");  // another run, without a trace
  const Profile p = folder.read();
  CHECK(of(p, "SQ_WAVES") == 80);
  CHECK(p.counters->dispatches.at("k") == 3);
  CHECK(kernel_of(p, "k").calls == 5);
  CHECK(kernel_of(p, "k").total_us == 11);
  CHECK(kernel_of(p, "k").max_us == 4);
  for (const char* kernel : {"only_in_7", "only_in_8", "only_in_9"}) CHECK(kernel_of(p, kernel).calls == 1);
  CHECK(p.times->kernels[0].name == "k");
  CHECK(p.files.size() == 7);
}

TEST_CASE("launches that overlap on one queue are told, and those on different queues are not") {
  const Folder folder("overlap");
  folder.put("a_kernel_trace.csv", trace_columns + launch("slow", "1000,90000") + launch("fast", "2000,3000") +
                                       launch("fast", "4000,5000") + launch("fast", "90000,91000") +
                                       launch("other", "1500,80000", "32,8", "\"Agent 2\",2"));
  folder.put("b_kernel_trace.csv", trace_columns + launch("fast", "2500,2600"));  // another process
  const Profile p = folder.read();
  CHECK(kernel_of(p, "slow").overlapping == 1);
  CHECK(kernel_of(p, "slow").overlapped == 2);
  CHECK(kernel_of(p, "fast").overlapping == 0);
  CHECK(kernel_of(p, "other").overlapping == 0);
  CHECK(
      report_md(p, nullptr, "T", 5).find("slow: 1 of 1 launches run while later ones of the same queue begin (2 of") !=
      std::string::npos);
}

TEST_CASE("an instruction outside of code objects keeps its address in memory") {
  const ThreadTrace t =
      parse_code(code_of("k", R"json(["s_load_dwordx2 s[0:1], s[4:5], 0x0",0,2,"k.hpp:1",0,139876543210496,64,64,1,0],
   ["s_waitcnt lgkmcnt(0)",0,3,"k.hpp:2",0,139876543210504,64,6400,6000,0],
   ["s_barrier",0,4,"",0,18446744073709551612,64,64,60,0])json"),
                 "c");
  CHECK(t.code[1].address == 139876543210504ull);
  CHECK(by_instruction(t, 1)[0].address == "0x7f378baba408");
  // A count may not be so large, nor an address negative.
  CHECK(status_of([] { parse_code(code_of("k", R"json(["s_nop 0",0,1,"",0,8,139876543210496,1,0,0])json"), "c"); }) ==
        Exit::usage);
  CHECK(status_of([] { parse_code(code_of("k", R"json(["s_nop 0",0,1,"",0,-8,1,1,0,0])json"), "c"); }) == Exit::usage);
}

TEST_CASE("hot spots that look alike carry address, source line and neighbours") {
  const ThreadTrace t =
      parse_code(code_of("k", R"json(["global_load_dwordx4 v[0:3], v4, s[0:1]",0,1,"a.hpp:1",1,256,1,9,0,0],
   ["s_waitcnt vmcnt(0)",0,2,"a.hpp:2",1,264,1,900,800,0],["v_add_u32 v0, v0, v1",0,3,"",1,268,1,9,0,0],
   ["ds_write_b32 v0, v1",0,4,"",1,272,1,9,0,0],["s_waitcnt vmcnt(0)",0,5,"b.hpp:7",0,139876543210504,1,90,80,0],["s_endpgm",0,6,"",1,288,1,9,0,0])json"),
                 "c");
  Profile p;
  p.traces = {t};
  const std::string md = report_md(p, nullptr, "T", 5);
  CHECK(
      md.find("| s_waitcnt vmcnt(0) | 0x108 | a.hpp:2 | global_load_dwordx4 v[0:3], v4, s[0:1] | v_add_u32 v0, v0, v1; "
              "ds_write_b32 v0, v1 |") != md.npos);
  CHECK(
      md.find(
          "| s_waitcnt vmcnt(0) | 0x7f378baba408 | b.hpp:7 | v_add_u32 v0, v0, v1; ds_write_b32 v0, v1 | s_endpgm |") !=
      md.npos);
  const Json json = parse_json(report_json(p, nullptr, 5), "r");
  const Json& spot = json.at("thread_traces")[0].at("by_instruction")[1];
  CHECK(spot.at("address") == "0x7f378baba408");
  CHECK(spot.at("source") == "b.hpp:7");
  CHECK(spot.at("before").size() == 2);
  CHECK(spot.at("after")[0] == "s_endpgm");
}

TEST_CASE("registers that a code names are counted as the hardware reserves them") {
  const auto used = [](const std::string& text) {
    return registers_of(parse_code(code_of("k", "[\"" + text + R"json(",0,1,"",1,0,1,1,0,0])json"), "c"));
  };
  CHECK(used("v_mfma_f32_16x16x32_bf16 a[0:3], v[36:39], v[8:11], a[28:31]").vgprs == 40);
  CHECK(used("v_mfma_f32_16x16x32_bf16 a[0:3], v[36:39], v[8:11], a[28:31]").agprs == 32);
  CHECK(used("v_accvgpr_read_b32 v81, a3").reserved() == 88);  // 84 + 4
  CHECK(used("v_add_u32_e64 v9, -v1, |v12|").vgprs == 13);
  CHECK(used("s_waitcnt vmcnt(63) lgkmcnt(0)").vgprs == 0);
  CHECK(used("s_mov_b32 s4, 0xa55").agprs == 0);
  CHECK(used("v_mov_b32_e32 v0, 0xab9").reserved() == 8);
}

TEST_CASE("half of the registers, as rocprofv3 1.1.0 writes them on gfx950, is noticed") {
  const auto chips = all_chips();
  const Chip &mi350 = chip_of(chips, "gfx950"), &mi300 = chip_of(chips, "gfx942");
  const Folder folder("registers");
  const auto waves = [&](const std::string& kernel, const Chip& chip) {
    return *occupancy_of(kernel_of(folder.read(), kernel), chip);
  };
  // Nothing tells: 96 or 192.
  folder.put("x_kernel_trace.csv", trace_columns + launch("pa", "0,9", "96,0") + launch("tiny", "0,9", "8,0"));
  CHECK(waves("pa", mi350).waves == 5);
  CHECK(waves("pa", mi350).perhaps == 2);
  CHECK(waves("pa", mi350).target == 0);
  CHECK(waves("tiny", mi350).perhaps == 8);
  CHECK(waves("pa", mi300).perhaps == 0);
  const std::string doubt = report_md(folder.read(), &mi350, "T", 5);
  CHECK(doubt.find("| 5 or 2 | registers | 96 or 192 | - |") != doubt.npos);
  CHECK(doubt.find("pull request 5862") != doubt.npos);
  // The code beside it uses more than 96.
  folder.put("a/code.json", code_of("pa", R"json(["v_mov_b32 v187, a3",0,1,"",1,0,1,1,0,0])json"));
  folder.put("a/se0_sm0_sl0_wv0.json", wave);
  CHECK(waves("pa", mi350).waves == 2);
  CHECK(waves("pa", mi350).registers == 192);
  CHECK(waves("pa", mi350).perhaps == 0);
  CHECK(waves("tiny", mi350).registers == 16);  // the same profiler wrote it
  CHECK(report_md(folder.read(), &mi350, "T", 5).find("pa: registers by code.json: the profiler says 96.") !=
        std::string::npos);
  // A trace that agrees with its code is whole.
  folder.put("a/code.json", code_of("pa", R"json(["v_mov_b32 v95, v1",0,1,"",1,0,1,1,0,0])json"));
  CHECK(waves("pa", mi350).waves == 5);
  CHECK(waves("pa", mi350).perhaps == 0);
  // Registers come in eights: a sum of 12 is half of something.
  fs::remove_all(folder.at("a"));
  folder.put("x_kernel_trace.csv", trace_columns + launch("pa", "0,9", "96,0") + launch("tiny", "0,9", "12,0"));
  CHECK(waves("pa", mi350).waves == 2);
  CHECK(waves("tiny", mi350).registers == 24);
  // Whoever writes AGPRs writes all.
  folder.put("x_kernel_trace.csv", trace_columns + launch("pa", "0,9", "96,0") + launch("tiny", "0,9", "12,4"));
  CHECK(waves("pa", mi350).waves == 5);
  CHECK(waves("pa", mi350).perhaps == 0);
  // The simulator says what the code object says.
  folder.put("x_kernel_trace.csv", trace_columns + launch("pa (modelled on MI350X, not measured)", "0,9", "92,0"));
  CHECK(waves("pa (modelled on MI350X, not measured)", mi350).registers == 96);
}

TEST_CASE("a code object beside a trace says what a kernel reserves, and one that cannot be read says nothing") {
  const auto chips = all_chips();
  const Chip& mi350 = chip_of(chips, "gfx950");
  const Folder folder("object");
  folder.put("x_kernel_trace.csv", trace_columns + launch("k", "0,9", "96,0") + launch("other", "0,9", "40,0"));
  folder.put("7_code_object_id_1.out", "\177ELF and nothing more");
  CHECK(occupancy_of(kernel_of(folder.read(), "k"), mi350)->perhaps == 2);
  folder.put("7_code_object_id_2.out", tilewave::test::amd_object(187, 0));
  const Profile p = folder.read();
  CHECK(occupancy_of(kernel_of(p, "k"), mi350)->waves == 2);
  CHECK(occupancy_of(kernel_of(p, "k"), mi350)->registers == 192);
  CHECK(kernel_of(p, "k").registers_from == "7_code_object_id_2.out: the profiler says 96");
  CHECK(occupancy_of(kernel_of(p, "other"), mi350)->registers == 80);
  CHECK(p.files == std::vector<std::string>{"7_code_object_id_2.out", "x_kernel_trace.csv"});
  // One that agrees changes nothing.
  folder.put("x_kernel_trace.csv", trace_columns + launch("k", "0,9", "188,4"));
  CHECK(kernel_of(folder.read(), "k").registers_from == "");
}

}  // namespace trace_runs_tests
