// SPDX-License-Identifier: MIT
// A batch-invariant call: a row has the same bits alone and among others, and however its sequence's queries are cut
// into calls.
#include "test/ops/flash_attention/shapes.hpp"

namespace tilewave::test::invariance {
namespace {

/// A sequence of a call: a prompt, of which queries [from, to) are asked for, with all keys up to `to`.
struct Part {
  std::int32_t prompt, from, to;
};

/// Returns the bytes of out and lse of each part, whose tokens and values follow from its prompt alone.
std::vector<std::vector<std::byte>> answers(const FlashAttentionEntry& entry, const std::vector<Part>& parts,
                                            FlashShape shape) {
  for (const Part& part : parts) shape.q.push_back(part.to - part.from), shape.kv.push_back(part.to);
  const auto value = [&](char name, std::int64_t prompt, std::int64_t i, std::int32_t h, int d) {
    // Some keys are far above those before them, so that references of rows rise in some tiles and not in others.
    return drawn(name, prompt * 100003 + i * 7 + h, d) * (name == 'k' && i % 53 == 20 ? 4.0f : 1.0f);
  };
  shape.q_of = [&](std::int32_t b, std::int64_t i, std::int32_t h, int d) {
    return value('q', parts[b].prompt, parts[b].from + i, h, d);
  };
  shape.k_of = [&](std::int32_t b, auto i, auto h, int d) { return value('k', parts[b].prompt, i, h, d); };
  shape.v_of = [&](std::int32_t b, auto i, auto h, int d) { return value('v', parts[b].prompt, i, h, d); };
  shape.layout = entry.spec.paged() ? FlashLayout::nhd : FlashLayout::ragged;
  FlashCall call(entry.spec, shape);
  call.p.batch_invariant = call.host.batch_invariant = true;
  REQUIRE(call.run(entry) == "");
  const std::vector<std::byte> all = call.answer();
  const std::int64_t row = std::int64_t{shape.q_heads} * entry.spec.value_size * size_of(entry.spec.out);
  const std::int64_t of_lse = call.host.q_tokens() * row;
  std::vector<std::vector<std::byte>> each;
  std::int64_t first = 0;
  for (const Part& part : parts) {
    const std::int32_t count = part.to - part.from;
    each.emplace_back(all.begin() + first * row, all.begin() + (first + count) * row);
    for (std::int32_t h = 0; h < shape.q_heads; ++h) {
      const auto at = all.begin() + of_lse + 4 * (h * call.host.lse_head_stride + first);
      each.back().insert(each.back().end(), at, at + 4 * count);
    }
    first += count;
  }
  return each;
}

/// Returns whether the chunks of a prompt have the bits of the whole, query by query.
bool same_rows(const std::vector<std::byte>& whole, std::int32_t queries, const std::vector<std::byte>& chunk,
               std::int32_t from, std::int32_t to, std::int64_t row, std::int32_t heads) {
  if (std::memcmp(whole.data() + from * row, chunk.data(), (to - from) * row) != 0) return false;
  for (std::int32_t h = 0; h < heads; ++h)
    if (std::memcmp(whole.data() + queries * row + 4 * (h * queries + from),
                    chunk.data() + (to - from) * row + 4 * h * (to - from), 4 * (to - from)) != 0)
      return false;
  return true;
}

void check_invariant(const FlashAttentionEntry& entry, const FlashShape& shape) {
  INFO(name_of(entry.arch) << " " << name_of(entry.spec) << " " << name_of(entry.policy) << ", left " << shape.left);
  constexpr std::int32_t length = 290;
  const std::int64_t row = std::int64_t{shape.q_heads} * entry.spec.value_size * size_of(entry.spec.out);
  const std::vector<std::byte> alone = answers(entry, {{1, 0, length}}, shape)[0];
  const auto together = answers(entry, {{2, 0, 3}, {1, 0, length}, {3, 11, 75}}, shape);
  CHECK(together[1] == alone);
  const std::vector<Part> chunks{{1, 0, 37}, {1, 37, 165}, {1, 165, 289}, {1, 289, 290}};
  const auto apart = answers(entry, chunks, shape);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const bool same = same_rows(alone, length, apart[i], chunks[i].from, chunks[i].to, row, shape.q_heads);
    INFO("queries from " << chunks[i].from);
    CHECK(same);
  }
}

bool plain(const FlashAttentionSpec& s) {
  return s == FlashAttentionSpec{} || s == FlashAttentionSpec{.storage = KvStorage::paged};
}

TEST_CASE("a batch-invariant row has the same bits alone, among others and in any chunk of its prompt") {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (!plain(entry->spec)) continue;
    check_invariant(*entry, {.q = {}, .kv = {}, .q_heads = 1, .causal = true, .left = 200, .sinks = true});
  }
}
TEST_CASE("batch-invariant rows of every spec", "[full]") {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    check_invariant(*entry, {.q = {}, .kv = {}, .q_heads = 2, .causal = true});
  }
}

}  // namespace
}  // namespace tilewave::test::invariance
