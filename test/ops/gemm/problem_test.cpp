// SPDX-License-Identifier: MIT
// Tests of GemmProblem::packed: gemm_check takes its strides for every spec of every list, and the last element of each
// tensor lies where it should.
#include "entries/gemm.hpp"
#include "test/catch_compat.hpp"
#include "test/ops/gemm/lists.hpp"

namespace tilewave::test {
namespace {

/// Returns an address from which nothing is read. The tensors of this file are 1 GiB apart.
void* address(std::uintptr_t i) { return reinterpret_cast<void*>((i + 1) << 30); }

GemmProblem packed(const GemmSpec& spec, std::int32_t m, std::int32_t n, std::int32_t k) {
  GemmProblem p = GemmProblem::packed(spec, address(0), address(1), address(2), m, n, k);
  const auto floats = [](std::uintptr_t i) { return static_cast<float*>(address(i)); };
  const bool row_of_a = spec.scale == Scaling::per_group && is_fp8(spec.a);
  if (spec.scale == Scaling::per_group) p.b_group_scale = address(3);
  if (spec.zero_points) p.b_zero = static_cast<const std::int8_t*>(address(10));
  if (spec.mx()) {
    p.a_mx_scale = static_cast<const std::uint8_t*>(address(4)),
    p.b_mx_scale = static_cast<const std::uint8_t*>(address(5));
  } else if (spec.scale != Scaling::none && spec.scale != Scaling::per_group) {
    p.a_scale = floats(4), p.b_scale = floats(5);
  }
  if (row_of_a) p.a_scale = floats(4);
  if (spec.out_scale != Scaling::none) p.out_scale = floats(6);
  if (spec.groups != GemmGroups::one) {
    p.groups = 3;
    (spec.groups == GemmGroups::contiguous ? p.group_offsets : p.group_rows) =
        static_cast<const std::int32_t*>(address(7));
  }
  return p;
}

}  // namespace

TEST_CASE("the check takes a packed problem of every spec, and its plan says why each entry serves or not") {
  for (const GemmEntry* e : first_entries()) {
    INFO(name_of(e->spec));
    GemmProblem p = packed(e->spec, 96, 512, 512);
    const Status status = gemm_check(p, facts_of(e->arch));
    INFO(status.reason);
    CHECK(status.ok());
    if (!e->spec.gated || e->spec.layout == GemmLayout::nt) {
      CHECK(gemm_check(p.with_bias(address(8)).with_residual(address(9)), facts_of(e->arch)).ok());
    }
    GemmPlan plan;
    const std::array candidates{e};
    REQUIRE(gemm_select(p, candidates, facts_of(e->arch), plan).ok());
    CHECK(plan.explain(p).find(plan.name() + ": chosen, modelled ") == 0);
    p.m = -1;
    CHECK(plan.explain(p).find("bad_extent: ") == 0);
  }
}

TEST_CASE("packed strides are those of the documented shapes") {
  const GemmProblem plain = packed({}, 5, 24, 16);
  CHECK(plain.a_stride == 16);
  CHECK(plain.b_stride == 16);
  CHECK(plain.out_stride == 24);
  CHECK(plain.a_batch_stride == 5 * 16);
  CHECK(plain.b_batch_stride == 24 * 16);
  CHECK(plain.out_batch_stride == 5 * 24);
  const GemmProblem tt = packed({.layout = GemmLayout::tn}, 8, 24, 16);
  CHECK(tt.a_stride == 8);   // A is [K, M]
  CHECK(tt.b_stride == 24);  // B is [K, N]
  constexpr DType fp8 = DType::fp8_e4m3fn;
  const GemmProblem block = packed({.a = fp8, .b = fp8, .scale = Scaling::per_block}, 5, 384, 300);
  CHECK(block.a_scale_stride == 3);  // [5, 3]
  CHECK(block.a_scale_k_stride == 1);
  CHECK(block.b_scale_stride == 3);  // [3, 3]
  CHECK(block.b_scale_batch_stride == 9);
  const GemmProblem int4 = packed(
      {.b = DType::i4, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 128}, 5, 64, 512);
  CHECK(int4.b_stride == 0);
  CHECK(int4.b_batch_stride == 64 * 512 / 2);  // bytes: two weights in each
  CHECK(int4.b_scale_k_stride == 64);          // [4, 64]
  CHECK(int4.b_scale_batch_stride == 4 * 64);
  const GemmProblem gated = packed({.activation = ActivationKind::silu, .gated = true}, 5, 64, 16);
  CHECK(gated.out_stride == 32);
}

}  // namespace tilewave::test
