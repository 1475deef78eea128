// SPDX-License-Identifier: MIT
// The runner with stand-ins for kernels: right, wrong in the ways kernels go wrong, and failing.
// They write the device's memory from the host, so only the emulated device runs them.
#include "bench/ops/paged_attention/runner.hpp"

#include <cmath>
#include <list>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "test/catch_compat.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

namespace tilewave::bench {
namespace {

/// Writes the reference's answer as a kernel would; on the emulated device the tensors are host memory.
Status answer(const PagedAttentionProblem& p, int, hipStream_t) {
  const reference::PagedAttentionResult r = reference::paged_attention(p, 1);
  for (std::size_t i = 0; i < r.out.size(); ++i) {
    static_cast<std::uint16_t*>(p.out)[i] = f32_to_bf16(static_cast<float>(r.out[i]));
  }
  for (std::size_t i = 0; i < r.lse.size(); ++i) p.lse[i] = static_cast<float>(r.lse[i]);
  return {};
}
Status forgets_last_token(const PagedAttentionProblem& p, int splits, hipStream_t stream) {
  std::vector<std::int32_t> shorter(p.context_lengths, p.context_lengths + p.batch);
  for (std::int32_t& length : shorter) --length;
  PagedAttentionProblem q = p;
  q.context_lengths = shorter.data();
  return answer(q, splits, stream);
}
Status sees_the_future(const PagedAttentionProblem& p, int splits, hipStream_t stream) {
  PagedAttentionProblem q = p;  // every query as if it were the last one: one query at a time, each full length
  q.mtp = 1;
  q.batch = p.batch * p.mtp;
  std::vector<std::int32_t> table, lengths;
  for (std::int32_t row = 0; row < q.batch; ++row) {
    lengths.push_back(p.context_lengths[row / p.mtp]);
    const std::int32_t* from = p.block_table + row / p.mtp * p.table_row_stride;
    table.insert(table.end(), from, from + p.table_row_stride);
  }
  q.block_table = table.data();
  q.context_lengths = lengths.data();
  return answer(q, splits, stream);
}
Status swaps_scales(const PagedAttentionProblem& p, int splits, hipStream_t stream) {
  PagedAttentionProblem q = p;
  std::swap(q.k_scale, q.v_scale);
  return answer(q, splits, stream);
}
Status reads_past_the_end(const PagedAttentionProblem& p, int splits, hipStream_t stream) {
  std::vector<std::int32_t> longer(p.context_lengths, p.context_lengths + p.batch);
  for (std::int32_t& length : longer) ++length;
  PagedAttentionProblem q = p;
  q.context_lengths = longer.data();
  return answer(q, splits, stream);
}
Status forgets_a_row(const PagedAttentionProblem& p, int splits, hipStream_t stream) {
  std::vector<std::uint16_t> before(static_cast<std::uint16_t*>(p.out),
                                    static_cast<std::uint16_t*>(p.out) + p.spec.head_size);
  const Status status = answer(p, splits, stream);
  std::copy(before.begin(), before.end(), static_cast<std::uint16_t*>(p.out));
  return status;
}
Status wants_poison(const PagedAttentionProblem& p, int splits, hipStream_t stream) {
  const auto* workspace = static_cast<const float*>(p.workspace);
  const bool poisoned = std::isnan(bf16_to_f32(static_cast<const std::uint16_t*>(p.out)[0])) && std::isnan(p.lse[0]) &&
                        p.workspace_bytes > 0 && std::isnan(workspace[0]) &&
                        std::isnan(workspace[p.workspace_bytes / sizeof(float) - 1]);
  return poisoned ? answer(p, splits, stream) : Status{StatusCode::bad_value, "not poisoned"};
}
Status refuses(const PagedAttentionProblem&, int, hipStream_t) { return {StatusCode::launch_failed, "no such luck"}; }
Status throws(const PagedAttentionProblem&, int, hipStream_t) { throw std::runtime_error("out of paper"); }

using Launch = Status (*)(const PagedAttentionProblem&, int, hipStream_t);

struct Bench {
  std::vector<std::string> log;
  RunnerOptions options;
  std::list<PagedAttentionEntry> entries;  // plans point to theirs

  const PagedAttentionEntry* entry(Launch launch, const PagedAttentionCase& c) {
    entries.push_back({c.arch, true, spec_of(c), {}, launch, 0});
    return &entries.back();
  }
  Measurement run(Launch launch, const PagedAttentionCase& c, int splits = 3) {
    PagedAttentionRunner runner(options, [&](const std::string& text) { log.push_back(text); });
    return runner.run(c, {entry(launch, c), splits});
  }
};

PagedAttentionCase small_case() {
  PagedAttentionCase c;
  c.mtp = 2;
  c.context_length = 200;
  c.block_size = 64;
  c.distinct_pages = true;
  return c;
}

double column(const Measurement& row, const std::string& name) {
  for (const Column& c : row.columns()) {
    if (c.name != name) continue;
    const auto* count = std::get_if<std::int64_t>(&c.value);
    return count != nullptr ? static_cast<double>(*count) : std::get<double>(c.value);
  }
  FAIL("no column " + name);
  return 0;
}

TEST_CASE("a right answer gives ok and no invented time") {
  const auto [kv, quant] =
      GENERATE(std::pair{DType::bf16, Scaling::none}, std::pair{DType::fp8_e4m3fn, Scaling::per_tensor},
               std::pair{DType::fp8_e4m3fn, Scaling::per_token});
  const Inputs inputs = GENERATE(Inputs::uniform, Inputs::varied);
  PagedAttentionCase c = small_case();
  c.kv = kv;
  c.quant = quant;
  c.inputs = inputs;
  Bench bench;
  const Measurement row = bench.run(&answer, c);
  CAPTURE(bench.log);
  CHECK(row.ok);
  CHECK(column(row, "err") == 0);
  CHECK(column(row, "max_abs_err") > 0);
  CHECK(column(row, "max_abs_err") < 4e-3);
  CHECK(column(row, "samples") == 0);
  for (const char* name :
       {"us", "us_min", "us_q1", "us_q3", "us_cold", "us_hot", "cv_pct", "gbps", "tflops", "roof_pct"}) {
    CAPTURE(std::string(name));
    CHECK(std::isnan(column(row, name)));
  }
  const std::vector<std::int32_t> lengths = lengths_of(c);
  const PagedAttentionWork work = work_of(c, lengths, table_of(c, lengths));
  CHECK(column(row, "bytes_ideal") == static_cast<double>(work.bytes));
  CHECK(column(row, "flops") == static_cast<double>(work.flops));
  CHECK(column(row, "roof_us") ==
        test::Approx(static_cast<double>(work.bytes) / gfx950_facts.hbm_bytes_per_second * 1e6));
}

TEST_CASE("wrong answers give err, and say where") {
  const auto [launch, name] = GENERATE(std::pair<Launch, const char*>{&forgets_last_token, "forgets_last_token"},
                                       std::pair<Launch, const char*>{&sees_the_future, "sees_the_future"},
                                       std::pair<Launch, const char*>{&reads_past_the_end, "reads_past_the_end"},
                                       std::pair<Launch, const char*>{&forgets_a_row, "forgets_a_row"});
  const Scaling quant = GENERATE(Scaling::none, Scaling::per_token);
  CAPTURE(std::string(name), std::string(name_of(quant)));
  PagedAttentionCase c = small_case();
  c.context_length = GENERATE(200, 1027);
  c.quant = quant;
  if (quant == Scaling::none) c.kv = DType::bf16;
  Bench bench;
  const Measurement row = bench.run(launch, c);
  CHECK_FALSE(row.ok);
  CHECK(column(row, "err") == 1);
  REQUIRE(bench.log.size() == 2);  // the ceiling, then the finding
  CHECK(bench.log[1].find("values outside the tolerance; the first: ") != std::string::npos);
}

TEST_CASE("outputs and workspace hold NaN when a launch begins") {
  Bench bench;
  const Measurement row = bench.run(&wants_poison, small_case());
  CAPTURE(bench.log);
  CHECK(row.ok);
}

TEST_CASE("varied inputs tell K scales from V scales, which uniform ones cannot") {
  PagedAttentionCase c = small_case();
  c.quant = GENERATE(Scaling::per_tensor, Scaling::per_token);
  c.inputs = Inputs::varied;
  Bench bench;
  CHECK_FALSE(bench.run(&swaps_scales, c).ok);
}

TEST_CASE("a launch that fails or throws gives an err row with the work counted, and the reason") {
  Bench bench;
  const Measurement refused = bench.run(&refuses, small_case());
  CHECK(bench.log.back() == "launch_failed: no such luck");
  const Measurement threw = bench.run(&throws, small_case());
  CHECK(bench.log.back() == "out of paper");
  for (const Measurement* row : {&refused, &threw}) {
    CHECK(column(*row, "ok") == 0);
    CHECK(column(*row, "err") == 1);
    CHECK(std::isnan(column(*row, "max_abs_err")));
    CHECK(column(*row, "bytes_ideal") > 0);
  }
}

TEST_CASE("a config that no entry serves gives an err row with the same columns") {
  Bench bench;
  PagedAttentionRunner runner(bench.options, [&](const std::string& text) { bench.log.push_back(text); });
  const Measurement row = runner.run(small_case(), {});
  CHECK(column(row, "err") == 1);
  CHECK(column(row, "bytes_ideal") > 0);
  CHECK(bench.log.back() == "no entry serves this config");
}

TEST_CASE("an injected error is noticed") {
  Bench bench;
  bench.options.inject_error = true;
  CHECK_FALSE(bench.run(&answer, small_case()).ok);
}

TEST_CASE("configs that differ in the layout of V share an answer, others do not") {
  Bench bench;
  PagedAttentionRunner runner(bench.options, [&](const std::string& text) { bench.log.push_back(text); });
  for (const int mtp : {1, 2, 3, 4, 1, 2})
    for (const bool trans_v : {true, false})
      for (const Scaling quant : {Scaling::per_token, Scaling::per_tensor}) {
        PagedAttentionCase c = small_case();
        c.mtp = mtp;
        c.trans_v = trans_v;
        c.quant = quant;
        CAPTURE(mtp, trans_v, bench.log);
        CHECK(runner.run(c, {bench.entry(&answer, c), 1}).ok);
      }
}

TEST_CASE("sampled pairs are spread, distinct and include both ends") {
  PagedAttentionProblem p;
  p.batch = 50;
  p.num_kv_heads = 2;
  CHECK(sampled_pairs(p, 0).size() == 100);
  CHECK(sampled_pairs(p, 100).size() == 100);
  const int count = GENERATE(1, 2, 7, 99);
  const std::vector<reference::PagedAttentionPair> pairs = sampled_pairs(p, count);
  std::set<std::pair<int, int>> distinct;
  for (const auto& pair : pairs) distinct.insert({pair.sequence, pair.kv_head});
  CHECK(static_cast<int>(distinct.size()) == count);
  CHECK(distinct.contains({0, 0}));
  if (count > 1) CHECK(distinct.contains({49, 1}));

  PagedAttentionCase c = small_case();
  c.batch = 6;
  Bench bench;
  bench.options.check_pairs = 2;
  CHECK(bench.run(&answer, c).ok);
  CHECK_FALSE(bench.run(&forgets_a_row, c).ok);  // row 0 belongs to the first pair
}

}  // namespace
}  // namespace tilewave::bench

#endif
