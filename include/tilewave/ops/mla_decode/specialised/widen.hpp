// SPDX-License-Identifier: MIT
// The four waves that fetch for MlaDecodeSpecialised from a cache of fp8. The copy engine brings codes to shared
// memory. Each wave widens sixteen rows of every box to f16, into the rings.
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
      look_up(item, work.table(), 0);
      for (int box = 0; box < L::code_boxes; ++box) copy_codes(item, box, 0);
      TILEWAVE_ROLL
      for (std::int32_t tile = 0; tile < item.tiles; ++tile) {
        look_up(item, work.table(), tile + 1);
        if (wave_ == 3) ask(item, work.table(), item.begin + tile * L::tokens);
        widen_boxes<0, 2>();
        copy_codes(item, 0, tile + 1);
        copy_codes(item, 2, tile + 1);
        widen_boxes<tail>();
        copy_codes(item, tail, tile + 1);
        widen_boxes<1, 3>();
        copy_codes(item, 1, tile + 1);
        copy_codes(item, 3, tile + 1);
        codes_parity_ ^= 1;
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
    if (tile < item.tiles) segment_rows_ = Copies::segment_row(item, table, item.begin + tile * L::tokens);
  }
  /// Begins the copies of a box of codes of a tile, if there is such a tile. Each wave has a box of its own, and one
  /// has the tail's, too. All waves must have read the codes that were there.
  TILEWAVE_DEVICE void copy_codes(const Item& item, int box, std::int32_t tile) {
    if (wave_ != (box == tail ? 2 : box) || tile >= item.tiles) return;
    B::mbarrier_wait(&shared_.codes.free[box], copied_parity(box) ^ 1);
    copied_ ^= box == tail ? 2u : 1u;
    B::mbarrier_expect(&shared_.codes.full[box], L::box_bytes);
    TILEWAVE_ROLL
    for (int token = 0, segment = 0; token < L::tokens; token += args_.box_rows, ++segment) {
      const std::int32_t row = B::uniform(B::shuffle(segment_rows_, segment));
      if (B::elected())
        B::copy_tensor(shared_.codes.box[box] + token * L::box_chunks, args_.kv, 128 * box, row, 0,
                       &shared_.codes.full[box]);
    }
  }
  TILEWAVE_DEVICE int copied_parity(int box) const { return static_cast<int>(copied_ >> (box == tail ? 1 : 0) & 1); }

  /// Widens this wave's rows of boxes of codes. Pairs whose places are free first come first, and scores take them in
  /// this order.
  template <int... boxes>
  TILEWAVE_DEVICE void widen_boxes() {
    (widen_box<boxes>(), ...);
    B::shared_written();
    (pass_on<boxes>(), ...);
  }
  template <int box>
  TILEWAVE_DEVICE void widen_box() {
    B::mbarrier_wait(&shared_.codes.full[box], codes_parity_);
    if constexpr (box == tail) {
      B::mbarrier_wait(&shared_.tail_free[place_.tail.slot], place_.tail.round ^ 1);
      widen_rows<1>(shared_.codes.box[box], shared_.tail[place_.tail.slot]);
    } else {
      const auto slot = place_.behind(box);
      B::mbarrier_wait(&shared_.free[slot.slot], slot.round ^ 1);
      widen_rows<2>(shared_.codes.box[box], shared_.kv[slot.slot]);
    }
  }
  template <int box>
  TILEWAVE_DEVICE void pass_on() {
    B::mbarrier_arrive(box == tail ? &shared_.tail_full[place_.tail.slot] : &shared_.full[place_.behind(box % 4).slot]);
    B::mbarrier_arrive(&shared_.codes.free[box]);
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

  int wave_, item_ = 0, q_parity_ = 0, codes_parity_ = 0;
  std::uint32_t copied_ = 0;  // parities of the boxes of codes that this wave brings
  int from_, to_;             // of this lane
  std::int32_t segment_rows_ = 0;
  typename L::Place place_;
};

}  // namespace tilewave
