// SPDX-License-Identifier: MIT
// The four waves that fetch for MlaDecodeSpecialised from a cache of fp8. The copy engine brings codes to shared
// memory. Each wave widens sixteen rows of every box to f16, into the rings. In a cluster each block widens half of
// the boxes, and copies them to the other.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/specialised/layout.hpp"
#include "tilewave/ops/mla_decode/tensor/copies.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, class L>
class MlaDecodeSpecialisedWiden : MlaDecodeCopies<B, S, L> {
  using Copies = MlaDecodeCopies<B, S, L>;
  using Copies::args_;
  using Copies::shared_;
  using typename Copies::Item;

 public:
  /// `wave`: 0 to 3 of those that fetch.
  TILEWAVE_DEVICE MlaDecodeSpecialisedWiden(const typename L::Args& args, typename L::Shared& shared, int wave)
      : Copies(args, shared), wave_(wave) {
    // Lanes that access shared memory together have four units of two rows whose numbers differ in bits 0 and 2: units
    // of codes, and units of f16, then lie in different banks.
    const int lane = B::lane_id(), row = lane / 8 ^ (lane / 4 % 2 * 5);
    from_ = L::chunk_of(16 * wave + row, lane % 4);
    to_ = L::chunk_of(16 * wave + row, 2 * (lane % 4));
  }

  TILEWAVE_DEVICE void run(MlaDecodeWork<L>& work) {
    for (; work.more(); work.next()) {
      const Item item = work.item();
      fetch_q_boxes(item);
      if (wave_ == 1) Copies::touch_output(item);
      const int ahead = args_.clustered() ? 2 : 1;
      look_up(item, work.table(), 0);
      copy_tail(item, 0, rows_);
      TILEWAVE_ROLL
      for (int tile = 0; tile < ahead; ++tile) {
        if (tile > 0) look_up(item, work.table(), tile);
        for (int half = 0; half < 2; ++half) copy_codes(item, half, tile);
      }
      TILEWAVE_ROLL
      for (std::int32_t tile = 0; tile < item.tiles; ++tile) {
        std::int32_t tail_rows = rows_;
        look_up(item, work.table(), tile + ahead);
        if (ahead == 1) tail_rows = rows_;
        if (wave_ == 3) ask(item, work.table(), item.begin + tile * L::tokens);
        const std::int32_t there = item.end - item.begin - tile * L::tokens;  // tokens of the tile
        widen_pairs(0, tile, there);
        copy_codes(item, 0, tile + ahead);
        widen_tail();
        copy_tail(item, tile + 1, tail_rows);
        widen_pairs(1, tile, there);
        copy_codes(item, 1, tile + ahead);
        place_.next_tile();
      }
      if (item.tiles == 0) fill_nothing();
    }
    if (wave_ != last_wave) return;
    await_q();
    if (B::lane_id() == 0) shared_.item[item_].tiles = -1;
    B::mbarrier_arrive(&shared_.q_full);
  }

 private:
  static constexpr int last_wave = L::tile_pairs - 1, tail = L::tile_pairs;
  TILEWAVE_DEVICE void await_q() {
    B::mbarrier_wait(&shared_.q_free, q_parity_ ^ 1);
    q_parity_ ^= 1;
  }
  TILEWAVE_DEVICE void fetch_q_boxes(const Item& item) {
    const std::int32_t row = item.sequence * args_.q_sequence_rows + item.first_row;
    constexpr int boxes = ceil_div(S.head_size, L::q_columns);
    TILEWAVE_UNROLL
    for (int pair = 0; pair < L::q_pairs; ++pair) {
      const auto at = place_.behind(pair);
      B::mbarrier_wait(&shared_.free[at.slot], at.round ^ 1);
      if (wave_ == pair) {
        copy_q(row, 2 * pair, min_of(2, boxes - 2 * pair), shared_.kv[at.slot], &shared_.full[at.slot]);
      } else {
        B::mbarrier_arrive(&shared_.full[at.slot]);
      }
    }
    if (wave_ == last_wave) {
      await_q();
      if (B::lane_id() == 0) shared_.item[item_] = item;
      item_ = item_ == L::items - 1 ? 0 : item_ + 1;
      if constexpr (boxes > L::q_boxes) {
        copy_q(row, L::q_boxes, L::q_kept, shared_.q, &shared_.q_full);
      } else {
        B::mbarrier_arrive(&shared_.q_full);
      }
    }
    place_.pair.advance(L::q_pairs);
  }
  TILEWAVE_DEVICE void copy_q(std::int32_t row, int first, int count, Chunk* to, typename L::Mbarrier* full) {
    B::mbarrier_expect(full, count * L::box_bytes);
    if (!B::elected()) return;
    for (int box = 0; box < count; ++box)
      B::copy_tensor(to + box * L::box_size, args_.q, (first + box) * L::q_columns, row, 0, full);
  }

  TILEWAVE_DEVICE void look_up(const Item& item, const std::int32_t* table, std::int32_t tile) {
    if (tile < item.tiles) rows_ = Copies::segment_row(item, table, item.begin + tile * L::tokens);
  }
  /// Which of a block's places a pair of a tile has, the first or the second of a group's: in a cluster two tiles have
  /// places, else one.
  TILEWAVE_DEVICE int code_place(int half, std::int32_t tile) const { return 2 * (tile & 1) + half; }

  /// Begins the copies of codes of the first or second pairs of a tile, if there is such a tile. Each wave has a place
  /// of its own, and one has the tail's, too.
  TILEWAVE_DEVICE void copy_codes(const Item& item, int half, std::int32_t tile) {
    if (args_.clustered()) {
      if (wave_ == code_place(half, tile))
        copy_box(item, wave_, L::group_pairs * B::cluster_rank() + half, tile, rows_);
    } else if (wave_ % L::group_pairs == half) {
      copy_box(item, wave_, wave_, tile, rows_);
    }
  }
  TILEWAVE_DEVICE void copy_tail(const Item& item, std::int32_t tile, std::int32_t rows) {
    if (wave_ == 2) copy_box(item, tail, tail, tile, rows);
  }
  /// All waves must have read the codes that were there. `rows` says where the tile's segments lie.
  TILEWAVE_DEVICE void copy_box(const Item& item, int place, int box, std::int32_t tile, std::int32_t rows) {
    if (tile >= item.tiles) return;
    B::mbarrier_wait(&shared_.codes.free[place], static_cast<int>(~copied_ >> place & 1));
    copied_ ^= 1u << place;
    B::mbarrier_expect(&shared_.codes.full[place], L::box_bytes);
    TILEWAVE_ROLL
    for (int token = 0, segment = 0; token < L::tokens; token += args_.box_rows, ++segment) {
      const std::int32_t row = B::uniform(B::shuffle(rows, segment));
      if (B::elected())
        B::copy_tensor(shared_.codes.box[place] + token * L::box_chunks, args_.kv, 128 * box, row, 0,
                       &shared_.codes.full[place]);
    }
  }

  /// Widens this wave's rows of the first or second pairs of a tile, whose places are free first or last: those of both
  /// value groups, or in a cluster that of the group with the block's rank. The other block has the other one.
  TILEWAVE_DEVICE void widen_pairs(int half, std::int32_t tile, std::int32_t there) {
    if (args_.clustered()) {
      widen_pair(code_place(half, tile), L::group_pairs * B::cluster_rank() + half, there);
      await_pair(L::group_pairs * (B::cluster_rank() ^ 1) + half);
    } else {
      TILEWAVE_ROLL
      for (int pair = half; pair < L::tile_pairs; pair += L::group_pairs) widen_pair(pair, pair, there);
    }
  }
  TILEWAVE_DEVICE void await_codes(int place) {
    B::mbarrier_wait(&shared_.codes.full[place], static_cast<int>(read_ >> place & 1));
    read_ ^= 1u << place;
  }
  TILEWAVE_DEVICE void widen_pair(int place, int pair, std::int32_t there) {
    await_codes(place);
    const auto at = place_.behind(pair);
    B::mbarrier_wait(&shared_.free[at.slot], at.round ^ 1);
    widen_rows<2>(shared_.codes.box[place], shared_.kv[at.slot]);
    if (there < L::tokens) clear_behind(there, shared_.kv[at.slot]);
    pass_on(place, shared_.full[at.slot]);
    if (args_.clustered()) send(shared_.kv[at.slot], shared_.full[at.slot]);
  }
  /// Each block widens the tail itself: probabilities come to its place soon.
  TILEWAVE_DEVICE void widen_tail() {
    await_codes(tail);
    B::mbarrier_wait(&shared_.tail_free[place_.tail.slot], place_.tail.round ^ 1);
    widen_rows<1>(shared_.codes.box[tail], shared_.tail[place_.tail.slot]);
    pass_on(tail, shared_.tail_full[place_.tail.slot]);
  }
  TILEWAVE_DEVICE void pass_on(int place, typename L::Mbarrier& full) {
    B::shared_written();
    B::mbarrier_arrive(&full);
    B::mbarrier_arrive(&shared_.codes.free[place]);
  }
  static constexpr int sent_rows = 16 * L::box_chunks, sent_bytes = sent_rows * int{sizeof(Chunk)};  // of a box
  /// Copies this wave's rows of a pair to the other block of the cluster. Its place is free in both blocks at once.
  TILEWAVE_DEVICE void send(Chunk* from, typename L::Mbarrier& full) {
    if (!B::elected()) return;
    TILEWAVE_UNROLL
    for (int box = 0; box < 2; ++box)
      B::copy_to_block(from + wave_ * sent_rows + box * L::box_size, sent_bytes, &full, B::cluster_rank() ^ 1);
  }
  /// A pair that the other block sends is full when all four waves' rows have come.
  TILEWAVE_DEVICE void await_pair(int pair) {
    const auto at = place_.behind(pair);
    B::mbarrier_wait(&shared_.free[at.slot], at.round ^ 1);
    B::mbarrier_expect(&shared_.full[at.slot], 2 * sent_bytes);
  }
  /// Clears this wave's rows of a pair from token `first` of the tile on: they may be NaN.
  TILEWAVE_DEVICE void clear_behind(std::int32_t first, Chunk* to) const {
    TILEWAVE_ROLL
    for (int eight = 0; eight < 2; ++eight) {
      if (from_ / L::box_chunks + 8 * eight < first) continue;
      for (int box = 0; box < 2; ++box) {
        const int at = box * L::box_size + eight * 8 * L::box_chunks;
        to[to_ + at] = to[(to_ ^ 1) + at] = Chunk{};
      }
    }
  }
  /// Sixteen codes become two units. A box of f16 has half of the columns of a box of codes.
  template <int halves>
  TILEWAVE_DEVICE void widen_rows(const Chunk* from, Chunk* to) const {
    const Chunk *const low = from + from_, *const high = from + (from_ ^ 4);
    Chunk *const even = to + to_, *const odd = to + (to_ ^ 1);
    constexpr int eight_rows = 8 * L::box_chunks;
    TILEWAVE_UNROLL
    for (int eight = 0; eight < 2; ++eight) {
      Chunk codes[halves];
      codes[0] = low[eight * eight_rows];
      if constexpr (halves == 2) codes[1] = high[eight * eight_rows];
      TILEWAVE_UNROLL
      for (int half = 0; half < halves; ++half) {
        const int at = half * L::box_size + eight * eight_rows;
        even[at] = widened(codes[half][0], codes[half][1]);
        odd[at] = widened(codes[half][2], codes[half][3]);
      }
    }
  }
  TILEWAVE_DEVICE static Chunk widened(std::uint32_t low, std::uint32_t high) {
    const auto a = B::widen_fp8_to_f16(low), b = B::widen_fp8_to_f16(high);
    return {{a[0], a[1], b[0], b[1]}};
  }
  /// Nothing comes to the places of an item without tiles.
  TILEWAVE_DEVICE void fill_nothing() {
    TILEWAVE_UNROLL
    for (int n = 0; n < L::tile_pairs; ++n) {
      const auto slot = place_.behind(n);
      B::mbarrier_wait(&shared_.free[slot.slot], slot.round ^ 1);
      B::mbarrier_arrive(&shared_.full[slot.slot]);
    }
    B::mbarrier_wait(&shared_.tail_free[place_.tail.slot], place_.tail.round ^ 1);
    B::mbarrier_arrive(&shared_.tail_full[place_.tail.slot]);
    place_.next_tile();
  }

  /// Asks for rows of later tiles. Row blocks that share rows ask for half of each.
  TILEWAVE_DEVICE void ask(const Item& item, const std::int32_t* table, std::int32_t token) {
    constexpr int half = L::tokens / 2;
    Copies::prefetch(item, table, token, item.first_row / L::rows % 2 * half, half);
  }

  int wave_, item_ = 0, q_parity_ = 0;
  std::uint32_t copied_ = 0, read_ = 0;  // parities of the boxes of codes that this wave brings, and of all places
  int from_, to_;                        // of this lane
  std::int32_t rows_ = 0;                // where a segment of the tile lies whose pairs are to come
  typename L::Place place_;
};

}  // namespace tilewave
