// SPDX-License-Identifier: MIT
// Outputs in the shape of the three tools', good and malformed.
#include "test/catch_compat.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/gpu/devices.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::fuzz;
using tilewave::test::status_of;

const std::string nvidia = "0, GPU-a, NVIDIA H200, 0, 0, 3, 143771\n1, GPU-b, NVIDIA H200, 97, 60, 90000, 143771\n";
const std::string apps = "GPU-b, 4711, /usr/bin/python3\n";
const std::string rocm = R"json(WARNING: something
{"card0": {"GPU use (%)": "0", "GPU Memory Allocated (VRAM%)": "0", "GPU Memory Read/Write Activity (%)": "0",
 "VRAM Total Memory (B)": "206141652992", "VRAM Total Used Memory (B)": "297000000", "Card Series": "AMD Instinct MI300X"},
 "card1": {"GPU use (%)": "100", "GPU Memory Read/Write Activity (%)": "40", "VRAM Total Memory (B)": "206141652992",
 "VRAM Total Used Memory (B)": "150000000000"}, "system": {"PID4711": "python3, 1, 149000000000, 0, 44"}})json";
const std::string amd =
    R"json({"gpu_data": [{"gpu": 0, "usage": {"gfx_activity": {"value": 100, "unit": "%"}, "umc_activity": {"value": 0}},
 "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}}},
 {"gpu": 1, "usage": {"gfx_activity": "N/A", "umc_activity": "N/A"}, "mem_usage": {"total_vram": "N/A"}}]})json";
const std::string amd_processes = R"json([{"gpu": 0, "process_list": "No running processes detected"},
 {"gpu": 1, "process_list": [{"process_info": {"name": "python3", "pid": 4711}}]}])json";
}  // namespace

TEST_CASE("nvidia-smi tells use, memory and processes of each GPU") {
  const GpuList list = parse_nvidia_smi(nvidia, apps);
  REQUIRE(list.gpus.size() == 2);
  CHECK(list.variable == "CUDA_VISIBLE_DEVICES");
  CHECK(why_busy(list.gpus[0]) == "");
  CHECK(why_busy(list.gpus[1]) == "process 4711 (/usr/bin/python3)");
  CHECK(*list.gpus[1].used_bytes == 90000.0 * 1048576);
  CHECK(why_busy(parse_nvidia_smi("0, GPU-a, H200, [N/A], [N/A], 3, 143771\n", "").gpus[0]) == "its use is not known");
  CHECK(why_busy(parse_nvidia_smi("0, GPU-a, H200, 0, 0, [N/A], 143771\n", "").gpus[0]) ==
        "its memory use is not known");
  CHECK(why_busy(parse_nvidia_smi("0, GPU-a, H200, 40, 30, 3, 143771\n", "").gpus[0]) == "40 % busy");
}

TEST_CASE("rocm-smi tells strings, and processes without their GPU") {
  const GpuList list = parse_rocm_smi(rocm);
  REQUIRE(list.gpus.size() == 2);
  CHECK(list.gpus[0].name == "AMD Instinct MI300X");
  CHECK(why_busy(list.gpus[0]) == "");
  CHECK(why_busy(list.gpus[1]) == "73 % of its memory is in use");
  REQUIRE(list.somewhere.size() == 1);
  CHECK(list.somewhere[0].pid == 4711);
}

TEST_CASE("amd-smi tells values with units, or N/A") {
  const GpuList list = parse_amd_smi(amd, amd_processes);
  REQUIRE(list.gpus.size() == 2);
  CHECK(why_busy(list.gpus[0]) == "");  // compute units shown busy for ever, memory at rest
  CHECK_FALSE(list.gpus[1].use_pct.has_value());
  CHECK(why_busy(list.gpus[1]) == "process 4711 (python3)");
  CHECK(why_busy(parse_amd_smi(amd, "").gpus[1]) == "its memory use is not known");
  CHECK(parse_amd_smi(R"json([{"gpu": 3, "usage": {"gfx_activity": 2}}])json", "").gpus[0].index == 3);
}

TEST_CASE("what the tools say before and behind their answer is passed over") {
  const std::string warning =
      "WARNING: User is missing the following required groups: render, video. {Please add}.\n[WARN] [1]\n";
  const GpuList list = parse_amd_smi(warning + amd, warning + amd_processes + "\nbye\n");
  REQUIRE(list.gpus.size() == 2);
  CHECK(*list.gpus[0].use_pct == 100);
  CHECK(list.gpus[1].processes.size() == 1);
  CHECK(parse_rocm_smi("{not this}\n" + rocm).gpus.size() == 2);
  // Talk alone is no answer, and what is cut short is none.
  CHECK(status_of([&] { parse_amd_smi(warning, ""); }) == Exit::usage);
  CHECK(status_of([&] { parse_amd_smi(warning + amd.substr(0, amd.size() / 2), ""); }) == Exit::usage);
}

TEST_CASE("a partition without use of its own has that of its busiest part") {
  const auto use = [](const std::string& parts) {
    return parse_amd_smi(
               R"json([{"gpu": 1, "usage": {"gfx_activity": "N/A", "umc_activity": "N/A", "gfx_busy_inst": )json" +
                   parts +
                   R"json(}, "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 283, "unit": "MB"}}}])json",
               "")
        .gpus[0];
  };
  CHECK(why_busy(use(R"json({"xcp_0": [{"value": 0, "unit": "%"}, "N/A"]})json")) == "");
  CHECK(why_busy(use(R"json({"xcp_0": [{"value": 0, "unit": "%"}, {"value": 70, "unit": "%"}]})json")) == "70 % busy");
  CHECK(why_busy(use(R"json({"xcp_0": ["N/A", "N/A"]})json")) == "its use is not known");
  CHECK(why_busy(use(R"json("N/A")json")) == "its use is not known");
}

TEST_CASE("the idlest is idle twice, does not fill up, and is allowed") {
  GpuList list = parse_nvidia_smi(
      "0, a, H200, 0, 0, 900, 143771\n1, b, H200, 0, 0, 3, 143771\n2, c, H200, 50, 20, 3, 143771\n", "");
  CHECK(idlest(list, list, {})->index == 1);
  CHECK(idlest(list, list, {"0"})->index == 0);
  CHECK(idlest(list, list, {"a"})->index == 0);
  CHECK_FALSE(idlest(list, list, {"2"}).has_value());
  CHECK_FALSE(idlest(list, list, {"-1"}).has_value());
  GpuList before = list;
  before.gpus[1].use_pct = 80, before.gpus[1].memory_pct = 80;
  CHECK(idlest(before, list, {})->index == 0);
  before = list;
  list.gpus[1].used_bytes = *list.gpus[1].used_bytes + (100 << 20);
  CHECK(idlest(before, list, {})->index == 0);
}

TEST_CASE("ROCR_VISIBLE_DEVICES hides GPUs and numbers the others anew") {
  GpuList list;
  list.variable = "HIP_VISIBLE_DEVICES";
  for (int i = 0; i < 4; ++i) {
    Gpu& gpu = list.gpus.emplace_back();
    gpu.index = i;
    gpu.uuid = "GPU-" + std::to_string(i) + "abc";
  }
  const auto with = [&](const char* rocr, const char* hip) {
    rocr == nullptr ? ::unsetenv("ROCR_VISIBLE_DEVICES") : ::setenv("ROCR_VISIBLE_DEVICES", rocr, 1);
    hip == nullptr ? ::unsetenv("HIP_VISIBLE_DEVICES") : ::setenv("HIP_VISIBLE_DEVICES", hip, 1);
    return allowed_gpus(list);
  };
  using Words = std::vector<std::string>;
  CHECK(with(nullptr, nullptr) == Words{});
  CHECK(bound_value(list, list.gpus[3]) == "3");
  CHECK(with(nullptr, "1,3") == Words{"1", "3"});
  CHECK(with("3,1", nullptr) == Words{"3", "1"});
  CHECK(bound_value(list, list.gpus[3]) == "0");
  CHECK(bound_value(list, list.gpus[1]) == "1");
  CHECK(with("3,1", "1") == Words{"1"});
  CHECK(with("gpu-2ABC", "0") == Words{"2"});
  CHECK(with("2,x,3", nullptr) == Words{"2"});
  CHECK(with("", nullptr) == Words{"none"});  // nothing is allowed, not everything
  CHECK(with("3", "1") == Words{"none"});
  with(nullptr, nullptr);
}

TEST_CASE("what is not the output of these tools is refused") {
  CHECK(status_of([] { parse_nvidia_smi("", ""); }) == Exit::usage);
  CHECK(status_of([] { parse_nvidia_smi("No devices were found\n", ""); }) == Exit::usage);
  CHECK(status_of([] { parse_nvidia_smi(nvidia, "GPU-z, 1, x\n"); }) == Exit::usage);
  CHECK(status_of([] { parse_nvidia_smi(nvidia + nvidia, ""); }) == Exit::usage);
  CHECK(status_of([] { parse_rocm_smi("{}"); }) == Exit::usage);
  CHECK(status_of([] { parse_rocm_smi("ERROR: no driver"); }) == Exit::usage);
  CHECK(status_of([] { parse_amd_smi("{}", ""); }) == Exit::usage);
  CHECK(status_of([] { parse_amd_smi(amd, "[{\"gpu\": 9}]"); }) == Exit::usage);
  const auto sane = [](const GpuList& list) {
    if (list.gpus.empty()) throw std::logic_error("no GPU, no error");
    for (const Gpu& gpu : list.gpus) why_busy(gpu);
  };
  CHECK(fuzz(nvidia, [&](const std::string& text) { sane(parse_nvidia_smi(text, apps)); }) > 0);
  CHECK(fuzz(apps, [&](const std::string& text) { sane(parse_nvidia_smi(nvidia, text)); }) > 0);
  CHECK(fuzz(rocm, [&](const std::string& text) { sane(parse_rocm_smi(text)); }) > 0);
  CHECK(fuzz(amd, [&](const std::string& text) { sane(parse_amd_smi(text, amd_processes)); }) > 0);
  CHECK(fuzz(amd_processes, [&](const std::string& text) { sane(parse_amd_smi(amd, text)); }) > 0);
}
