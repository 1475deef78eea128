// SPDX-License-Identifier: MIT
// Shapes that every spec can run, in a layout that it takes.
#pragma once

#include "test/ops/flash_attention/call.hpp"

namespace tilewave::test {

/// Returns the layouts that K and V of a spec may have.
inline std::vector<FlashLayout> layouts_of(const FlashAttentionSpec& s) {
  if (!s.paged()) return {FlashLayout::bshd, FlashLayout::ragged};
  if (s.values == ValueLayout::dim_major) return {FlashLayout::plain, FlashLayout::shuffled};
  return {FlashLayout::nhd, FlashLayout::hnd};
}

/// Runs a spec's entry on unlike sequences in each of its layouts: causal with sinks, a window, and all keys.
inline void check_spec(const FlashAttentionEntry& entry) {
  int turn = 0;
  for (const FlashLayout layout : layouts_of(entry.spec)) {
    FlashShape shape{.q = {3, 0, 37, 1}, .kv = {41, 9, 70, 0}, .q_heads = 4, .kv_heads = 2, .layout = layout};
    shape.block_size = turn % 2 == 0 ? 16 : 48, shape.scale_gap = turn;
    shape.causal = turn == 0, shape.sinks = turn == 0;
    if (turn == 1) shape.left = 21, shape.right = 6;
    ++turn;
    FlashCall call(entry.spec, shape);
    if (!flash_attention_takes(entry.policy, call.p).ok()) continue;
    INFO(name_of(entry.arch) << " " << name_of(entry.spec) << " " << name_of(entry.policy) << ", layout "
                             << static_cast<int>(layout));
    CHECK(call.run(entry) == "");
  }
}

/// Runs an entry on values of one sign. Scores of the first head are about alike. Those of the second rise where a row
/// has seen three keys of five, from the last on, so that its sums of values so far are multiplied by less than a
/// sixteenth.
inline void check_values_of_one_sign(const FlashAttentionEntry& entry, std::int32_t keys) {
  FlashShape shape{.q = {1}, .kv = {keys}, .lse = false};
  const float step = 64.0f / entry.spec.head_size;
  shape.q_of = [](auto, auto, int head, int d) { return head == 0 ? 0.5f * (d % 3 - 1) : 1.0f; };
  shape.k_of = [=](auto, std::int64_t i, auto, int d) {
    return (i < keys / 5 * 2 ? step : 0.0f) + 0.25f * drawn('k', static_cast<int>(i), d);
  };
  shape.v_of = [](auto, auto, auto, int d) { return d % 2 == 0 ? 1.0f : -3.0f; };
  FlashCall call(entry.spec, shape);
  REQUIRE(entry.launch(call.p, {}).ok());
  INFO(name_of(entry.spec) << " " << name_of(entry.policy) << ", " << keys << " keys");
  const std::vector<std::byte> found = call.answer();
  const int columns = entry.spec.value_size;
  for (int head = 0; head < 2; ++head) {
    const std::vector<double> wanted = reference::flash_attention_row(call.host, 0, 0, head).out;
    for (const int d : {0, 1, columns / 2, columns - 1}) {
      CHECK(reference::element(entry.spec.out, found.data(), head * columns + d) == Approx(wanted[d]).epsilon(0.04));
    }
  }
}

}  // namespace tilewave::test
