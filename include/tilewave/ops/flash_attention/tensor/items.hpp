// SPDX-License-Identifier: MIT
// Items on their way from the wave that finds them, through shared memory, to all waves that work on them.
#pragma once

#include "tilewave/ops/flash_attention/tensor/work.hpp"

namespace tilewave {

/// A wave's place in the items of its block.
template <class B, class Shared>
class FlashAttentionItems {
 public:
  using Item = std::remove_extent_t<decltype(Shared::items)>;
  TILEWAVE_DEVICE explicit FlashAttentionItems(Shared& shared) : shared_(shared) {}

  /// Finds the next item whose rows see keys and tells it to the other waves, and after the last one that there are no
  /// more. Returns whether there is one. One wave does this for a block, a little ahead of the others.
  template <class Work>
  TILEWAVE_DEVICE bool find(Work& work, Item& item) {
    const bool found = work.next_with_keys(item);
    if (!found) item.first_tile = item.end_tile = 0;
    shared_.item_ring.wait_free(slot_);
    if (B::lane_id() == 0) shared_.items[slot_.slot] = item;
    B::mbarrier_arrive(&shared_.item_ring.full[slot_.slot]);
    slot_.advance();
    return found;
  }
  /// Waits for what the finding wave told. Returns whether it is an item.
  TILEWAVE_DEVICE bool await() {
    shared_.item_ring.wait_full(slot_);
    return shared_.items[slot_.slot].any_keys();
  }
  /// Takes what has been awaited.
  TILEWAVE_DEVICE void take_awaited(Item& item) {
    item = shared_.items[slot_.slot];
    shared_.item_ring.release(slot_.slot);
    slot_.advance();
  }
  /// Takes what the finding wave told. Returns whether it is an item.
  TILEWAVE_DEVICE bool take(Item& item) {
    shared_.item_ring.wait_full(slot_);
    take_awaited(item);
    return item.any_keys();
  }

 private:
  Shared& shared_;
  typename Shared::ItemSlot slot_;
};

}  // namespace tilewave
