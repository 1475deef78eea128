// SPDX-License-Identifier: MIT
// The wave that brings tiles of codes for MlaDecodeCoded.
#pragma once

#include "tilewave/ops/mla_decode/coded/layout.hpp"
#include "tilewave/ops/mla_decode/tensor/copies.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, class L>
class MlaDecodeCodedFetch : MlaDecodeCopies<B, S, L> {
  using Copies = MlaDecodeCopies<B, S, L>;
  using Copies::args_;
  using Copies::shared_;
  using typename Copies::Item;

 public:
  /// `wave`: 0 to 3 of those that fetch, of which the first does.
  TILEWAVE_DEVICE MlaDecodeCodedFetch(const typename L::Args& args, typename L::Shared& shared, int wave)
      : Copies(args, shared), wave_(wave) {}

  TILEWAVE_DEVICE void run(const Item& item, const std::int32_t* table) {
    if (item.tiles == 0) return;
    if (wave_ == 1) Copies::touch_output(item);
    if (wave_ != 0) return;
    std::int32_t rows = Copies::segment_row(item, table, item.begin);
    TILEWAVE_ROLL
    for (std::int32_t tile = 0; tile < item.tiles; ++tile) {
      const std::int32_t now = rows;
      if (tile + 1 < item.tiles) rows = Copies::segment_row(item, table, item.begin + (tile + 1) * L::tokens);
      B::mbarrier_wait(&shared_.free[place_.slot], place_.round ^ 1);
      fetch(now, shared_.codes[place_.slot], &shared_.full[place_.slot]);
      place_.advance();
      // Row blocks that share rows ask for half of a later tile each.
      constexpr int half = L::tokens / 2;
      Copies::prefetch(item, table, item.begin + tile * L::tokens, item.first_row / L::rows % 2 * half, half);
    }
  }

 private:
  TILEWAVE_DEVICE void fetch(std::int32_t rows, Chunk* to, typename L::Mbarrier* full) {
    B::mbarrier_expect(full, L::code_boxes * L::box_bytes);
    TILEWAVE_ROLL
    for (int token = 0, segment = 0; token < L::tokens; token += args_.box_rows, ++segment) {
      const std::int32_t row = B::uniform(B::shuffle(rows, segment));
      if (!B::elected()) continue;
      TILEWAVE_UNROLL
      for (int box = 0; box < L::code_boxes; ++box)
        B::copy_tensor(to + box * L::box_size + token * L::box_chunks, args_.kv, 128 * box, row, 0, full);
    }
  }

  int wave_;
  RingSlot<L::stages> place_;
};

}  // namespace tilewave
