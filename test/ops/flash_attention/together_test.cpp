// SPDX-License-Identifier: MIT
// Flash attention beside other ops and in mixed batches: rows that decode computes too, a prefix that many sequences
// share, and decode rows in one launch with chunks of prompts.
#include <optional>

#include "entries/attention_combine.hpp"
#include "entries/paged_attention.hpp"
#include "test/ops/flash_attention/shapes.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("decode rows and chunks of prompts in one launch") {
  check_flash({.q = {1, 1, 67, 4, 1},
               .kv = {90, 1, 200, 77, 150},
               .q_heads = 2,
               .kv_heads = 1,
               .layout = FlashLayout::hnd,
               .causal = true},
              [](const FlashAttentionSpec& s) { return s == FlashAttentionSpec{.storage = KvStorage::paged}; });
}

/// Runs a problem of flash attention by a kernel of decode. All sequences have equally many queries.
Status decode(const PagedAttentionEntry& entry, const FlashAttentionProblem& f) {
  PagedAttentionProblem p;
  p.spec = entry.spec;
  p.batch = f.batch, p.mtp = f.q_length, p.num_q_heads = f.q_heads, p.num_kv_heads = f.kv_heads;
  p.block_size = f.block_size, p.table_columns = f.table_columns, p.num_pages = f.num_pages;
  p.softmax_scale = f.softmax_scale;
  p = PagedAttentionProblem::in_units(p, false);
  p.q = f.q, p.k = f.k, p.v = f.v, p.out = f.out;
  p.block_table = f.block_table, p.context_lengths = f.kv_lengths;
  p.k_strides = f.k_page_strides, p.v_strides = f.v_page_strides;
  return entry.launch(p, 1, {});
}

TEST_CASE("the last tokens of sequences are right by decode and by flash attention, on the same pages") {
  int ran = 0;
  for (const FlashAttentionEntry* flash : all_flash_attention_feature_entries()) {
    if (!flash->spec.bit_mask) continue;
    for (const std::int32_t mtp : {1, 4}) {
      FlashShape shape{.q = {mtp, mtp}, .kv = {37, 200}, .q_heads = 4, .kv_heads = 2, .layout = FlashLayout::plain};
      shape.causal = true, shape.lse = false;
      shape.sees = [](auto, auto, auto) { return true; };
      FlashCall call(flash->spec, shape);
      REQUIRE(call.run(*flash) == "");
      const std::vector<std::byte> by_flash = call.answer();
      for (const PagedAttentionEntry* entry : all_paged_attention_entries()) {
        if (entry->arch != flash->arch || entry->spec != PagedAttentionSpec{.kv = DType::bf16, .head_size = 128})
          continue;
        if (entry->policy.bulk() || entry->policy.balanced()) continue;
        INFO(name_of(entry->arch) << " " << name_of(entry->policy, entry->spec) << ", " << mtp << " tokens");
        REQUIRE(decode(*entry, call.p).ok());
        CHECK(call.wrong() == "");
        const std::vector<std::byte> by_decode = call.answer();
        int apart = 0;
        for (std::int64_t i = 0; i < call.host.q_tokens() * call.host.q_heads * 128; ++i) {
          const double a = reference::element(DType::bf16, by_flash.data(), i),
                       b = reference::element(DType::bf16, by_decode.data(), i);
          apart += !(std::abs(a - b) <= 0x1p-6);  // values are below 2, probabilities rounded to bf16
        }
        CHECK(apart == 0);
        ++ran;
      }
    }
  }
  CHECK(ran > 0);
}

/// Combines the answers of two calls for the same queries, each of which saw a part of the keys, into the output of a
/// call that sees all. Returns what is wrong with that, or an empty text; and without a value if the kernel does not take
/// it.
std::optional<std::string> combined(const AttentionCombineEntry& combine, FlashCall& one, FlashCall& other,
                                    FlashCall& whole) {
  const auto total = static_cast<std::int32_t>(whole.host.q_tokens());
  const std::int32_t heads = whole.host.q_heads, size = whole.host.spec.value_size;
  AttentionCombineProblem p;
  p.spec = combine.spec;
  p.partials = 2, p.rows = total, p.heads = heads, p.head_size = size;
  p.x_strides = {std::int64_t{total} * heads * size, heads * size, size};
  p.x_lse_strides = {std::int64_t{total} * heads, 1, total};
  p.out_strides = {heads * size, size}, p.lse_strides = {1, total};
  const std::size_t out_bytes = std::size_t(total) * heads * size * 2, lse_bytes = std::size_t(total) * heads * 4;
  const bench::DeviceBuffer x(2 * out_bytes), x_lse(2 * lse_bytes);
  int partial = 0;
  for (FlashCall* call : {&one, &other}) {
    const std::vector<std::byte> answer = call->answer();
    const auto copy = [](void* to, const std::byte* from, std::size_t bytes) {
      bench::check_hip(hipMemcpy(to, from, bytes, hipMemcpyHostToDevice), "copying a partial");
    };
    copy(static_cast<std::byte*>(x.data()) + partial * out_bytes, answer.data(), out_bytes);
    copy(static_cast<std::byte*>(x_lse.data()) + partial * lse_bytes, answer.data() + out_bytes, lse_bytes);
    ++partial;
  }
  p.x = x.data(), p.x_lse = static_cast<const float*>(x_lse.data());
  p.out = whole.p.out, p.lse = whole.p.lse;
  if (!AttentionCombineRegistry::takes(combine.policy, p, facts_of(combine.arch)).ok()) return {};
  if (const Status status = combine.launch(p, {}); !status.ok()) return std::string(status.reason);
  return whole.wrong();
}

/// Calls f for every kernel of combine that merges bf16 on this architecture.
template <class F>
void each_combine_entry(ArchId arch, const F& f) {
  for (const AttentionCombineEntry* combine : all_attention_combine_entries()) {
    if (combine->arch != arch || combine->spec != AttentionCombineSpec{DType::bf16, DType::bf16}) continue;
    INFO(name_of(combine->policy));
    f(*combine);
  }
}

/// Values of a token by its place in the whole sequence: places in the prefix are the same for all sequences.
constexpr std::int32_t prefix = 150;
float cascade_value(char name, std::int32_t b, std::int64_t place, std::int32_t h, int d) {
  return drawn(name, place < prefix ? place * 7 + h : (b + 1) * 100003 + place * 7 + h, d);
}

TEST_CASE("a prefix that sequences share is computed once and combined by lse") {
  const std::vector<std::int32_t> queries{5, 1, 33, 0, 20}, suffix{5, 12, 40, 3, 20};
  std::vector<std::int32_t> whole, first{0};
  for (std::size_t b = 0; b < queries.size(); ++b) {
    whole.push_back(prefix + suffix[b]), first.push_back(first.back() + queries[b]);
  }
  const std::int32_t total = first.back(), heads = 2;
  const auto owner = [&](std::int64_t token) {
    return static_cast<std::int32_t>(std::ranges::upper_bound(first, token) - first.begin() - 1);
  };
  const auto query = [&](std::int32_t b, std::int64_t i, std::int32_t h, int d) {
    return cascade_value('q', b, whole[b] - queries[b] + i, h, d);
  };
  FlashShape all{.q = queries, .kv = whole, .q_heads = heads, .layout = FlashLayout::ragged, .causal = true};
  all.q_of = query;
  all.k_of = [](auto b, auto i, auto h, int d) { return cascade_value('k', b, i, h, d); };
  all.v_of = [](auto b, auto i, auto h, int d) { return cascade_value('v', b, i, h, d); };
  FlashShape own = all, shared = all;
  own.kv = suffix;
  own.k_of = [](auto b, auto i, auto h, int d) { return cascade_value('k', b, prefix + i, h, d); };
  own.v_of = [](auto b, auto i, auto h, int d) { return cascade_value('v', b, prefix + i, h, d); };
  shared.q = {total}, shared.kv = {prefix}, shared.causal = false;
  shared.q_of = [&](auto, std::int64_t i, auto h, int d) { return query(owner(i), i - first[owner(i)], h, d); };

  int ran = 0;
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (entry->spec != FlashAttentionSpec{}) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->policy));
    FlashCall of_suffix(entry->spec, own), of_prefix(entry->spec, shared), of_all(entry->spec, all);
    REQUIRE(of_suffix.run(*entry) == "");
    REQUIRE(of_prefix.run(*entry) == "");
    each_combine_entry(entry->arch, [&](const AttentionCombineEntry& combine) {
      const std::optional<std::string> wrong = combined(combine, of_prefix, of_suffix, of_all);
      if (!wrong.has_value()) return;
      CHECK(*wrong == "");
      ++ran;
    });
  }
  CHECK(ran > 0);
}

TEST_CASE("new keys that are not in the pages yet are combined with those that are") {
  const std::vector<std::int32_t> queries{5, 1, 33}, cached{40, 17, 130};
  std::vector<std::int32_t> whole;
  for (std::size_t b = 0; b < queries.size(); ++b) whole.push_back(cached[b] + queries[b]);
  const auto value = [](char name, std::int32_t b, std::int64_t place, std::int32_t h, int d) {
    return drawn(name, static_cast<int>(b * 1009 + place * 7 + h), d);
  };
  FlashShape all{.q = queries, .kv = whole, .layout = FlashLayout::ragged, .causal = true};
  all.q_of = [&](auto b, auto i, auto h, int d) { return value('q', b, cached[b] + i, h, d); };
  all.k_of = [&](auto b, auto i, auto h, int d) { return value('k', b, i, h, d); };
  all.v_of = [&](auto b, auto i, auto h, int d) { return value('v', b, i, h, d); };
  FlashShape outside = all, in_pages = all;
  outside.kv = queries;
  outside.k_of = [&](auto b, auto i, auto h, int d) { return value('k', b, cached[b] + i, h, d); };
  outside.v_of = [&](auto b, auto i, auto h, int d) { return value('v', b, cached[b] + i, h, d); };
  in_pages.kv = cached, in_pages.causal = false, in_pages.layout = FlashLayout::nhd;

  int ran = 0;
  for (const FlashAttentionEntry* of_pages : all_flash_attention_entries()) {
    if (of_pages->spec != FlashAttentionSpec{.storage = KvStorage::paged}) continue;
    for (const FlashAttentionEntry* of_new : all_flash_attention_entries()) {
      if (of_new->spec != FlashAttentionSpec{} || of_new->arch != of_pages->arch) continue;
      if (of_new->policy.path != of_pages->policy.path) continue;
      INFO(name_of(of_new->arch) << " " << name_of(of_pages->policy) << " and " << name_of(of_new->policy));
      FlashCall cache(of_pages->spec, in_pages), fresh(of_new->spec, outside), both(of_new->spec, all);
      if (!flash_attention_takes(of_pages->policy, cache.p).ok()) continue;
      REQUIRE(cache.run(*of_pages) == "");
      REQUIRE(fresh.run(*of_new) == "");
      each_combine_entry(of_new->arch, [&](const AttentionCombineEntry& combine) {
        const std::optional<std::string> wrong = combined(combine, cache, fresh, both);
        if (!wrong.has_value()) return;
        CHECK(*wrong == "");
        ++ran;
      });
    }
  }
  CHECK(ran > 0);
}

}  // namespace
}  // namespace tilewave::test
