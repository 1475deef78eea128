// SPDX-License-Identifier: MIT
// A launch of flash attention is captured in a graph and replayed at other lengths: lengths and starts are read from the
// device, and the grid depends on capacities alone.
#include "test/graph.hpp"
#include "test/ops/flash_attention/call.hpp"

namespace tilewave::test {
namespace {

struct Lengths {
  std::vector<std::int32_t> q, kv;
};

/// Captures a call of the shape's lengths by every entry that takes it, and replays it at each of `at`.
template <class Wanted>
void check_replays(const FlashShape& shape, const std::vector<Lengths>& at, const Wanted& wanted) {
  int ran = 0;
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (!wanted(entry->spec)) continue;
    FlashCall call(entry->spec, shape);
    if (!flash_attention_takes(entry->policy, call.p).ok()) continue;
    INFO(name_of(entry->spec) << " " << name_of(entry->policy));
    REQUIRE(call.run(*entry) == "");  // loads the kernel, which may not happen during a capture
    CHECK(replayed([&](hipStream_t stream) { return entry->launch(call.p, stream); }, at,
                   [&](const Lengths& now) { call.set_lengths(now.q, now.kv); },
                   [&](const Lengths&) { return call.wrong(); }) == "");
    ++ran;
  }
  CHECK(ran > 0);
}

TEST_CASE("bugclass 08: a captured ragged call is right at other lengths") {
  check_replays({.q = {200, 1, 130}, .kv = {300, 5, 260}, .layout = FlashLayout::ragged, .causal = true},
                {{{1, 200, 130}, {1, 300, 264}},
                 {{0, 0, 0}, {0, 0, 0}},
                 {{65, 64, 2}, {65, 300, 2}},
                 {{200, 1, 130}, {0, 9, 161}}},
                [](const FlashAttentionSpec& s) { return !s.paged(); });
}

TEST_CASE("bugclass 08: a captured call on pages is right at other lengths") {
  check_replays({.q = {70, 2, 9}, .kv = {300, 170, 200}, .layout = FlashLayout::nhd, .causal = true},
                {{{2, 70, 9}, {2, 170, 200}}, {{0, 1, 64}, {16, 1, 64}}, {{70, 2, 9}, {299, 17, 0}}},
                [](const FlashAttentionSpec& s) { return s.paged(); });
}

TEST_CASE("bugclass 08: a captured call with splits is right at other lengths") {
  check_replays({.q = {5, 2, 9}, .kv = {1400, 170, 200}, .layout = FlashLayout::nhd, .causal = true, .workspace = true},
                {{{2, 5, 9}, {2, 170, 200}}, {{0, 1, 9}, {16, 1, 64}}, {{5, 2, 9}, {1399, 17, 0}}},
                [](const FlashAttentionSpec& s) { return s.paged(); });
}

}  // namespace
}  // namespace tilewave::test
