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

template <class B, DType X, RowPolicy P>
class RowStretch {
  static_assert(P.rows == 1 && P.span == 1);

 public:
  using Exchange = RowExchange<B, P>;
  static constexpr int unit = P.vec / size_of(X);
  /// A held row of several waves lies in shared memory, a lane's part where it alone looks: passes are loops then. In
  /// registers they would be unrolled, and code is read cold by every SM.
  static constexpr bool in_shared = P.held && Exchange::waves > 1;

 private:
  using Tile = Row<B, X, stretch_policy(B::facts, P)>;
  struct Pieces {
    typename Tile::Piece piece[P.chunks][P.lanes];
  };
  struct Nothing {};

 public:
  using Shared = std::conditional_t<in_shared, Pieces, Nothing>;

  /// The row at `data`; loaded here if it is held.
  TILEWAVE_DEVICE RowStretch(const Storage<X>* data, std::int32_t columns, Shared& shared)
      : data_(data), shared_(shared) {
    constexpr int granule = B::facts.wave_lanes * unit;
    const int stretch = align_up(ceil_div(columns, Exchange::waves), granule);
    at_.lane = B::lane_id();
    at_.active = true;
    first_ = B::uniform(Exchange::wave() * stretch);
    end_ = min_of(columns, first_ + stretch);
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
    } else if constexpr (P.held) {
      load(held_, first_);
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
        load(tile, from);
        each_of(tile, from, f);
      }
    }
  }

 private:
  TILEWAVE_DEVICE typename Tile::Piece& own(int chunk) { return shared_.piece[chunk][B::block_lane_id()]; }
  /// -inf from element `left` on.
  TILEWAVE_DEVICE static typename Tile::Piece filled(const typename Tile::Piece& piece, int left) {
    Vec<float, unit> v = widen<B, X, unit>(piece);
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) v[e] = e < left ? v[e] : -__builtin_inff();
    return narrow<B, X, unit>(v);
  }
  TILEWAVE_DEVICE void load(Tile& tile, int from) const {
    tile.load(data_, at_, from, end_);
    Vec<float, unit> nothing;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) nothing[e] = -__builtin_inff();
    tile.fill(at_, from, end_, nothing);
  }
  template <class F>
  TILEWAVE_DEVICE void each_of(const Tile& tile, int from, const F& f) const {
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) f(tile.values(c), from + Tile::column(at_.lane, c));
  }

  const Storage<X>* data_;
  Shared& shared_;
  typename Tile::Place at_{};
  int first_, end_;
  // Not beside shared_: while an object has an array, compilers do not know whose memory its pointers are of.
  std::conditional_t<P.held && !in_shared, Tile, Nothing> held_;
};

}  // namespace tilewave
