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

  /// The row at `data`; loaded here if it is held.
  TILEWAVE_DEVICE RowStretch(const Storage<X>* data, std::int32_t columns) : data_(data) {
    constexpr int granule = B::facts.wave_lanes * unit;
    const int stretch = align_up(ceil_div(columns, Exchange::waves), granule);
    at_.lane = B::lane_id();
    at_.active = true;
    first_ = B::uniform(Exchange::wave() * stretch);
    end_ = min_of(columns, first_ + stretch);
    if constexpr (P.held) load(first_);
  }

  /// Calls f(values, column) for every access of this lane, in the order of columns; `column` is that of the first
  /// value. Beyond the row's end values are -inf. The lanes of a wave call alike.
  template <class F>
  TILEWAVE_DEVICE void each(const F& f) {
    if constexpr (P.held) {
      tile_.template refresh<true>();
      each_of_tile(first_, f);
    } else {
      for (int from = first_; from < end_; from += Tile::block_columns) {
        load(from);
        each_of_tile(from, f);
      }
    }
  }

 private:
  using Tile = Row<B, X, stretch_policy(B::facts, P)>;

  TILEWAVE_DEVICE void load(int from) {
    tile_.load(data_, at_, from, end_);
    Vec<float, unit> nothing;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) nothing[e] = -__builtin_inff();
    tile_.fill(at_, from, end_, nothing);
  }
  template <class F>
  TILEWAVE_DEVICE void each_of_tile(int from, const F& f) {
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) f(tile_.values(c), from + Tile::column(at_.lane, c));
  }

  const Storage<X>* data_;
  typename Tile::Place at_{};
  int first_, end_;
  Tile tile_;
};

}  // namespace tilewave
