// SPDX-License-Identifier: MIT
// A table of choices decides ahead of the cost model, for the class it names and for no other; and the library's own
// tables name entries that exist.
#include <vector>

#include "test/catch_compat.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave {
namespace {

constexpr PagedAttentionSpec spec{};

/// The choice looks at extents and addresses of tensors, not at their contents.
PagedAttentionProblem problem(std::int32_t batch, std::int32_t table_columns) {
  const auto somewhere = [](std::uintptr_t i) { return reinterpret_cast<void*>(i << 44); };
  PagedAttentionProblem p;
  p.q = somewhere(1), p.k = somewhere(2), p.v = somewhere(3), p.out = somewhere(4);
  p.block_table = static_cast<const std::int32_t*>(somewhere(5));
  p.context_lengths = static_cast<const std::int32_t*>(somewhere(6));
  p.spec = spec, p.softmax_scale = 0.1f;
  p.batch = batch, p.num_q_heads = 32, p.num_kv_heads = 8, p.block_size = 64, p.table_columns = table_columns;
  p.num_pages = std::int64_t{batch} * table_columns;
  p.q_row_stride = p.out_row_stride = 32 * spec.head_size, p.q_head_stride = p.out_head_stride = spec.head_size;
  p.k_strides = packed_key_strides(spec, 8, 64), p.v_strides = packed_value_strides(spec, 8, 64, true);
  p.table_row_stride = table_columns;
  return p;
}

std::vector<PagedAttentionEntry> entries_of(ArchId arch, const PagedAttentionSpec& s) {
  std::vector<PagedAttentionEntry> entries;
  for (const PagedAttentionPolicy& p : paged_attention_policies(arch, s))
    entries.push_back({arch, true, s, p, nullptr, 0});
  return entries;
}

TEST_CASE("a tuned row decides how a decode of its class is computed") {
  const std::vector<PagedAttentionEntry> built = entries_of(ArchId::gfx950, spec);
  std::vector<const PagedAttentionEntry*> entries;
  for (const PagedAttentionEntry& e : built) entries.push_back(&e);
  const auto select = [&](const PagedAttentionProblem& p, std::span<const TunedPagedAttention> tuned) {
    PagedAttentionPlan plan;
    CHECK(paged_attention_select(p, entries, gfx950_facts, plan, tuned).ok());
    return plan;
  };
  const PagedAttentionPlan usual = select(problem(16, 32), {});
  const PagedAttentionEntry* other = nullptr;
  for (const PagedAttentionEntry* e : entries)
    if (e != usual.entry && !e->policy.balanced()) other = e;
  REQUIRE(other != nullptr);
  const int splits = usual.splits + 3;
  TunedPagedAttention row{spec, 64, 1, 32, 8, 16, 1024, 2048, other->policy, splits};
  const auto taken = [&](const PagedAttentionProblem& p) {
    const PagedAttentionPlan plan = select(p, {&row, 1});
    return plan.entry == other && plan.splits == splits;
  };
  CHECK(taken(problem(16, 32)));
  CHECK(taken(problem(16, 16)));
  const auto untouched = [&](const PagedAttentionProblem& p) {
    const PagedAttentionPlan with = select(p, {&row, 1}), without = select(p, {});
    return with.entry == without.entry && with.splits == without.splits;
  };
  CHECK(untouched(problem(16, 33)));
  CHECK(untouched(problem(16, 15)));
  CHECK(untouched(problem(17, 32)));
  PagedAttentionProblem p = problem(16, 32);
  p.split_tokens = 512;
  CHECK(untouched(p));
  p = problem(16, 32), p.balanced = true;
  CHECK(untouched(p));
  p = problem(16, 32), p.sliding_window = 512;
  CHECK(untouched(p));
  row.num_splits = 1000;  // more than any launch takes
  CHECK(untouched(problem(16, 32)));
  row.num_splits = splits, row.policy.prefetch.stages *= 2;  // an entry that nobody built
  CHECK(untouched(problem(16, 32)));
}

TEST_CASE("what the library's own tables say is done without being asked for") {
  for (const ArchId arch : all_archs) {
    for (const TunedPagedAttention& row : tuned_paged_attention(arch)) {
      const std::vector<PagedAttentionEntry> built = entries_of(arch, row.spec);
      std::vector<const PagedAttentionEntry*> entries;
      for (const PagedAttentionEntry& e : built) entries.push_back(&e);
      PagedAttentionProblem p = problem(row.batch, static_cast<std::int32_t>(row.tokens_to / row.block_size));
      REQUIRE(p.block_size == row.block_size);
      REQUIRE((p.num_q_heads == row.num_q_heads && p.num_kv_heads == row.num_kv_heads && row.spec == spec));
      PagedAttentionPlan plan;
      CHECK(paged_attention_select(p, entries, facts_of(arch), plan).ok());
      REQUIRE(plan.entry != nullptr);
      CHECK(plan.entry->policy == row.policy);
      CHECK(plan.splits == row.num_splits);
    }
  }
}

}  // namespace
}  // namespace tilewave
