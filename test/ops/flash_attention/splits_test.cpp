// SPDX-License-Identifier: MIT
// Flash attention of sm90 with a workspace: few row tiles on many keys, which splits share.
#include "test/ops/flash_attention/call.hpp"

namespace tilewave::test::splits {
namespace {

/// Calls f(entry, call) for every entry that cuts the shape's keys into splits.
template <class Wanted, class F>
void each_split_call(FlashShape shape, const Wanted& wanted, const F& f) {
  shape.workspace = true;
  int ran = 0;
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (!entry->policy.splits_keys() || !wanted(entry->spec)) continue;
    INFO(name_of(entry->spec) << " " << name_of(entry->policy));
    FlashCall call(entry->spec, shape);
    CAPTURE(shape.q[0], shape.kv[0]);
    REQUIRE(flash_attention_splits_sm90(call.p, entry->policy) > 1);
    f(*entry, call);
    ++ran;
  }
  CHECK(ran > 0);
}
template <class Wanted>
void check_splits(const FlashShape& shape, const Wanted& wanted) {
  each_split_call(shape, wanted,
                  [](const FlashAttentionEntry& entry, FlashCall& call) { CHECK(call.run(entry) == ""); });
}
bool plain(const FlashAttentionSpec& s) { return s == FlashAttentionSpec{} || (is_fp8(s.q) && !s.paged()); }
bool plain_pages(const FlashAttentionSpec& s) { return s == FlashAttentionSpec{.storage = KvStorage::paged}; }
bool bf16(const FlashAttentionSpec& s) { return s == FlashAttentionSpec{}; }

TEST_CASE("splits of keys around whole tiles") {
  for (const std::int32_t keys : {1151, 1153, 1281}) check_splits({.q = {2}, .kv = {keys}, .q_heads = 1}, plain);
  check_splits({.q = {70}, .kv = {1400}, .q_heads = 1, .causal = true, .sinks = true}, plain);
}

TEST_CASE("splits of heads that share rows, within a window, and where scores lie far apart") {
  check_splits({.q = {9}, .kv = {1500}, .q_heads = 4, .causal = true, .left = 1300, .sinks = true}, plain);
  check_splits({.q = {40}, .kv = {1200}, .layout = FlashLayout::bhsd, .causal = true, .spread = 3.0f}, bf16);
}

/// Sequences of no keys, of fewer tiles than splits, and of no queries; lengths are those of the device.
TEST_CASE("splits of packed sequences of any length, on pages too") {
  FlashShape shape{.q = {3, 0, 2, 1, 5}, .kv = {1500, 700, 0, 1, 140}, .layout = FlashLayout::ragged, .causal = true};
  shape.sinks = true;
  check_splits(shape, plain);
  shape.by_counter = true;
  each_split_call(shape, bf16, [](const FlashAttentionEntry& entry, FlashCall& call) {
    CHECK(call.run(entry) == "");
    CHECK(call.counter() == 0);
  });
  shape.layout = FlashLayout::nhd, shape.by_counter = false;
  check_splits(shape, plain_pages);
}

TEST_CASE("a sequence beyond the capacity becomes NaN by splits too, and no row behind the last query is written") {
  FlashShape shape{.q = {4, 70, 3}, .kv = {1400, 90, 80}, .layout = FlashLayout::ragged, .causal = true};
  each_split_call(shape, bf16, [](const FlashAttentionEntry& entry, FlashCall& call) {
    call.p.kv_length = call.host.kv_length = 1390;
    CHECK(call.run(entry) == "");
  });
  each_split_call(shape, bf16, [](const FlashAttentionEntry& entry, FlashCall& call) {
    call.p.q_length = call.host.q_length = 66;
    CHECK(call.run(entry) == "");
  });
  each_split_call(shape, bf16, [](const FlashAttentionEntry& entry, FlashCall& call) {
    call.set_lengths({1, 20, 1}, {900, 60, 5});
    REQUIRE(call.run(entry) == "");
    const std::vector<std::byte> all = call.answer();
    const std::size_t row = std::size_t(call.host.q_heads) * 128 * 2, end = 77 * row;
    CHECK(std::all_of(all.begin() + 22 * row, all.begin() + end,
                      [](std::byte b) { return b == std::byte(unwritten_byte); }));
  });
}

TEST_CASE("a workspace that is too small, misaligned or not clear of tensors is refused") {
  each_split_call({.q = {2}, .kv = {1300}, .q_heads = 1}, bf16, [](const FlashAttentionEntry& entry, FlashCall& call) {
    const FlashAttentionProblem good = call.p;
    const auto refused = [&](StatusCode code, const auto& spoil) {
      FlashAttentionProblem p = good;
      spoil(p);
      CHECK(entry.launch(p, {}).code == code);
    };
    const std::size_t needed = flash_attention_workspace_size(good, entry.policy);
    refused(StatusCode::workspace_too_small, [&](auto& p) { p.workspace_bytes = needed - 1; });
    refused(StatusCode::misaligned, [](auto& p) { p.workspace = static_cast<std::byte*>(p.workspace) + 8; });
    refused(StatusCode::null_pointer, [](auto& p) { p.workspace = nullptr; });
    refused(StatusCode::bad_value, [](auto& p) { p.workspace_bytes = ~std::size_t{0}; });
    refused(StatusCode::bad_value, [](auto& p) { p.workspace = p.out; });
    FlashAttentionProblem invariant = good;
    invariant.batch_invariant = true;
    CHECK(flash_attention_workspace_size(invariant, entry.policy) == 0);
  });
}

}  // namespace
}  // namespace tilewave::test::splits
