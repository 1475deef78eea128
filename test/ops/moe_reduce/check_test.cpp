// SPDX-License-Identifier: MIT
// moe_reduce_check refuses bad problems, and nothing is written then.
#include "entries/moe_reduce.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/ops/moe_reduce/registry.hpp"

namespace tilewave::test {
namespace {

using P = MoeReduceProblem;
using C = StatusCode;

const std::int32_t* table_at(const void* p) { return static_cast<const std::int32_t*>(p); }

const Wrong<P> wrongs[] = {
    {"x of fp8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::fp8_e4m3fn; }},
    {"rows -1", C::bad_extent, [](P& p) { p.rows = -1; }},
    {"columns 2^31 - 1", C::bad_extent, [](P& p) { p.columns = 0x7fffffff; }},
    {"topk 0", C::bad_extent, [](P& p) { p.topk = 0; }},
    {"topk 17", C::bad_extent, [](P& p) { p.topk = 17; }},
    {"x_rows -1", C::bad_extent, [](P& p) { p.x_rows = -1; }},
    {"experts -1", C::bad_extent, [](P& p) { p.experts = -1; }},
    {"x_rows without slots", C::bad_value, [](P& p) { p.x_rows = 8; }},
    {"experts without a mask", C::bad_value, [](P& p) { p.experts = 8; }},
    {"ids without a mask", C::bad_value, [](P& p) { p.topk_ids = table_at(p.x); }},
    {"a mask without ids", C::bad_value, [](P& p) { p.expert_mask = table_at(p.x); }},
    {"a mask of no experts", C::bad_extent, [](P& p) { p.expert_mask = p.topk_ids = table_at(p.x); }},
    {"slots and a slot stride", C::bad_value, [](P& p) { p.slots = table_at(p.x); }},
    {"x null", C::null_pointer, [](P& p) { p.x = nullptr; }},
    {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
    {"x off by a byte", C::misaligned, [](P& p) { p.x = moved(p.x, 1); }},
    {"out off by a byte", C::misaligned, [](P& p) { p.out = moved(p.out, 1); }},
    {"residual off by a byte", C::misaligned, [](P& p) { p.residual = moved(p.x, 1); }},
    {"weights off by a byte", C::misaligned, [](P& p) { p.weights = reinterpret_cast<const float*>(moved(p.x, 1)); }},
    {"tokens of x in one place", C::bad_stride, [](P& p) { p.x_stride = 0; }},
    {"slots of x in one place", C::bad_stride, [](P& p) { p.x_slot_stride = 0; }},
    {"a stride of x of 2^62", C::bad_stride, [](P& p) { p.x_stride = std::int64_t{1} << 62; }},
    {"residual_stride without residual", C::bad_value, [](P& p) { p.residual_stride = p.columns; }},
    {"residual_stride 0", C::bad_stride, [](P& p) { p.residual = p.x; }},
    {"rows of out that overlap", C::bad_stride, [](P& p) { p.out_stride -= 1; }},
    {"out is x", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.x); }},
    {"out is the residual with another stride", C::bad_value,
     [](P& p) {
       p.residual = p.out;
       p.residual_stride = p.out_stride + 16;
     }},
    {"weights inside out", C::bad_value, [](P& p) { p.weights = static_cast<const float*>(p.out); }},
    {"slots inside out", C::bad_value,
     [](P& p) {
       p.slots = table_at(p.out);
       p.x_slot_stride = 0;
       p.x_rows = 8;
     }},
    {"ids inside out", C::bad_value,
     [](P& p) {
       p.topk_ids = table_at(p.out);
       p.expert_mask = table_at(p.x);
       p.experts = 4;
     }},
};

TEST_CASE("bad moe_reduce problems get a named status and a reason, and nothing is written") {
  for (const MoeReduceEntry* e : all_moe_reduce_entries()) {
    if (e->policy.lanes != 256) continue;
    const std::int32_t columns = 64, rows = 4, topk = 2;
    Tensor x(e->spec.x, rows * topk * columns), out(e->spec.x, rows * columns);
    P good;
    good.spec = e->spec;
    good.x = x.device();
    good.out = out.device();
    good.rows = rows;
    good.columns = columns;
    good.topk = topk;
    good.x_stride = topk * columns;
    good.x_slot_stride = good.out_stride = columns;
    check_refused<MoeReduceEntry, P>(*e, good, wrongs, moe_reduce_check, moe_reduce_select, all_moe_reduce_entries());
    check_empty(*e, good, out);

    P many = good;  // shapes only: more rows than one launch has lanes for
    many.x = reinterpret_cast<const void*>(std::uintptr_t{1} << 48);
    many.out = reinterpret_cast<void*>(std::uintptr_t{1} << 49);
    many.rows = 0x7fffffff - 65536;
    const MoeReduceEntry* chosen = e;
    CHECK(name_of(moe_reduce_select(many, all_moe_reduce_entries(), facts_of(e->arch), chosen).code) == "bad_extent");
    CHECK(chosen == nullptr);
  }
}

}  // namespace
}  // namespace tilewave::test
