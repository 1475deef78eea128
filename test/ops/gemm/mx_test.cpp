// SPDX-License-Identifier: MIT
// Tests of products with MX scales: from bf16 through quantisation to the product, and what is refused by name.
#include "entries/gemm.hpp"
#include "entries/quant.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/reference/gemm.hpp"

namespace tilewave::test {
namespace {

using P = GemmProblem;
using C = StatusCode;

std::int64_t scale_bytes(std::int32_t rows, std::int32_t k) { return align_up(rows, 32) * align_up(k / mx_group, 8); }

/// The values of a matrix, and their codes and scales after quantisation, on the device and on the host.
class Quantised {
 public:
  Quantised(char name, DType type, std::int32_t rows, std::int32_t k)
      : rows_(rows),
        k_(k),
        row_bytes_(align_up(k, elements_of_unit(type) * packing_of(type)) * size_of(type) / packing_of(type)),
        stride_(row_bytes_ / size_of(type)),
        values_(DType::bf16, rows, k, 1, {k, 0}),
        codes_(DType::i8, rows * row_bytes_),
        scales_(DType::i8, static_cast<std::int32_t>(scale_bytes(rows, k))) {
    values_.set(rows, k, [name](int r, int c) { return drawn(name, r, c) * (c / 32 % 3 == r % 3 ? 8.0f : 0.25f); });
    quantise(type);
  }
  double value(std::int32_t row, std::int32_t k) const { return values_.at(row, k); }
  const void* codes(bool device) const { return device ? codes_.device() : codes_.host(); }
  std::int64_t stride() const { return stride_; }
  const std::uint8_t* scales(bool device) const {
    return static_cast<const std::uint8_t*>(device ? scales_.device() : scales_.host());
  }

 private:
  void quantise(DType type) {
    QuantProblem p;
    p.spec = {.x = DType::bf16, .out = type, .scale = Scaling::mx};
    p.x = values_.device(), p.out = codes_.device(), p.scale = scales_.device();
    p.scale_layout = ScaleLayout::shuffled;
    p.rows = rows_, p.columns = k_;
    p.x_strides = {k_, 0}, p.out_strides = {stride_, 0};
    const QuantEntry* entry = nullptr;
    const Status status = quant_select(p, all_quant_entries(), facts_of(ArchId::gfx950), entry);
    INFO(status.reason);
    REQUIRE(status.ok());
    REQUIRE(entry->launch(p, {}).ok());
    bench::check_hip(hipDeviceSynchronize(), "quantising");
    codes_.download();
    scales_.download();
  }

  std::int32_t rows_, k_, row_bytes_;
  std::int64_t stride_;  // in elements
  Tensor values_, codes_, scales_;
};

TEST_CASE("what was quantised to mx multiplies to what it was, but for its rounding") {
  constexpr std::int32_t m = 37, n = 49, k = 416;
  for (const GemmEntry* const e : all_gemm_mx_entries()) {
    const GemmSpec& spec = e->spec;
    if (spec.gated || spec.weights == GemmWeights::preshuffled) continue;
    INFO(name_of(spec) << " " << name_of(e->policy));
    const Quantised a('a', spec.a, m, k), b('b', spec.b, n, k);
    Tensor out(spec.out, m, n, 1, {n, 0});
    const auto problem = [&](bool device) {
      P p;
      p.spec = spec;
      p.a = a.codes(device), p.b = b.codes(device);
      p.a_mx_scale = a.scales(device), p.b_mx_scale = b.scales(device);
      p.out = out.device();
      p.m = m, p.n = n, p.k = k;
      p.a_stride = a.stride(), p.b_stride = b.stride(), p.out_stride = n;
      return p;
    };
    REQUIRE(e->launch(problem(true), 1, {}).ok());
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    out.download();
    const P on_host = problem(false);
    const reference::Gemm wanted(on_host);
    double error = 0, norm = 0;
    for (std::int32_t r = 0; r < m; ++r) {
      for (std::int32_t c = 0; c < n; ++c) {
        const double got = out.at(r, c), right = wanted.at(0, r, c).value;
        const double slack = k * 0x1p-24 * wanted.at(0, r, c).magnitude;
        if (!(std::abs(got - right) <= slack + 1.01 * half_step(spec.out, right))) FAIL(got << ", not " << right);
        double before = 0;
        for (std::int32_t i = 0; i < k; ++i) before += a.value(r, i) * b.value(c, i);
        error += (got - before) * (got - before), norm += before * before;
      }
    }
    const bool fp4 = spec.b == DType::fp4_e2m1;
    CHECK(std::sqrt(error / norm) < (fp4 ? 0.2 : 0.1));
    CHECK(std::sqrt(error / norm) > (fp4 ? 0.02 : 0.005));  // Rounding shows.
  }
}

const Wrong<P> wrongs[] = {
    {"a of bf16", C::unsupported_dtype, [](P& p) { p.spec.a = DType::bf16; }},
    {"b of i4", C::unsupported_dtype, [](P& p) { p.spec.b = DType::i4; }},
    {"b of the other fp8", C::unsupported_dtype, [](P& p) { p.spec.b = DType::fp8_e4m3fnuz; }},
    {"a of one fp6 and b of the other", C::unsupported_dtype,
     [](P& p) { p.spec.a = DType::fp6_e2m3, p.spec.b = DType::fp6_e3m2; }},
    {"a fp4 and b fp6", C::unsupported_dtype, [](P& p) { p.spec.a = DType::fp4_e2m1, p.spec.b = DType::fp6_e2m3; }},
    {"a fp6 and b fp8", C::unsupported_dtype, [](P& p) { p.spec.a = DType::fp6_e2m3, p.spec.b = DType::fp8_e4m3fn; }},
    {"fp6 without scales", C::unsupported_dtype,
     [](P& p) { p.spec.a = p.spec.b = DType::fp6_e3m2, p.spec.scale = Scaling::none; }},
    {"out of fp6", C::unsupported_scaling, [](P& p) { p.spec.out = DType::fp6_e2m3; }},
    {"preshuffled weights of fp6", C::unsupported_layout,
     [](P& p) { p.spec.a = p.spec.b = DType::fp6_e2m3, p.spec.weights = GemmWeights::preshuffled; }},
    {"a fp4 and b fp8", C::unsupported_dtype, [](P& p) { p.spec.a = DType::fp4_e2m1, p.spec.b = DType::fp8_e4m3fn; }},
    {"fp4 without scales", C::unsupported_scaling,
     [](P& p) { p.spec.a = p.spec.b = DType::fp4_e2m1, p.spec.scale = Scaling::none; }},
    {"a group", C::bad_value, [](P& p) { p.spec.scale_k = 32; }},
    {"another layout than nt", C::unsupported_layout, [](P& p) { p.spec.layout = GemmLayout::nn; }},
    {"mx scales of out", C::unsupported_scaling,
     [](P& p) { p.spec.out = DType::fp4_e2m1, p.spec.out_scale = Scaling::mx; }},
    {"k no multiple of 32", C::bad_extent, [](P& p) { p.k -= 16; }},
    {"a_mx_scale null", C::null_pointer, [](P& p) { p.a_mx_scale = nullptr; }},
    {"b_mx_scale null", C::null_pointer, [](P& p) { p.b_mx_scale = nullptr; }},
    {"a_mx_scale off by 4 bytes", C::misaligned, [](P& p) { p.a_mx_scale += 4; }},
    {"b_mx_scale off by 8 bytes", C::misaligned, [](P& p) { p.b_mx_scale += 8; }},
    {"scales of f32", C::bad_value, [](P& p) { p.a_scale = static_cast<const float*>(p.a); }},
    {"a_scale_stride", C::bad_value, [](P& p) { p.a_scale_stride = 256; }},
    {"scales of layers of b no multiple of 16 apart", C::bad_stride, [](P& p) { p.b_scale_batch_stride += 8; }},
    {"out is b_mx_scale", C::bad_value, [](P& p) { p.b_mx_scale = static_cast<const std::uint8_t*>(p.out); }},
    {"rows of b not whole 16 bytes apart", C::bad_stride,
     [](P& p) { (p.spec.weights == GemmWeights::preshuffled ? p.b_batch_stride : p.b_stride) += 8; }},
};
const Wrong<P> of_layers[] = {
    {"scales of layers of a that overlap", C::bad_stride, [](P& p) { p.a_scale_batch_stride -= 16; }},
};
const Wrong<P> of_gates[] = {
    {"gates that end within 32 rows", C::bad_extent, [](P& p) { p.n -= 32; }},
    {"interleaved", C::unsupported_layout, [](P& p) { p.interleaved = true; }},
};

TEST_CASE("what is no product with mx scales is refused by name, and by other architectures") {
  constexpr std::int32_t m = 3, n = 128, k = 288, layers = 2;
  for (const GemmEntry* const e : all_gemm_mx_entries()) {
    const GemmSpec& spec = e->spec;
    INFO(name_of(spec) << " " << name_of(e->policy));
    constexpr std::int32_t most = k + 64;  // values of a row, in whole units
    Tensor a(spec.a, layers * m * most), b(spec.b, layers * n * most), out(spec.out, layers * m * n);
    Tensor scales(DType::i8, static_cast<std::int32_t>(layers * scale_bytes(n, k))), table(DType::f32, layers + 1);
    P good;
    good.spec = spec;
    good.a = a.device(), good.b = b.device(), good.out = out.device();
    good.a_mx_scale = good.b_mx_scale = static_cast<const std::uint8_t*>(scales.device());
    good.m = m, good.n = n, good.k = k;
    const auto row = [&](DType type) { return align_up(k / packing_of(type), elements_of_unit(type)); };
    good.a_stride = row(spec.a), good.a_batch_stride = m * good.a_stride;
    good.b_stride = row(spec.b), good.b_batch_stride = n * good.b_stride;
    good.a_scale_batch_stride = scale_bytes(m, k), good.b_scale_batch_stride = scale_bytes(n, k);
    if (spec.weights == GemmWeights::preshuffled) good.b_stride = 0;
    good.out_stride = gemm_out_columns(good), good.out_batch_stride = m * good.out_stride;
    (spec.groups == GemmGroups::one ? good.batch : good.groups) = layers;
    const bool contiguous = spec.groups == GemmGroups::contiguous;  // whose A is one for all groups
    if (contiguous) good.group_offsets = static_cast<const std::int32_t*>(table.device());
    const ArchFacts& facts = facts_of(e->arch);
    REQUIRE(gemm_check(good, facts).reason == std::string());
    for (const auto list : {std::span<const Wrong<P>>(wrongs), std::span<const Wrong<P>>(of_layers),
                            std::span<const Wrong<P>>(of_gates)}) {
      if ((list.data() == of_gates && !spec.gated) || (list.data() == of_layers && contiguous)) continue;
      for (const Wrong<P>& wrong : list) {
        INFO(wrong.what);
        P p = good;
        wrong.make(p);
        const Status status = gemm_check(p, facts);
        CHECK(name_of(status.code) == name_of(wrong.code));
        CHECK(std::string(status.reason) != "");
        CHECK_FALSE(e->launch(p, 1, {}).ok());
        GemmPlan plan{e, 1};
        CHECK_FALSE(gemm_select(p, all_gemm_mx_entries(), facts, plan).ok());
        CHECK(plan.entry == nullptr);
      }
    }
    for (const ArchId other : {ArchId::gfx942, ArchId::sm90})
      CHECK(name_of(gemm_check(good, facts_of(other)).code) == name_of(C::unsupported_scaling));
    GemmProblem plain = good;  // Its operands have no MX scales.
    plain.spec = {};
    plain.k = 64;
    CHECK(name_of(gemm_check(plain, facts).code) == name_of(C::bad_value));
    out.download();
    CHECK(out.gaps_kept(0, 0));
  }
}

TEST_CASE("specs of mxfp4 weights under rows of other types are refused by name") {
  constexpr GemmSpec good{
      .b = DType::fp4_e2m1, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 32};
  for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950, ArchId::sm90}) {
    const ArchFacts& facts = facts_of(arch);
    const auto code_of = [&](void (*change)(GemmSpec&)) {
      GemmSpec spec = good;
      change(spec);
      return gemm_check_spec(spec, facts).code;
    };
    CHECK(gemm_check_spec(good, facts).ok());
    CHECK(code_of([](GemmSpec& s) { s.a = DType::f16; }) == StatusCode::ok);
    CHECK(code_of([](GemmSpec& s) { s.a = DType::i8; }) == StatusCode::unsupported_dtype);
    CHECK(code_of([](GemmSpec& s) { s.a = DType::fp4_e2m1; }) == StatusCode::unsupported_dtype);
    CHECK(code_of([](GemmSpec& s) { s.scale = Scaling::per_row; }) == StatusCode::unsupported_scaling);
    CHECK(code_of([](GemmSpec& s) { s.scale_k = 64; }) == StatusCode::bad_value);
    CHECK(code_of([](GemmSpec& s) { s.scale_k = 0; }) == StatusCode::bad_value);
    CHECK(code_of([](GemmSpec& s) { s.zero_points = true; }) == StatusCode::unsupported_dtype);
    CHECK(code_of([](GemmSpec& s) { s.weights = GemmWeights::row_major; }) == StatusCode::unsupported_layout);
    const bool fragments = arch == ArchId::sm90;
    CHECK(code_of([](GemmSpec& s) { s.weights = GemmWeights::fragments; }) ==
          (fragments ? StatusCode::ok : StatusCode::unsupported_layout));
    for (const auto change : {+[](GemmSpec& s) { s.b = DType::i4; }, +[](GemmSpec& s) { s.a = s.out = DType::f16; },
                              +[](GemmSpec& s) { s.scale = Scaling::mx, s.scale_k = 0, s.a = s.b; },
                              +[](GemmSpec& s) { s.b = DType::bf16, s.scale = Scaling::none, s.scale_k = 0; }}) {
      GemmSpec other = good;
      other.weights = GemmWeights::fragments;
      change(other);
      CHECK(gemm_check_spec(other, facts).code ==
            (other.mx() && !facts.mx ? StatusCode::unsupported_scaling : StatusCode::unsupported_layout));
    }
    CHECK(code_of([](GemmSpec& s) {
            s.out_scale = Scaling::per_group;
            s.out = DType::i8;
          }) == StatusCode::unsupported_scaling);
  }
}

TEST_CASE("int4 is rounded with its scales on sm90 alone, and what does not go with that is refused") {
  constexpr GemmSpec good{.b = DType::i4,
                          .scale = Scaling::per_group,
                          .weights = GemmWeights::preshuffled,
                          .scale_k = 128,
                          .sums = GemmSums::fast};
  for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950, ArchId::sm90}) {
    const bool rounds = arch == ArchId::sm90;
    CHECK(gemm_check_spec(good, facts_of(arch)).code == (rounds ? StatusCode::ok : StatusCode::unsupported_dtype));
    for (const auto change :
         {+[](GemmSpec& s) { s.zero_points = true; }, +[](GemmSpec& s) { s.a = s.out = DType::f16; },
          +[](GemmSpec& s) { s.scale_k = 32; }, +[](GemmSpec& s) { s.groups = GemmGroups::masked; },
          +[](GemmSpec& s) { s.gated = true, s.out = sm90_facts.fp8, s.out_scale = Scaling::per_tensor; }}) {
      GemmSpec other = good;
      change(other);
      CHECK(gemm_check_spec(other, facts_of(arch)).code == StatusCode::unsupported_dtype);
    }
  }
}

}  // namespace
}  // namespace tilewave::test
