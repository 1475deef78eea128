// SPDX-License-Identifier: MIT
// activation_check refuses bad problems, and nothing is written then.
#include "entries/activation.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/ops/activation/registry.hpp"

namespace tilewave::test::check {
namespace {

using P = ActivationProblem;
using C = StatusCode;
constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

const Wrong<P> any[] = {
    {"kind 99", C::bad_value, [](P& p) { p.spec.kind = static_cast<ActivationKind>(99); }},
    {"gating -1", C::bad_value, [](P& p) { p.spec.gating = static_cast<Gating>(-1); }},
    {"scale mode 9", C::unsupported_scaling, [](P& p) { p.spec.scale = static_cast<Scaling>(9); }},
    {"x of fp8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::fp8_e4m3fn; }},
    {"out of no type", C::unsupported_dtype, [](P& p) { p.spec.out = static_cast<DType>(99); }},
    {"rows -1", C::bad_extent, [](P& p) { p.rows = -1; }},
    {"columns -1", C::bad_extent, [](P& p) { p.columns = -1; }},
    {"columns 2^31 - 1", C::bad_extent, [](P& p) { p.columns = 0x7fffffff; }},
    {"inner_rows 0", C::bad_extent, [](P& p) { p.inner_rows = 0; }},
    {"x null", C::null_pointer, [](P& p) { p.x = nullptr; }},
    {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
    {"x off by a byte", C::misaligned, [](P& p) { p.x = moved(p.x, 1); }},
    {"rows of x in one place", C::bad_stride, [](P& p) { p.x_strides = {}; }},
    {"rows of out in one place", C::bad_stride, [](P& p) { p.out_strides = {}; }},
    {"rows of out that overlap", C::bad_stride, [](P& p) { p.out_strides.outer -= 1; }},
    {"a stride of x of 2^62", C::bad_stride, [](P& p) { p.x_strides.outer = std::int64_t{1} << 62; }},
    {"a stride of out of 2^62", C::bad_stride, [](P& p) { p.out_strides.outer = std::int64_t{1} << 62; }},
    {"out starts at the second element of x", C::bad_value,
     [](P& p) { p.out = moved(const_cast<void*>(p.x), size_of(p.spec.x)); }},
};
const Wrong<P> plain_output[] = {
    {"out of another type", C::unsupported_dtype,
     [](P& p) { p.spec.out = p.spec.x == DType::f32 ? DType::f16 : DType::f32; }},
    {"out off by a byte", C::misaligned, [](P& p) { p.out = moved(p.out, 1); }},
    {"a scale", C::bad_value, [](P& p) { p.scale = static_cast<float*>(p.out); }},
    {"out is x with other strides", C::bad_value,
     [](P& p) {
       p.out = const_cast<void*>(p.x);
       p.out_strides.outer = p.x_strides.outer + 16;
     }},
};
const Wrong<P> quantised[] = {
    {"out of f32", C::unsupported_dtype, [](P& p) { p.spec.out = DType::f32; }},
    {"scale null", C::null_pointer, [](P& p) { p.scale = nullptr; }},
    {"scale off by a byte", C::misaligned, [](P& p) { p.scale = moved(p.scale, 1); }},
    {"scale inside out", C::bad_value, [](P& p) { p.scale = static_cast<float*>(p.out); }},
    {"out is x", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.x); }},
};
const Wrong<P> found_scales[] = {
    {"scale inside x", C::bad_value, [](P& p) { p.scale = static_cast<float*>(const_cast<void*>(p.x)); }},
};
const Wrong<P> halves[] = {
    {"up off by a byte", C::misaligned, [](P& p) { p.up = moved(p.x, 1); }},
    {"rows of up in one place", C::bad_stride, [](P& p) { p.up = p.x; }},
    {"up forgotten, its strides are given", C::bad_value, [](P& p) { p.up_strides = p.x_strides; }, "up is null"},
    {"up forgotten, rows of x are gates alone", C::bad_stride, [](P& p) { p.x_strides.outer = p.columns; },
     "without up"},
    {"up forgotten, rows of x have no room for ups", C::bad_stride, [](P& p) { p.x_strides.outer = 2 * p.columns - 1; },
     "without up"},
    {"a stride of up of -2^62", C::bad_stride,
     [](P& p) {
       p.up = p.x;
       p.up_strides.outer = -(std::int64_t{1} << 62);
     }},
    {"out is the second half of x, off by an element", C::bad_value,
     [](P& p) {
       p.out = moved(const_cast<void*>(p.x), (p.columns + 1) * size_of(p.spec.x));
       p.out_strides = p.x_strides;
     }},
};
const Wrong<P> not_halves[] = {
    {"up without halves", C::bad_value, [](P& p) { p.up = p.x; }},
    {"strides of up without halves", C::bad_value, [](P& p) { p.up_strides.inner = 8; }, "stride of up"},
};
const Wrong<P> interleaved[] = {
    {"out is x, interleaved", C::bad_value,
     [](P& p) {
       p.out = const_cast<void*>(p.x);
       p.out_strides = p.x_strides;
     }},
};
const Wrong<P> plain_gating[] = {
    {"no function", C::bad_value, [](P& p) { p.spec.kind = ActivationKind::none; }},
    {"swigluoai without ups", C::bad_value, [](P& p) { p.spec.kind = ActivationKind::swigluoai; }},
};
const Wrong<P> swiglu[] = {
    {"limit 0", C::bad_value, [](P& p) { p.limit = 0; }},
    {"limit NaN", C::bad_value, [](P& p) { p.limit = nan; }},
    {"alpha infinite", C::bad_value, [](P& p) { p.alpha = inf; }},
};
const Wrong<P> not_swiglu[] = {
    {"a limit of its own", C::bad_value, [](P& p) { p.limit = 6; }},
    {"an alpha of its own", C::bad_value, [](P& p) { p.alpha = 1; }},
};
const Wrong<P> grouped[] = {
    {"scale_stride 0", C::bad_stride, [](P& p) { p.scale_stride = 0; }},
    {"scale_group_stride 0", C::bad_stride, [](P& p) { p.scale_group_stride = 0; }},
    {"scale_stride 2^62", C::bad_stride, [](P& p) { p.scale_stride = std::int64_t{1} << 62; }},
};

TEST_CASE("bad activation problems get a named status and a reason, and nothing is written") {
  for (const ActivationEntry* e : all_activation_entries()) {
    if (e->policy.lanes != 256 || e->spec.scale == Scaling::mx) continue;  // see activation_mx_test.cpp
    const ActivationSpec& s = e->spec;
    const std::int32_t columns = 256, rows = 4, width = s.gated() ? 2 * columns : columns;
    Tensor x(s.x, rows * width), out(s.out, rows * columns), scale(DType::f32, rows * 2);
    P good;
    good.spec = s;
    good.x = x.device();
    good.out = out.device();
    if (s.scale != Scaling::none) good.scale = static_cast<float*>(scale.device());
    good.rows = rows;
    good.columns = columns;
    good.x_strides = {width, 0};
    good.out_strides = {columns, 0};
    good.scale_stride = 2;
    const auto refused = [&](std::span<const Wrong<P>> wrongs) {
      check_refused<ActivationEntry, P>(*e, good, wrongs, activation_check, activation_select,
                                        all_activation_entries());
    };
    refused(any);
    if (s.scale == Scaling::none) {
      refused(plain_output);
    } else {
      refused(quantised);
    }
    if (s.scale == Scaling::per_token || s.scale == Scaling::per_group) refused(found_scales);
    if (s.scale == Scaling::per_group) refused(grouped);
    if (s.gating == Gating::halves) {
      refused(halves);
    } else {
      refused(not_halves);
    }
    if (s.gating == Gating::interleaved) refused(interleaved);
    if (s.gating == Gating::plain) refused(plain_gating);
    if (s.kind == ActivationKind::swigluoai) {
      refused(swiglu);
    } else {
      refused(not_swiglu);
    }
    check_empty(*e, good, out);
    scale.download();
    CHECK(scale.gaps_kept(0, 0));
    if (s.gating == Gating::plain && s.scale == Scaling::none) {
      check_too_many_rows(good, activation_select, all_activation_entries(), facts_of(e->arch));
    }
  }
}

}  // namespace
}  // namespace tilewave::test::check
