// SPDX-License-Identifier: MIT
// A row of which each wave has one stretch of neighbouring columns, so that what is in the order of columns, such as a
// running sum, is in the order of waves, tiles, chunks and lanes.
#pragma once

#include "tilewave/tile/row.hpp"
#include "tilewave/tile/row_exchange.hpp"

namespace tilewave {

/// The policy of one wave's tile, as of a row of its own.
constexpr RowPolicy stretch_policy(const ArchFacts& facts, const RowPolicy& p) {
  RowPolicy tile = p;
  tile.lanes = facts.wave_lanes;
  tile.blocks = 1;
  return tile;
}

/// The same with one access of each lane.
constexpr RowPolicy single_policy(RowPolicy p) {
  p.chunks = 1;
  return p;
}

template <class B, DType X, RowPolicy P, class ExchangeOf = RowExchange<B, P>>
class RowStretch {
  static_assert(P.rows == 1 && P.span == 1,
                "waves have a stretch of one row each, without runs of neighbouring chunks");

 public:
  using Exchange = ExchangeOf;
  static constexpr int unit = P.vec / size_of(X), piece_columns = B::facts.wave_lanes * unit;
  using Packed = tilewave::Packed<X, unit>;
  /// A held row of several waves lies in shared memory, each wave's stretch where it alone looks: passes are loops
  /// then. In registers they would be unrolled, and code is read cold by every SM.
  static constexpr bool in_shared = P.held && Exchange::waves > 1;

 private:
  using Tile = Row<B, X, stretch_policy(B::facts, P)>;
  using Single = Row<B, X, single_policy(stretch_policy(B::facts, P))>;
  template <class Room>
  struct Pieces {
    Packed piece[Exchange::block_waves][P.chunks][Room::facts.wave_lanes];
    typename Room::Mbarrier landed[Exchange::block_waves];
  };
  struct Nothing {};

 public:
  using Shared = std::conditional_t<in_shared, Pieces<B>, Nothing>;

  /// The row at `data`; on its way if it is held: see arrive().
  TILEWAVE_DEVICE RowStretch(const Storage<X>* data, std::int32_t columns, Shared& shared)
      : RowStretch(data, columns, shared, Exchange::waves, Exchange::wave()) {}
  /// The stretch of this wave of so many, which may be in other blocks, too; not held.
  TILEWAVE_DEVICE RowStretch(const Storage<X>* data, std::int32_t columns, Shared& shared, int waves, int wave)
      : data_(data), shared_(shared) {
    at_.lane = B::lane_id();
    at_.active = true;
    columns_ = columns;
    stretch_ = align_up(ceil_div(columns, waves), piece_columns);
    first_ = B::uniform(wave * stretch_);
    end_ = min_of(columns, first_ + stretch_);
    if constexpr (in_shared) {
      wave_ = B::wave_id();
      // One copy a wave; of rows that this policy takes every access is whole.
      auto* const landed = &shared_.landed[wave_];
      if (at_.lane == 0) {
        B::mbarrier_init(landed, 1);
        B::mbarrier_ready();
      }
      B::wave_barrier();
      if (first_ < end_) {
        const std::uint32_t bytes = (end_ - first_) * size_of(X);
        B::mbarrier_expect(landed, bytes);
        if (at_.lane == 0) B::copy_bulk(&shared_.piece[wave_][0][0], data_ + first_, bytes, landed);
      }
    } else if constexpr (P.held) {
      load(held_, first_, end_);
    }
  }

  /// Before what follows is called: by the whole block.
  TILEWAVE_DEVICE void arrive() {
    if constexpr (in_shared) {
      if (first_ < end_) B::mbarrier_wait(&shared_.landed[wave_], 0);
      Packed nothing;
      TILEWAVE_UNROLL
      for (int w = 0; w < Packed::size; ++w) {
        nothing[w] = X == DType::bf16 ? 0xff80ff80u : X == DType::f16 ? 0xfc00fc00u : 0xff800000u;
      }
      TILEWAVE_ROLL
      for (int c = max_of(end_ - first_, 0) / piece_columns; c < pieces(); ++c) {
        if (first_ + Tile::column(at_.lane, c) >= end_) own(c) = nothing;
      }
    }
  }

  /// Calls f(packed, column) for every access of this lane, in the order of columns; `column` is that of the first
  /// value. Beyond the row's end values are -inf. The lanes of a wave call alike.
  template <class F>
  TILEWAVE_DEVICE void each(const F& f) {
    if constexpr (in_shared) {
      TILEWAVE_ROLL
      for (int c = 0; c < pieces(); ++c) {
        const Packed packed = own(c);  // once: f may look at it in several places
        f(packed, first_ + Tile::column(at_.lane, c));
      }
    } else if constexpr (P.held) {
      held_.template refresh<true>();
      each_of(held_, first_, f);
    } else {
      for (int from = first_; from < end_; from += Tile::block_columns) {
        Tile tile;
        load(tile, from, end_);
        each_of(tile, from, f);
      }
    }
  }

  /// Of another wave of the block, or any where the row is not held: an access of each lane, the `piece`-th of those of
  /// the stretch, and the column of its first value; -inf beyond the row's end. The row must not be in registers; of
  /// one in shared memory a barrier has passed since it arrived.
  struct Piece {
    Vec<float, unit> values;
    std::int32_t column;
  };
  TILEWAVE_DEVICE Piece piece_of(int wave, int piece) const {
    const int first = wave * stretch_ + piece * piece_columns;
    if constexpr (in_shared) {
      const Packed packed = shared_.piece[wave % Exchange::block_waves][piece][at_.lane];
      return {widen<B, X, unit>(packed), first + at_.lane * unit};
    } else {
      static_assert(!P.held, "a row that is held lies in registers or shared memory, and is not read again");
      Single single;
      load(single, first, min_of(columns_, (wave + 1) * stretch_));
      return {single.values(0), first + at_.lane * unit};
    }
  }
  TILEWAVE_DEVICE int pieces() const { return stretch_ / piece_columns; }

 private:
  TILEWAVE_DEVICE Packed& own(int chunk) { return shared_.piece[wave_][chunk][at_.lane]; }
  template <class T>
  TILEWAVE_DEVICE void load(T& tile, int from, int end) const {
    typename T::Place at{};
    at.lane = at_.lane;
    at.active = true;
    tile.load(data_, at, from, end);
    Vec<float, unit> nothing;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) nothing[e] = -__builtin_inff();
    tile.fill(at, from, end, nothing);
  }
  template <class F>
  TILEWAVE_DEVICE void each_of(const Tile& tile, int from, const F& f) const {
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      if (c > 0 && from + c * piece_columns >= end_) break;  // of the wave: nothing is left
      f(tile.pieces[c], from + Tile::column(at_.lane, c));
    }
  }

  const Storage<X>* data_;
  Shared& shared_;
  typename Tile::Place at_{};
  int columns_, stretch_, first_, end_, wave_ = 0;
  // Not beside shared_: while an object has an array, compilers do not know whose memory its pointers are of.
  std::conditional_t<P.held && !in_shared, Tile, Nothing> held_;
};

}  // namespace tilewave
