// SPDX-License-Identifier: MIT
// Rotary position embeddings: bad problems get a named status and a reason, empty ones are fine.
#include "entries/rope.hpp"
#include "test/ops/rows.hpp"

namespace tilewave::test {
namespace {

using P = RopeProblem;
using C = StatusCode;

const Wrong<P> wrongs[] = {
    {"-1 tokens", C::bad_extent, [](P& p) { p.tokens = -1; }},
    {"-1 q_heads", C::bad_extent, [](P& p) { p.q_heads = -1; }},
    {"-1 k_heads", C::bad_extent, [](P& p) { p.k_heads = -1; }},
    {"2^31 heads of tokens", C::bad_extent, [](P& p) { p.tokens = p.q_heads = 1 << 16; }},
    {"2^32 heads", C::bad_extent, [](P& p) { p.q_heads = p.k_heads = 0x7fffffff; }},
    {"head_size 0", C::unsupported_head_size, [](P& p) { p.head_size = 0; }},
    {"head_size 63", C::unsupported_head_size, [](P& p) { p.head_size = 63; }},
    {"head_size 514", C::unsupported_head_size, [](P& p) { p.head_size = 514; }},
    {"rotary 0", C::bad_extent, [](P& p) { p.rotary = 0; }},
    {"rotary 31", C::bad_extent, [](P& p) { p.rotary = 31; }},
    {"rotary beyond the head", C::bad_extent, [](P& p) { p.rotary = p.head_size + 2; }},
    {"no table_rows", C::bad_extent, [](P& p) { p.table_rows = 0; }},
    {"q null", C::null_pointer, [](P& p) { p.q = nullptr; }},
    {"k null", C::null_pointer, [](P& p) { p.k = nullptr; }},
    {"q_out null", C::null_pointer, [](P& p) { p.q_out = nullptr; }},
    {"k_out null", C::null_pointer, [](P& p) { p.k_out = nullptr; }},
    {"cos null", C::null_pointer, [](P& p) { p.cos = nullptr; }},
    {"sin null", C::null_pointer, [](P& p) { p.sin = nullptr; }},
    {"positions null", C::null_pointer, [](P& p) { p.positions = nullptr; }},
    {"q off by 1 byte", C::misaligned, [](P& p) { p.q = moved(p.q, 1); }},
    {"k off by 1 byte", C::misaligned, [](P& p) { p.k = moved(p.k, 1); }},
    {"q_out off by 1 byte", C::misaligned, [](P& p) { p.q_out = moved(p.q_out, 1); }},
    {"k_out off by 1 byte", C::misaligned, [](P& p) { p.k_out = moved(p.k_out, 1); }},
    {"cos off by 1 byte", C::misaligned, [](P& p) { p.cos = moved(p.cos, 1); }},
    {"sin off by 1 byte", C::misaligned, [](P& p) { p.sin = moved(p.sin, 1); }},
    {"i64 positions off by 4 bytes", C::misaligned,
     [](P& p) {
       p.position_type = IndexType::i64;
       p.positions = moved(p.positions, 4);
     }},
    {"positions off by 2 bytes", C::misaligned, [](P& p) { p.positions = moved(p.positions, 2); }},
    {"tokens of q in one place", C::bad_stride, [](P& p) { p.q_strides.token = 0; }},
    {"heads of k in one place", C::bad_stride, [](P& p) { p.k_strides.head = 0; }},
    {"rows of the tables in one place", C::bad_stride, [](P& p) { p.table_stride = 0; }},
    {"tokens of q_out that overlap", C::bad_stride, [](P& p) { p.q_out_strides.token -= 1; }},
    {"heads of k_out that overlap", C::bad_stride, [](P& p) { p.k_out_strides.head -= 1; }},
    {"a stride of q of 2^62", C::bad_stride, [](P& p) { p.q_strides.token = std::int64_t{1} << 62; }},
    {"a stride of k_out of 2^62", C::bad_stride, [](P& p) { p.k_out_strides.token = std::int64_t{1} << 62; }},
    {"table_stride of 2^62", C::bad_stride, [](P& p) { p.table_stride = std::int64_t{1} << 62; }},
    {"q_out is q by other strides", C::bad_value,
     [](P& p) {
       p.q_out = const_cast<void*>(p.q);
       p.q_out_strides.token += 8;
     }},
    {"q_out inside q", C::bad_value, [](P& p) { p.q_out = moved(const_cast<void*>(p.q), 16); }},
    {"q_out is k", C::bad_value, [](P& p) { p.q_out = const_cast<void*>(p.k); }},
    {"k_out is q", C::bad_value, [](P& p) { p.k_out = const_cast<void*>(p.q); }},
    {"k_out is q_out", C::bad_value, [](P& p) { p.k_out = p.q_out; }},
    {"q_out is cos", C::bad_value, [](P& p) { p.q_out = const_cast<void*>(p.cos); }},
    {"k_out is sin", C::bad_value, [](P& p) { p.k_out = const_cast<void*>(p.sin); }},
    {"k_out is positions", C::bad_value, [](P& p) { p.k_out = const_cast<void*>(p.positions); }},
    {"no index type", C::bad_value, [](P& p) { p.position_type = static_cast<IndexType>(2); }},
    {"no pairs", C::bad_value, [](P& p) { p.spec.pairs = static_cast<RopePairs>(2); }},
    {"x of no type", C::unsupported_dtype, [](P& p) { p.spec.x = static_cast<DType>(99); }},
    {"x i8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::i8; }},
    {"tables i8", C::unsupported_dtype, [](P& p) { p.spec.table = DType::i8; }},
};

TEST_CASE("rope: bad problems get a named status and a reason, and nothing is written") {
  for (const RopeEntry* e : all_rope_entries()) {
    Tensor q(e->spec.x, 4 * 64), k(e->spec.x, 4 * 64), q_out(e->spec.x, 4 * 64), k_out(e->spec.x, 4 * 64);
    Tensor cos(e->spec.table, 8 * 64), sin(e->spec.table, 8 * 64), positions(DType::f32, 64);
    P good;
    good.spec = e->spec;
    good.q = q.device();
    good.k = k.device();
    good.q_out = q_out.device();
    good.k_out = k_out.device();
    good.cos = cos.device();
    good.sin = sin.device();
    good.positions = positions.device();
    good.tokens = good.q_heads = good.k_heads = 2;
    good.head_size = 64;
    good.rotary = 32;
    good.table_rows = 8;
    good.table_stride = 64;
    good.q_strides = good.k_strides = good.q_out_strides = good.k_out_strides = {128, 64};
    check_refused<RopeEntry, P>(*e, good, wrongs, rope_check, rope_select, all_rope_entries());

    P in_place = good;
    in_place.q_out = q.device();
    in_place.k_out = k.device();
    CHECK(rope_check(in_place, facts_of(e->arch)).ok());
    P wide = good;
    wide.head_size = wide.rotary = 512;
    wide.q_strides = wide.k_strides = wide.q_out_strides = wide.k_out_strides = {1024, 512};
    wide.table_stride = 512;
    wide.tokens = wide.q_heads = wide.k_heads = 1;
    if (!policy_takes(e->policy, e->spec.x, 512, true)) {
      wide.q_out = const_cast<void*>(wide.q);
      wide.k_heads = 0;
      CHECK(name_of(e->launch(wide, {}).code) == "no_matching_entry");
    }
    for (const auto empty : {+[](P& p) { p.tokens = 0; }, +[](P& p) { p.q_heads = p.k_heads = 0; }}) {
      P p = good;
      empty(p);
      p.q = p.k = p.cos = p.sin = p.positions = nullptr;
      p.q_out = p.k_out = nullptr;
      CHECK(e->launch(p, {}).ok());
    }
    bench::check_hip(hipDeviceSynchronize(), "waiting");
    for (Tensor* tensor : {&q_out, &k_out}) {
      tensor->download();
      CHECK(tensor->gaps_kept(0, 0));
    }
  }
}

}  // namespace
}  // namespace tilewave::test
