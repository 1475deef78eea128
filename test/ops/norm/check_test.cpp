// SPDX-License-Identifier: MIT
// norm_check refuses bad problems, and nothing is written then.
#include "entries/norm.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/ops/norm/registry.hpp"

namespace tilewave::test {
namespace {

using P = NormProblem;
using C = StatusCode;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

void* writable(const void* p) { return const_cast<void*>(p); }
float* floats(const void* p) { return static_cast<float*>(const_cast<void*>(p)); }

const Wrong<P> any[] = {
    {"kind 7", C::bad_value, [](P& p) { p.spec.kind = static_cast<NormKind>(7); }},
    {"scale mode 9", C::unsupported_scaling, [](P& p) { p.spec.scale = static_cast<Scaling>(9); }},
    {"scale mode -1", C::unsupported_scaling, [](P& p) { p.spec.scale = static_cast<Scaling>(-1); }},
    {"x of i8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::i8; }},
    {"out of no type", C::unsupported_dtype, [](P& p) { p.spec.out = static_cast<DType>(99); }},
    {"weight of another type", C::unsupported_dtype,
     [](P& p) { p.spec.weight = p.spec.x == DType::f16 ? DType::bf16 : DType::f16; }},
    {"plain output of another type", C::unsupported_dtype,
     [](P& p) {
       p.spec.scale = Scaling::none;
       p.spec.out = DType::i8;
     }},
    {"scaled output of f32", C::unsupported_dtype,
     [](P& p) {
       p.spec.scale = Scaling::per_token;
       p.spec.out = DType::f32;
     }},
    {"rows -1", C::bad_extent, [](P& p) { p.rows = -1; }},
    {"columns -1", C::bad_extent, [](P& p) { p.columns = -1; }},
    {"columns 2^31 - 1", C::bad_extent, [](P& p) { p.columns = 0x7fffffff; }},
    {"inner_rows 0", C::bad_extent, [](P& p) { p.inner_rows = 0; }},
    {"eps -1", C::bad_value, [](P& p) { p.eps = -1; }},
    {"eps NaN", C::bad_value, [](P& p) { p.eps = nan; }},
    {"x null", C::null_pointer, [](P& p) { p.x = nullptr; }},
    {"weight null", C::null_pointer, [](P& p) { p.weight = nullptr; }},
    {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
    {"residual without residual_out", C::null_pointer, [](P& p) { p.residual_out = nullptr; }},
    {"residual_out without residual", C::bad_value, [](P& p) { p.residual = nullptr; }},
    {"x off by a byte", C::misaligned, [](P& p) { p.x = moved(p.x, 1); }},
    {"residual off by a byte", C::misaligned, [](P& p) { p.residual = moved(p.residual, 1); }},
    {"bias off by a byte", C::misaligned, [](P& p) { p.bias = moved(p.weight, 1); }},
    {"rstd off by a byte", C::misaligned, [](P& p) { p.rstd = moved(p.rstd, 1); }},
    {"rows of x in one place", C::bad_stride, [](P& p) { p.x_strides = {}; }},
    {"rows of residual in one place", C::bad_stride, [](P& p) { p.residual_strides = {}; }},
    {"rows of residual_out in one place", C::bad_stride, [](P& p) { p.residual_out_strides = {}; }},
    {"rows of residual_out that overlap", C::bad_stride, [](P& p) { p.residual_out_strides.outer -= 1; }},
    {"rows of out in one place", C::bad_stride, [](P& p) { p.out_strides = {}; }},
    {"rows of out that overlap", C::bad_stride, [](P& p) { p.out_strides.outer -= 1; }},
    {"a stride of x of 2^62", C::bad_stride, [](P& p) { p.x_strides.outer = std::int64_t{1} << 62; }, "stride of x "},
    {"a stride of out of 2^62", C::bad_stride, [](P& p) { p.out_strides.outer = std::int64_t{1} << 62; },
     "stride of out "},
    {"strides of a residual that is not there", C::bad_value,
     [](P& p) {
       p.residual = p.residual_out = nullptr;
       p.residual_out_strides = {};
     },
     "stride of residual "},
    {"strides of residual_out that is not there", C::bad_value,
     [](P& p) {
       p.residual = p.residual_out = nullptr;
       p.residual_strides = {};
     },
     "stride of residual_out "},
    {"residual_out starts inside x", C::bad_value, [](P& p) { p.residual_out = moved(writable(p.x), 4); }},
    {"residual_out is x with other strides", C::bad_value,
     [](P& p) {
       p.residual_out = writable(p.x);
       p.residual_out_strides.outer += 16;
     }},
    {"residual_out is weight", C::bad_value, [](P& p) { p.residual_out = writable(p.weight); }},
    {"out is residual_out", C::bad_value,
     [](P& p) {
       p.out = p.residual_out;
       p.out_strides.outer = 4 * p.columns;
       p.residual_out_strides.outer = 4 * p.columns;
     }},
    {"out starts inside residual", C::bad_value, [](P& p) { p.out = moved(writable(p.residual), 4); }},
    {"weight inside out", C::bad_value, [](P& p) { p.weight = p.out; }},
    {"bias inside out", C::bad_value, [](P& p) { p.bias = p.out; }},
    {"rstd inside x", C::bad_value, [](P& p) { p.rstd = floats(p.x); }},
    {"rstd inside out", C::bad_value, [](P& p) { p.rstd = floats(p.out); }},
};
const Wrong<P> plain[] = {
    {"smooth", C::bad_value, [](P& p) { p.smooth = p.weight; }},
    {"scale", C::bad_value, [](P& p) { p.scale = p.rstd; }},
};
const Wrong<P> scaled[] = {
    {"scale null", C::null_pointer, [](P& p) { p.scale = nullptr; }},
    {"scale inside out", C::bad_value, [](P& p) { p.scale = floats(p.out); }},
    {"rstd is scale", C::bad_value, [](P& p) { p.rstd = floats(p.scale); }},
    {"smooth inside out", C::bad_value, [](P& p) { p.smooth = p.out; }},
    {"out is x", C::bad_value, [](P& p) { p.out = writable(p.x); }},
};
const Wrong<P> grouped[] = {
    {"scale_stride 0", C::bad_stride, [](P& p) { p.scale_stride = 0; }},
    {"scale_stride less than a row's groups", C::bad_stride, [](P& p) { p.scale_stride = 1; }},
    {"scale_group_stride 0", C::bad_stride, [](P& p) { p.scale_group_stride = 0; }},
    {"scale_group_stride 2^62", C::bad_stride, [](P& p) { p.scale_group_stride = std::int64_t{1} << 62; }},
    {"scale_stride 2^62", C::bad_stride, [](P& p) { p.scale_stride = std::int64_t{1} << 62; }},
};
const Wrong<P> rms[] = {{"mean", C::bad_value, [](P& p) { p.mean = p.rstd; }}};
const Wrong<P> layer[] = {{"mean is rstd", C::bad_value, [](P& p) { p.mean = p.rstd; }}};

TEST_CASE("bad norm problems get a named status and a reason, and nothing is written") {
  for (const NormEntry* e : all_norm_entries()) {
    if (e->policy.lanes != 256 || e->spec.scale == Scaling::mx) continue;  // see norm_mx_test.cpp
    const std::int32_t columns = 256, rows = 3;
    const NormSpec& spec = e->spec;
    Tensor x(spec.x, rows * columns), residual(spec.x, rows * columns), sum(spec.x, rows * columns);
    Tensor weight(spec.weight, columns), out(spec.out, rows * columns), scale(DType::f32, 2 * rows);
    Tensor mean(DType::f32, rows), rstd(DType::f32, rows);
    P good;
    good.spec = spec;
    good.x = x.device();
    good.residual = residual.device();
    good.residual_out = sum.device();
    good.weight = weight.device();
    good.out = out.device();
    if (spec.scale != Scaling::none) good.scale = floats(scale.device());
    if (spec.kind == NormKind::layer) good.mean = floats(mean.device());
    good.rstd = floats(rstd.device());
    good.rows = rows;
    good.columns = columns;
    good.x_strides = good.residual_strides = good.residual_out_strides = good.out_strides = {columns, 0};
    good.scale_stride = 2;
    const auto refused = [&](std::span<const Wrong<P>> wrongs) {
      check_refused<NormEntry, P>(*e, good, wrongs, norm_check, norm_select, all_norm_entries());
    };
    refused(any);
    refused(spec.scale == Scaling::none ? std::span<const Wrong<P>>(plain) : std::span<const Wrong<P>>(scaled));
    refused(spec.kind == NormKind::rms ? std::span<const Wrong<P>>(rms) : std::span<const Wrong<P>>(layer));
    if (spec.scale == Scaling::per_group) refused(grouped);
    check_empty(*e, good, out);
    for (Tensor* untouched : {&sum, &mean, &rstd}) {
      untouched->download();
      CHECK(untouched->gaps_kept(0, 0));
    }
    P many = good;
    many.residual = nullptr;
    many.residual_out = nullptr;
    many.residual_strides = many.residual_out_strides = {};
    many.scale = spec.scale == Scaling::none ? nullptr : floats(reinterpret_cast<void*>(std::uintptr_t{1} << 50));
    many.scale_stride = 32;
    many.mean = many.rstd = nullptr;
    check_too_many_rows(many, norm_select, all_norm_entries(), facts_of(e->arch));
  }
}

}  // namespace
}  // namespace tilewave::test
