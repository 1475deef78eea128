// SPDX-License-Identifier: MIT
// quant_check refuses bad problems, and nothing is written then.
#include "entries/quant.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/ops/quant/registry.hpp"

namespace tilewave::test {
namespace {

using P = QuantProblem;
using C = StatusCode;

const Wrong<P> any[] = {
    {"no scale", C::unsupported_scaling, [](P& p) { p.spec.scale = Scaling::none; }},
    {"scale mode 9", C::unsupported_scaling, [](P& p) { p.spec.scale = static_cast<Scaling>(9); }},
    {"x of no type", C::unsupported_dtype, [](P& p) { p.spec.x = static_cast<DType>(99); }},
    {"out of no type", C::unsupported_dtype, [](P& p) { p.spec.out = static_cast<DType>(99); }},
    {"rows -1", C::bad_extent, [](P& p) { p.rows = -1; }},
    {"columns -1", C::bad_extent, [](P& p) { p.columns = -1; }},
    {"columns 2^31 - 1", C::bad_extent, [](P& p) { p.columns = 0x7fffffff; }},
    {"inner_rows 0", C::bad_extent, [](P& p) { p.inner_rows = 0; }},
    {"x null", C::null_pointer, [](P& p) { p.x = nullptr; }},
    {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
    {"scale null", C::null_pointer, [](P& p) { p.scale = nullptr; }},
    {"scale off by a byte", C::misaligned, [](P& p) { p.scale = moved(p.scale, 1); }},
    {"rows of x in one place", C::bad_stride, [](P& p) { p.x_strides = {}; }},
    {"rows of out in one place", C::bad_stride, [](P& p) { p.out_strides = {}; }},
    {"rows of out that overlap", C::bad_stride, [](P& p) { p.out_strides.outer -= 1; }},
    {"a stride of x of 2^62", C::bad_stride, [](P& p) { p.x_strides.outer = std::int64_t{1} << 62; }},
    {"a stride of out of 2^62", C::bad_stride, [](P& p) { p.out_strides.outer = std::int64_t{1} << 62; }},
    {"out is x", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.x); }},
    {"out starts at x's last byte", C::bad_value,
     [](P& p) { p.out = moved(const_cast<void*>(p.x), p.rows * p.columns * size_of(p.spec.x) - size_of(p.spec.out)); }},
    {"scale inside out", C::bad_value, [](P& p) { p.scale = static_cast<float*>(p.out); }},
};
const Wrong<P> quantising[] = {
    {"out of f32", C::unsupported_dtype, [](P& p) { p.spec.out = DType::f32; }},
    {"out of x's type", C::unsupported_dtype, [](P& p) { p.spec.out = p.spec.x; }},
    {"x off by a byte", C::misaligned, [](P& p) { p.x = moved(p.x, 1); }},
    {"smooth off by a byte", C::misaligned, [](P& p) { p.smooth = moved(p.x, 1); }},
    {"smooth inside out", C::bad_value, [](P& p) { p.smooth = p.out; }},
    {"scale inside x", C::bad_value, [](P& p) { p.scale = static_cast<float*>(const_cast<void*>(p.x)); }},
};
const Wrong<P> dequantising[] = {
    {"out of i8", C::unsupported_dtype, [](P& p) { p.spec.out = DType::i8; }},
    {"out off by a byte", C::misaligned, [](P& p) { p.out = moved(p.out, 1); }},
    {"smooth", C::bad_value, [](P& p) { p.smooth = p.out; }},
    {"find_scale", C::bad_value, [](P& p) { p.find_scale = true; }},
};
const Wrong<P> grouped[] = {
    {"scale_stride 0", C::bad_stride, [](P& p) { p.scale_stride = 0; }},
    {"scale_stride less than a row's groups", C::bad_stride, [](P& p) { p.scale_stride = 1; }},
    {"scale_group_stride 0", C::bad_stride, [](P& p) { p.scale_group_stride = 0; }},
    {"scale_group_stride 2^62", C::bad_stride, [](P& p) { p.scale_group_stride = std::int64_t{1} << 62; }},
    {"scale_stride 2^62", C::bad_stride, [](P& p) { p.scale_stride = std::int64_t{1} << 62; }},
};
const Wrong<P> with_found_scale[] = {
    {"workspace inside x", C::bad_value, [](P& p) { p.workspace = const_cast<void*>(p.x); }},
    {"workspace around scale", C::bad_value, [](P& p) { p.workspace = p.scale; }},
    {"workspace null", C::null_pointer, [](P& p) { p.workspace = nullptr; }},
    {"workspace too small", C::workspace_too_small, [](P& p) { --p.workspace_bytes; }},
    {"workspace off by a byte", C::misaligned, [](P& p) { p.workspace = moved(p.workspace, 1); }},
};

void check_refused(const QuantEntry& e, const P& good, std::span<const Wrong<P>> wrongs) {
  check_refused<QuantEntry, P>(e, good, wrongs, quant_check, quant_select, all_quant_entries());
}

TEST_CASE("bad quant problems get a named status and a reason, and nothing is written") {
  for (const QuantEntry* e : all_quant_entries()) {
    if (e->policy.lanes != 256 || e->spec.scale == Scaling::mx) continue;
    constexpr std::int32_t columns = 256, rows = 3;
    Tensor x(e->spec.x, rows * columns), out(e->spec.out, rows * columns), scale(DType::f32, 2 * rows);
    const bench::DeviceBuffer workspace(quant_partials * sizeof(float));
    P good;
    good.spec = e->spec;
    good.x = x.device();
    good.out = out.device();
    good.scale = static_cast<float*>(scale.device());
    good.workspace = workspace.data();
    good.workspace_bytes = workspace.bytes();
    good.rows = rows;
    good.columns = columns;
    good.x_strides = good.out_strides = {columns, 0};
    good.scale_stride = 2;
    check_refused(*e, good, any);
    const bool quantises = e->spec.kind() == QuantKind::quantise;
    check_refused(*e, good,
                  quantises ? std::span<const Wrong<P>>(quantising) : std::span<const Wrong<P>>(dequantising));

    P found = good;
    found.find_scale = true;
    CHECK(quant_workspace_size(good) == 0);
    CHECK(quant_workspace_size(found) == workspace.bytes());
    if (e->spec.output().scale == Scaling::per_tensor) {
      check_refused(*e, found, with_found_scale);
    } else {
      CHECK(e->launch(found, {}).code == C::bad_value);
    }
    if (e->spec.scale == Scaling::per_group) check_refused(*e, good, grouped);
    check_empty(*e, good, out);
    scale.download();
    CHECK(scale.gaps_kept(0, 0));
    P many = good;
    many.scale = reinterpret_cast<float*>(std::uintptr_t{1} << 50);
    many.scale_stride = 32;
    check_too_many_rows(many, quant_select, all_quant_entries(), facts_of(e->arch));
  }
}

TEST_CASE("the other architecture's fp8 flavour is refused, as codes and as values") {
  for (const ArchId arch : all_archs) {
    const DType other = facts_of(arch).fp8 == DType::fp8_e4m3fn ? DType::fp8_e4m3fnuz : DType::fp8_e4m3fn;
    P p;
    p.spec = {DType::bf16, other, Scaling::per_token};
    CHECK(quant_check(p, facts_of(arch)).code == C::unsupported_dtype);
    p.spec = {other, DType::bf16, Scaling::per_token};
    CHECK(quant_check(p, facts_of(arch)).code == C::unsupported_dtype);
    p.spec.x = facts_of(arch).fp8;
    CHECK(quant_check(p, facts_of(arch)).ok());
  }
}

}  // namespace
}  // namespace tilewave::test
