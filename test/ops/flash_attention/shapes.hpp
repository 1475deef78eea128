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
    shape.block_size = turn % 2 == 0 ? 16 : 48;
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

}  // namespace tilewave::test
