// SPDX-License-Identifier: MIT
// A row held in registers by the lanes that share it: where a lane stands, its loads and stores, and reductions over
// the row. Chunk c of lane l starts at column ((c / span * lanes + l) * span + c % span) * unit, so a wave's accesses
// are neighbours in memory.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/tile/element.hpp"
#include "tilewave/tile/row_policy.hpp"

namespace tilewave {

/// Row r of a tensor starts at (r / inner_rows) * outer + (r % inner_rows) * inner elements; columns are contiguous. A
/// plain matrix has inner_rows 1 and its row stride as `outer`; heads of a fused QKV tensor have inner_rows = heads.
struct RowStrides {
  std::int64_t outer = 0, inner = 0;
};

/// Rows and columns of a row operation, as its kernel takes them.
struct RowExtent {
  std::int32_t rows = 0, columns = 0;
  FastDiv inner_rows = FastDiv::by(1);

  TILEWAVE_HOST_DEVICE std::int64_t offset(std::int32_t row, const RowStrides& s) const {
    const std::int32_t outer = inner_rows.quotient(row);
    return outer * s.outer + (row - outer * inner_rows.divisor) * s.inner;
  }
};

template <class B, DType X, RowPolicy P>
struct Row {
  static_assert(policy_fits(B::facts, X, P));
  static constexpr int unit = P.vec / size_of(X), waves_per_row = P.lanes / B::facts.wave_lanes;
  static constexpr int block_columns = P.block_columns(X);
  static constexpr int kept_values = 32;  // in f32, of a lane, between two passes
  using Piece = Packed<X, unit>;

  /// What this lane is. Rows beyond the last are inactive: their lanes take part in reductions and touch no memory.
  struct Place {
    std::int32_t row, lane, slot;  // slot: of the row in the block
    bool active;
  };
  TILEWAVE_DEVICE static Place place(const RowExtent& extent) {
    Place at;
    if constexpr (waves_per_row >= 1) {  // wave-uniform
      at.slot = B::wave_id() / waves_per_row;
      at.lane = B::wave_id() % waves_per_row * B::facts.wave_lanes + B::lane_id();
    } else {
      const int thread = B::wave_id() * B::facts.wave_lanes + B::lane_id();
      at.slot = thread / P.lanes;
      at.lane = thread % P.lanes;
    }
    at.row = B::block_id() * P.rows + at.slot;
    at.active = at.row < extent.rows;
    return at;
  }
  TILEWAVE_DEVICE static constexpr int column(int lane, int chunk) {
    return ((chunk / P.span * P.lanes + lane) * P.span + chunk % P.span) * unit;
  }

  /// The row of this lane in a tensor of this type.
  TILEWAVE_DEVICE static const void* row(const void* data, const RowExtent& extent, const Place& at,
                                         const RowStrides& s) {
    return static_cast<const Storage<X>*>(data) + extent.offset(at.row, s);
  }
  TILEWAVE_DEVICE static void* row(void* data, const RowExtent& extent, const Place& at, const RowStrides& s) {
    return static_cast<Storage<X>*>(data) + extent.offset(at.row, s);
  }

  /// Calls body(from) with the first column of every tile of the row: one tile if the row is held.
  template <class Body>
  TILEWAVE_DEVICE static void tiles(int columns, const Body& body) {
    if constexpr (P.held) {
      body(0);
    } else {
      for (int from = 0; from < columns; from += block_columns) body(from);
    }
  }

  template <DType T>
  TILEWAVE_DEVICE static std::uint32_t window_bytes(int columns) {
    columns = max_of(min_of(columns, block_columns), 0);
    return static_cast<std::uint32_t>((columns + unit - 1) / unit * unit * size_of(T));
  }

  Piece pieces[P.chunks];

  /// Columns from + [0, block_columns) below `end` of the row of T at `data`, to the end of its last access. Nothing if
  /// the row is inactive.
  using Window = typename B::template Window<(waves_per_row >= 1)>;
  template <DType T>
  TILEWAVE_DEVICE static Window window(const void* data, const Place& at, int from, int end) {
    return Window{static_cast<const Storage<T>*>(data) + from, at.active ? window_bytes<T>(end - from) : 0};
  }
  /// The same of values that every row shares.
  using SharedWindow = typename B::template Window<true>;
  template <DType T>
  TILEWAVE_DEVICE static SharedWindow shared_window(const void* data, int from, int end) {
    return SharedWindow{static_cast<const Storage<T>*>(data) + from, window_bytes<T>(end - from)};
  }

  /// Columns from + [0, block_columns) below `end` of the row at `data`, or some chunks of them; zeros elsewhere.
  TILEWAVE_DEVICE void load(const void* data, const Place& at, int from, int end, int first = 0,
                            int last = P.chunks) {
    const Window row = window<X>(data, at, from, end);
    TILEWAVE_UNROLL
    for (int c = first; c < last; ++c) pieces[c] = row.template load_stream<Piece>(column(at.lane, c) * size_of(X));
  }
  TILEWAVE_DEVICE void store(void* data, const Place& at, int from, int end) const {
    const Window row = window<X>(data, at, from, end);
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) row.store(column(at.lane, c) * size_of(X), pieces[c]);
  }
  /// Columns from `end` on become `bits`.
  TILEWAVE_DEVICE void fill(const Place& at, int from, int end, Storage<X> bits) {
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      const int left = end - from - column(at.lane, c);
      if (left >= unit) continue;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) pieces[c][e] = e < left ? pieces[c][e] : bits;
    }
  }
  /// Between two passes over a long row: its values in f32 and the places of its chunks would not fit the registers, so
  /// they are made again.
  TILEWAVE_DEVICE void refresh(Place& at) {
    if constexpr (P.chunks * unit > kept_values) {
      at.lane = static_cast<std::int32_t>(B::opaque(static_cast<std::uint32_t>(at.lane)));
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        if constexpr (sizeof(Piece) == sizeof(Chunk)) {
          auto words = __builtin_bit_cast(Chunk, pieces[c]);
          TILEWAVE_UNROLL
          for (int w = 0; w < 4; ++w) words[w] = B::opaque(words[w]);
          pieces[c] = __builtin_bit_cast(Piece, words);
        } else {
          pieces[c][0] = static_cast<Storage<X>>(B::opaque(pieces[c][0]));
        }
      }
    }
  }
  TILEWAVE_DEVICE Vec<float, unit> values(int chunk) const { return widen<B, X, unit>(pieces[chunk]); }

  /// Partial results of the waves that share a row, one set per reduction: no barrier is needed between two reductions.
  template <int reductions>
  struct Shared {
    float partial[reductions][P.rows][max_of(waves_per_row, 1)];
  };
  /// All-reduce over the row: the same bits in every lane. At most one barrier.
  template <int index, int reductions, class Op>
  TILEWAVE_DEVICE static float reduce(Shared<reductions>& shared, const Place& at, float x, Op op) {
    x = B::template reduce<min_of(P.lanes, B::facts.wave_lanes)>(x, op);
    if constexpr (waves_per_row > 1) {
      static_assert(index < reductions && waves_per_row <= B::facts.wave_lanes);
      auto& partial = shared.partial[index][at.slot];
      if (at.lane % B::facts.wave_lanes == 0) partial[at.lane / B::facts.wave_lanes] = x;
      B::barrier();
      x = B::template reduce<waves_per_row>(partial[B::lane_id() % waves_per_row], op);
    }
    return x;
  }
};

}  // namespace tilewave
