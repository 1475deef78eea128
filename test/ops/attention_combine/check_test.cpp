// SPDX-License-Identifier: MIT
// Combine of partial results: bad problems get a named status and a reason, and empty ones are fine.
#include "entries/attention_combine.hpp"
#include "test/ops/rows.hpp"

namespace tilewave::test {
namespace {

using P = AttentionCombineProblem;
using C = StatusCode;

const Wrong<P> wrongs[] = {
    {"no partials", C::bad_extent, [](P& p) { p.partials = 0; }},
    {"129 partials", C::bad_extent, [](P& p) { p.partials = 129; }},
    {"-1 partials", C::bad_extent, [](P& p) { p.partials = -1; }},
    {"head_size 0", C::unsupported_head_size, [](P& p) { p.head_size = 0; }},
    {"head_size 513", C::unsupported_head_size, [](P& p) { p.head_size = 513; }},
    {"-1 rows", C::bad_extent, [](P& p) { p.rows = -1; }},
    {"-1 heads", C::bad_extent, [](P& p) { p.heads = -1; }},
    {"2^31 output rows", C::bad_extent, [](P& p) { p.rows = p.heads = 1 << 16; }},
    {"x null", C::null_pointer, [](P& p) { p.x = nullptr; }},
    {"x_lse null", C::null_pointer, [](P& p) { p.x_lse = nullptr; }},
    {"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
    {"x off by 1 byte", C::misaligned, [](P& p) { p.x = moved(p.x, 1); }},
    {"out off by 1 byte", C::misaligned, [](P& p) { p.out = moved(p.out, 1); }},
    {"x_lse off by 2 bytes", C::misaligned, [](P& p) { p.x_lse = moved(p.x_lse, 2); }},
    {"lse off by 2 bytes", C::misaligned, [](P& p) { p.lse = moved(p.lse, 2); }},
    {"partials in one place", C::bad_stride, [](P& p) { p.x_strides.partial = 0; }},
    {"rows in one place", C::bad_stride, [](P& p) { p.x_strides.row = 0; }},
    {"heads in one place", C::bad_stride, [](P& p) { p.x_strides.head = 0; }},
    {"strides of an lse that is not there", C::bad_value, [](P& p) { p.lse = nullptr; }, "stride of lse "},
    {"lse of partials in one place", C::bad_stride, [](P& p) { p.x_lse_strides.partial = 0; }},
    {"lse of rows in one place", C::bad_stride, [](P& p) { p.x_lse_strides.row = 0; }},
    {"lse of heads in one place", C::bad_stride, [](P& p) { p.x_lse_strides.head = 0; }},
    {"heads of out that overlap", C::bad_stride, [](P& p) { p.out_strides.head -= 1; }},
    {"rows of out that overlap", C::bad_stride, [](P& p) { p.out_strides.row -= 1; }},
    {"rows of lse in one place", C::bad_stride, [](P& p) { p.lse_strides.row = 0; }},
    {"a stride of x of 2^62", C::bad_stride, [](P& p) { p.x_strides.partial = std::int64_t{1} << 62; }},
    {"a stride of x_lse of 2^62", C::bad_stride, [](P& p) { p.x_lse_strides.row = std::int64_t{1} << 62; }},
    {"a stride of out of 2^62", C::bad_stride, [](P& p) { p.out_strides.row = std::int64_t{1} << 62; }},
    {"a stride of lse of 2^62", C::bad_stride, [](P& p) { p.lse_strides.head = std::int64_t{1} << 62; }},
    {"out is x", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.x); }},
    {"out around x_lse", C::bad_value, [](P& p) { p.x_lse = static_cast<const float*>(p.out); }},
    {"lse is x_lse", C::bad_value, [](P& p) { p.lse = const_cast<float*>(p.x_lse); }},
    {"lse inside x", C::bad_value, [](P& p) { p.lse = static_cast<float*>(const_cast<void*>(p.x)); }},
    {"lse inside out", C::bad_value, [](P& p) { p.lse = static_cast<float*>(p.out); }},
    {"x of no type", C::unsupported_dtype, [](P& p) { p.spec.x = static_cast<DType>(99); }},
    {"x i8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::i8; }},
    {"out fp8", C::unsupported_dtype, [](P& p) { p.spec.out = DType::fp8_e4m3fn; }},
};

TEST_CASE("combine: bad problems get a named status and a reason, and nothing is written") {
  for (const AttentionCombineEntry* e : all_attention_combine_entries()) {
    Tensor x(DType::f32, 8 * 64), lse(DType::f32, 8), out(DType::f32, 4 * 64), out_lse(DType::f32, 4);
    P good;
    good.spec = e->spec;
    good.x = x.device();
    good.x_lse = static_cast<const float*>(lse.device());
    good.out = out.device();
    good.lse = static_cast<float*>(out_lse.device());
    good.partials = good.rows = good.heads = 2;
    good.head_size = 64;
    good.x_strides = {256, 128, 64};
    good.x_lse_strides = {4, 2, 1};
    good.out_strides = {128, 64};
    good.lse_strides = {2, 1};
    check_refused<AttentionCombineEntry, P>(*e, good, wrongs, attention_combine_check, attention_combine_select,
                                            all_attention_combine_entries());
    P many = good;  // far tensors: nothing of it is launched
    many.x = reinterpret_cast<const void*>(std::uintptr_t{1} << 48);
    many.x_lse = reinterpret_cast<const float*>(std::uintptr_t{1} << 49);
    many.out = reinterpret_cast<void*>(std::uintptr_t{1} << 50);
    many.lse = nullptr;
    many.lse_strides = {};
    many.rows = 1 << 30;
    many.heads = 1;
    many.x_strides = {std::int64_t{64} << 30, 64, 0};
    many.x_lse_strides = {1 << 30, 1, 0};
    many.out_strides = {64, 0};
    const AttentionCombineEntry* chosen = e;
    CHECK(attention_combine_select(many, all_attention_combine_entries(), facts_of(e->arch), chosen).code ==
          C::bad_extent);
    CHECK(chosen == nullptr);

    P wide = good;
    wide.head_size = 512;
    wide.x_strides = {2048, 1024, 512};
    wide.out_strides = {1024, 512};
    const bool takes = policy_takes(e->policy, e->spec.x, 512, true);
    if (!takes) CHECK(e->launch(wide, {}).code == StatusCode::no_matching_entry);
    for (const auto empty : {+[](P& p) { p.rows = 0; }, +[](P& p) { p.heads = 0; }}) {
      P p = good;
      empty(p);
      p.x = nullptr;
      p.x_lse = nullptr;
      p.out = nullptr;
      CHECK(e->launch(p, {}).ok());
    }
    bench::check_hip(hipDeviceSynchronize(), "waiting");
    for (Tensor* tensor : {&out, &out_lse}) {
      tensor->download();
      CHECK(tensor->gaps_kept(0, 0));
    }
  }
}

}  // namespace
}  // namespace tilewave::test
