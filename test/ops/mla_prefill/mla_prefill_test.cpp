// SPDX-License-Identifier: MIT
// Tests of latent prefill against a reference in double precision: lengths, chunks, pages, ragged batches.
#include "test/ops/mla_prefill/call.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("prefill of every cache is right without earlier tokens and with them") {
  check_prefill({.queries = {37}}, any_cache);
  check_prefill({.queries = {70}, .context = {90}, .lse = true, .gap = 1}, any_cache);
}

TEST_CASE("prefill takes one query token, and lengths around tiles") {
  for (const std::int32_t queries : {1, 2, 63, 64, 65, 129})
    check_prefill({.queries = {queries}, .heads = 1}, bf16_cache);
  for (const std::int32_t context : {1, 63, 64, 65, 128})
    check_prefill({.queries = {3}, .context = {context}, .heads = 1, .lse = true}, bf16_cache);
}

TEST_CASE("prefill takes ragged batches, some of whose sequences have no queries or no earlier tokens") {
  check_prefill({.queries = {5, 0, 40, 1, 0}, .context = {30, 20, 0, 77, 0}, .heads = 2, .lse = true}, any_cache);
  check_prefill({.queries = {0, 9, 1}, .context = {0, 100, 3}, .heads = 2, .chunk_tokens = 17}, bf16_cache);
  // More sequences than the lanes that count their tokens.
  std::vector<std::int32_t> queries(300, 1), context(300);
  for (int s = 0; s < 300; ++s) context[s] = s % 3;
  check_prefill({.queries = queries, .context = context, .heads = 1, .block_size = 4, .chunk_tokens = 100}, bf16_cache);
}

TEST_CASE("prefill takes pages of any size") {
  for (const std::int32_t block_size : {1, 61, 64})
    check_prefill({.queries = {20, 7}, .context = {70, 11}, .heads = 1, .block_size = block_size}, any_cache);
}

TEST_CASE("earlier tokens in several chunks give what they give in one, within rounding") {
  for (const MlaPrefillEntry* e : in_turn(all_mla_prefill_entries())) {
    if (!bf16_cache(e->spec)) continue;
    INFO(name_of(e->arch) << " " << name_of(e->policy));
    const auto run = [&](std::int32_t chunk_tokens, std::int32_t spare) {
      MlaPrefillCall call(
          e->spec,
          {.queries = {9, 30}, .context = {100, 33}, .heads = 2, .chunk_tokens = chunk_tokens, .spare_context = spare});
      INFO("chunks of " << chunk_tokens << ", " << spare << " tokens to spare");
      CHECK(call.run(*e) == "");
      return call;
    };
    const MlaPrefillCall one = run(133, 0);
    // Chunks of many sizes, with empty ones behind the last token, and with the most chunks that there may be.
    for (const auto& [chunk_tokens, spare] : {std::pair{64, 0}, {32, 200}, {1 << 20, 0}, {2, 121}}) {
      if (chunk_tokens == 2 && e->policy.tokens == 1 && !all_entries()) continue;  // 127 chunks take a while
      const MlaPrefillCall many = run(chunk_tokens, spare);
      double worst = 0;
      for (int t = 0; t < 39; ++t)
        for (int h = 0; h < 2; ++h)
          for (int d = 0; d < mla_value_size; ++d)
            worst = std::max(worst,
                             std::abs(many.value(t, h, d) - one.value(t, h, d)) / (1 + std::abs(one.value(t, h, d))));
      CHECK(worst < 0x1p-6);
    }
  }
}

TEST_CASE("capacities of queries may be larger than their number, and nothing else is written") {
  for (const MlaPrefillEntry* e : in_turn(all_mla_prefill_entries())) {
    INFO(name_of(e->arch) << " " << name_of(e->spec) << " " << name_of(e->policy));
    MlaPrefillCall call(e->spec, {.queries = {11, 4}, .context = {9, 0}, .heads = 1, .spare_queries = 6});
    CHECK(call.run(*e) == "");
    MlaPrefillCall none(e->spec, {.queries = {}, .context = {}});
    CHECK(none.run(*e) == "");
  }
}

TEST_CASE("a sequence that the call has no room for becomes NaN, and the others are right") {
  for (const MlaPrefillEntry* e : in_turn(all_mla_prefill_entries())) {
    if (!bf16_cache(e->spec)) continue;
    INFO(name_of(e->arch) << " " << name_of(e->policy));
    const auto is_spoilt = [](MlaPrefillCall& call, std::int64_t token) {
      (void)call.answer();
      return std::isnan(call.value(token, 0, 0)) && std::isnan(call.value(token, 0, mla_value_size - 1));
    };
    MlaPrefillCall call(e->spec, {.queries = {6, 5, 7}, .context = {20, 40, 30}, .heads = 1, .chunk_tokens = 32});
    REQUIRE(call.run(*e) == "");
    // Each time sequence 1 is the one without an answer.
    struct Case {
      std::vector<std::int32_t> context;
      std::int32_t context_tokens;
    };
    for (const Case& wrong : {Case{{20, -1, 30}, 90}, {{20, 70, 0}, 90}, {{20, 1 << 20, 30}, 90}, {{20, 40, 0}, 50}}) {
      INFO(wrong.context[1] << " earlier tokens, room for " << wrong.context_tokens << " in all");
      call.set_lengths({6, 5, 7}, wrong.context);
      call.p.context_tokens = wrong.context_tokens;
      REQUIRE(call.launch(facts_of(e->arch), all_mla_prefill_parts()) == "");
      for (int t = 6; t < 11; ++t) CHECK(is_spoilt(call, t));
      for (const int t : {0, 5, 11, 17}) CHECK_FALSE(is_spoilt(call, t));
    }
  }
}

TEST_CASE("scores that lie far apart do not overflow") {
  check_prefill({.queries = {33}, .context = {40}, .heads = 1, .chunk_tokens = 16, .lse = true, .spread = 40},
                bf16_cache);
}

}  // namespace
}  // namespace tilewave::test
