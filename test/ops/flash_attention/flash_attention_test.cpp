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

TEST_CASE("calls that are refused, by the field that is wrong") {
  FlashCall call({}, {.q = {3, 3}, .kv = {20, 20}, .q_heads = 4, .kv_heads = 2, .by_counter = true});
  const ArchFacts& facts = facts_of(ArchId::sm90);
  REQUIRE(flash_attention_check(call.p, facts).ok());
  const auto code = [&](const auto& spoil) {
    FlashAttentionProblem p = call.p;
    spoil(p);
    return flash_attention_check(p, facts).code;
  };
  CHECK(code([](auto& p) { p.q = nullptr; }) == StatusCode::null_pointer);
  CHECK(code([](auto& p) { p.out = nullptr; }) == StatusCode::null_pointer);
  CHECK(code([](auto& p) { p.v = static_cast<const std::byte*>(p.v) + 8; }) == StatusCode::misaligned);
  CHECK(code([](auto& p) { p.q_heads = 3; }) == StatusCode::unsupported_head_ratio);
  CHECK(code([](auto& p) { p.kv_length = -1; }) == StatusCode::bad_extent);
  CHECK(code([](auto& p) { p.softmax_scale = 0.0f; }) == StatusCode::bad_value);
  CHECK(code([](auto& p) { p.causal = true, p.window_right = 2; }) == StatusCode::bad_value);
  CHECK(code([](auto& p) { p.window_left = -2; }) == StatusCode::bad_value);
  CHECK(code([](auto& p) { p.k_strides.token = 4; }) == StatusCode::bad_stride);
  CHECK(code([](auto& p) { p.block_size = 16; }) == StatusCode::bad_value);
  CHECK(code([](auto& p) { p.out = const_cast<void*>(p.q); }) == StatusCode::bad_value);
  CHECK(code([](auto& p) { p.item_counter = static_cast<std::uint32_t*>(p.out) + 1; }) == StatusCode::bad_value);
  CHECK(code([](auto& p) {
          p.item_counter = reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::byte*>(p.item_counter) + 2);
        }) == StatusCode::misaligned);
}

TEST_CASE("scales of heads are as many as heads, and a stride apart") {
  constexpr FlashAttentionSpec spec{
      .q = DType::fp8_e4m3fn, .kv = DType::fp8_e4m3fn, .out = DType::bf16, .quant = Scaling::per_head};
  const FlashCall call(spec, {.q = {3}, .kv = {20}, .q_heads = 4, .kv_heads = 2, .scale_gap = 3});
  const auto code = [&](const auto& spoil) {
    FlashAttentionProblem p = call.p;
    spoil(p);
    return flash_attention_check(p, facts_of(ArchId::sm90)).code;
  };
  CHECK(code([](auto&) {}) == StatusCode::ok);
  CHECK(code([](auto& p) { p.scale_head_stride = 0; }) == StatusCode::bad_stride);
  CHECK(code([](auto& p) { p.lse = const_cast<float*>(p.q_scale) + 3; }) == StatusCode::bad_value);
  CHECK(code([](auto& p) { p.lse = const_cast<float*>(p.k_scale) + 4; }) == StatusCode::bad_value);
}

TEST_CASE("a policy with a cluster is of path tensor and contiguous keys of 16 bits") {
  const FlashAttentionPolicy pair{.path = FlashAttentionPath::tensor,
                                  .rows = 128,
                                  .keys = 128,
                                  .waves = 2,
                                  .stages = 2,
                                  .waves_per_simd = 1,
                                  .cluster = 2};
  const auto ok = [](const FlashAttentionSpec& s, const FlashAttentionPolicy& p) {
    return flash_attention_policy_status(ArchId::sm90, s, p).ok();
  };
  CHECK(ok({}, pair));
  CHECK(!ok({.storage = KvStorage::paged}, pair));
  CHECK(!ok({.q = DType::fp8_e4m3fn, .kv = DType::fp8_e4m3fn, .out = DType::bf16, .quant = Scaling::per_tensor}, pair));
  FlashAttentionPolicy none = pair;
  none.cluster = 0;
  CHECK(!ok({}, none));
  none.cluster = 32;
  CHECK(!ok({}, none));
  CHECK(name_of(pair) == "t128x128.w2.s2.tensor.c2");
}

}  // namespace
}  // namespace tilewave::test
