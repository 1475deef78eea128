// SPDX-License-Identifier: MIT
// softmax_check refuses bad problems, and nothing is written then.
#include "entries/softmax.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/ops/softmax/registry.hpp"

namespace tilewave::test::check {
namespace {

using P = SoftmaxProblem;
using C = StatusCode;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

const Wrong<P> wrongs[] = {
    {"kind 7", C::bad_value, [](P& p) { p.spec.kind = static_cast<SoftmaxKind>(7); }},
    {"kind -1", C::bad_value, [](P& p) { p.spec.kind = static_cast<SoftmaxKind>(-1); }},
    {"x of fp8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::fp8_e4m3fn; }},
    {"x of no type", C::unsupported_dtype, [](P& p) { p.spec.x = static_cast<DType>(99); }},
    {"rows -1", C::bad_extent, [](P& p) { p.rows = -1; }},
    {"columns -1", C::bad_extent, [](P& p) { p.columns = -1; }},
    {"rows_per_length 0", C::bad_extent, [](P& p) { p.rows_per_length = 0; }},
    {"rows_per_length without lengths", C::bad_value, [](P& p) { p.rows_per_length = 2; }},
    {"causal_rows -1", C::bad_extent, [](P& p) { p.causal_rows = -1; }},
    {"inner_rows 0", C::bad_extent, [](P& p) { p.inner_rows = 0; }},
    {"scale NaN", C::bad_value, [](P& p) { p.scale = nan; }},
    {"scale beyond f32 in log2 units", C::bad_value, [](P& p) { p.scale = 3e38f; }},
    {"x null", C::null_pointer, [](P& p) { p.x = nullptr; }},
    {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
    {"x off by a byte", C::misaligned, [](P& p) { p.x = moved(p.x, 1); }},
    {"out off by a byte", C::misaligned, [](P& p) { p.out = moved(p.out, 1); }},
    {"lse off by a byte", C::misaligned, [](P& p) { p.lse = moved(p.lse, 1); }},
    {"lengths off by a byte", C::misaligned,
     [](P& p) { p.lengths = reinterpret_cast<const std::int32_t*>(moved(p.lse, 1)); }},
    {"rows of x in one place", C::bad_stride, [](P& p) { p.x_strides = {}; }},
    {"rows of out in one place", C::bad_stride, [](P& p) { p.out_strides = {}; }},
    {"rows of out that overlap", C::bad_stride, [](P& p) { p.out_strides.outer -= 1; }},
    {"inner rows of x in one place", C::bad_stride,
     [](P& p) {
       p.inner_rows = 2;
       p.out_strides.inner = p.columns;
     }},
    {"inner rows of out in one place", C::bad_stride,
     [](P& p) {
       p.inner_rows = 2;
       p.x_strides.inner = p.columns;
     }},
    {"a stride of x of 2^62", C::bad_stride, [](P& p) { p.x_strides.outer = std::int64_t{1} << 62; }},
    {"a stride of x of -2^62", C::bad_stride, [](P& p) { p.x_strides.outer = -(std::int64_t{1} << 62); }},
    {"a stride of out of 2^62", C::bad_stride, [](P& p) { p.out_strides.outer = std::int64_t{1} << 62; }},
    {"out starts inside x", C::bad_value, [](P& p) { p.out = moved(const_cast<void*>(p.x), 4); }},
    {"out is x with other strides", C::bad_value,
     [](P& p) {
       p.out = const_cast<void*>(p.x);
       p.out_strides.outer += 16;
     }},
    {"lse inside x", C::bad_value, [](P& p) { p.lse = static_cast<float*>(moved(const_cast<void*>(p.x), 8)); }},
    {"lse inside out", C::bad_value, [](P& p) { p.lse = static_cast<float*>(moved(p.out, 8)); }},
    {"lengths are lse", C::bad_value, [](P& p) { p.lengths = reinterpret_cast<const std::int32_t*>(p.lse); }},
    {"lengths inside out", C::bad_value, [](P& p) { p.lengths = static_cast<const std::int32_t*>(p.out); }},
};

TEST_CASE("bad softmax problems get a named status and a reason, and nothing is written") {
  for (const SoftmaxEntry* e : all_softmax_entries()) {
    if (e->policy.lanes != 256) continue;
    const std::int32_t columns = 64, rows = 4;
    Tensor x(e->spec.x, rows * columns), out(e->spec.x, rows * columns), lse(DType::f32, rows);
    P good;
    good.spec = e->spec;
    good.x = x.device();
    good.out = out.device();
    good.lse = static_cast<float*>(lse.device());
    good.rows = rows;
    good.columns = columns;
    good.x_strides = good.out_strides = {columns, 0};
    check_refused<SoftmaxEntry, P>(*e, good, wrongs, softmax_check, softmax_select, all_softmax_entries());
    check_empty(*e, good, out);
    lse.download();
    CHECK(lse.gaps_kept(0, 0));

    P halves = good;  // of a fused tensor: rows of one between those of the other
    halves.columns = columns / 2;
    halves.out = moved(const_cast<void*>(good.x), columns / 2 * size_of(e->spec.x));
    CHECK(softmax_check(halves, facts_of(e->arch)).ok());
    P single = good;  // strides of one row do not matter
    single.rows = 1;
    single.x_strides = single.out_strides = {0, std::int64_t{1} << 62};
    CHECK(softmax_check(single, facts_of(e->arch)).ok());
    P many = good;
    many.lse = nullptr;
    check_too_many_rows(many, softmax_select, all_softmax_entries(), facts_of(e->arch));
  }
}

}  // namespace
}  // namespace tilewave::test::check
