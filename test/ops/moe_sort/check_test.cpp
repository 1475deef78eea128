// SPDX-License-Identifier: MIT
// moe_sort_check and a launch refuse bad problems, and nothing is written then.
#include "test/ops/moe_sort/call.hpp"

namespace tilewave::test {
namespace {

using P = MoeSortProblem;
using C = StatusCode;

const Wrong<P> wrongs[] = {
    {"tokens -1", C::bad_extent, [](P& p) { p.tokens = -1; }},
    {"2^24 tokens", C::bad_extent, [](P& p) { p.tokens = 1 << 24; }},
    {"topk 0", C::bad_extent, [](P& p) { p.topk = 0; }},
    {"topk 17", C::bad_extent, [](P& p) { p.topk = 17; }},
    {"no experts", C::bad_extent, [](P& p) { p.experts = 0; }},
    {"1025 experts", C::bad_extent, [](P& p) { p.experts = 1025; }},
    {"unit 0", C::bad_extent, [](P& p) { p.unit = 0; }},
    {"unit 257", C::bad_extent, [](P& p) { p.unit = 257; }},
    {"capacity one row short", C::bad_extent, [](P& p) { p.capacity -= 1; }},
    {"capacity beyond 2^30", C::bad_extent, [](P& p) { p.capacity = (1 << 30) + 1; }},
    {"ids null", C::null_pointer, [](P& p) { p.topk_ids = nullptr; }},
    {"sorted_ids null", C::null_pointer, [](P& p) { p.sorted_ids = nullptr; }},
    {"sorted_expert_ids null", C::null_pointer, [](P& p) { p.sorted_expert_ids = nullptr; }},
    {"num_tokens_post_pad null", C::null_pointer, [](P& p) { p.num_tokens_post_pad = nullptr; }},
    {"weights without sorted ones", C::null_pointer, [](P& p) { p.sorted_weights = nullptr; }},
    {"sorted weights of none", C::null_pointer, [](P& p) { p.topk_weights = nullptr; }},
    {"ids off by a byte", C::misaligned, [](P& p) { p.topk_ids = moved(p.topk_ids, 1); }},
    {"mask off by two", C::misaligned, [](P& p) { p.expert_mask = moved(p.expert_mask, 2); }},
    {"sorted_ids off by a byte", C::misaligned, [](P& p) { p.sorted_ids = moved(p.sorted_ids, 1); }},
    {"rows off by a byte", C::misaligned, [](P& p) { p.rows = moved(p.rows, 1); }},
    {"row_tokens off by two", C::misaligned, [](P& p) { p.row_tokens = moved(p.row_tokens, 2); }},
    {"ids in one place", C::bad_stride, [](P& p) { p.ids_stride = 0; }},
    {"weights in one place", C::bad_stride, [](P& p) { p.weights_stride = 0; }},
    {"strides of weights that are not there", C::bad_value,
     [](P& p) {
       p.topk_weights = nullptr;
       p.sorted_weights = nullptr;
     },
     "stride of topk_weights "},
    {"a stride of rows that are not there", C::bad_value, [](P& p) { p.rows = nullptr; }, "stride of rows "},
    {"rows that overlap", C::bad_stride, [](P& p) { p.rows_stride = p.topk - 1; }},
    {"a stride of 2^62", C::bad_stride, [](P& p) { p.ids_stride = std::int64_t{1} << 62; }},
    {"rows are the ids", C::bad_value, [](P& p) { p.rows = const_cast<std::int32_t*>(p.topk_ids); }},
    {"sorted_ids inside the mask", C::bad_value,
     [](P& p) { p.sorted_ids = const_cast<std::int32_t*>(p.expert_mask) + 1; }},
    {"sorted_weights are sorted_ids", C::bad_value,
     [](P& p) { p.sorted_weights = reinterpret_cast<float*>(p.sorted_ids); }},
    {"num_tokens_post_pad is the last offset", C::bad_value,
     [](P& p) { p.num_tokens_post_pad = p.group_offsets + p.experts; }},
    {"row_tokens are sorted_ids", C::bad_value, [](P& p) { p.row_tokens = p.sorted_ids; }},
    {"group_counts are rows", C::bad_value, [](P& p) { p.group_counts = p.rows; }},
};

TEST_CASE("bad sorts get a named status and a reason, and nothing is written") {
  for (const MoeSortEntry* e : all_moe_sort_entries()) {
    SortCall call({.tokens = e->policy.tiles_alone * e->policy.tile() / 3 + 1000,
                   .topk = 3,
                   .experts = 64,
                   .unit = 16,
                   .local = [](int) { return true; }});
    check_refused<MoeSortEntry, P>(*e, call.p, wrongs, moe_sort_check, moe_sort_select, all_moe_sort_entries());

    const std::size_t bytes = moe_sort_workspace_size(call.p, e->policy);
    CHECK(bytes > 0);
    bench::DeviceBuffer workspace(static_cast<std::size_t>(bytes) + 16);
    const auto code = [&](void* data, std::int64_t size) {
      P p = call.p;
      p.workspace = data;
      p.workspace_bytes = size;
      return std::string(name_of(e->launch(p, {}).code));
    };
    CHECK(code(nullptr, bytes) == "null_pointer");
    CHECK(code(workspace.data(), bytes - 1) == "workspace_too_small");
    CHECK(code(moved(workspace.data(), 4), bytes) == "misaligned");
    CHECK(code(workspace.data(), (std::int64_t{1} << 56) + 1) == "bad_value");
    CHECK(code(call.p.sorted_ids, bytes) == "bad_value");
    P onto = call.p;
    onto.workspace_bytes = bytes;
    for (const void* tensor :
         {static_cast<const void*>(onto.topk_ids), static_cast<const void*>(onto.sorted_ids),
          static_cast<const void*>(onto.row_tokens), static_cast<const void*>(onto.sorted_weights)}) {
      onto.workspace = const_cast<void*>(tensor);
      CHECK(std::string(e->launch(onto, {}).reason) == "workspace overlaps another tensor");
    }
    for (const std::vector<std::int32_t>& words : {call.sorted_ids(), call.rows()})
      CHECK(std::count(words.begin(), words.end(), unwritten_word) == static_cast<std::int64_t>(words.size()));
  }
}

TEST_CASE("more tokens never take less capacity or workspace") {
  const MoeSortPolicy policy = moe_sort_policies(ArchId::sm90, {})[0];
  P p;
  p.topk = 6;
  p.experts = 100;
  p.unit = 48;
  std::int64_t capacity = 0;
  std::size_t workspace = 0;
  for (p.tokens = 0; p.tokens < 200000; p.tokens += 41) {
    CHECK(moe_sort_capacity(p) >= capacity);
    CHECK(moe_sort_workspace_size(p, policy) >= workspace);
    const MoeSortWork shares = moe_sort_work(p, policy);
    CHECK((moe_sort_workspace_size(p, policy) > 0) == (shares.counts == MoeSortCounts::workspace));
    if (shares.counts == MoeSortCounts::workspace)
      CHECK(std::size_t{4} * p.experts * shares.blocks <= moe_sort_workspace_size(p, policy));
    capacity = moe_sort_capacity(p);
    workspace = moe_sort_workspace_size(p, policy);
  }
}

}  // namespace
}  // namespace tilewave::test
