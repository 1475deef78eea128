// SPDX-License-Identifier: MIT
// The clock against what was measured of single instructions (docs/reference/clock.md names the sources): clk per repetition.
#include "sim/clock/clock.hpp"

#include "sim/clock/schedule.hpp"
#include "sim/programs/launch_file.hpp"
#include "test/catch_compat.hpp"

namespace clock_tests {
namespace {

using namespace tilewave::sim;
using nlohmann::json;
using tilewave::test::thrown_by;

ClockReport time_of(const std::string& kernel, const char* arch, json args, json grid, std::uint32_t block,
                    const ClockOptions& options = {}) {
  FileLaunch run = read_launch({{"file", std::string("clock_") + arch + ".co"},
                                {"kernel", kernel},
                                {"grid", grid},
                                {"block", block},
                                {"args", std::move(args)}},
                               ISA_SIM_KERNELS, ISA_SIM_OBJDUMP);
  return time_launch(run.object, run.launch, run.memory, options);
}

/// clk of each of 10000 repetitions by one wave; what comes before, after and once a loop is less than one.
double clk_of(const std::string& kernel, const char* arch) {
  const json args = json::array({{{"bytes", 512}}, {{"bytes", 256}}});
  return time_of(kernel, arch, args, 1, 64).cycles / 10000 - 0.6;
}

double lds_clk(const char* arch, int stride) {
  return time_of("lds_stride", arch, json::array({{{"bytes", 256}}, stride}), 1, 64).cycles / 1000;
}

}  // namespace

TEST_CASE("matrix instructions hide what the VALU does beside them") {
  CHECK(std::fabs(clk_of("matrix_alone", "gfx942") - 16) < 1);
  CHECK(std::fabs(clk_of("matrix_and_three", "gfx942") - 16) < 1);
  CHECK(std::fabs(clk_of("matrix_and_five", "gfx942") - 24) < 1);
  CHECK(std::fabs(clk_of("matrix_and_exp", "gfx942") - 20) < 1);
  CHECK(std::fabs(clk_of("matrix_and_exp", "gfx950") - 16) < 1);
}

TEST_CASE("LDS conflicts cost by the fullest bank") {
  CHECK(lds_clk("gfx942", 1) < 16);
  CHECK(std::fabs(lds_clk("gfx942", 32) - 106) < 16);  // all lanes in one bank
  CHECK(lds_clk("gfx942", 16) > 45);
  CHECK(lds_clk("gfx942", 16) < 70);
  CHECK(lds_clk("gfx950", 32) > lds_clk("gfx950", 1));
}

double stream_tbs(std::uint64_t bytes) {
  const json args = json::array({{{"bytes", bytes}, {"write", false}}, {{"bytes", bytes}}});
  const ClockReport report = time_of("stream", "gfx942", args, static_cast<std::uint32_t>(bytes / 4096), 256,
                                     {.chip = "MI300X", .instructions = 400'000});
  CHECK(report.bound == "hbm");
  return 2 * static_cast<double>(bytes) / (report.us - report.launch_us) * 1e-6;
}

TEST_CASE("a stream runs at the bandwidth of memory") {
  const double tbs = stream_tbs(std::uint64_t{64} << 20);
  CHECK(tbs > 3.2);  // BabelStream copies at 4.1
  CHECK(tbs < 4.4);
}

TEST_CASE("what one round of blocks stores has to reach memory, and all it loads comes from there") {
  const double tbs = stream_tbs(std::uint64_t{9} << 20);
  CHECK(tbs > 2.2);
  CHECK(tbs < 4.1);
}

TEST_CASE("of blocks that differ those are counted, too, that are not timed") {
  const json args = json::array({{{"bytes", 1024}}});
  const ClockReport part = time_of("growing", "gfx942", args, 4096, 256, {.instructions = 500'000}),
                    all = time_of("growing", "gfx942", args, 4096, 256, {.instructions = 100'000'000});
  CHECK_FALSE(part.complete);
  CHECK(all.complete);
  CAPTURE(part.us, all.us);
  CHECK(std::fabs(part.us / all.us - 1) < 0.3);  // the last ones, the longest, end alone
}

/// Sampled over timed whole: in us.
double sampled_over_whole(const std::string& kernel, const json& args, const json& grid, std::uint64_t instructions) {
  const ClockReport part = time_of(kernel, "gfx942", args, grid, 256, {.instructions = instructions}),
                    all = time_of(kernel, "gfx942", args, grid, 256, {.instructions = 1'000'000'000});
  CHECK(part.timed_share < 0.7);
  CHECK(all.complete);
  CAPTURE(kernel, part.us, all.us, part.timed_share);
  return part.us / all.us;
}

TEST_CASE("blocks that leave at once say nothing of those that work") {
  const json p = {{"bytes", 1 << 20}};
  const double first = sampled_over_whole("half_empty", json::array({p, 256, 4000}), 384, 400'000),
               few = sampled_over_whole("half_empty", json::array({p, 256, 400}), 20000, 100'000);
  CHECK(std::fabs(first - 1) < 0.3);
  CHECK(std::fabs(few - 1) < 0.3);
}

TEST_CASE("rows of blocks that differ are told apart where the grid is a multiple of the XCDs") {
  const json p = {{"bytes", 1 << 20}};
  CHECK(std::fabs(sampled_over_whole("triangle", json::array({p, 20}), json::array({8, 64}), 400'000) - 1) < 0.3);
  CHECK(std::fabs(sampled_over_whole("triangle", json::array({p, 10}), json::array({64, 64}), 400'000) - 1) < 0.3);
}

TEST_CASE("the XCD with the most work is timed") {
  const json p = {{"bytes", 1 << 20}};
  const auto of = [&](unsigned which) {
    return time_of("one_of_eight", "gfx942", json::array({p, which, 1000}), 256, 256);
  };
  const ClockReport first = of(0), fifth = of(5);
  CHECK(std::fabs(fifth.us / first.us - 1) < 0.05);
  CHECK(first.cycles > 50'000);
}

TEST_CASE("where blocks take other work than each alone the clock asks for more to be timed") {
  const json args = json::array({{{"bytes", 256}}, 100'000});
  CHECK(thrown_by([&] {
          time_of("shared_counter", "gfx942", args, 304, 64, {.instructions = 200'000});
        }).find("time more") != std::string::npos);
  CHECK(thrown_by([&] {
          time_of("shared_counter", "gfx942", json::array({{{"bytes", 256}}, 40'000}), 304, 64,
                  {.instructions = 2'000'000});
        }).find("hangs on those before it: time more") != std::string::npos);
  const ClockReport all = time_of("shared_counter", "gfx942", json::array({{{"bytes", 256}}, 20'000}), 304, 64);
  CHECK(all.complete);
}

TEST_CASE("more work on the same chip never takes less time") {
  for (const char* name : {"MI300X", "MI308X", "MI325X"}) {
    const Chip& chip = chip_named(name, Arch::gfx942);
    CHECK(chip.mhz_under(0, 1) == chip.mhz);  // the VALU alone costs no clock
    const auto us = [&](double clk, double matrix, double issue) {
      return clk / chip.mhz_under(matrix / clk, issue / clk);
    };
    for (double matrix = 0; matrix <= 1000; matrix += 100)
      for (double issue = 0; issue <= 1000; issue += 100) {
        CHECK(us(1000, matrix, issue) < us(1010, matrix, issue));
        CHECK(us(1000, matrix, issue) <= us(1000, matrix + 10, issue));
        CHECK(us(1000, matrix, issue) <= us(1000, matrix, issue + 10));
      }
  }
  const json args = json::array({{{"bytes", 512}}, {{"bytes", 256}}});
  for (const char* arch : {"gfx942", "gfx950"}) {  // the same products, with more beside them; a wave on each SIMD
    const std::uint32_t simds = 4 * 8 * (arch == std::string("gfx950") ? 32 : 38);
    const auto us = [&](const char* kernel) { return time_of(kernel, arch, args, simds, 64).us; };
    CHECK(us("matrix_alone") <= us("matrix_and_three"));
    CHECK(us("matrix_and_three") < us("matrix_and_five"));
  }
}

TEST_CASE("a launch costs less where it is on one XCD") {
  const json nothing = json::array({{{"bytes", 1024}}, 0, 0});
  const ClockReport one = time_of("half_empty", "gfx942", nothing, 1, 64),
                    all = time_of("half_empty", "gfx942", nothing, 304, 64);
  CHECK(one.us < 1.88);  // the shortest kernel that anybody measured, and it did something
  CHECK(one.us > one.launch_us);
  CHECK(all.launch_us > one.launch_us);
  CHECK(all.us < 3);
}

TEST_CASE("what an atomic changes is read and written") {
  const json args = json::array({{{"bytes", 64 << 20}}});
  const ClockReport store = time_of("store_words", "gfx942", args, 65536, 256, {.instructions = 400'000}),
                    add = time_of("add_words", "gfx942", args, 65536, 256, {.instructions = 400'000});
  const double ratio = (add.us - add.launch_us) / (store.us - store.launch_us);
  CAPTURE(store.us, add.us);
  CHECK(ratio > 1.7);
  CHECK(ratio < 2.5);
}

TEST_CASE("times are the same in every run and follow the clock rate") {
  const json args = json::array({{{"bytes", 512}}, {{"bytes", 256}}});
  const ClockReport a = time_of("matrix_alone", "gfx950", args, 1, 64),
                    b = time_of("matrix_alone", "gfx950", args, 1, 64);
  CHECK(a.us == b.us);
  const ClockReport slow = time_of("matrix_alone", "gfx950", args, 1, 64, {.mhz = 1000});
  CHECK(slow.us > a.us);
  CHECK(slow.mhz == 1000);
  CHECK(std::fabs(a.tflops * a.us - 10000 * 2 * 16 * 16 * 16 * 1e-6) < 0.1);
  CHECK(thrown_by([&] { time_of("matrix_alone", "gfx950", args, 1, 64, {.chip = "MI300X"}); }).find("not for MI300X") !=
        std::string::npos);
  CHECK(thrown_by([&] { time_of("matrix_alone", "gfx950", args, 1, 64, {.chip = "MI1"}); }).find("no chip MI1") !=
        std::string::npos);
}

TEST_CASE("blocks that wait for one another are timed with those they wait for") {
  FileLaunch run = read_launch({{"file", "clock_gfx942.co"},
                                {"kernel", "turns"},
                                {"grid", 40},
                                {"block", 64},
                                {"args", json::array({{{"bytes", 64}}})}},
                               ISA_SIM_KERNELS, ISA_SIM_OBJDUMP);
  const ClockReport report = time_launch(run.object, run.launch, run.memory, {.instructions = 1'000'000});
  CHECK(report.whole_chip);
  CHECK(report.complete);
  INFO(report.cycles / 40 << " clk a turn");
  CHECK(report.cycles > 40 * 4000);  // one after another, on eight XCDs
  CHECK(report.cycles < 40 * 6000);  // and the way of a word through the L2
  CHECK(*reinterpret_cast<const unsigned*>(run.buffers[0].second->data()) == 0);  // memory is left as it was
  CHECK(time_launch(run.object, run.launch, run.memory, {.instructions = 1'000'000}).us == report.us);
  CHECK_FALSE(time_of("matrix_alone", "gfx942", json::array({{{"bytes", 512}}, {{"bytes", 256}}}), 1, 64).whole_chip);
  *run.buffers[0].second->data() = 200;  // nobody's turn
  CHECK(thrown_by([&] {
          time_launch(run.object, run.launch, run.memory, {.instructions = 50'000});
        }).find("blocks wait for each other") != std::string::npos);
}

TEST_CASE("an extrapolation that no chip could do is refused") {
  Pass pass;
  pass.timed = 1000, pass.matrix_duty = pass.valu_duty = 1;
  ClockReport report;
  report.complete = false, report.timed_share = 0.5, report.cycles = 2000;  // half of it in 1000 clk, at the peak
  CHECK_NOTHROW(check_peaks(pass, report));
  report.cycles = 1800;
  CHECK(thrown_by([&] { check_peaks(pass, report); }).find("matrix units can do: time more instructions") !=
        std::string::npos);
  pass.matrix_duty = 0;
  CHECK(thrown_by([&] { check_peaks(pass, report); }).find("SIMDs can issue: time more instructions") !=
        std::string::npos);
  pass.valu_duty = 0;
  CHECK_NOTHROW(check_peaks(pass, report));
  report.timed_share = 1.1;
  CHECK(thrown_by([&] { check_peaks(pass, report); }).find("more was timed than the launch was said to have") !=
        std::string::npos);
}

}  // namespace clock_tests
