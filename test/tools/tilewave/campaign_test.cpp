// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/campaign.hpp"

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/grammar.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/campaign/memory.hpp"
#include "tools/tilewave/campaign/proposal.hpp"
#include "tools/tilewave/campaign/quick.hpp"
#include "tools/tilewave/campaign/rules.hpp"
#include "tools/tilewave/campaign/skew.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/report/page.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::Approx;
using tilewave::test::fuzz;
using tilewave::test::fuzz_json;
using tilewave::test::fuzz_texts;
using tilewave::test::Random;
using tilewave::test::status_of;
using tilewave::test::strange_fields;

Manifest sample_manifest() {
  Manifest m;
  m.name = "pa_hip_sm90_20260416", m.target_op = "paged_attention", m.target_backend = "HIP", m.target_gpu = "sm90";
  m.benchmark_command = "bench \"x\" | cat", m.repository = "/r", m.worktree = "/w";
  m.kernel_source = {"a.hpp", "b: c.hpp"}, m.max_iterations = 10, m.created = "2026-04-16 10:00";
  return m;
}

Round round_with(int number, const std::string& status) {
  Round r;
  r.number = number, r.status = status, r.commit = "c" + std::to_string(number), r.date = "2026-04-16 10:00";
  r.proposal.hypothesis = "load \"K\" earlier", r.proposal.bucket = "K1", r.proposal.direction = "prefetch";
  r.us = 10, r.best_us = 11, r.score = 1.1, r.classes = {{"mtp=1", 10}};
  return r;
}

State after(const std::vector<std::string>& statuses) {
  State s;
  conclude_round(s, round_with(1, "baseline"));
  for (const std::string& status : statuses)
    conclude_round(s, round_with(static_cast<int>(s.rounds.size()) + 1, status));
  return s;
}
}  // namespace

TEST_CASE("a manifest is read as it was written, and nothing else is") {
  const std::string yaml = yaml_of(sample_manifest());
  const Manifest m = parse_manifest(yaml, "m");
  CHECK(yaml_of(m) == yaml);
  CHECK(m.kernel_source == std::vector<std::string>{"a.hpp", "b: c.hpp"});
  CHECK(m.max_iterations == 10);
  CHECK(m.performance_target.empty());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = yaml;
    text.replace(text.find(from), from.size(), to);
    return status_of([&] { parse_manifest(text, "m"); });
  };
  CHECK(with("max_iterations: 10", "max_iterations: 120") == Exit::usage);
  CHECK(with("max_iterations: 10", "max_iterations: ten") == Exit::usage);
  CHECK(with("git_commit: true", "git_commit: perhaps") == Exit::usage);
  CHECK(with("\"sm90\"", "\"../sm90\"") == Exit::usage);
  CHECK(with("timeout: \"1h\"", "timeout: \"soon\"") == Exit::usage);
  CHECK(with("target_op:", "target_opp:") == Exit::usage);
  CHECK(with("target_op: \"paged_attention\"\n", "") == Exit::usage);
  CHECK(with("target_op: \"paged_attention\"", "target_op: [1, 2]") == Exit::usage);
  CHECK(fuzz(yaml, [](const std::string& text) { parse_manifest(text, "m"); }) > 0);
}

TEST_CASE("regressions in a row are counted, everything else starts over") {
  CHECK(after({"discard", "discard"}).consecutive_regressions == 2);
  CHECK(after({"discard", "tie"}).consecutive_regressions == 0);
  CHECK(after({"discard", "failed"}).recent_regressions.empty());
  CHECK(after({"discard", "incorrect", "discard"}).consecutive_regressions == 1);
  const State kept = after({"discard", "keep"});
  CHECK(kept.consecutive_regressions == 0);
  CHECK(kept.best_commit == "c3");
  CHECK(kept.best_round == 3);
  CHECK(after({"keep", "split"}).best_commit == "c2");
  const State five = after({"discard", "discard", "discard", "discard", "discard"});
  CHECK(five.recent_regressions.size() == 5);
  CHECK(stop_reason(five, sample_manifest(), nullptr) == "5 consecutive measured regressions");
  CHECK(stop_reason(after({"discard", "discard", "discard", "discard"}), sample_manifest(), nullptr).empty());
  Manifest m = sample_manifest();
  m.max_iterations = 2;
  CHECK(stop_reason(after({"tie"}), m, nullptr).empty());
  CHECK(stop_reason(after({"tie", "tie"}), m, nullptr) == "max_iterations = 2");
}

TEST_CASE("two rollbacks in a row ask for another direction") {
  CHECK(stagnation_hint(after({"tie"})).empty());
  CHECK(stagnation_hint(after({"tie", "discard"})).find("another direction than prefetch") != std::string::npos);
  CHECK(stagnation_hint(after({"tie", "discard", "keep"})).empty());
}

TEST_CASE("a performance target is reached in the geometric mean") {
  const Csv rows = parse_csv("us,tflops,roof_pct\n10,400,50\n40,900,80\n", "x");
  CHECK(target_reached("> 599 TFLOPS", rows));
  CHECK_FALSE(target_reached("> 601 TFLOPS", rows));
  CHECK(target_reached("> 60 %", rows));
  CHECK(target_reached("< 20.1 us", rows));
  CHECK_FALSE(target_reached("< 19.9 us", rows));
  CHECK_FALSE(target_reached("", rows));
  const Csv modelled = parse_csv("us,model_us\nnan,10\nnan,40\n", "x");
  CHECK(target_reached("< 20.1 us", modelled, "model_us"));
  CHECK_FALSE(target_reached("< 19.9 us", modelled, "model_us"));
  CHECK(status_of([&] { target_reached("< 20.1 us", modelled); }) == Exit::usage);  // it could never be met
  // Shares and rates of rows that were modelled are computed; without a chip a share is refused, not never reached.
  const Csv work = parse_csv("us,model_us,roof_pct,tflops,gbps,flops,bytes_ideal\nnan,10,nan,nan,nan,1e9,4e7\n", "x");
  Roof roof;
  roof.bytes_per_s = 8e12, roof.flops_per_s = 1e15;  // a floor of 5 us
  CHECK(target_reached("> 49 %", work, "model_us", &roof));
  CHECK_FALSE(target_reached("> 51 %", work, "model_us", &roof));
  CHECK_FALSE(target_reached("roof", work, "model_us", &roof));
  CHECK(target_reached("> 99 TFLOPS", work, "model_us", &roof));
  CHECK(target_reached("> 3999 GB/s", work, "model_us", &roof));
  CHECK(status_of([&] { target_reached("> 1 %", work, "model_us"); }) == Exit::usage);
  for (const char* bad : {"fast", "> TFLOPS", "> 5", "= 5 us", ">= 5 us", "> 5 GB/s"}) {
    CHECK(status_of([&] { target_reached(bad, rows); }) == Exit::usage);
  }
}

TEST_CASE("ideas that gain in the benchmark alone are not tried") {
  Proposal p;
  p.hypothesis = "x", p.bucket = "K3";
  check(p);
  const auto refused = [](Proposal q) { return status_of([&] { check(q); }) == Exit::usage; };
  for (const char* bucket : {"W2", "W3", "", "K5", "W1"}) {
    p.bucket = bucket;
    CHECK(refused(p));
  }
  p.hit_rate = 0.4, p.bucket = "W1";
  CHECK(refused(p));
  p.hit_rate = 1;
  check(p);
  p.real_gain_pct = 0;
  check(p);
  p.real_gain_pct = -2;
  CHECK(refused(p));
  p.real_gain_pct.reset();
  p.hypothesis = " ";
  CHECK(refused(p));
}

TEST_CASE("state, memory and proposals are read as written, and broken ones are named") {
  State s = after({"keep", "discard", "tie"});
  s.stage = Stage::measuring, s.current = round_with(5, ""), s.current.proposal.hit_rate = 0.75,
  s.current.files = {"a b"};
  const std::string json = json_of(s);
  CHECK(json_of(parse_state(json, "s")) == json);
  CHECK(status_of([] { parse_state("{}", "s"); }) == Exit::usage);
  std::string skipped = json;
  skipped.replace(skipped.find("\"round\": 3"), 10, "\"round\": 9");
  CHECK(status_of([&] { parse_state(skipped, "s"); }) == Exit::usage);
  CHECK(fuzz(json, [](const std::string& text) { json_of(parse_state(text, "s")); }) > 0);
  const std::string proposal = R"({"hypothesis": "x", "bucket": "K1", "target": "mtp=1", "hit_rate": 0.5})";
  CHECK(parse_proposal(proposal, "p").hit_rate == 0.5);
  CHECK(status_of([] { parse_proposal(R"({"hypothesis": "x", "bucket": "K1", "speed": 1})", "p"); }) == Exit::usage);
  CHECK(fuzz(proposal, [](const std::string& text) { parse_proposal(text, "p"); }) > 0);
  CHECK_FALSE(is_masked(R"({"version": 1, "masked": false})", "m"));
  CHECK(fuzz(R"({"version": 1, "masked": true, "hypothesis": "a text long enough to be damaged without harm"})",
             [](const std::string& text) { is_masked(text, "m"); }, 300) > 0);
}

TEST_CASE("what a candidate may not touch is told by paths and patterns") {
  const auto fixed = [](const std::string& file) {
    return std::any_of(default_fixed().begin(), default_fixed().end(),
                       [&](const std::string& f) { return is_fixed(f, file); });
  };
  for (const char* file :
       {"tools/sim/clock/clock.cpp", "include/tilewave/reference/norm.hpp", "CMakeLists.txt", "bench/CMakeLists.txt",
        "cmake/x", "a/b.cmake", "include/tilewave/ops/norm/problem.hpp", "test/x"})
    CHECK(fixed(file));
  for (const char* file : {"include/tilewave/ops/norm/kernel.hpp", "include/tilewave/ops/gemm/tuned/sm90.hpp",
                           "benchmark", "docs/reference/gemm.md"})
    CHECK_FALSE(fixed(file));
  CHECK(paths_in({"./run --shapes=a/b.csv && x>y"}) ==
        std::vector<std::string>{"./run", "--shapes", "a/b.csv", "x", "y"});
}

TEST_CASE("a quick test runs one config of each class in the benchmark's words") {
  CHECK(quick_form("build/bench/bench_pa --sweep=decode --model-time --benchmark_format=csv") ==
        "build/bench/bench_pa --model-time --benchmark_format=csv --config=\"$1\"");
  CHECK_FALSE(quick_form("python test_pa.py").has_value());
  CHECK_FALSE(quick_form("bench_pa | tee x").has_value());
  const Csv csv =
      parse_csv("name,arch,rows,columns,x_dtype,policy_columns,waves,us,err\na,gfx950,4,64,bf16,waves,2,1,0\n", "x");
  CHECK(config_words(csv, 0) == "rows=4/columns=64/x_dtype=bf16");
  CHECK(quick_script("bench_pa", {"rows=4/columns=64"}).find("one 'rows=4/columns=64'\n") != std::string::npos);
}

TEST_CASE("gains of what routes tokens have to hold where routing is skewed") {
  CHECK(is_routed("moe_gemm"));
  CHECK_FALSE(is_routed("norm"));
  const Csv base = parse_csv("m,routing,us,err\n1,uniform,10,0\n1,zipf,20,0\n", "x");
  bool holds = false;
  CHECK_FALSE(skewed_rows(base, base, "us", 1, holds).empty());
  CHECK(holds);
  const Csv loses = parse_csv("m,routing,us,err\n1,uniform,5,0\n1,zipf,22,0\n", "x");
  skewed_rows(base, loses, "us", 1, holds);
  CHECK_FALSE(holds);
  const Csv even = parse_csv("m,routing,us,err\n1,uniform,10,0\n", "x");
  CHECK(skewed_rows(even, even, "us", 1, holds).empty());
}

TEST_CASE("the final report holds the headline against the real workload") {
  State s = after({"keep"});
  CHECK(final_report(s).find("Inflation gap: 0.00 %") != std::string::npos);
  s.rounds[1].proposal.real_gain_pct = 4;
  const std::string report = final_report(s);
  CHECK(report.find("Headline gain: +10.00 %") != std::string::npos);
  CHECK(report.find("Inflation gap: 6.00 %") != std::string::npos);
  CHECK(report.find("roll back") != std::string::npos);
  const Json json = parse_json(final_report_json(s), "r");
  CHECK(json.at("headline_percent").get<double>() == Approx(10));
  CHECK(json.at("inflation_gap_percent").get<double>() == Approx(6));
}

namespace {
Round a_round(int number, const char* status) {
  Round r;
  r.number = number, r.status = status, r.commit = "c", r.date = "2026-04-16 10:00", r.us = 10, r.best_us = 11;
  r.proposal.hypothesis = "load \"K\" earlier", r.proposal.bucket = "K1", r.proposal.hit_rate = 0.5;
  r.classes = {{"mtp=1", 10}}, r.launch = {{"vgprs", 64}}, r.pitfalls = {"a\nb"};
  return r;
}
std::string a_state() {
  State s;
  conclude_round(s, a_round(1, "baseline")), conclude_round(s, a_round(2, "discard"));
  s.stage = Stage::measuring, s.current = a_round(3, "");
  return json_of(s);
}

/// The manifest with values and keys that YAML allows and a campaign may not.
std::string other_manifest(Random& random) {
  static const std::vector<std::string> values{"",
                                               "~",
                                               "[]",
                                               "[1, [2]]",
                                               "{a: b}",
                                               "{a: {b: c}}",
                                               "- x",
                                               "&a [*a]",
                                               "*a",
                                               "!!int x",
                                               "0x10",
                                               ".inf",
                                               ".nan",
                                               "-1",
                                               "1e999",
                                               "1:30",
                                               "yes",
                                               "'",
                                               "\"\\x00\"",
                                               "|\n  text",
                                               ">-\n  text",
                                               "? x",
                                               "@x",
                                               "%x",
                                               "99999999999999999999",
                                               "<<",
                                               "0 h",
                                               "1h1h",
                                               "-1m",
                                               "1e300h"};
  auto lines = lines_of(yaml_of(sample_manifest()));
  for (std::size_t edits = random.below(4); edits > 0; --edits) {
    std::string& line = lines[random.below(lines.size())];
    const std::size_t colon = std::min(line.find(": "), line.size());
    switch (random.below(6)) {
      case 0: line = ""; break;
      case 1: lines.push_back(line); break;
      case 2: line = "unknown" + line.substr(colon); break;
      case 3: line = line.substr(0, colon) + ": \"" + printable(random.of(strange_fields())) + "\""; break;
      default: line = line.substr(0, colon) + ": " + random.of(values);
    }
  }
  return join(lines, random.one_in(4) ? "\r\n" : "\n") + "\n";
}
}  // namespace

TEST_CASE("files of a campaign by a grammar are read the same however they are written, or refused") {
  const std::string state = a_state();
  CHECK(fuzz_json(
            state,
            [](const std::string& text) {
              const State s = parse_state(text, "s");
              const std::string again = json_of(s);
              if (json_of(parse_state(again, "s")) != again) throw std::logic_error("read otherwise: " + again);
              stop_reason(s, sample_manifest(), nullptr), stagnation_hint(s), campaign_html("c", s);
              return again;
            },
            false, 1500) > 0);
  // A count that is none is refused, not cut to 32 bits.
  for (const char* key : {"round", "fix_attempts", "best_round", "CONSECUTIVE_REGRESSIONS", "consecutive_rollbacks"}) {
    for (const std::int64_t wrong : {(std::int64_t{1} << 32) + 1, std::int64_t{-1}, std::int64_t{1} << 62}) {
      Json json = Json::parse(state);
      (json.contains(key) ? json : json["current"])[key] = wrong;
      CAPTURE(key, wrong);
      std::string message;
      CHECK(status_of([&] { parse_state(json.dump(), "s"); }, &message) == Exit::usage);
      CHECK(message.find(key) != message.npos);
    }
  }
  CHECK(
      fuzz_json(
          R"({"hypothesis": "load K earlier", "bucket": "W1", "target": "mtp=1", "direction": "prefetch", "tip": "a\nb",
 "lesson": "c", "pitfalls_and_fixes": ["d", "e"], "real_gain_pct": 2.5, "hit_rate": 0.75})",
          [](const std::string& text) {
            const Proposal p = parse_proposal(text, "p");
            check(p);
            return p.hypothesis + p.bucket + p.target + p.direction + p.tip + p.lesson + join(p.pitfalls, ";");
          },
          false) > 0);
  CHECK(fuzz_texts(other_manifest, [](const std::string& text) {
          const std::string again = yaml_of(parse_manifest(text, "m"));
          if (yaml_of(parse_manifest(again, "m")) != again) throw std::logic_error("read otherwise: " + again);
        }) > 0);
}
