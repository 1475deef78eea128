// SPDX-License-Identifier: MIT
// Bad input gets a named status with a reason, and nothing is written. The empty batch is good input.
#include <array>
#include <limits>

#include "test/ops/paged_attention/call.hpp"

namespace tilewave::test::check {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
constexpr std::int64_t far = std::int64_t{1} << 62;
constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();

struct Wrong {
  const char* what;
  StatusCode code;
  void (*make)(PagedAttentionProblem&);
};

/// The base of a tensor, moved by `bytes`.
template <class T>
T* moved(T* p, int bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(p) + bytes);
}

using P = PagedAttentionProblem;
using C = StatusCode;

/// A stride of 32 GiB of K or V, which kernels count in units of 16 bytes.
std::int64_t apart(const P& p) { return (std::int64_t{1} << 31) * p.spec.unit(); }

constexpr std::array wrong_specs{
    Wrong{"head_size 0", C::unsupported_head_size, [](P& p) { p.spec.head_size = 0; }},
    Wrong{"head_size 32", C::unsupported_head_size, [](P& p) { p.spec.head_size = 32; }},
    Wrong{"head_size 72", C::unsupported_head_size, [](P& p) { p.spec.head_size = 72; }},
    Wrong{"head_size 160", C::unsupported_head_size, [](P& p) { p.spec.head_size = 160; }},
    Wrong{"head_size 512", C::unsupported_head_size, [](P& p) { p.spec.head_size = 512; }},
    Wrong{"head_size -64", C::unsupported_head_size, [](P& p) { p.spec.head_size = -64; }},
    Wrong{"q f16", C::unsupported_dtype, [](P& p) { p.spec.q = DType::f16; }},
    Wrong{"q fp8", C::unsupported_dtype, [](P& p) { p.spec.q = DType::fp8_e4m3fn; }},
    Wrong{"out f32", C::unsupported_dtype, [](P& p) { p.spec.out = DType::f32; }},
    Wrong{"kv f32", C::unsupported_dtype, [](P& p) { p.spec.kv = DType::f32; }},
    Wrong{"kv f16", C::unsupported_dtype, [](P& p) { p.spec.kv = DType::f16; }},
    Wrong{"out f16", C::unsupported_dtype, [](P& p) { p.spec.out = DType::f16; }},
    Wrong{"values of a layout without a name", C::unsupported_layout,
          [](P& p) { p.spec.values = static_cast<ValueLayout>(7); }},
    Wrong{"any_block_size of a dim_major cache", C::unsupported_layout, [](P& p) { p.spec.any_block_size = true; }},
    Wrong{"kv of a type without a name", C::unsupported_dtype, [](P& p) { p.spec.kv = static_cast<DType>(77); }},
    Wrong{"quant mode of the other kind", C::unsupported_scaling,
          [](P& p) { p.spec.quant = p.spec.quant == Scaling::none ? Scaling::per_token : Scaling::none; }},
    Wrong{"quant mode without a name", C::unsupported_scaling, [](P& p) { p.spec.quant = static_cast<Scaling>(9); }},
};

constexpr std::array wrong_extents{
    Wrong{"batch -1", C::bad_extent, [](P& p) { p.batch = -1; }},
    Wrong{"mtp 0", C::unsupported_mtp, [](P& p) { p.mtp = 0; }},
    Wrong{"mtp 9", C::unsupported_mtp, [](P& p) { p.mtp = 9; }},
    Wrong{"mtp -1", C::unsupported_mtp, [](P& p) { p.mtp = -1; }},
    Wrong{"no q heads", C::bad_extent, [](P& p) { p.num_q_heads = 0; }},
    Wrong{"no kv heads", C::bad_extent, [](P& p) { p.num_kv_heads = 0; }},
    Wrong{"-2 kv heads", C::bad_extent, [](P& p) { p.num_kv_heads = -2; }},
    Wrong{"7 q heads on 2 kv heads", C::unsupported_head_ratio, [](P& p) { p.num_q_heads = 7; }},
    Wrong{"1 q head on 2 kv heads", C::unsupported_head_ratio, [](P& p) { p.num_q_heads = 1; }},
    Wrong{"block_size 0", C::unsupported_block_size, [](P& p) { p.block_size = 0; }},
    Wrong{"block_size 8", C::unsupported_block_size, [](P& p) { p.block_size = 8; }},
    Wrong{"block_size 24", C::unsupported_block_size, [](P& p) { p.block_size = 24; }},
    Wrong{"block_size -16", C::unsupported_block_size, [](P& p) { p.block_size = -16; }},
    Wrong{"table_columns -1", C::bad_extent, [](P& p) { p.table_columns = -1; }},
    Wrong{"num_pages -1", C::bad_extent, [](P& p) { p.num_pages = -1; }},
    Wrong{"num_pages left out", C::bad_extent, [](P& p) { p.num_pages = 0; }},
    Wrong{"2^31 tokens a sequence", C::bad_extent, [](P& p) { p.table_row_stride = p.table_columns = 1 << 27; }},
    Wrong{"2^31 output rows", C::bad_extent, [](P& p) { p.batch = 1 << 29; }},
    Wrong{"2^64 output rows", C::bad_extent,
          [](P& p) {
            p.batch = p.num_q_heads = int_max;
            p.num_kv_heads = 1;
            p.mtp = 8;
          }},
    Wrong{"softmax_scale left out", C::bad_value, [](P& p) { p.softmax_scale = 0; }},
    Wrong{"softmax_scale NaN", C::bad_value, [](P& p) { p.softmax_scale = nan; }},
    Wrong{"softmax_scale inf", C::bad_value, [](P& p) { p.softmax_scale = inf; }},
    Wrong{"softmax_scale beyond f32 in log2 units", C::bad_value, [](P& p) { p.softmax_scale = 3e38f; }},
    Wrong{"sliding_window -1", C::bad_value, [](P& p) { p.sliding_window = -1; }},
};

constexpr std::array wrong_tensors{
    Wrong{"q null", C::null_pointer, [](P& p) { p.q = nullptr; }},
    Wrong{"k null", C::null_pointer, [](P& p) { p.k = nullptr; }},
    Wrong{"v null", C::null_pointer, [](P& p) { p.v = nullptr; }},
    Wrong{"out null", C::null_pointer, [](P& p) { p.out = nullptr; }},
    Wrong{"block_table null", C::null_pointer, [](P& p) { p.block_table = nullptr; }},
    Wrong{"context_lengths null", C::null_pointer, [](P& p) { p.context_lengths = nullptr; }},
    Wrong{"q off by 8 bytes", C::misaligned, [](P& p) { p.q = moved(p.q, 8); }},
    Wrong{"k off by 8 bytes", C::misaligned, [](P& p) { p.k = moved(p.k, 8); }},
    Wrong{"v off by 8 bytes", C::misaligned, [](P& p) { p.v = moved(p.v, 8); }},
    Wrong{"out off by 8 bytes", C::misaligned, [](P& p) { p.out = moved(p.out, 8); }},
    Wrong{"lse off by 2 bytes", C::misaligned, [](P& p) { p.lse = moved(p.lse, 2); }},
    Wrong{"sinks off by 2 bytes", C::misaligned, [](P& p) { p.sinks = moved(static_cast<const float*>(p.lse), 2); }},
    Wrong{"block_table off by 2 bytes", C::misaligned, [](P& p) { p.block_table = moved(p.block_table, 2); }},
    Wrong{"context_lengths off by 1 byte", C::misaligned,
          [](P& p) { p.context_lengths = moved(p.context_lengths, 1); }},
    Wrong{"q_row_stride off by 4", C::misaligned, [](P& p) { p.q_row_stride += 4; }},
    Wrong{"q_head_stride off by 4", C::misaligned, [](P& p) { p.q_head_stride += 4; }},
    Wrong{"out_row_stride off by 4", C::misaligned, [](P& p) { p.out_row_stride += 4; }},
    Wrong{"out_head_stride off by 1", C::misaligned, [](P& p) { p.out_head_stride += 1; }},
    Wrong{"k page stride", C::misaligned, [](P& p) { p.k_strides.page += 4; }},
    Wrong{"k head stride", C::misaligned, [](P& p) { p.k_strides.head += 4; }},
    Wrong{"k unit stride", C::misaligned, [](P& p) { p.k_strides.unit += 4; }},
    Wrong{"k token stride", C::misaligned, [](P& p) { p.k_strides.token += 4; }},
    Wrong{"v page stride", C::misaligned, [](P& p) { p.v_strides.page += 4; }},
    Wrong{"v head stride", C::misaligned, [](P& p) { p.v_strides.head += 4; }},
    Wrong{"v unit stride", C::misaligned, [](P& p) { p.v_strides.unit += 4; }},
    Wrong{"v dim stride", C::misaligned, [](P& p) { p.v_strides.dim += 4; }},
    Wrong{"q rows in one place", C::bad_stride, [](P& p) { p.q_row_stride = 0; }},
    Wrong{"q heads in one place", C::bad_stride, [](P& p) { p.q_head_stride = 0; }},
    Wrong{"k tokens in one place", C::bad_stride, [](P& p) { p.k_strides.token = 0; }},
    Wrong{"k units in one place", C::bad_stride, [](P& p) { p.k_strides.unit = 0; }},
    Wrong{"k pages in one place", C::bad_stride, [](P& p) { p.k_strides.page = 0; }},
    Wrong{"k heads in one place", C::bad_stride, [](P& p) { p.k_strides.head = 0; }},
    Wrong{"v dims in one place", C::bad_stride, [](P& p) { p.v_strides.dim = 0; }},
    Wrong{"v units in one place", C::bad_stride, [](P& p) { p.v_strides.unit = 0; }},
    Wrong{"v pages in one place", C::bad_stride, [](P& p) { p.v_strides.page = 0; }},
    Wrong{"v heads in one place", C::bad_stride, [](P& p) { p.v_strides.head = 0; }},
    Wrong{"out rows and heads in one place", C::bad_stride, [](P& p) { p.out_row_stride = p.out_head_stride = 0; }},
    Wrong{"out rows that overlap", C::bad_stride, [](P& p) { p.out_row_stride = p.out_head_stride; }},
    Wrong{"out heads that overlap", C::bad_stride, [](P& p) { p.out_head_stride -= 24; }},
    Wrong{"out rows backwards", C::bad_stride, [](P& p) { p.out_row_stride = -p.out_row_stride; }},
    Wrong{"table rows that overlap", C::bad_stride, [](P& p) { p.table_row_stride = p.table_columns - 1; }},
    // Multiples of these strides do not fit into 64 bits, or into any memory.
    Wrong{"q rows 2^62 apart", C::bad_stride, [](P& p) { p.q_row_stride = far; }},
    Wrong{"q heads -2^62 apart", C::bad_stride, [](P& p) { p.q_head_stride = -far; }},
    Wrong{"k pages 2^62 apart", C::bad_stride, [](P& p) { p.k_strides.page = far; }},
    Wrong{"k tokens 2^62 apart", C::bad_stride, [](P& p) { p.k_strides.token = far; }},
    Wrong{"v pages 2^62 apart", C::bad_stride, [](P& p) { p.v_strides.page = far; }},
    Wrong{"v dims 2^62 apart", C::bad_stride, [](P& p) { p.v_strides.dim = far; }},
    Wrong{"out rows 2^62 apart", C::bad_stride, [](P& p) { p.out_row_stride = far; }},
    Wrong{"out heads 2^61 apart, in rows 2^62 apart", C::bad_stride,
          [](P& p) {
            p.out_row_stride = far;
            p.out_head_stride = far / 2;
          }},
    Wrong{"table rows 2^62 apart", C::bad_stride, [](P& p) { p.table_row_stride = far; }},
    Wrong{"k pages 32 GiB apart", C::bad_stride, [](P& p) { p.k_strides.page = apart(p); }},
    Wrong{"v units 32 GiB apart", C::bad_stride, [](P& p) { p.v_strides.unit = -apart(p); }},
    Wrong{"more pages than there is memory", C::bad_stride, [](P& p) { p.num_pages = far; }},
    Wrong{"out on q", C::bad_stride, [](P& p) { p.out = const_cast<void*>(p.q); }},
    Wrong{"out in the middle of k", C::bad_stride,
          [](P& p) { p.out = const_cast<char*>(moved(static_cast<const char*>(p.k), 64)); }},
    Wrong{"lse on v", C::bad_stride, [](P& p) { p.lse = static_cast<float*>(const_cast<void*>(p.v)); }},
    Wrong{"lse on out", C::bad_stride, [](P& p) { p.lse = static_cast<float*>(p.out); }},
    Wrong{"out on sinks", C::bad_stride, [](P& p) { p.sinks = static_cast<const float*>(p.out); }},
    Wrong{"sinks on the end of lse", C::bad_stride, [](P& p) { p.sinks = p.lse + 1; }},
    Wrong{"out on the end of stage_starts", C::bad_stride,
          [](P& p) {
            p.balanced = true;
            p.stage_starts = static_cast<const std::int32_t*>(p.out) - p.batch;
          }},
    Wrong{"lse on stage_starts", C::bad_stride,
          [](P& p) {
            p.balanced = true;
            p.stage_starts = reinterpret_cast<const std::int32_t*>(p.lse);
          }},
    Wrong{"balanced and batch-invariant", C::bad_value,
          [](P& p) {
            p.balanced = true;
            p.split_tokens = 512;
          }},
    Wrong{"lse on context_lengths", C::bad_stride,
          [](P& p) { p.lse = reinterpret_cast<float*>(const_cast<std::int32_t*>(p.context_lengths)); }},
};

constexpr std::array wrong_scales{
    Wrong{"k_scale null", C::null_pointer, [](P& p) { p.k_scale = nullptr; }},
    Wrong{"v_scale null", C::null_pointer, [](P& p) { p.v_scale = nullptr; }},
    Wrong{"k_scale off by 2 bytes", C::misaligned, [](P& p) { p.k_scale = moved(p.k_scale, 2); }},
    Wrong{"v_scale off by 1 byte", C::misaligned, [](P& p) { p.v_scale = moved(p.v_scale, 1); }},
};

constexpr std::array wrong_token_scales{
    Wrong{"scale pages in one place", C::bad_stride, [](P& p) { p.scale_page_stride = 0; }},
    Wrong{"scale heads in one place", C::bad_stride, [](P& p) { p.scale_head_stride = 0; }},
    Wrong{"scale pages 8 GiB apart", C::bad_stride, [](P& p) { p.scale_page_stride = std::int64_t{1} << 31; }},
    Wrong{"scale pages 2^62 apart", C::bad_stride, [](P& p) { p.scale_page_stride = far; }},
    Wrong{"out on the scales", C::bad_stride, [](P& p) { p.out = const_cast<float*>(p.k_scale); }},
};

constexpr std::array wrong_workspaces{
    Wrong{"workspace null", C::null_pointer, [](P& p) { p.workspace = nullptr; }},
    Wrong{"workspace a byte too small", C::workspace_too_small, [](P& p) { --p.workspace_bytes; }},
    Wrong{"workspace of 0 bytes", C::workspace_too_small, [](P& p) { p.workspace_bytes = 0; }},
    Wrong{"workspace off by 8 bytes", C::misaligned, [](P& p) { p.workspace = moved(p.workspace, 8); }},
    Wrong{"workspace is k", C::bad_value, [](P& p) { p.workspace = const_cast<void*>(p.k); }},
    Wrong{"workspace is v, said to be beyond all memory", C::bad_value,
          [](P& p) {
            p.workspace = const_cast<void*>(p.v);
            p.workspace_bytes = std::size_t{1} << 60;
          }},
    Wrong{"workspace is q", C::bad_value, [](P& p) { p.workspace = const_cast<void*>(p.q); }},
    Wrong{"workspace is out", C::bad_value, [](P& p) { p.workspace = p.out; }},
    Wrong{"workspace ends inside lse", C::bad_value,
          [](P& p) {
            const auto end = reinterpret_cast<std::uintptr_t>(p.lse) / 16 * 16 + 16;
            p.workspace = reinterpret_cast<void*>(end - align_up(p.workspace_bytes, std::size_t{16}));
          }},
};

Call good_call(const PagedAttentionEntry& e) {
  const std::vector<std::int32_t> lengths{40, 5};
  PagedAttentionCase c = case_for(e, lengths);
  c.block_size = 32;  // several units of V, and pages of a sequence
  c.num_q_heads = 4;
  c.num_kv_heads = 2;
  return Call(c, lengths);
}

bool untouched(const Prepared& d) {
  const auto bytes = [](const DeviceBuffer& buffer) { return from_device<std::uint8_t>(buffer); };
  const std::vector<std::uint8_t> workspace = bytes(d.workspace);
  return all_unwritten(bytes(d.out)) && all_unwritten(bytes(d.lse)) &&
         std::count(workspace.begin(), workspace.end(), unread_byte) == std::ssize(workspace);
}

constexpr int splits = 2;

/// Select must answer `code` and launch `launch_code`, both with a reason, and nothing may be written.
void check_refused(const PagedAttentionEntry& e, const Prepared& good, const Wrong& wrong,
                   bool checked_without_workspace, StatusCode launch_code) {
  INFO(wrong.what);
  PagedAttentionProblem p = good.p;
  wrong.make(p);
  if (checked_without_workspace) {
    const Status status = paged_attention_check(p, facts_of(e.arch));
    CHECK(name_of(status.code) == name_of(wrong.code));
    CHECK(std::string(status.reason) != "");
    PagedAttentionPlan plan;
    CHECK(paged_attention_select(p, all_paged_attention_entries(), facts_of(e.arch), plan).code == wrong.code);
    CHECK(plan.entry == nullptr);
  }
  const Status status = e.launch(p, splits_for(e, splits), {});
  CHECK(name_of(status.code) == name_of(launch_code));
  CHECK(std::string(status.reason) != "");
}

TEST_CASE("bad problems get a named status and a reason, and nothing is written") {
  each_entry([](const PagedAttentionEntry& e) {
    Call call = good_call(e);
    const Prepared good = call.prepare(e, splits_for(e, splits));
    REQUIRE(paged_attention_check(good.p, facts_of(e.arch)).ok());
    // An entry checks first whether the problem has its spec.
    for (const Wrong& wrong : wrong_specs) check_refused(e, good, wrong, true, StatusCode::no_matching_entry);
    for (const Wrong& wrong : wrong_extents) check_refused(e, good, wrong, true, wrong.code);
    for (const Wrong& wrong : wrong_tensors) check_refused(e, good, wrong, true, wrong.code);
    if (good.p.workspace_bytes > 0) {
      for (const Wrong& wrong : wrong_workspaces) check_refused(e, good, wrong, false, wrong.code);
    }
    if (e.spec.quant != Scaling::none) {
      for (const Wrong& wrong : wrong_scales) check_refused(e, good, wrong, true, wrong.code);
    }
    if (e.spec.quant == Scaling::per_token) {
      for (const Wrong& wrong : wrong_token_scales) check_refused(e, good, wrong, true, wrong.code);
    }
    bench::check_hip(hipDeviceSynchronize(), "waiting");
    CHECK(untouched(good));
  });
}

TEST_CASE("bf16 KV needs no scales") {
  each_small_entry([](const PagedAttentionEntry& e) {
    if (e.spec.quant != Scaling::none) return;
    Call call = good_call(e);
    call.p.k_scale = call.p.v_scale = nullptr;
    call.fill();
    call.run(e);
  });
}

TEST_CASE("the fp8 flavour of another architecture is refused") {
  each_small_entry([](const PagedAttentionEntry& e) {
    if (e.spec.quant == Scaling::none) return;
    Call call = good_call(e);
    PagedAttentionProblem p = call.prepare(1).p;
    REQUIRE(paged_attention_check(p, facts_of(e.arch)).ok());
    p.spec.kv = p.spec.kv == DType::fp8_e4m3fn ? DType::fp8_e4m3fnuz : DType::fp8_e4m3fn;
    CHECK(paged_attention_check(p, facts_of(e.arch)).code == StatusCode::unsupported_dtype);
  });
}

TEST_CASE("split counts outside 1 to 128 are refused") {
  each_entry([](const PagedAttentionEntry& e) {
    Call call = good_call(e);
    const Prepared good = call.prepare(e, splits_for(e, max_splits));
    for (const int bad : {0, -1, max_splits + 1, int_max}) {
      CAPTURE(bad);
      const Status status = e.launch(good.p, bad, {});
      CHECK(status.code == StatusCode::bad_value);
      CHECK(std::string(status.reason) != "");
    }
    // These problems are taken by some entries only.
    if (splits_for(e, max_splits) < max_splits) {
      CHECK(e.launch(good.p, splits_for(e, max_splits) + 1, {}).code == StatusCode::bad_value);
    }
    CHECK(untouched(good));
  });
}

TEST_CASE("an entry of another spec refuses the problem") {
  each_entry([](const PagedAttentionEntry& e) {
    Call call = good_call(e);
    const Prepared good = call.prepare(e, splits_for(e, splits));
    int others = 0;
    for (const PagedAttentionEntry* other : all_paged_attention_entries()) {
      if (other->arch != e.arch || other->spec == e.spec) continue;
      ++others;
      REQUIRE(other->launch(good.p, splits, {}).code == StatusCode::no_matching_entry);
    }
    CHECK(others > 0);
    CHECK(untouched(good));
  });
}

TEST_CASE("a batch of 0 is fine and nothing is written, pointers or not") {
  each_entry([](const PagedAttentionEntry& e) {
    Call call = good_call(e);
    const Prepared good = call.prepare(e, splits_for(e, splits));
    PagedAttentionProblem p = good.p;
    p.batch = 0;
    CHECK(e.launch(p, splits_for(e, splits), {}).ok());
    PagedAttentionPlan plan;
    CHECK(paged_attention_select(p, all_paged_attention_entries(), facts_of(e.arch), plan).ok());
    CHECK(plan.splits >= 1);
    CHECK(paged_attention_workspace_size(p, max_splits) == 0);
    p.q = p.k = p.v = p.out = p.workspace = nullptr;
    p.lse = nullptr;
    p.block_table = p.context_lengths = nullptr;
    p.k_scale = p.v_scale = nullptr;
    CHECK(e.launch(p, splits_for(e, splits), {}).ok());
    bench::check_hip(hipDeviceSynchronize(), "waiting");
    CHECK(untouched(good));
  });
}

}  // namespace
}  // namespace tilewave::test::check
