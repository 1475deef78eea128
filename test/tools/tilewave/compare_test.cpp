// SPDX-License-Identifier: MIT
#include "tools/tilewave/compare/compare.hpp"

#include <fmt/format.h>

#include <cmath>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/compare/kernels.hpp"
#include "tools/tilewave/compare/report.hpp"
#include "tools/tilewave/trace/kernel_times.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::Approx;
using tilewave::test::fuzz;
using tilewave::test::pa_csv;
using tilewave::test::pa_row;
using tilewave::test::status_of;

const std::string base_text = pa_csv(pa_row(16, 1, 100) + pa_row(16, 2, 200) + pa_row(1024, 1, 50));

Comparison of(const std::string& cand, CompareOptions options = {}, const std::string& base = base_text) {
  return compare(parse_csv(base, "base.csv"), parse_csv(cand, "cand.csv"), options);
}
std::string refusal(const std::string& cand, CompareOptions options = {}, const std::string& base = base_text) {
  std::string message;
  CHECK(status_of([&] { of(cand, options, base); }, &message) == Exit::refused);
  return message;
}
bool has(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }
}  // namespace

TEST_CASE("verdicts follow the classes, and small changes are ties") {
  CHECK(of(base_text).verdict == Verdict::tie);
  CHECK(of(pa_csv(pa_row(16, 1, 99.5) + pa_row(16, 2, 201) + pa_row(1024, 1, 50))).verdict == Verdict::tie);
  const Comparison keep = of(pa_csv(pa_row(16, 1, 90) + pa_row(16, 2, 200) + pa_row(1024, 1, 50)));
  CHECK(keep.verdict == Verdict::keep);
  REQUIRE(keep.classes.size() == 3);
  CHECK(keep.score == Approx(std::cbrt(100.0 / 90)));
  CHECK(of(pa_csv(pa_row(16, 1, 110) + pa_row(16, 2, 200) + pa_row(1024, 1, 50))).verdict == Verdict::discard);
  const Comparison split = of(pa_csv(pa_row(16, 1, 90) + pa_row(16, 2, 220) + pa_row(1024, 1, 50)));
  CHECK(split.verdict == Verdict::split);
  CHECK(has(text_report(split, "us"), "block_size=16 mtp=1 head_size=128: candidate"));
  CHECK(has(text_report(split, "us"), "block_size=16 mtp=2 head_size=128: base"));
}

TEST_CASE("a class does not gain at the cost of one of its rows") {
  CompareOptions by_block;
  by_block.by = {"block_size"};
  const auto cand = pa_csv(pa_row(16, 1, 50) + pa_row(16, 2, 220) + pa_row(1024, 1, 50));
  CHECK(of(cand, by_block).verdict == Verdict::split);
  by_block.row_loss_pct = 20;
  CHECK(of(cand, by_block).verdict == Verdict::keep);
}

TEST_CASE("rows that are wrong come before any time") {
  const Comparison wrong = of(pa_csv(pa_row(16, 1, 1, "1,gfx950,3e9,1") + pa_row(16, 2, 1) + pa_row(1024, 1, 1)));
  CHECK(wrong.verdict == Verdict::incorrect);
  CHECK(wrong.wrong.size() == 1);
  CHECK(wrong.score == 0);
  CHECK(of(pa_csv(pa_row(16, 1, 1, "nan,gfx950,3e9,1") + pa_row(16, 2, 1) + pa_row(1024, 1, 1))).verdict ==
        Verdict::incorrect);
  const std::string bad_base = pa_csv(pa_row(16, 1, 100, "1,gfx950,3e9,1"));
  CHECK(has(refusal(pa_csv(pa_row(16, 1, 90)), {}, bad_base), "baseline is wrong"));
}

TEST_CASE("what is not the same measurement is refused by name") {
  CHECK(has(refusal(pa_csv(pa_row(16, 1, 90) + pa_row(16, 2, 90))), "1 of 3 configs"));
  const auto third = pa_row(16, 2, 90) + pa_row(1024, 1, 50);
  CHECK(has(refusal(pa_csv(pa_row(16, 1, 90, "0,gfx942,3e9,1") + third)), "another device"));
  CHECK(has(refusal(pa_csv(pa_row(16, 1, 90, "0,gfx950,2e9,1") + third)), "other work"));
  CHECK(has(refusal(pa_csv(pa_row(16, 1, 90, "0,gfx950,3e9,2") + third)), "other inputs"));
  CHECK(has(refusal(pa_csv(pa_row(16, 1, std::nan("")) + third)), "no time"));
  CHECK(has(refusal(pa_csv(pa_row(16, 1, 90) + pa_row(16, 1, 91) + third)), "--repeats"));
  CHECK(has(refusal("block_size,mtp,head_size,us,err,window\n16,1,128,5,0,0\n", {},
                    "block_size,mtp,head_size,us,err\n16,1,128,5,0\n"),
            "no column 'window'"));
}

TEST_CASE("rows of one state of the chip are compared, whatever was timed beside them") {
  const auto csv = [](const char* us, const char* state, const char* beside) {
    return std::string("name,m,us,err,arch,state,sm_mhz,power_w,peer,peer_us,floor_us,over_floor,sustained_us\na,64,") +
           us + ",0,sm90," + state + "," + beside + "\n";
  };
  const std::string alone = "1980,130,none,nan,nan,nan,nan", beside = "1455,600,cublaslt,21,10,2,30";
  const std::string base = csv("20", "rested", alone.c_str());
  CHECK(of(csv("15", "rested", beside.c_str()), {}, base).verdict == Verdict::keep);
  CHECK(has(refusal(csv("15", "sustained", alone.c_str()), {}, base), "state is sustained instead of rested"));
}

TEST_CASE("modelled times are compared when asked for, on one chip, and never with measured ones") {
  const auto csv = [](double us, const std::string& model_us, const std::string& error, const std::string& chip) {
    return "name,m,us,err,arch,model_us,model_error_pct,model_chip\na,64," + std::to_string(us) + ",0,gfx950," +
           model_us + "," + error + "," + chip + "\n";
  };
  const double none = std::nan("");
  const std::string base = csv(none, "20", "0", "MI355X"), measured = csv(20, "nan", "nan", "none");
  CompareOptions model;
  model.map.us = "model_us";
  CHECK(of(csv(none, "15", "0", "MI355X"), model, base).verdict == Verdict::keep);
  // The error of sampling is noise.
  CHECK(of(csv(none, "19", "1", "MI355X"), model, base).verdict == Verdict::keep);
  CHECK(of(csv(none, "19", "4", "MI355X"), model, base).verdict == Verdict::tie);
  CHECK(has(refusal(csv(none, "15", "0", "MI350X"), model, base), "model_chip is MI350X instead of MI355X"));
  CHECK(has(refusal(measured, model, base), "measured, not modelled"));
  CHECK(has(refusal(base, model, measured), "measured, not modelled"));
  CHECK(has(refusal(base, {}, base), "--time=model_us"));
  CHECK(has(refusal(base, {}, measured), "--time=model_us"));
}

TEST_CASE("modelled policies of one work are ranked by clk") {
  const auto csv = [](const std::string& us, const std::string& clk) {
    return "name,m,us,err,arch,model_us,model_clk,model_mhz,model_error_pct,model_chip\na,64,nan,0,gfx950," + us + "," +
           clk + ",2000,0,MI355X\n";
  };
  CompareOptions model;
  model.map.us = "model_clk";
  CHECK(of(csv("21", "30000"), model, csv("20", "40000")).verdict == Verdict::keep);
  CHECK(of(csv("19", "40000"), model, csv("20", "30000")).verdict == Verdict::discard);
}

TEST_CASE("repeated rows give their median or their best") {
  const auto cand =
      pa_csv(pa_row(16, 1, 120) + pa_row(16, 1, 80) + pa_row(16, 1, 90) + pa_row(16, 2, 200) + pa_row(1024, 1, 50));
  CompareOptions options;
  options.repeats = Repeats::median;
  CHECK(of(cand, options).classes[1].cand_us == Approx(90));
  CHECK(of(cand, options).classes[1].noise > 0.1);
  options.repeats = Repeats::best;
  CHECK(of(cand, options).classes[1].cand_us == Approx(80));
}

TEST_CASE("half a percent counts when it comes twice in the same direction") {
  const auto cand = pa_csv(pa_row(16, 1, 99.4) + pa_row(16, 2, 200) + pa_row(1024, 1, 50));
  const std::string before = json_report(of(cand), "us");
  CompareOptions options;
  options.previous = ratios_of(before, "before.json");
  CHECK(of(cand).verdict == Verdict::tie);
  CHECK(of(cand, options).verdict == Verdict::keep);
  const auto further = pa_csv(pa_row(16, 1, 98.5) + pa_row(16, 2, 200) + pa_row(1024, 1, 50));
  options.previous = ratios_of(json_report(of(further), "us"), "kept.json");  // a gain that was kept is in the baseline
  CHECK(of(cand, options).verdict == Verdict::tie);
  options.previous = ratios_of(before, "before.json");
  const auto opposite = pa_csv(pa_row(16, 1, 100.6) + pa_row(16, 2, 200) + pa_row(1024, 1, 50));
  CHECK(of(opposite, options).verdict == Verdict::tie);
}

TEST_CASE("a target class has to gain itself") {
  const auto cand = pa_csv(pa_row(16, 1, 90) + pa_row(16, 2, 200) + pa_row(1024, 1, 50));
  CompareOptions options;
  options.target = "block_size=16,mtp=1";
  CHECK(of(cand, options).verdict == Verdict::keep);
  options.target = "block_size=1024";
  CHECK(of(cand, options).verdict == Verdict::discard);
  options.target = "block_size=7";
  CHECK(status_of([&] { of(cand, options); }) == Exit::usage);
}

TEST_CASE("the tables of other projects are read through a column map") {
  const std::string flydsl =
      "compute_type,num_heads,query_length,block_size,head_size,us_gluon,us_flydsl_ps,err_flydsl_ps,flydsl_ps_max_diff\n"
      "fp8,\"(8, 1)\",1,1024,128,80.6,169.5,0,0.01\nfp8,\"(16, 1)\",1,1024,128,81,170,0,0.01\n";
  CompareOptions options;
  options.map = column_map("flydsl");
  CHECK(of(flydsl, options, flydsl).verdict == Verdict::tie);
  CHECK(of(flydsl, options, flydsl).classes.size() == 1);
  // Since 2026-07 it has no errors, and a wrong result ends the test that writes it.
  const std::string later =
      "compute_type,num_heads,query_length,block_size,head_size,us_gluon,us_flydsl_ps\n"
      "fp8,\"(8, 1)\",1,1024,128,80.6,120\nfp8,\"(16, 1)\",1,1024,128,81,121\n";
  CHECK(of(later, options, later).verdict == Verdict::tie);
  CHECK(of(flydsl, options, later).verdict == Verdict::discard);         // the baseline need not have them
  CHECK(status_of([&] { of(later, options, flydsl); }) == Exit::usage);  // but what it has, it was judged by
  CompareOptions ours;
  CHECK(status_of([&] { of("m,us\n1,2\n", ours, "m,us\n1,2\n"); }) == Exit::usage);

  const std::string aiter = "gfx,cu_num,M,N,K,q_dtype_w,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n";
  options.map = column_map("aiter");
  const auto faster = of(aiter + "gfx942,304,16,1536,7168,fp8,12,0,8,b,27,9,0.01\n", options,
                         aiter + "gfx942,304,16,1536,7168,fp8,7,0,10,a,27,9,0.0\n");
  CHECK(faster.verdict == Verdict::keep);
  CHECK(faster.classes[0].rows[0].cand_entry == "b");
  CHECK(of(aiter + "gfx942,304,16,1536,7168,fp8,12,0,8,b,27,9,0.3\n", options,
           aiter + "gfx942,304,16,1536,7168,fp8,7,0,10,a,27,9,0.0\n")
            .verdict == Verdict::incorrect);
  for (const char* bad : {"us", "us=", "speed=x", "max_err=-1", "max_err=nan", "max_err=x"}) {
    CHECK(status_of([&] { column_map(bad); }) == Exit::usage);
  }
}

TEST_CASE("GPU kernel time decides over the benchmark's") {
  Comparison keep;
  keep.verdict = Verdict::keep;
  decide_by_kernels(keep, {100, 10}, {100.2, 10}, 1);
  CHECK(keep.verdict == Verdict::tie);
  keep.verdict = Verdict::keep;
  decide_by_kernels(keep, {100, 10}, {103, 10}, 1);
  CHECK(keep.verdict == Verdict::discard);
  keep.verdict = Verdict::keep;
  decide_by_kernels(keep, {100, 10}, {95, 10}, 1);
  CHECK(keep.verdict == Verdict::keep);
  keep.verdict = Verdict::split;  // a faster hot kernel does not excuse the classes that lose
  decide_by_kernels(keep, {100, 10}, {95, 10}, 1);
  CHECK(keep.verdict == Verdict::split);
  // Half a percent is noise once, and a gain the second time in the same direction.
  keep.verdict = Verdict::tie;
  decide_by_kernels(keep, {100, 10}, {99.5, 10}, 1);
  CHECK(keep.verdict == Verdict::tie);
  const auto before = kernel_ratio_of(json_report(keep, "us"), "before.json");
  REQUIRE(before.has_value());
  for (const auto& [us, wanted] : {std::pair{99.5, Verdict::keep}, {100.5, Verdict::tie}, {100.0, Verdict::tie}}) {
    keep.verdict = Verdict::tie;
    decide_by_kernels(keep, {100, 10}, {us, 10}, 1, before);
    CHECK(keep.verdict == wanted);
  }
  keep.verdict = Verdict::keep;
  CHECK_FALSE(kernel_ratio_of(json_report(keep, "us"), "before.json").has_value());
}

TEST_CASE("GPU time of a call is the sum of its launches") {
  const std::string head = "Name,Calls,TotalDurationNs\n";
  const auto sum = [&](const std::string& rows, const std::string& per_call = "") {
    return kernel_sum(parse_kernel_times(head + rows, "x"), {"", per_call}, "x").us;
  };
  CHECK(sum("a,10,10000\n") == Approx(10));
  CHECK(sum("a,10,6000\nb,10,6000\n") == Approx(12));
  CHECK(sum("a,20,12000\n") == Approx(12));
  CHECK(sum("a,20,12000\nflush,5,0\n", "flush") == Approx(2.4));
  CHECK(status_of([&] { sum("a,20,12000\n", "flush"); }) == Exit::usage);
}

namespace {
const std::string trace =
    "\"Kind\",\"Agent_Id\",\"Kernel_Name\",\"Start_Timestamp\",\"End_Timestamp\",\"LDS_Block_Size\",\"VGPR_Count\",\"Accum_VGPR_Count\"\n"
    "\"KERNEL_DISPATCH\",\"Agent 2\",\"void decode<1, 2>(int)\",9007199254740993,9007199254743993,0,128,0\n"
    "\"KERNEL_DISPATCH\",\"Agent 2\",\"void decode<1, 2>(int)\",9007199254750000,9007199254755000,0,128,0\n"
    "\"KERNEL_DISPATCH\",\"Agent 2\",\"combine\",9007199254760000,9007199254760500,0,32,0\n";
const std::string stats =
    "\"Name\",\"Calls\",\"TotalDurationNs\",\"AverageNs\",\"Percentage\",\"MinNs\",\"MaxNs\",\"StdDev\"\n"
    "\"decode\",2,8000,4000,94.1,3000,5000,1000\n\"combine\",1,500,500,5.9,500,500,0\n";
const std::string ncu =
    "==PROF== Connected to process 7 (bench, \"x\n==PROF== Disconnected\n"
    "\"ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
    "\"0\",\"decode(int)\",\"GPU Speed Of Light\",\"Duration\",\"nsecond\",\"1,234,500\"\n"
    "\"0\",\"decode(int)\",\"GPU Speed Of Light\",\"SM Frequency\",\"cycle/nsecond\",\"1.6\"\n";
const std::string ncu_raw =
    "\"ID\",\"Kernel Name\",\"gpu__time_duration.sum\"\n\"\",\"\",\"us\"\n\"0\",\"decode(int)\",\"12.5\"\n";
}  // namespace

TEST_CASE("kernel times come from rocprofv3 and ncu without loss") {
  const KernelTimes from_trace = parse_kernel_times(trace, "t.csv");
  REQUIRE(from_trace.kernels.size() == 2);
  CHECK(from_trace.kernels[0].name == "void decode<1, 2>(int)");
  CHECK(from_trace.kernels[0].calls == 2);
  CHECK(from_trace.kernels[0].mean_us() == Approx(4));  // 3 and 5 us; as doubles the stamps would be off
  CHECK(from_trace.kernels[0].min_us == Approx(3).epsilon(1e-12));
  CHECK(from_trace.kernels[0].launch.at("vgpr") == 128);
  const KernelTimes from_stats = parse_kernel_times(stats, "s.csv");
  CHECK(from_stats.kernels[0].mean_us() == Approx(4));
  CHECK(from_stats.kernels[0].max_us == Approx(5));
  CHECK(parse_kernel_times(ncu, "n.csv").kernels[0].mean_us() == Approx(1234.5));
  CHECK(parse_kernel_times(ncu_raw, "n.csv").kernels[0].mean_us() == Approx(12.5));
  CHECK(matching(from_trace, "^comb", "t.csv").size() == 1);
  CHECK(status_of([&] { matching(from_trace, "nothing", "t.csv"); }) == Exit::usage);
  CHECK(status_of([&] { matching(from_trace, "(", "t.csv"); }) == Exit::usage);
}

TEST_CASE("any bytes make compare and the kernel times return or refuse") {
  const auto as_candidate = [](const std::string& text) { of(text); };
  CHECK(fuzz(base_text, as_candidate) > 0);
  CHECK(fuzz(base_text, [](const std::string& text) { of(base_text, {}, text); }) > 0);
  for (const std::string* sample : {&trace, &stats, &ncu, &ncu_raw}) {
    CHECK(fuzz(
              *sample,
              [](const std::string& text) {
                for (const KernelTime& k : parse_kernel_times(text, "x").kernels) {
                  if (!(k.calls > 0) || !(k.total_us >= 0) || k.name.empty())
                    throw std::logic_error("a kernel without a time");
                }
              },
              600) > 0);
  }
  const std::string report = json_report(of(base_text), "us");
  CHECK(fuzz(
            report, [](const std::string& text) { ratios_of(text, "x"); }, 600) > 0);
}

TEST_CASE("modelled times of one config are compared by cycles, and the report says so") {
  const auto csv = [](const char* us, const char* clk, const char* mhz, const char* chip) {
    return fmt::format(
        "name,m,us,err,arch,model_us,model_clk,model_mhz,model_error_pct,model_chip\na,64,nan,0,gfx950,{},{},{},0,{}\n",
        us, clk, mhz, chip);
  };
  CompareOptions model;
  model.map.us = "model_us";
  // 2 us of overhead each. The candidate takes fewer clk, and more time, since it is held to run at a lower clock.
  const std::string base = csv("22", "40000", "2000", "MI355X"), fewer = csv("23", "31500", "1500", "MI355X");
  const Comparison c = of(fewer, model, base);
  CHECK(c.verdict == Verdict::keep);
  CHECK(c.classes[0].ratio < 0.85);
  CHECK(c.classes[0].cand_us == Approx(23));
  CHECK(has(text_report(c, "model_us"), "ranked by model_clk"));
  CHECK(has(json_report(c, "model_us"), "\"ranked_by\": \"model_clk\""));
  CHECK(has(json_report(c, "model_us"), "\"candidate_mhz\": 1500"));
  CHECK(of(base, model, fewer).verdict == Verdict::discard);
  // As many clk are a tie, whatever the clock was taken to be.
  CHECK(of(csv("28.667", "40000", "1500", "MI355X"), model, base).verdict == Verdict::tie);
  // A second launch is paid for: as many clk, 2 us more.
  CHECK(of(csv("24", "40000", "2000", "MI355X"), model, base).verdict == Verdict::discard);
  // Rows that do not say their cycles go by time.
  const Comparison by_time = of(csv("23", "nan", "nan", "MI355X"), model, base);
  CHECK(by_time.verdict == Verdict::discard);
  CHECK_FALSE(has(text_report(by_time, "model_us"), "ranked by model_clk"));
  model.repeats = Repeats::best;  // of policies, the one of the fewest cycles
  const std::string two = base + "b,64,nan,0,gfx950,23,31500,1500,0,MI355X\n";
  CHECK(of(two, model, base).classes[0].cand_us == Approx(23));
}
