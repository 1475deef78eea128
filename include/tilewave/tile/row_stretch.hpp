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

template <class B, DType X, RowPolicy P>
class RowStretch {
  static_assert(P.rows == 1 && P.span == 1);

 public:
  using Exchange = RowExchange<B, P>;
  static constexpr int unit = P.vec / size_of(X), piece_columns = B::facts.wave_lanes * unit;
  /// A held row of several waves lies in shared memory, a lane's part where it alone looks: passes are loops then. In
  /// registers they would be unrolled, and code is read cold by every SM.
  static constexpr bool in_shared = P.held && Exchange::waves > 1;

 private:
  using Tile = Row<B, X, stretch_policy(B::facts, P)>;
  struct Pieces {
    typename Tile::Piece piece[P.chunks][P.lanes];
  };
  using Single = Row<B, X, single_policy(stretch_policy(B::facts, P))>;
  struct Nothing {};

 public:
  using Shared = std::conditional_t<in_shared, Pieces, Nothing>;

  /// The row at `data`; loaded here if it is held.
  TILEWAVE_DEVICE RowStretch(const Storage<X>* data, std::int32_t columns, Shared& shared)
      : data_(data), shared_(shared) {
    at_.lane = B::lane_id();
    at_.active = true;
    columns_ = columns;
    stretch_ = align_up(ceil_div(columns, Exchange::waves), piece_columns);
    first_ = B::uniform(Exchange::wave() * stretch_);
    end_ = min_of(columns, first_ + stretch_);
    if constexpr (in_shared) {
      Tile tile;
      tile.load(data_, at_, first_, end_);
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) own(c) = tile.pieces[c];
      TILEWAVE_ROLL
      for (int c = 0; c < P.chunks; ++c) {
        const int left = end_ - first_ - Tile::column(at_.lane, c);
        if (left < unit) own(c) = filled(own(c), left);
      }
      if constexpr (P.blocks > 1) B::barrier();  // for piece_of: mailboxes order no other memory
    } else if constexpr (P.held) {
      load(held_, first_, end_);
    }
  }

  /// Calls f(values, column) for every access of this lane, in the order of columns; `column` is that of the first
  /// value. Beyond the row's end values are -inf. The lanes of a wave call alike.
  template <class F>
  TILEWAVE_DEVICE void each(const F& f) {
    if constexpr (in_shared) {
      TILEWAVE_ROLL
      for (int c = 0; c < P.chunks; ++c) f(widen<B, X, unit>(own(c)), first_ + Tile::column(at_.lane, c));
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

  /// Of another wave of the block, or any where the row is not held: an access of each lane, the `piece`-th of the
  /// stretch, and the column of its first value; -inf where there is none. The row must not be in registers.
  struct Piece {
    Vec<float, unit> values;
    std::int32_t column;
  };
  TILEWAVE_DEVICE Piece piece_of(int wave, int piece) const {
    const int first = wave * stretch_ + piece * piece_columns;
    const int end = min_of(columns_, (wave + 1) * stretch_);
    Vec<float, unit> values;
    if constexpr (in_shared) {
      const int lane = wave % Exchange::block_waves * B::facts.wave_lanes + at_.lane;
      values = widen<B, X, unit>(shared_.piece[min_of(piece, P.chunks - 1)][lane]);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) values[e] = piece < P.chunks ? values[e] : -__builtin_inff();
    } else {
      static_assert(!P.held);
      Single single;
      load(single, first, end);
      values = single.values(0);
    }
    return {values, first + at_.lane * unit};
  }
  TILEWAVE_DEVICE int pieces() const { return stretch_ / piece_columns; }

 private:
  TILEWAVE_DEVICE typename Tile::Piece& own(int chunk) { return shared_.piece[chunk][B::block_lane_id()]; }
  /// -inf from element `left` on.
  TILEWAVE_DEVICE static typename Tile::Piece filled(const typename Tile::Piece& piece, int left) {
    Vec<float, unit> v = widen<B, X, unit>(piece);
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) v[e] = e < left ? v[e] : -__builtin_inff();
    return narrow<B, X, unit>(v);
  }
  template <class T>
  TILEWAVE_DEVICE void load(T& tile, int from, int end) const {
    tile.load(data_, typename T::Place{.lane = at_.lane, .active = true}, from, end);
    Vec<float, unit> nothing;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) nothing[e] = -__builtin_inff();
    tile.fill(typename T::Place{.lane = at_.lane, .active = true}, from, end, nothing);
  }
  template <class F>
  TILEWAVE_DEVICE void each_of(const Tile& tile, int from, const F& f) const {
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) f(tile.values(c), from + Tile::column(at_.lane, c));
  }

  const Storage<X>* data_;
  Shared& shared_;
  typename Tile::Place at_{};
  int columns_, stretch_, first_, end_;
  // Not beside shared_: while an object has an array, compilers do not know whose memory its pointers are of.
  std::conditional_t<P.held && !in_shared, Tile, Nothing> held_;
};

}  // namespace tilewave
