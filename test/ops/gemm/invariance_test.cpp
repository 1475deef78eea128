// SPDX-License-Identifier: MIT
// Tests that a row of a batch-invariant call is the same, whatever rows are beside it.
#include <vector>

#include "entries/gemm.hpp"
#include "test/catch_compat.hpp"
#include "test/ops/gemm/lists.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave::test {
namespace {

using P = GemmProblem;

const float* floats(const void* p) { return static_cast<const float*>(p); }

TEST_CASE("the choice for batch-invariant calls follows from N and K alone") {
  for (const GemmEntry* const e : first_entries()) {
    INFO(name_of(e->arch) << " " << name_of(e->spec));
    const GemmSpec& spec = e->spec;
    std::vector<const GemmEntry*> all;
    for (const auto entries : {all_gemm_entries(), all_gemm_feature_entries(), all_gemm_grouped_entries(),
                               all_gemm_gated_entries(), all_gemm_int4_entries()}) {
      for (const GemmEntry* other : entries)
        if (other->arch == e->arch && other->spec == spec) all.push_back(other);
    }
    const auto chosen = [&](std::int32_t m, std::int32_t layers, std::int32_t expected, std::int32_t n) {
      const auto at = [](std::uintptr_t i) { return reinterpret_cast<void*>(i << 44); };
      constexpr std::int32_t k = 4096;
      P p;
      p.spec = spec;
      p.batch_invariant = true;
      p.m = m, p.n = n, p.k = k;
      p.a = at(1), p.b = at(2), p.out = at(3);
      const std::int64_t rows = align_up(m, 16);
      p.a_stride = transposed_a(spec.layout) ? rows : k, p.a_batch_stride = rows * k;
      p.b_stride = spec.in_strips() ? 0 : transposed_b(spec.layout) ? n : k;
      p.b_batch_stride = std::int64_t{n} * k / packing_of(spec.b);
      p.out_stride = n, p.out_batch_stride = std::int64_t{n} * m;
      if (spec.four_bit()) {
        if (is_fp8(spec.a)) p.a_scale = floats(at(4)), p.a_scale_batch_stride = m;
        p.b_group_scale = at(5), p.b_scale_k_stride = n, p.b_scale_batch_stride = std::int64_t{n} * k / spec.scale_k;
        if (spec.zero_points) p.b_zero = static_cast<const std::int8_t*>(at(8));
      } else if (spec.scale != Scaling::none) {
        p.a_scale = floats(at(4)), p.b_scale = floats(at(5));
        const bool block = spec.scale == Scaling::per_block;
        if (block) p.a_scale_stride = p.b_scale_stride = 32, p.a_scale_k_stride = p.b_scale_k_stride = 1;
        if (block || spec.scale == Scaling::per_row) p.a_scale_batch_stride = 32 * m, p.b_scale_batch_stride = 32 * n;
      }
      if (spec.out_scale != Scaling::none) p.out_scale = static_cast<float*>(at(6));
      if (spec.out_scale == Scaling::per_group) p.out_scale_stride = n, p.out_scale_batch_stride = std::int64_t{n} * m;
      const auto* const table = static_cast<const std::int32_t*>(at(7));
      if (spec.groups == GemmGroups::one) {
        p.batch = layers;
      } else {
        p.groups = layers;
        (spec.groups == GemmGroups::masked ? p.group_rows : p.group_offsets) = table;
        if (spec.groups == GemmGroups::masked) p.expected_group_rows = expected;
      }
      GemmPlan plan;
      const Status status = gemm_select(p, all, facts_of(e->arch), plan);
      INFO((status.ok() ? "" : status.reason));
      REQUIRE(status.ok());
      CHECK(plan.splits == 1);
      return plan.entry;
    };
    for (const std::int32_t n : {256, 4096, 28672}) {
      const GemmEntry* const one = chosen(1, 1, 0, n);
      for (const std::int32_t m : {16, 64, 300, 8192})
        for (const std::int32_t layers : {1, 8, 256}) {
          CHECK(chosen(m, layers, 0, n) == one);
          CHECK(chosen(m, layers, 16, n) == one);
        }
    }
  }
}

}  // namespace
}  // namespace tilewave::test
