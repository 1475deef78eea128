// SPDX-License-Identifier: MIT
// bench_gemm notices damage of every kind, and its part-wise use of the reference agrees with the whole.
#include "bench/ops/gemm/tensors.hpp"
#include "bench/ops/gemm/verify.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

/// A config with its tensors on the host, and what a kernel should make of them in `out`.
struct Made {
  GemmCase c;
  GemmTensors tensors;
  GemmProblem p;
  std::vector<GemmWanted> wanted;

  explicit Made(GemmCase config) : c(config), tensors(fill(c, 1)) {
    poison_output(c, tensors);
    p = problem_of(c, tensors, [](const TwinBuffer& b) -> void* { return b.host(); });
    wanted = wanted_rows(p, matrix_unit_of(c), 1);
    const reference::Gemm gemm(p);
    for (std::int32_t layer = 0; layer < gemm.layers(); ++layer)
      for (std::int32_t row = gemm.first_row(layer); row < gemm.end_row(layer); ++row)
        for (std::int32_t column = 0; column < c.out_columns(); ++column)
          set(gemm.a_layer(layer), row, column, gemm.at(layer, row, column).value);
  }
  std::int64_t at(std::int32_t a_layer, std::int32_t row, std::int32_t column) const {
    return a_layer * p.out_batch_stride + row * p.out_stride + column;
  }
  double get(std::int32_t a_layer, std::int32_t row, std::int32_t column) const {
    return reference::element(c.spec.out, p.out, at(a_layer, row, column));
  }
  void set(std::int32_t a_layer, std::int32_t row, std::int32_t column, double value) {
    set_element(c.spec.out, p.out, at(a_layer, row, column), static_cast<float>(value));
  }
  std::int64_t bad() const {
    std::int64_t count = 0;
    for (const RowErrors& errors : verify(p, wanted, tolerance_of(c), 1)) count += errors.bad;
    return count;
  }
};

GemmCase case_of(const GemmSpec& spec, std::int32_t m, std::int32_t n, std::int32_t k) {
  GemmCase c;
  c.arch = ArchId::gfx950;
  c.spec = spec;
  c.m = m, c.n = n, c.k = k;
  return c;
}
GemmSpec fp8(Scaling scale) { return {.a = DType::fp8_e4m3fn, .b = DType::fp8_e4m3fn, .scale = scale}; }

TEST_CASE("what the reference makes is right, whatever the scales, weights and groups") {
  for (GemmSpec spec : {GemmSpec{}, fp8(Scaling::per_tensor), fp8(Scaling::per_row), fp8(Scaling::per_block)}) {
    for (const GemmWeights weights : {GemmWeights::row_major, GemmWeights::preshuffled}) {
      spec.weights = weights;
      INFO(name_of(spec));
      GemmCase batched = case_of(spec, 5, 144, 320);
      batched.batch = 2;
      batched.bias = true;
      CHECK(Made(batched).bad() == 0);
      for (const GemmGroups groups : {GemmGroups::contiguous, GemmGroups::masked}) {
        GemmCase grouped = case_of(spec, groups == GemmGroups::contiguous ? 30 : 16, 144, 320);
        grouped.spec.groups = groups;
        grouped.groups = 3, grouped.group_rows = 10;
        CHECK(Made(grouped).bad() == 0);
      }
      GemmCase gated = case_of(spec, 5, 256, 320);
      gated.spec.gated = true;
      gated.spec.activation = ActivationKind::gelu;
      CHECK(Made(gated).bad() == 0);
    }
  }
}

TEST_CASE("a wrong element, a step of k that is missing and a scale of the next row are noticed") {
  Made made(case_of(fp8(Scaling::per_row), 6, 144, 2048));
  const double value = made.get(0, 3, 77);
  made.set(0, 3, 77, value + 0.05 * std::sqrt(2048.0));
  CHECK(made.bad() == 1);
  made.set(0, 3, 77, std::nan(""));
  CHECK(made.bad() >= 2);  // the element, and that it was not written
  made.set(0, 3, 77, value);
  CHECK(made.bad() == 0);

  const reference::Gemm whole(made.p);
  GemmProblem less = made.p;
  less.k -= 64;
  const reference::Gemm short_of(less);
  for (std::int32_t column = 0; column < made.c.n; ++column) made.set(0, 2, column, short_of.at(0, 2, column).value);
  CHECK(made.bad() > made.c.n / 2);
  for (std::int32_t column = 0; column < made.c.n; ++column) {
    made.set(0, 2, column, whole.at(0, 2, column).value * made.p.a_scale[3] / made.p.a_scale[2]);
  }
  CHECK(made.bad() > made.c.n / 2);
}

TEST_CASE("what an element may be off by follows the sums of the spec") {
  const auto wrong = [](GemmSums sums, double of_magnitude) {
    GemmCase c = case_of(fp8(Scaling::per_row), 2, 48, 4096);
    c.arch = ArchId::sm90;
    c.spec.sums = sums;
    c.spec.out = DType::f32;
    Made made(c);
    const reference::GemmValue right = made.wanted.front().values[0][7];
    made.set(0, made.wanted.front().rows[0], 7, right.value + of_magnitude * right.magnitude);
    return made.bad();
  };
  CHECK(wrong(GemmSums::promoted, 0x1p-15) == 0);
  CHECK(wrong(GemmSums::promoted, 0x1p-13) > 0);
  CHECK(wrong(GemmSums::fast, 0x1p-13) == 0);
  CHECK(wrong(GemmSums::fast, 0x1p-10) > 0);
}

TEST_CASE("rows that are not sampled must be written, and those of no group must not") {
  Made plain(case_of({}, 4, 48, 64));
  plain.wanted.front().rows.resize(2);  // as if the others were not sampled
  CHECK(plain.bad() == 0);
  plain.set(0, 3, 47, std::nan(""));
  CHECK(plain.bad() == 1);

  GemmCase c = case_of({.groups = GemmGroups::masked}, 16, 48, 64);
  c.groups = 2, c.group_rows = 8;
  Made masked(c);
  REQUIRE(masked.p.group_rows[1] < 16);
  masked.set(1, 15, 0, 0);
  CHECK(masked.bad() == 1);
}

TEST_CASE("sampled rows go from the first to the last") {
  GemmProblem p;
  p.m = 1000, p.n = p.k = 1 << 14;
  const std::vector<GemmWanted> one = sampled_rows(p);
  REQUIRE(one.size() == 1);
  CHECK(one[0].rows.size() == 8);
  CHECK(one[0].rows.front() == 0);
  CHECK(one[0].rows.back() == 999);
  p.n = 16;
  CHECK(sampled_rows(p)[0].rows.size() == (emulated_device ? 128 : 1000));

  const std::int32_t offsets[] = {0, 3, 3, 50};
  p.spec.groups = GemmGroups::contiguous;
  p.groups = 3, p.m = 50, p.n = 1 << 14, p.group_offsets = offsets;
  const std::vector<GemmWanted> groups = sampled_rows(p);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].layer == 0);
  CHECK(groups[0].rows == std::vector<std::int32_t>{0});
  CHECK(groups[1].layer == 2);
  CHECK(groups[1].rows.front() == 7);
  CHECK(groups[1].rows.back() == 49);
}

TEST_CASE("products take their time where they are many") {
  const Ceilings ceilings = Ceilings::all(1e9);
  CHECK(ceilings.seconds({.bytes = 1000, .flops = 1000000}) == 1e-6);  // as far as nothing limits them
  CHECK(ceilings.seconds({.bytes = 1000, .flops = 1000000, .flops_per_second = 1e11}) == 1e-5);
  CHECK(ceilings.seconds({.bytes = 1000, .flops = 1000, .flops_per_second = 1e11}) == 1e-6);
}

}  // namespace
}  // namespace tilewave::bench
