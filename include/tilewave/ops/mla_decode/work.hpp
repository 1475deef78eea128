// SPDX-License-Identifier: MIT
// The work items of a block, one after the other, as paged attention deals them out.
//
// With the balanced schedule, neighbouring blocks have the row blocks of a sequence and walk the same tokens side by
// side, so that the cache is read from memory once. With the even schedule a block has one split of a row block.
#pragma once

#include "tilewave/ops/mla_decode/args.hpp"
#include "tilewave/ops/paged_attention/work_queue.hpp"

namespace tilewave {

/// What PagedAttentionWorkQueue asks of a kernel, or of its layout: all waves of a block have the same item.
template <MlaDecodePolicy P>
struct MlaDecodeQueued {
  static constexpr MlaDecodePolicy policy = P;
  static constexpr int token_waves = 1, wave_tokens = P.tokens, block_tokens = P.tokens, block_rows = P.rows;
  static constexpr int row_tiles = P.rows / 16, atom_rows = 16;
};

/// L is a kernel, or its layout.
template <class L>
class MlaDecodeWork {
  using B = typename L::Room;
  static constexpr bool balanced = L::policy.balanced();

 public:
  TILEWAVE_DEVICE explicit MlaDecodeWork(const PagedAttentionArgs& a)
      : queue_(a, balanced ? a.row_blocks.quotient(B::block_id()) : B::block_id(),
               balanced ? 1 : std::int32_t{a.row_blocks.divisor}),
        first_row_(balanced ? a.row_blocks.remainder(B::block_id()) * L::block_rows : 0),
        one_split_(a.splits.divisor == 1) {
    queue_.start();
  }

  TILEWAVE_DEVICE bool more() const { return queue_.more(); }
  TILEWAVE_DEVICE void next() { queue_.next(); }
  TILEWAVE_DEVICE const std::int32_t* table() const { return queue_.table(); }
  TILEWAVE_DEVICE PagedAttentionWorkItem item() const {
    PagedAttentionWorkItem item = queue_.item(0);
    item.first_row += first_row_;
    if constexpr (!balanced) item.slot = one_split_ ? -1 : queue_.even_split();
    return item;
  }

 private:
  PagedAttentionWorkQueue<L> queue_;
  std::int32_t first_row_;
  bool one_split_;
};

}  // namespace tilewave
