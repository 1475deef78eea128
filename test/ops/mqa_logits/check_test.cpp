// SPDX-License-Identifier: MIT
// What mqa_logits_check and a launch refuse, and that nothing is written then.
#include "test/ops/mqa_logits/call.hpp"

namespace tilewave::test {
namespace {

using P = MqaLogitsProblem;
using C = StatusCode;

const Wrong<P> of_both[] = {
    {"bf16", C::unsupported_dtype, [](P& p) { p.spec.type = DType::bf16; }},
    {"the other fp8", C::unsupported_dtype,
     [](P& p) { p.spec.type = p.spec.type == DType::fp8_e4m3fn ? DType::fp8_e4m3fnuz : DType::fp8_e4m3fn; }},
    {"keys of no kind", C::bad_value, [](P& p) { p.spec.keys = MqaKeys(2); }},
    {"48 heads", C::unsupported_head_ratio, [](P& p) { p.spec.heads = 48; }},
    {"head_size 64", C::unsupported_head_size, [](P& p) { p.spec.head_size = 64; }},
    {"sequences -1", C::bad_extent, [](P& p) { p.sequences = -1; }},
    {"queries -1", C::bad_extent, [](P& p) { p.queries = -1; }},
    {"columns -1", C::bad_extent, [](P& p) { p.columns = -1; }},
    {"columns beyond 2^30", C::bad_extent, [](P& p) { p.columns = (1 << 30) + 1; }},
    {"queries beyond 2^30", C::bad_extent, [](P& p) { p.queries = (1 << 30) + 1; }},
    {"q null", C::null_pointer, [](P& p) { p.q = nullptr; }},
    {"k null", C::null_pointer, [](P& p) { p.k = nullptr; }},
    {"weights null", C::null_pointer, [](P& p) { p.weights = nullptr; }},
    {"k_scale null", C::null_pointer, [](P& p) { p.k_scale = nullptr; }},
    {"logits null", C::null_pointer, [](P& p) { p.logits = nullptr; }},
    {"q off by 8", C::misaligned, [](P& p) { p.q = moved(p.q, 8); }},
    {"k off by 4", C::misaligned, [](P& p) { p.k = moved(p.k, 4); }},
    {"weights off by 4", C::misaligned, [](P& p) { p.weights = moved(p.weights, 4); }},
    {"k_scale off by 2", C::misaligned, [](P& p) { p.k_scale = moved(p.k_scale, 2); }},
    {"logits off by 1", C::misaligned, [](P& p) { p.logits = moved(p.logits, 1); }},
    {"queries in one place", C::bad_stride, [](P& p) { p.q_stride = 0; }},
    {"heads in one place", C::bad_stride, [](P& p) { p.q_head_stride = 0; }},
    {"weights in one place", C::bad_stride, [](P& p) { p.weights_stride = 0; }},
    {"keys in one place", C::bad_stride, [](P& p) { p.k_stride = 0; }},
    {"rows of logits that overlap", C::bad_stride, [](P& p) { p.logits_stride = p.columns - 1; }},
    {"queries of odd strides", C::bad_stride, [](P& p) { p.q_stride += 8; }},
    {"keys of odd strides", C::bad_stride, [](P& p) { p.k_stride += 4; }},
    {"q_scale_stride without q_scale", C::bad_value, [](P& p) { p.q_scale_stride = 128; }, "stride of q_scale "},
    {"weights of odd strides", C::bad_stride, [](P& p) { p.weights_stride += 2; }},
    {"strides beyond all memory", C::bad_stride, [](P& p) { p.q_stride = std::int64_t{1} << 60; }},
    {"logits over q", C::bad_value, [](P& p) { p.logits = const_cast<float*>(static_cast<const float*>(p.q)); }},
    {"logits over weights", C::bad_value, [](P& p) { p.logits = const_cast<float*>(p.weights) + p.spec.heads - 1; }},
    {"logits over k", C::bad_value, [](P& p) { p.logits = const_cast<float*>(static_cast<const float*>(p.k)); }},
    {"logits over k_scale", C::bad_value, [](P& p) { p.logits = static_cast<float*>(const_cast<void*>(p.k_scale)); }}};

const Wrong<P> of_paged[] = {
    {"no tables", C::null_pointer, [](P& p) { p.block_tables = nullptr; }},
    {"no lengths", C::null_pointer, [](P& p) { p.context_lengths = nullptr; }},
    {"starts of pages", C::bad_value, [](P& p) { p.starts = p.context_lengths; }},
    {"tables off by 1", C::misaligned, [](P& p) { p.block_tables = moved(p.block_tables, 1); }},
    {"lengths off by 2", C::misaligned, [](P& p) { p.context_lengths = moved(p.context_lengths, 2); }},
    {"block_size 0", C::unsupported_block_size, [](P& p) { p.block_size = 0; }},
    {"pages -1", C::bad_extent, [](P& p) { p.pages = -1; }},
    {"table_columns -1", C::bad_extent, [](P& p) { p.table_columns = -1; }},
    {"tables in one place", C::bad_stride, [](P& p) { p.table_stride = 0; }},
    {"pages in one place", C::bad_stride, [](P& p) { p.k_page_stride = 0; }},
    {"scales of pages in one place", C::bad_stride, [](P& p) { p.k_scale_page_stride = 0; }},
    {"pages of odd strides", C::bad_stride, [](P& p) { p.k_page_stride += 4; }},
    {"logits over tables", C::bad_value,
     [](P& p) { p.logits = reinterpret_cast<float*>(const_cast<std::int32_t*>(p.block_tables)); }},
    {"logits over lengths", C::bad_value,
     [](P& p) { p.logits = reinterpret_cast<float*>(const_cast<std::int32_t*>(p.context_lengths)); }}};

const Wrong<P> of_ranges[] = {{"no starts", C::null_pointer, [](P& p) { p.starts = nullptr; }},
                              {"no ends", C::null_pointer, [](P& p) { p.ends = nullptr; }},
                              {"tables of ranges", C::bad_value, [](P& p) { p.block_tables = p.ends; }},
                              {"two sequences", C::bad_extent, [](P& p) { p.sequences = 2; }},
                              {"blocks of ranges", C::bad_value, [](P& p) { p.block_size = 64; }},
                              {"starts off by 1", C::misaligned, [](P& p) { p.starts = moved(p.starts, 1); }},
                              {"logits over ends", C::bad_value,
                               [](P& p) { p.logits = reinterpret_cast<float*>(const_cast<std::int32_t*>(p.ends)); }}};

TEST_CASE("mqa_logits: what is wrong is named, and nothing is written") {
  for (const MqaLogitsEntry* e : all_mqa_logits_entries()) {
    if (e->spec.type == DType::fp4_e2m1) continue;  // see mqa_fp4_test.cpp
    MqaShape s{.lengths = {70, 90}, .queries = 2, .columns = 100};
    if (e->spec.keys == MqaKeys::ranges) s.ranges = {{0, 70}, {3, 9}, {1, 100}};
    MqaCall call(e->spec, s);
    const auto refused = [&](std::span<const Wrong<P>> wrongs) {
      check_refused<MqaLogitsEntry, P>(*e, call.p, wrongs, mqa_logits_check, mqa_logits_select,
                                       all_mqa_logits_entries());
    };
    refused(of_both);
    refused(e->spec.keys == MqaKeys::paged ? std::span<const Wrong<P>>(of_paged) : of_ranges);
    for (void (*const empty)(P&) :
         {+[](P& p) { p.sequences = 0; }, +[](P& p) { p.queries = 0; }, +[](P& p) { p.columns = 0; }}) {
      P p = call.p;
      empty(p);
      p.q = nullptr;
      CHECK(e->launch(p, {}).ok());
    }
    P other = call.p;
    other.spec.keys = other.spec.keys == MqaKeys::paged ? MqaKeys::ranges : MqaKeys::paged;
    CHECK(name_of(e->launch(other, {}).code) == "no_matching_entry");
    CHECK(call.untouched());
  }
}

TEST_CASE("mqa_logits: more blocks than a grid has are refused") {
  for (const MqaLogitsEntry* e : all_mqa_logits_entries()) {
    if (e->spec.type == DType::fp4_e2m1) continue;  // see mqa_fp4_test.cpp
    if (e->spec.keys != MqaKeys::paged) continue;
    MqaCall call(e->spec, {.lengths = {70}, .columns = 100});
    P p = call.p;
    p.sequences = 1 << 20;
    p.queries = 1 << 10;
    p.columns = 1 << 30;
    p.logits = reinterpret_cast<float*>(std::uintptr_t{1} << 60);
    p.logits_stride = p.columns;
    CHECK(name_of(e->launch(p, {}).code) == "bad_stride");  // no device has them
    p.sequences = 1 << 12;
    p.columns = 1 << 24;
    p.logits_stride = p.columns;
    p.table_columns = 1;
    CHECK(name_of(e->launch(p, {}).code) == "bad_extent");
  }
}

}  // namespace
}  // namespace tilewave::test
