// SPDX-License-Identifier: MIT
// Flash attention by every entry against the reference: lengths around tiles, masks, layouts.
#include "test/ops/flash_attention/call.hpp"

namespace tilewave::test {
namespace {

bool contiguous(const FlashAttentionSpec& s) { return !s.paged(); }
bool paged(const FlashAttentionSpec& s) { return s.paged(); }
bool plain(const FlashAttentionSpec& s) { return s == FlashAttentionSpec{}; }

TEST_CASE("one query and one key give the value") {
  check_flash({.q = {1}, .kv = {1}}, contiguous);
  check_flash({.q = {1}, .kv = {1}, .layout = FlashLayout::nhd}, paged);
}

TEST_CASE("causal queries see what lies before them") {
  check_flash({.q = {70}, .kv = {70}, .causal = true}, contiguous);
  check_flash({.q = {5}, .kv = {70}, .layout = FlashLayout::nhd, .causal = true}, paged);
}

TEST_CASE("sequences of any lengths in one packed call") {
  check_flash({.q = {3, 0, 65, 1}, .kv = {33, 7, 65, 0}, .layout = FlashLayout::ragged, .causal = true}, contiguous);
}

TEST_CASE("queries that see no key give 0 and lse -inf") {
  check_flash({.q = {9}, .kv = {4}, .causal = true}, plain);
  check_flash({.q = {9}, .kv = {4}, .causal = true, .sinks = true}, plain);
}

TEST_CASE("windows and sinks") {
  check_flash({.q = {40}, .kv = {90}, .left = 17, .right = 3, .sinks = true}, plain);
  check_flash({.q = {40}, .kv = {90}, .causal = true, .left = 0}, plain);
}

TEST_CASE("heads outside tokens, and lengths below the capacity") {
  check_flash({.q = {20, 20}, .kv = {50, 31}, .q_heads = 6, .kv_heads = 2, .layout = FlashLayout::bhsd}, plain);
}

TEST_CASE("pages of any size and order") {
  for (const std::int32_t block_size : {1, 16, 24, 128}) {
    check_flash({.q = {19, 2}, .kv = {75, 130}, .layout = FlashLayout::hnd, .causal = true, .block_size = block_size},
                paged);
  }
}

TEST_CASE("a sequence beyond the call's capacity becomes NaN") {
  FlashCall call({}, {.q = {3, 3}, .kv = {20, 40}});
  call.host.kv_length = 30;
  call.p.kv_length = 30;
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (!plain(entry->spec)) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->policy));
    CHECK(call.run(*entry) == "");
  }
}

}  // namespace
}  // namespace tilewave::test
