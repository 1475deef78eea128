// SPDX-License-Identifier: MIT
// The four waves that fetch for MlaDecodeSpecialised. Each brings one of the pairs of a tile. Wave 3 brings the tails
// and the boxes of q that stay, too.
#pragma once

#include "tilewave/ops/mla_decode/specialised/layout.hpp"
#include "tilewave/ops/mla_decode/tensor/copies.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, class L>
class MlaDecodeSpecialisedFetch : MlaDecodeCopies<B, S, L> {
  using Copies = MlaDecodeCopies<B, S, L>;
  using Copies::args_;
  using Copies::shared_;
  using typename Copies::Item;

 public:
  /// `wave`: 0 to 3 of those that fetch.
  TILEWAVE_DEVICE MlaDecodeSpecialisedFetch(const typename L::Args& args, typename L::Shared& shared, int wave)
      : Copies(args, shared), wave_(wave), mine_(!args.clustered() || B::cluster_rank() == wave / L::group_pairs) {}

  TILEWAVE_DEVICE void run(MlaDecodeWork<L>& work) {
    for (; work.more(); work.next()) {
      const Item item = work.item();
      std::int32_t rows = item.tiles > 0 ? Copies::segment_row(item, work.table(), item.begin) : 0;
      fetch_q_boxes(item);
      if (wave_ == 1) Copies::touch_output(item);
      TILEWAVE_ROLL
      for (std::int32_t tile = 0; tile < max_of(item.tiles, 1); ++tile) {
        const std::int32_t token = item.begin + tile * L::tokens;
        const auto at = place_.behind(wave_);
        if (wave_ == last_wave && L::any_last) {
          B::mbarrier_wait(&shared_.tail_free[place_.tail.slot], place_.tail.round ^ 1);
          fetch<1>(item, rows, L::last_box, shared_.tail[place_.tail.slot], &shared_.tail_full[place_.tail.slot]);
        }
        B::mbarrier_wait(&shared_.free[at.slot], at.round ^ 1);
        fetch<2>(item, rows, 2 * wave_, shared_.kv[at.slot], &shared_.full[at.slot]);
        place_.next_tile();
        if (tile + 1 < item.tiles) rows = Copies::segment_row(item, work.table(), token + L::tokens);
        if (wave_ == 2) {
          if (tile == 0) ask_first(item, work.table());
          ask(item, work.table(), token);
        }
      }
    }
    if (wave_ != last_wave) return;
    await_q();
    if (B::lane_id() == 0) shared_.item[item_].tiles = -1;
    B::mbarrier_arrive(&shared_.q_full);
  }

 private:
  static constexpr int last_wave = L::tile_pairs - 1;
  TILEWAVE_DEVICE void await_q() {
    B::mbarrier_wait(&shared_.q_free, q_parity_ ^ 1);
    q_parity_ ^= 1;
  }
  /// When q's boxes of the item before are free, nobody reads the item three before it.
  TILEWAVE_DEVICE void fetch_q_boxes(const Item& item) {
    const std::int32_t row = item.sequence * args_.q_sequence_rows + item.first_row;
    if (wave_ == last_wave) {
      await_q();
      if (B::lane_id() == 0) shared_.item[item_] = item;
      item_ = item_ == L::items - 1 ? 0 : item_ + 1;
      copy_q(row, L::q_boxes, L::q_kept, shared_.q, &shared_.q_full);
    } else {
      static_assert(L::q_pairs == last_wave, "the other waves bring q's pairs");
      const auto at = place_.behind(wave_);
      B::mbarrier_wait(&shared_.free[at.slot], at.round ^ 1);
      copy_q(row, 2 * wave_, 2, shared_.kv[at.slot], &shared_.full[at.slot]);
    }
    place_.pair.advance(L::q_pairs);
  }
  TILEWAVE_DEVICE void copy_q(std::int32_t row, int first, int count, Chunk* to, typename L::Mbarrier* full) {
    B::mbarrier_expect(full, count * L::box_bytes);
    if (!B::elected()) return;
    for (int box = 0; box < count; ++box)
      B::copy_tensor(to + box * L::box_size, args_.q, (first + box) * L::q_columns, row, 0, full);
  }

  /// Brings boxes of a tile, from box `first` of its rows on. In a cluster one of both blocks brings them, into both.
  /// Nothing comes to the places of an item without tiles.
  template <int boxes>
  TILEWAVE_DEVICE void fetch(const Item& item, std::int32_t segment_rows, int first, Chunk* to,
                             typename L::Mbarrier* full) {
    if (item.tiles == 0) return B::mbarrier_arrive(full);
    B::mbarrier_expect(full, boxes * L::box_bytes);
    if (!mine_) return;
    TILEWAVE_ROLL
    for (int token = 0, segment = 0; token < L::tokens; token += args_.box_rows, ++segment) {
      const std::int32_t row = B::uniform(B::shuffle(segment_rows, segment));
      if (!B::elected()) continue;
      TILEWAVE_UNROLL
      for (int box = 0; box < boxes; ++box) {
        Chunk* const at = to + box * L::box_size + token * L::box_chunks;
        const int column = (first + box) * L::box_columns;
        if (args_.clustered()) {
          B::copy_tensor(at, args_.kv, column, row, 0, full, 3u);  // into both blocks
        } else {
          B::copy_tensor(at, args_.kv, column, row, 0, full);
        }
      }
    }
  }
  /// Asks for rows of tiles that ask() is too late for, and for the row of the block table of the next sequence.
  TILEWAVE_DEVICE void ask_first(const Item& item, const std::int32_t* table) {
    for (int tile = 1; tile < Copies::ahead; ++tile) ask(item, table, item.begin + (tile - Copies::ahead) * L::tokens);
    const PagedAttentionArgs& a = args_.of.attention;
    if (B::lane_id() == 0 && item.sequence + 1 < a.batch) B::prefetch(table + a.table_row_stride);
  }
  /// Asks for rows of later tiles. Blocks of a cluster ask for half of each.
  TILEWAVE_DEVICE void ask(const Item& item, const std::int32_t* table, std::int32_t token) {
    constexpr int half = L::tokens / 2;
    if (args_.clustered()) return Copies::prefetch(item, table, token, B::cluster_rank() * half, half);
    for (int first = 0; first < L::tokens; first += half) Copies::prefetch(item, table, token, first, half);
  }

  int wave_, item_ = 0, q_parity_ = 0;
  bool mine_;
  typename L::Place place_;
};

}  // namespace tilewave
