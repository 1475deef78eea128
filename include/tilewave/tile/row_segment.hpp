// SPDX-License-Identifier: MIT
// A row that is split into one segment of neighbouring columns for each wave. The order of columns is then the order of
// waves, tiles, chunks and lanes, which running sums need.
#pragma once

#include "tilewave/tile/row.hpp"
#include "tilewave/tile/row_exchange.hpp"

namespace tilewave {

/// Returns the policy of one wave's tile, as if the segment were a row of its own.
constexpr RowPolicy segment_policy(const ArchFacts& facts, const RowPolicy& p) {
  RowPolicy tile = p;
  tile.lanes = facts.wave_lanes;
  tile.blocks = 1;
  return tile;
}

/// Returns that policy with one access for each lane.
constexpr RowPolicy single_policy(RowPolicy p) {
  p.chunks = 1;
  return p;
}

template <class B, DType X, RowPolicy P, class ExchangeOf = RowExchange<B, P>>
class RowSegment {
  static_assert(P.rows == 1 && P.span == 1,
                "waves have a stretch of one row each, without runs of neighbouring chunks");

 public:
  using Exchange = ExchangeOf;
  static constexpr int unit = P.vec / size_of(X), access_columns = B::facts.wave_lanes * unit;
  using Packed = tilewave::Packed<X, unit>;
  /// True if the row is held in shared memory, because several waves share it. Each wave reads only its own segment,
  /// and passes are loops. In registers the loops would be unrolled, and every SM reads that code cold.
  static constexpr bool in_shared = P.held && Exchange::waves > 1;

 private:
  using Tile = Row<B, X, segment_policy(B::facts, P)>;
  using Single = Row<B, X, single_policy(segment_policy(B::facts, P))>;
  template <class Room>
  struct InShared {
    Packed access[Exchange::block_waves][P.chunks][Room::facts.wave_lanes];
    typename Room::Mbarrier landed[Exchange::block_waves];
  };
  struct Nothing {};

 public:
  using Shared = std::conditional_t<in_shared, InShared<B>, Nothing>;

  /// Takes the row at `data`. If the row is held, its loads start here and arrive() waits for them.
  TILEWAVE_DEVICE RowSegment(const Storage<X>* data, std::int32_t columns, Shared& shared)
      : RowSegment(data, columns, shared, Exchange::waves, Exchange::wave()) {}
  /// Takes segment `wave` of `waves`, which may belong to other blocks too. The row must not be held.
  TILEWAVE_DEVICE RowSegment(const Storage<X>* data, std::int32_t columns, Shared& shared, int waves, int wave)
      : data_(data), shared_(shared) {
    at_.lane = B::lane_id();
    at_.active = true;
    columns_ = columns;
    segment_columns_ = align_up(ceil_div(columns, waves), access_columns);
    first_ = B::uniform(wave * segment_columns_);
    end_ = min_of(columns, first_ + segment_columns_);
    if constexpr (in_shared) {
      wave_ = B::wave_id();
      // One copy brings the whole segment of a wave. Every access is whole in rows that this policy takes.
      auto* const landed = &shared_.landed[wave_];
      if (at_.lane == 0) {
        B::mbarrier_init(landed, 1);
        B::mbarrier_ready();
      }
      B::wave_barrier();
      if (first_ < end_) {
        const std::uint32_t bytes = (end_ - first_) * size_of(X);
        B::mbarrier_expect(landed, bytes);
        if (at_.lane == 0) B::copy_bulk(&shared_.access[wave_][0][0], data_ + first_, bytes, landed);
      }
    } else if constexpr (P.held) {
      load(held_, first_, end_);
    }
  }

  /// Waits until a held row has arrived. The whole block calls it before it calls anything below.
  TILEWAVE_DEVICE void arrive() {
    if constexpr (in_shared) {
      if (first_ < end_) B::mbarrier_wait(&shared_.landed[wave_], 0);
      Packed nothing;
      TILEWAVE_UNROLL
      for (int w = 0; w < Packed::size; ++w) {
        nothing[w] = X == DType::bf16 ? 0xff80ff80u : X == DType::f16 ? 0xfc00fc00u : 0xff800000u;
      }
      TILEWAVE_ROLL
      for (int c = max_of(end_ - first_, 0) / access_columns; c < accesses(); ++c) {
        if (first_ + Tile::column(at_.lane, c) >= end_) own(c) = nothing;
      }
    }
  }

  /// Calls f(packed, column) for every access of this lane, in the order of columns; `column` is that of the first
  /// value. Values beyond the row's end are -inf. All lanes of a wave make the same calls.
  template <class F>
  TILEWAVE_DEVICE void each(const F& f) {
    if constexpr (in_shared) {
      TILEWAVE_ROLL
      for (int c = 0; c < accesses(); ++c) {
        const Packed packed = own(c);  // one read: f may use it in several places
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

  /// Access `index` of the segment of wave `wave`, for each lane, with the column of its first value; -inf stands
  /// beyond the row's end. `wave` is of this block if the row is held. The row must not lie in registers. If it lies in
  /// shared memory, a barrier must have passed since arrive().
  struct Access {
    Vec<float, unit> values;
    std::int32_t column;
  };
  TILEWAVE_DEVICE Access access(int wave, int index) const {
    const int first = wave * segment_columns_ + index * access_columns;
    if constexpr (in_shared) {
      const Packed packed = shared_.access[wave % Exchange::block_waves][index][at_.lane];
      return {widen<B, X, unit>(packed), first + at_.lane * unit};
    } else {
      static_assert(!P.held, "a row that is held lies in registers or shared memory, and is not read again");
      Single single;
      load(single, first, min_of(columns_, (wave + 1) * segment_columns_));
      return {single.values(0), first + at_.lane * unit};
    }
  }
  TILEWAVE_DEVICE int accesses() const { return segment_columns_ / access_columns; }

 private:
  TILEWAVE_DEVICE Packed& own(int chunk) { return shared_.access[wave_][chunk][at_.lane]; }
  template <class T>
  TILEWAVE_DEVICE void load(T& tile, int from, int end) const {
    typename T::LaneRow at{};
    at.lane = at_.lane;
    at.active = true;
    tile.load(data_, at, from, end);
    Vec<float, unit> nothing;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) nothing[e] = minus_infinity;
    tile.fill(at, from, end, nothing);
  }
  template <class F>
  TILEWAVE_DEVICE void each_of(const Tile& tile, int from, const F& f) const {
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      if (c > 0 && from + c * access_columns >= end_) break;  // nothing of the wave's segment is left
      f(tile.chunks[c], from + Tile::column(at_.lane, c));
    }
  }

  const Storage<X>* data_;
  Shared& shared_;
  typename Tile::LaneRow at_{};
  int columns_, segment_columns_, first_, end_, wave_ = 0;
  // This is not beside shared_: while an object has an array, compilers cannot tell what memory its pointers point to.
  std::conditional_t<P.held && !in_shared, Tile, Nothing> held_;
};

}  // namespace tilewave
