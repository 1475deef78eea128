// SPDX-License-Identifier: MIT
// Cache writes: bad problems get a named status and a reason, and nothing is written.
#include "test/ops/kv_cache_write/call.hpp"

namespace tilewave::test {
namespace {

using P = KvCacheWriteProblem;
using C = StatusCode;
constexpr std::int64_t far = std::int64_t{1} << 62;

const Wrong<P> wrongs[] = {
    {"-1 tokens", C::bad_extent, [](P& p) { p.tokens = -1; }},
    {"no kv_heads", C::bad_extent, [](P& p) { p.kv_heads = 0; }},
    {"-1 q_heads", C::bad_extent, [](P& p) { p.q_heads = -1; }},
    {"2^31 heads of tokens", C::bad_extent, [](P& p) { p.tokens = p.kv_heads = 1 << 16; }},
    {"head_size 0", C::unsupported_head_size, [](P& p) { p.head_size = 0; }},
    {"head_size 72", C::unsupported_head_size, [](P& p) { p.head_size = 72; }},
    {"head_size 528", C::unsupported_head_size, [](P& p) { p.head_size = 528; }},
    {"block_size 0", C::unsupported_block_size, [](P& p) { p.block_size = 0; }},
    {"block_size 8 of a dim-major cache", C::unsupported_block_size,
     [](P& p) {
       p.values = ValueLayout::dim_major;
       p.block_size = 8;
     }},
    {"no pages", C::bad_extent, [](P& p) { p.num_pages = 0; }},
    {"2^31 slots", C::bad_extent, [](P& p) { p.num_pages = (std::int64_t{1} << 31) / p.block_size; }},
    {"no layout", C::unsupported_layout, [](P& p) { p.values = static_cast<ValueLayout>(2); }},
    {"no slot type", C::bad_value, [](P& p) { p.slot_type = static_cast<IndexType>(2); }},
    {"k null", C::null_pointer, [](P& p) { p.k = nullptr; }},
    {"v null", C::null_pointer, [](P& p) { p.v = nullptr; }},
    {"k_cache null", C::null_pointer, [](P& p) { p.k_cache = nullptr; }},
    {"v_cache null", C::null_pointer, [](P& p) { p.v_cache = nullptr; }},
    {"slots null", C::null_pointer, [](P& p) { p.slots = nullptr; }},
    {"k off by 2 bytes", C::misaligned, [](P& p) { p.k = moved(p.k, 2); }},
    {"v off by 8 bytes", C::misaligned, [](P& p) { p.v = moved(p.v, 8); }},
    {"tokens of k off by an element", C::misaligned, [](P& p) { p.k_strides.token += 1; }},
    {"k_cache off by 8 bytes", C::misaligned, [](P& p) { p.k_cache = moved(p.k_cache, 8); }},
    {"v_cache off by 8 bytes", C::misaligned, [](P& p) { p.v_cache = moved(p.v_cache, 8); }},
    {"tokens of k_cache off by an element", C::misaligned, [](P& p) { p.k_cache_strides.token += 1; }},
    {"tokens of v_cache off by an element", C::misaligned, [](P& p) { p.v_cache_strides.token += 1; }},
    {"slots off by 4 bytes", C::misaligned, [](P& p) { p.slots = moved(p.slots, 4); }},
    {"tokens of k in one place", C::bad_stride, [](P& p) { p.k_strides.token = 0; }},
    {"heads of v in one place", C::bad_stride, [](P& p) { p.v_strides.head = 0; }},
    {"pages of k_cache in one place", C::bad_stride, [](P& p) { p.k_cache_strides.page = 0; }},
    {"tokens of v_cache in one place", C::bad_stride, [](P& p) { p.v_cache_strides.token = 0; }},
    {"heads of k_cache that overlap", C::bad_stride, [](P& p) { p.k_cache_strides.head -= 16; }},
    {"a stride of k of 2^62", C::bad_stride, [](P& p) { p.k_strides.token = far; }, "stride of k "},
    {"a stride of k_cache of 2^62", C::bad_stride, [](P& p) { p.k_cache_strides.page = far; }, "stride of k_cache "},
    {"a stride of v_cache of 2^62", C::bad_stride, [](P& p) { p.v_cache_strides.head = far; }, "stride of v_cache "},
    {"strides of v without v", C::bad_value,
     [](P& p) {
       p.v = p.v_cache = nullptr;
       p.v_scale = nullptr;
       p.v_cache_strides = {};
     },
     "stride of v "},
    {"strides of v_cache without v", C::bad_value,
     [](P& p) {
       p.v = p.v_cache = nullptr;
       p.v_scale = nullptr;
       p.v_strides = {};
     },
     "stride of v_cache "},
    {"k_cache is v_cache", C::bad_value, [](P& p) { p.k_cache = p.v_cache; }},
    {"k_cache is k", C::bad_value, [](P& p) { p.k_cache = const_cast<void*>(p.k); }},
    {"v_cache is slots", C::bad_value, [](P& p) { p.v_cache = const_cast<void*>(p.slots); }},
    {"x f32", C::unsupported_dtype, [](P& p) { p.spec.x = DType::f32; }},
    {"caches f32", C::unsupported_dtype, [](P& p) { p.spec.kv = DType::f32; }},
    {"caches i8", C::unsupported_dtype, [](P& p) { p.spec.kv = DType::i8; }},
    {"scaling 9", C::unsupported_scaling, [](P& p) { p.spec.quant = static_cast<Scaling>(9); }},
};

const Wrong<P> scaled_wrongs[] = {
    {"quant mode none of codes", C::unsupported_scaling, [](P& p) { p.spec.quant = Scaling::none; }},
    {"k_scale null", C::null_pointer, [](P& p) { p.k_scale = nullptr; }},
    {"v_scale null", C::null_pointer, [](P& p) { p.v_scale = nullptr; }},
    {"k_scale off by 2 bytes", C::misaligned, [](P& p) { p.k_scale = moved(p.k_scale, 2); }},
    {"k_cache is k_scale", C::bad_value, [](P& p) { p.k_cache = p.k_scale; }},
};
const Wrong<P> found_wrongs[] = {
    {"heads of the scales in one place", C::bad_stride, [](P& p) { p.scale_head_stride = 0; }},
    {"pages of the scales that overlap", C::bad_stride, [](P& p) { p.scale_page_stride -= 1; }},
    {"k_scale is v_scale", C::bad_value, [](P& p) { p.k_scale = p.v_scale; }},
    {"v_scale is v", C::bad_value, [](P& p) { p.v_scale = static_cast<float*>(const_cast<void*>(p.v)); }},
};
const Wrong<P> plain_wrongs[] = {
    {"scales of 16-bit caches", C::bad_value, [](P& p) { p.k_scale = p.v_scale = static_cast<float*>(p.k_cache); }},
    {"strides of scales of 16-bit caches", C::bad_value, [](P& p) { p.scale_head_stride = 1; }},
    {"quant mode of 16-bit caches", C::unsupported_scaling, [](P& p) { p.spec.quant = Scaling::per_head; }},
};
const Wrong<P> unfused_wrongs[] = {
    {"q of a spec that is not fused", C::bad_value, [](P& p) { p.q = p.k; }},
    {"cos of a spec that is not fused", C::bad_value, [](P& p) { p.cos = p.k; }},
    {"k_out of a spec that is not fused", C::bad_value, [](P& p) { p.k_out = const_cast<void*>(p.k); }},
    {"a weight of a spec that is not fused", C::bad_value, [](P& p) { p.q_norm = p.k; }},
    {"q_heads of a spec that is not fused", C::bad_extent, [](P& p) { p.q_heads = 2; }},
    {"a norm that is not fused", C::bad_value, [](P& p) { p.spec.norm = true; }, "norm is for fused"},
    {"q_out's type of a spec that is not fused", C::bad_value, [](P& p) { p.spec.q_out = DType::f16; }, "q_out"},
    {"pairs of a spec that is not fused", C::bad_value, [](P& p) { p.spec.pairs = RopePairs::neighbours; }, "pairs"},
    {"a table's type of a spec that is not fused", C::bad_value, [](P& p) { p.spec.table = DType::bf16; }, "table"},
    {"rotary of a spec that is not fused", C::bad_value, [](P& p) { p.rotary = 32; }},
    {"table_rows of a spec that is not fused", C::bad_value, [](P& p) { p.table_rows = 37; }},
    {"table_stride of a spec that is not fused", C::bad_value, [](P& p) { p.table_stride = 32; }},
    {"position_type of a spec that is not fused", C::bad_value, [](P& p) { p.position_type = IndexType::i64; }},
    {"strides of q of a spec that is not fused", C::bad_value, [](P& p) { p.q_strides.token = 64; }},
    {"strides of q_out of a spec that is not fused", C::bad_value, [](P& p) { p.q_out_strides.head = 64; }},
    {"strides of k_out of a spec that is not fused", C::bad_value, [](P& p) { p.k_out_strides.head = 64; }},
    {"eps of a spec that is not fused", C::bad_value, [](P& p) { p.eps = 1e-5f; }},
};
const Wrong<P> fused_wrongs[] = {
    {"q null", C::null_pointer, [](P& p) { p.q = nullptr; }},
    {"q_out null", C::null_pointer, [](P& p) { p.q_out = nullptr; }},
    {"sin null", C::null_pointer, [](P& p) { p.sin = nullptr; }},
    {"positions null", C::null_pointer, [](P& p) { p.positions = nullptr; }},
    {"q off by 2 bytes", C::misaligned, [](P& p) { p.q = moved(p.q, 2); }},
    {"q_out off by 8 bytes", C::misaligned, [](P& p) { p.q_out = moved(p.q_out, 8); }},
    {"cos off by 4 bytes", C::misaligned, [](P& p) { p.cos = moved(p.cos, 4); }},
    {"positions off by 4 bytes", C::misaligned, [](P& p) { p.positions = moved(p.positions, 4); }},
    {"rotary 24", C::bad_extent, [](P& p) { p.rotary = 24; }},
    {"rotary beyond the head", C::bad_extent, [](P& p) { p.rotary = 2 * p.head_size; }},
    {"no table_rows", C::bad_extent, [](P& p) { p.table_rows = 0; }},
    {"no position type", C::bad_value, [](P& p) { p.position_type = static_cast<IndexType>(-1); }},
    {"no pairs", C::bad_value, [](P& p) { p.spec.pairs = static_cast<RopePairs>(2); }},
    {"eps -1", C::bad_value, [](P& p) { p.eps = -1; }},
    {"eps nan", C::bad_value, [](P& p) { p.eps = std::numeric_limits<float>::quiet_NaN(); }},
    {"q_out i8", C::unsupported_dtype, [](P& p) { p.spec.q_out = DType::i8; }},
    {"tokens of q_out that overlap", C::bad_stride, [](P& p) { p.q_out_strides.token = p.head_size; }},
    {"table_stride 0", C::bad_stride, [](P& p) { p.table_stride = 0; }},
    {"q_out is k", C::bad_value, [](P& p) { p.q_out = const_cast<void*>(p.k); }},
    {"q_out is k_cache", C::bad_value, [](P& p) { p.q_out = p.k_cache; }},
    {"q_out is cos", C::bad_value, [](P& p) { p.q_out = const_cast<void*>(p.cos); }},
    {"k_out off by 8 bytes", C::misaligned, [](P& p) { p.k_out = moved(p.k_out, 8); }},
    {"heads of k_out off by an element", C::misaligned, [](P& p) { p.k_out_strides.head += 1; }},
    {"tokens of k_out in one place", C::bad_stride, [](P& p) { p.k_out_strides.token = 0; }},
    {"a stride of k_out of 2^62", C::bad_stride, [](P& p) { p.k_out_strides.token = far; }},
    {"strides of k_out without k_out", C::bad_value, [](P& p) { p.k_out = nullptr; }, "stride of k_out "},
    {"k_out is q", C::bad_value, [](P& p) { p.k_out = const_cast<void*>(p.q); }},
    {"k_out is v", C::bad_value, [](P& p) { p.k_out = const_cast<void*>(p.v); }},
    {"k_out is q_out", C::bad_value, [](P& p) { p.k_out = p.q_out; }},
    {"k_out is k with other strides", C::bad_value,
     [](P& p) {
       p.k_out = const_cast<void*>(p.k), p.k_out_strides = {p.k_strides.token + 8, p.k_strides.head};
     }},
    {"k_out is k_cache", C::bad_value, [](P& p) { p.k_out = p.k_cache; }},
    {"k_out is v_cache", C::bad_value, [](P& p) { p.k_out = p.v_cache; }},
    {"k_out is positions", C::bad_value, [](P& p) { p.k_out = const_cast<void*>(p.positions); }},
};

TEST_CASE("kv_cache_write: bad problems get a named status and a reason, and nothing is written") {
  for (const KvCacheWriteEntry* e : all_kv_cache_write_entries()) {
    const KvCacheWriteSpec& s = e->spec;
    if (s.group > 0) continue;  // see latent_test.cpp
    CacheCall call(s, {2, 2, 2, 64, 32, 16, 2}, CacheLayout::hnd, IndexType::i64, false, KeyOut::own);
    const auto refused = [&](std::span<const Wrong<P>> list) {
      check_refused<KvCacheWriteEntry, P>(*e, call.device, list, kv_cache_write_check, kv_cache_write_select,
                                          all_kv_cache_write_entries());
    };
    refused(wrongs);
    refused(s.quant == Scaling::none ? std::span<const Wrong<P>>(plain_wrongs) : scaled_wrongs);
    if (s.quant == Scaling::per_token) refused(found_wrongs);
    refused(s.fused ? std::span<const Wrong<P>>(fused_wrongs) : unfused_wrongs);
    const Wrong<P> scale[] = {{"q_scale", is_fp8(s.q_out) ? C::null_pointer : C::bad_value,
                               [](P& p) { p.q_scale = p.q_scale != nullptr ? nullptr : p.k_cache; }}};
    refused(scale);
    if (!s.norm) {
      const Wrong<P> weight[] = {{"weights without a norm", C::bad_value, [](P& p) { p.k_norm = p.k; }},
                                 {"eps without a norm", C::bad_value, [](P& p) { p.eps = 1e-5f; }, "eps"}};
      refused(weight);
    }
    P none = call.device;
    none.tokens = 0;
    none.k = none.v = none.slots = nullptr;
    CHECK(e->launch(none, {}).ok());
    bench::check_hip(hipDeviceSynchronize(), "waiting");
    call.k_cache.download();
    call.v_cache.download();
    for (const Bytes* cache : {&call.k_cache, &call.v_cache}) {
      CHECK(all_unwritten(cache->host));
    }
  }
}

}  // namespace
}  // namespace tilewave::test
