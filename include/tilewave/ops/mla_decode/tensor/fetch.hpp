// SPDX-License-Identifier: MIT
// The four waves that fetch token by token: each has one half of one stage, and brings it whenever it is free. Wave 0
// brings q as well, and the waves of the second half the last box of their stage.
#pragma once

#include "tilewave/ops/mla_decode/tensor/copies.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, class L>
class MlaDecodeFetch : MlaDecodeCopies<B, S, L> {
  using Copies = MlaDecodeCopies<B, S, L>;
  using Copies::args_;
  using Copies::shared_;
  using typename Copies::Item;

 public:
  /// `wave`: 0 to 3 of those that fetch.
  TILEWAVE_DEVICE MlaDecodeFetch(const typename L::Args& args, typename L::Shared& shared, int wave)
      : Copies(args, shared), stage_(wave / 2), half_(wave % 2) {}

  TILEWAVE_DEVICE void run(const Item& item, const std::int32_t* table) {
    if (item.tiles == 0) return;
    if (stage_ == 0 && half_ == 0) Copies::fetch_q(item);
    if (stage_ == 1 && half_ == 1) Copies::touch_output(item);
    for (std::int32_t i = stage_; i < item.tiles; i += L::stages) {
      const std::int32_t token = item.begin + i * L::tokens;
      TILEWAVE_UNROLL
      for (int part = 0; part < L::parts; ++part) {
        B::mbarrier_wait(&shared_.free[stage_][half_][part], parity_ ^ 1);
        fetch<L::part_boxes>(item, table, token, half_ * L::half_boxes + part * L::part_boxes);
      }
      if (half_ == 1) {
        B::mbarrier_wait(&shared_.free[stage_][0][L::parts - 1], parity_ ^ 1);  // whose probabilities the last box had
        if constexpr (L::any_last) fetch<1>(item, table, token, L::last_box);
      }
      // A stage's other wave asks for the other half of the rows.
      Copies::prefetch(item, table, token, half_ * L::tokens / 2, L::tokens / 2);
      parity_ ^= 1;
    }
  }

 private:
  /// Brings `boxes` boxes of a tile from box `first` on.
  template <int boxes>
  TILEWAVE_DEVICE void fetch(const Item& item, const std::int32_t* table, std::int32_t token, int first) {
    gather<boxes>(LatentTokens<B, S>{args_.of, table, item.end - 1}, token, first * L::box_chunks,
                  shared_.kv[stage_] + first * L::box_size);
    B::shared_written();
    for (int box = 0; box < boxes; ++box) B::mbarrier_arrive(&shared_.full[stage_][first + box]);
  }

  /// Lanes that follow each other have neighbouring units of a token.
  template <int boxes>
  TILEWAVE_DEVICE void gather(const LatentTokens<B, S>& tokens, std::int32_t first_token, int first_unit, Chunk* to) {
    constexpr int units = boxes * L::box_chunks, at_once = L::lanes / units;  // tokens
    constexpr int unrolled = 8;
    const int unit = B::lane_id() % units, box = unit / L::box_chunks;
    TILEWAVE_ROLL
    for (int first = 0; first < L::tokens; first += unrolled * at_once) {
      TILEWAVE_UNROLL
      for (int i = 0; i < unrolled; ++i) {
        const int row = first + i * at_once + B::lane_id() / units;
        const auto token = tokens.token(first_token + row);
        B::copy_lane(to + box * L::box_size + L::chunk_of(row, unit % L::box_chunks),
                     reinterpret_cast<const Chunk*>(token.row) + first_unit + unit);
      }
      B::lane_copies_end();
      B::template lane_copies_wait<3>();
    }
    B::template lane_copies_wait<0>();
  }

  int stage_, half_, parity_ = 0;
};

}  // namespace tilewave
