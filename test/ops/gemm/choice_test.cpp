// SPDX-License-Identifier: MIT
// Tests of which policy the cost model takes on an H200. Pages of docs/notebook have the measured times of others.
#include <array>

#include "test/catch_compat.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave::test {
namespace {

GemmPolicy chosen(const GemmSpec& spec, std::int32_t m, std::int32_t n, std::int32_t k, bool batch_invariant = false,
                  std::int32_t groups = 0, std::int32_t expected = 0) {
  const auto somewhere = [](std::uintptr_t i) { return reinterpret_cast<void*>(i << 44); };
  const GemmPolicies policies = gemm_policies(ArchId::sm90, spec);
  std::array<GemmEntry, GemmPolicies::capacity> built{};
  std::array<const GemmEntry*, GemmPolicies::capacity> all{};
  for (int i = 0; i < policies.count; ++i) {
    built[i] = {ArchId::sm90, true, spec, policies[i], nullptr, 0};
    all[i] = &built[i];
  }
  GemmProblem p;
  p.spec = spec;
  p.a = somewhere(1), p.b = somewhere(2), p.out = somewhere(3);
  if (spec.four_bit()) p.b_group_scale = somewhere(4), p.b_scale_k_stride = n;
  if (spec.scale == Scaling::per_row) p.a_scale = p.b_scale = static_cast<const float*>(somewhere(5));
  p.m = m, p.n = n, p.k = k;
  p.a_stride = k, p.out_stride = n;
  if (!spec.in_strips()) p.b_stride = k;
  if (spec.zero_points) p.b_zero = static_cast<const std::int8_t*>(somewhere(8));
  p.batch_invariant = batch_invariant;
  if (spec.scale == Scaling::per_block) {
    p.a_scale = p.b_scale = static_cast<const float*>(somewhere(5));
    p.a_scale_stride = p.b_scale_stride = ceil_div(k, gemm_scale_block), p.a_scale_k_stride = p.b_scale_k_stride = 1;
    p.a_scale_batch_stride = std::int64_t{m} * k, p.b_scale_batch_stride = std::int64_t{n} * k;
  }
  if (groups > 0) {
    p.groups = groups, p.expected_group_rows = expected;
    const auto* const table = static_cast<const std::int32_t*>(somewhere(6));
    (spec.groups == GemmGroups::masked ? p.group_rows : p.group_offsets) = table;
    p.a_batch_stride = std::int64_t{m} * k, p.b_batch_stride = std::int64_t{n} * k;
    p.out_batch_stride = std::int64_t{m} * n;
    if (spec.four_bit()) p.b_scale_batch_stride = std::int64_t{n} * k / spec.scale_k;
    if (spec.has_ids()) p.row_ids = static_cast<const std::int32_t*>(somewhere(7)), p.tokens = m;
  }
  GemmPlan plan;
  const Status status = gemm_select(p, std::span(all.data(), policies.count), sm90_facts, plan, {});
  INFO((status.ok() ? "" : status.reason));
  REQUIRE(status.ok());
  return plan.entry->policy;
}

constexpr GemmSpec fast_rows{
    .a = sm90_facts.fp8, .b = sm90_facts.fp8, .scale = Scaling::per_row, .sums = GemmSums::fast};
constexpr GemmSpec promoted_rows{.a = sm90_facts.fp8, .b = sm90_facts.fp8, .scale = Scaling::per_row};

TEST_CASE("a batch-invariant product is never streamed") {
  CHECK(chosen(promoted_rows, 2048, 2112, 7168).stream);  // 2.1 rounds of 128 x 128
  CHECK_FALSE(chosen(promoted_rows, 2048, 2112, 7168, true).stream);
  CHECK_FALSE(chosen(promoted_rows, 4096, 4096, 4096).stream);  // 3.9 rounds of 128 x 256
}

TEST_CASE("few rows take narrow tiles, and two blocks an SM where there is little to do") {
  for (const GemmSpec& spec : {GemmSpec{}, fast_rows, promoted_rows}) {
    // A tile's box ends with A, so higher tiles take little longer (docs/notebook/2026-11-28-gemm-unseen-shapes.md).
    for (const std::int32_t m : {1, 8, 16}) CHECK(chosen(spec, m, 7168, 8192).rows <= (is_fp8(spec.a) ? 64 : 80));
    CHECK(chosen(spec, 64, 7168, 8192).rows >= 32);
    CHECK(chosen(spec, 1, 5120, 1024).splits <= 8);
  }
  CHECK(chosen({}, 4096, 128, 2880).cluster_columns == 2);  // 12.2 us, 13.5 where blocks share nothing (an H200)
  CHECK(chosen({}, 4096, 4096, 4096).sharers() == 1);
  const GemmSpec preshuffled{
      .a = sm90_facts.fp8, .b = sm90_facts.fp8, .scale = Scaling::per_row, .weights = GemmWeights::preshuffled};
  CHECK(chosen(preshuffled, 16, 77824, 5120).waves_per_simd == 2);  // ten rounds, or five of two blocks an SM
  CHECK(chosen(preshuffled, 16, 7168, 2048).waves_per_simd == 1);
}

TEST_CASE("tiles of little K take wave groups in turn, and few tiles share K") {
  CHECK(chosen({}, 4096, 24576, 1536).pingpong);  // 379 us, 402 by 128 x 256 (an H200, 2026-11-27)
  CHECK(chosen({}, 4096, 7168, 2048).pingpong);
  CHECK_FALSE(chosen({}, 4096, 4096, 7168).pingpong);  // 3.9 rounds of 128 x 256, 5.8 of 128 x 176
  const GemmPolicy few = chosen({}, 128, 256, 7168);
  CHECK(few.splits > 1);  // 9.8 us by eight blocks of 64 x 64, 21 by one
  CHECK(few.rows <= 128);
}

TEST_CASE("up to 8 rows of 16 bits go straight to registers") {
  const GemmSpec f16{.a = DType::f16, .b = DType::f16, .out = DType::f16};
  for (const GemmSpec& spec : {GemmSpec{}, f16}) {
    for (const std::int32_t m : {1, 4, 8}) {
      CHECK(chosen(spec, m, 4096, 4096).path == GemmPath::weights_in_registers);  // 13.2 us, 14.7 by tensor (an H200)
      CHECK(chosen(spec, m, 8192, 1024).path == GemmPath::weights_in_registers);
    }
    CHECK(chosen(spec, 9, 4096, 4096).path == GemmPath::tensor);
    CHECK(chosen(spec, 1, 4096, 4096, true).path == GemmPath::tensor);  // batch-invariant: whatever M is
  }
  CHECK(chosen(promoted_rows, 1, 4096, 4096).path == GemmPath::tensor);
}

TEST_CASE("weights of four bits go straight to up to 16 rows") {
  const GemmSpec codes{
      .b = DType::i4, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 128};
  for (const std::int32_t m : {1, 8, 16}) {
    for (const std::int32_t n : {4096, 5120, 28672}) {
      const GemmPolicy policy = chosen(codes, m, n, 8192);
      CHECK(policy.path == GemmPath::weights_in_registers);
      CHECK(policy.rows == (m > 8 ? 16 : 8));
    }
  }
  CHECK(chosen(codes, 1, 28672, 4096).columns == 256);  // one pass of four groups of waves
  CHECK(chosen(codes, 1, 5120, 8192).columns == 64);    // one pass of three strips
  GemmSpec gated = codes;
  gated.activation = ActivationKind::silu, gated.gated = true;
  for (const std::int32_t m : {1, 16}) CHECK(chosen(gated, m, 28672, 4096).path == GemmPath::weights_in_registers);
  CHECK(chosen(gated, 17, 28672, 4096).path == GemmPath::tensor);
  CHECK(chosen(codes, 17, 28672, 4096).path == GemmPath::tensor);
  CHECK(chosen(codes, 4096, 28672, 4096).rows == 256);  // sums stay in the matrix unit
  GemmSpec zeros = codes;
  zeros.zero_points = true;
  CHECK(chosen(zeros, 1, 28672, 4096).path == GemmPath::weights_in_registers);
}

TEST_CASE("weights of MXFP4 take tiles of 256 rows of A where they fill the chip") {
  const GemmSpec mxfp4{
      .b = DType::fp4_e2m1, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 32};
  CHECK(chosen(mxfp4, 4096, 4096, 4096).rows == 256);  // 210 us, 266 by 128 rows
  CHECK(chosen(mxfp4, 4096, 5120, 8192).rows == 256);
  CHECK(chosen(mxfp4, 128, 28672, 4096).rows == 128);  // 69 us, 110 by 64 rows
  CHECK(chosen(mxfp4, 16, 28672, 4096).columns == 256);
}

TEST_CASE("fragments of MXFP4 take tiles by the rows that an expert of gpt-oss has") {
  GemmSpec second{.b = DType::fp4_e2m1,
                  .scale = Scaling::per_group,
                  .weights = GemmWeights::fragments,
                  .groups = GemmGroups::contiguous,
                  .scale_k = 32};
  GemmSpec first = second;
  first.activation = ActivationKind::swigluoai, first.gated = first.gathered = true;
  for (const GemmSpec& spec : {first, second}) {
    const auto rows = [&](std::int32_t tokens) {
      return chosen(spec, 4 * tokens, spec.gated ? 5760 : 2880, 2880, false, 128).rows;
    };
    CHECK(rows(1) == 8);
    CHECK(rows(16) == (spec.gated ? 8 : 16));  // the layer 210 us, 218 by 8 x 128 for the second product
    CHECK(rows(128) == 16);                    // 476 us, 496 by 8 rows
    CHECK(rows(256) == 16);                    // 530 us, 670 by 8 rows
    CHECK(rows(1024) == 80);
    CHECK(rows(2048) == 80);                    // the layer 1119 us, 1291 by 128 and 64 rows
    if (!spec.gated) CHECK(rows(4096) == 160);  // 528 us, 839 by 64 rows
  }
  first.gathered = false;                                            // copied before
  CHECK(chosen(first, 4 * 512, 5760, 2880, false, 128).rows == 80);  // the layer 757 us, 792 by 128 rows
  CHECK(chosen(first, 4 * 4096, 5760, 2880, false, 128).rows == 128);
}

TEST_CASE("fragments of MXFP4 without groups share K where tiles are few") {
  const GemmSpec spec{
      .b = DType::fp4_e2m1, .scale = Scaling::per_group, .weights = GemmWeights::fragments, .scale_k = 32};
  CHECK(chosen(spec, 1, 28672, 4096).rows == 8);
  CHECK(chosen(spec, 16, 5760, 2880).rows == 16);  // 9.6 us by four blocks, 12.7 in two tiles of 8 rows
  CHECK(chosen(spec, 32, 5760, 2880).rows == 32);
  CHECK(chosen(spec, 64, 5760, 2880).rows == 64);
  CHECK(chosen(spec, 128, 4096, 4096).rows == 64);  // 14.4 us by two blocks, 18.2 by 32 rows
  CHECK(chosen(spec, 1024, 28672, 4096).rows == 256);
}

TEST_CASE("on CDNA groups of four bits that have no rows cost nothing") {
  for (const ArchFacts* facts : {&gfx942_facts, &gfx950_facts}) {
    GemmProblem p;
    p.spec = {.b = DType::fp4_e2m1,
              .scale = Scaling::per_group,
              .weights = GemmWeights::preshuffled,
              .groups = GemmGroups::contiguous,
              .scale_k = 32};
    p.n = p.k = 2880, p.groups = 128;
    const auto rows = [&](std::int32_t m) {
      p.m = m;
      const GemmPolicies policies = gemm_policies(facts->id, p.spec);
      const auto cost = [&](const GemmPolicy& policy) { return gemm_cost_int4(p, m, policy, 1, *facts); };
      GemmPolicy best = *policies.begin();
      for (const GemmPolicy& policy : policies)
        if (cost(policy) < cost(best)) best = policy;
      return best.rows;
    };
    CHECK(rows(4) == 16);  // a token of gpt-oss: 4 of 128 experts
    CHECK(rows(64) == 16);
    CHECK(rows(4096) == 128);
  }
}

TEST_CASE("groups take tiles by the rows that one has") {
  constexpr DType fp8 = sm90_facts.fp8;
  GemmSpec block{.a = fp8, .b = fp8, .scale = Scaling::per_block, .groups = GemmGroups::masked};
  const auto of = [](const GemmSpec& spec, std::int32_t m, std::int32_t groups, std::int32_t expected = 0) {
    return chosen(spec, m, 4096, 7168, false, groups, expected);
  };
  CHECK(of(block, 128, 256, 32).rows == 64);  // 1.9 ms, 2.1 by 128 x 256
  CHECK(of(block, 768, 32, 192).columns == 256);
  block.groups = GemmGroups::contiguous;
  CHECK(of(block, 32768, 256).rows == 192);  // all rows of a group: 2.4 ms, 2.6 by 128 x 256
  CHECK(of(block, 8192, 256).rows == 64);
  CHECK(of(block, 32768, 8).rows == 128);
  block.activation = ActivationKind::silu, block.gated = true;
  CHECK(of(block, 32768, 8).columns == 256);  // 501 us at 16384 x 4096 x 4096, 545 by 128 x 128
  CHECK(of({.groups = GemmGroups::contiguous}, 32768, 8).columns == 256);
  CHECK(of({.groups = GemmGroups::masked}, 128, 256, 32).rows == 64);
}

}  // namespace
}  // namespace tilewave::test
