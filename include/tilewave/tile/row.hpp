// SPDX-License-Identifier: MIT
// A row held in registers by the lanes that share it: which row a lane has, its loads and stores, and reductions over
// the row. Chunk c of lane l starts at column ((c / span * lanes + l) * span + c % span) * unit, so the accesses of a
// wave are neighbours in memory.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/tile/element.hpp"
#include "tilewave/tile/row_policy.hpp"

namespace tilewave {

/// Row r of a tensor starts at element (r / inner_rows) * outer + (r % inner_rows) * inner; its columns are contiguous.
/// A plain matrix has inner_rows 1 and its row stride as `outer`; heads of a fused QKV tensor have inner_rows = heads.
struct RowStrides {
  std::int64_t outer = 0, inner = 0;
};

/// The rows and columns of a row operation, as its kernel takes them.
struct RowExtent {
  std::int32_t rows = 0, columns = 0;
  FastDiv inner_rows = FastDiv::by(1);

  TILEWAVE_HOST_DEVICE std::int64_t offset(std::int32_t row, const RowStrides& s) const {
    const std::int32_t outer = inner_rows.quotient(row);
    return outer * s.outer + (row - outer * inner_rows.divisor) * s.inner;
  }
};

/// Returns op over the members of v. It runs two chains, because one chain would wait for itself at every step.
template <int n, class Op>
TILEWAVE_DEVICE float fold(const Vec<float, n>& v, Op op) {
  if constexpr (n == 1) {
    return v[0];
  } else {
    float even = v[0], odd = v[1];
    TILEWAVE_UNROLL
    for (int i = 2; i + 1 < n; i += 2) {
      even = op(even, v[i]);
      odd = op(odd, v[i + 1]);
    }
    return op(even, odd);
  }
}

template <class B, DType X, RowPolicy P>
struct Row {
  static_assert(row_policy_status(B::facts, X, P).ok(),
                "a law of policies is broken: row_policy_status(facts, x, policy).reason says which");
  static constexpr int unit = P.vec / size_of(X), waves_per_row = P.lanes / B::facts.wave_lanes;
  static constexpr int all_waves = P.blocks * max_of(waves_per_row, 1);
  static constexpr int group_lanes = min_of(P.lanes, B::facts.wave_lanes);  // lanes of a wave that share a row
  static constexpr int block_columns = P.block_columns(X);
  static constexpr bool keeps = keeps_values(B::facts, X, P);
  using Packed = tilewave::Packed<X, unit>;

  /// The row that a lane works on, and where the lane stands in it. Lanes of rows beyond the last are inactive: they
  /// take part in reductions and touch no memory.
  struct LaneRow {
    std::int32_t row, lane, slot;  // slot is the number of the row in the block
    std::int32_t first;            // first column of this block, where a cluster shares the row
    bool active, leader;           // the leader is the one lane that stores the row's single values
  };
  template <class S>
  TILEWAVE_DEVICE static LaneRow lane_row(const RowExtent& extent, [[maybe_unused]] S& shared) {
    LaneRow at;
    if constexpr (P.rows == 1) {
      at.slot = 0;
      at.lane = B::block_lane_id();
    } else if constexpr (waves_per_row >= 1) {  // this case is wave-uniform
      const int wave = B::wave_id();
      at.slot = wave / waves_per_row;
      at.lane = wave % waves_per_row * B::facts.wave_lanes + B::lane_id();
    } else {
      at.slot = B::block_lane_id() / P.lanes;
      at.lane = B::block_lane_id() % P.lanes;
    }
    at.row = B::block_id() / P.blocks * P.rows + at.slot;
    at.first = P.blocks > 1 ? B::cluster_rank() * block_columns : 0;
    at.active = at.row < extent.rows;
    at.leader = at.active && at.lane == 0 && at.first == 0;
    // the first reduction waits until all blocks have opened theirs
    if constexpr (P.blocks > 1) B::template open<S::boxes>(shared.box);
    return at;
  }
  TILEWAVE_DEVICE static constexpr int column(int lane, int chunk) {
    return ((chunk / P.span * P.lanes + lane) * P.span + chunk % P.span) * unit;
  }

  /// Returns the row of this lane in a tensor of type X.
  TILEWAVE_DEVICE static const void* row(const void* data, const RowExtent& extent, const LaneRow& at,
                                         const RowStrides& s) {
    return static_cast<const Storage<X>*>(data) + extent.offset(at.row, s);
  }
  TILEWAVE_DEVICE static void* row(void* data, const RowExtent& extent, const LaneRow& at, const RowStrides& s) {
    return static_cast<Storage<X>*>(data) + extent.offset(at.row, s);
  }

  /// Calls body(from) with the first column of every tile of the row. A row that is held has one tile.
  template <class Body>
  TILEWAVE_DEVICE static void tiles(const LaneRow& at, int columns, const Body& body) {
    if constexpr (P.held) {
      body(at.first);
    } else {
      for (int from = 0; from < columns; from += block_columns) body(from);
    }
  }

  template <DType T>
  TILEWAVE_DEVICE static std::uint32_t window_bytes(int columns) {
    columns = max_of(min_of(columns, block_columns), 0);
    return static_cast<std::uint32_t>(bytes_of(T, (columns + unit - 1) / unit * unit));
  }

  Packed chunks[P.chunks];

  /// Returns a window over columns from + [0, block_columns) below `end` of the row of type T at `data`, rounded up to
  /// whole accesses. It is empty if the row is inactive.
  using Window = typename B::template Window<(waves_per_row >= 1)>;
  template <DType T>
  TILEWAVE_DEVICE static Window window(const void* data, const LaneRow& at, int from, int end) {
    return Window{B::opaque(static_cast<const Storage<T>*>(data) + from / packing_of(T)),
                  at.active ? window_bytes<T>(end - from) : 0};
  }
  /// Returns the same window over values that all rows share.
  using SharedWindow = typename B::template Window<true>;
  template <DType T>
  TILEWAVE_DEVICE static SharedWindow shared_window(const void* data, int from, int end) {
    return SharedWindow{static_cast<const Storage<T>*>(data) + from, window_bytes<T>(end - from)};
  }

  /// Loads columns from + [0, block_columns) below `end` of the row at `data`, or only chunks [first, last) of them.
  /// Other columns become zeros.
  TILEWAVE_DEVICE void load(const void* data, const LaneRow& at, int from, int end, int first = 0,
                            int last = P.chunks) {
    const Window row = window<X>(data, at, from, end);
    TILEWAVE_UNROLL
    for (int c = first; c < last; ++c) chunks[c] = row.template load_stream<Packed>(column(at.lane, c) * size_of(X));
  }
  TILEWAVE_DEVICE void store(void* data, const LaneRow& at, int from, int end) const {
    const Window row = window<X>(data, at, from, end);
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) row.store_stream(column(at.lane, c) * size_of(X), chunks[c]);
  }
  TILEWAVE_DEVICE void negate() {
    constexpr std::uint32_t sign = X == DType::f32 ? 0x80000000u : 0x80008000u;
    TILEWAVE_UNROLL
    for (Packed& chunk : chunks) {
      TILEWAVE_UNROLL
      for (int w = 0; w < Packed::size; ++w) chunk[w] ^= static_cast<std::decay_t<decltype(chunk[w])>>(sign);
    }
  }
  /// Replaces the columns from `end` on by those of `filler`.
  TILEWAVE_DEVICE void fill(const LaneRow& at, int from, int end, const Vec<float, unit>& filler) {
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      const int left = end - from - column(at.lane, c);
      if (left >= unit) continue;
      Vec<float, unit> v = values(c);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[e] = e < left ? v[e] : filler[e];
      chunks[c] = narrow<B, X, unit>(v);
    }
  }
  /// Makes the next pass widen the row again, where its values in f32 would not fit the registers. Without it compilers
  /// keep the wide values and spill. `always` also forces it where they would fit, so that nothing else computed from
  /// the values is kept.
  template <bool always = false>
  TILEWAVE_DEVICE void refresh() {
    if constexpr (always || !keeps) {
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        if constexpr (sizeof(Packed) >= 4) {
          TILEWAVE_UNROLL
          for (int w = 0; w < static_cast<int>(sizeof(Packed)) / 4; ++w) chunks[c][w] = B::opaque(chunks[c][w]);
        } else {
          chunks[c][0] = static_cast<Storage<X>>(B::opaque(std::uint32_t{chunks[c][0]}));
        }
      }
    }
  }
  TILEWAVE_DEVICE Vec<float, unit> values(int chunk) const { return widen<B, X, unit>(chunks[chunk]); }

  template <int values>
  struct Mailboxes {
    static constexpr int boxes = values;
    Mailbox box[values];
  };
  struct Nothing {};
  /// The values that the waves of a row have found, in one entry for each value that is reduced, so that two reductions
  /// need no barrier between them. Each block of a cluster has all of it.
  template <int values>
  struct Shared : std::conditional_t<P.blocks == 1, Nothing, Mailboxes<values>> {
    float partial[values][P.rows][all_waves];
  };

  /// All-reduces a float over the row: every lane gets the same bits. It takes at most one barrier. `value` is the
  /// index of its entry; the first reduction of a kernel has 0.
  template <int value, int values, class Op>
  TILEWAVE_DEVICE static float reduce(Shared<values>& shared, const LaneRow& at, float x, Op) {
    Vec<float, 1> one;
    one[0] = x;
    return reduce_values<value>(shared, at, one, Single<Op>{})[0];
  }
  /// All-reduces n values together, in entries value, value + 1, ...; it still takes one barrier. r.across<lanes>(v)
  /// all-reduces over aligned groups of lanes, and r.merge(v, w) combines two partial results.
  template <int value, class R, int values, int n>
  TILEWAVE_DEVICE static Vec<float, n> reduce_values(Shared<values>& shared, const LaneRow& at, Vec<float, n> x, R r) {
    x = r.template across<group_lanes>(x);
    if constexpr (all_waves > 1) {
      publish<value>(shared, at, x);
      const auto of_wave = [&](int w) {
        Vec<float, n> v;
        TILEWAVE_UNROLL
        for (int i = 0; i < n; ++i) v[i] = published<value>(shared, at, i, w);
        return v;
      };
      constexpr int group = min_of(all_waves, B::facts.wave_lanes);
      const int lane = B::lane_id();
      x = of_wave(lane % group);
      TILEWAVE_UNROLL
      for (int w = group; w < all_waves; w += group) x = r.merge(x, of_wave(w + lane % group));
      x = r.template across<group>(x);
    }
    return x;
  }

  /// Publishes n values of every wave to all lanes of the row, in entries value, value + 1, ... They are the same in
  /// all lanes of a wave. It takes at most one barrier.
  template <int value, int values, int n>
  TILEWAVE_DEVICE static void publish(Shared<values>& shared, const LaneRow& at, const Vec<float, n>& x) {
    static_assert(value + n <= values, "the values published exceed the places that the kernel reserved");
    if constexpr (all_waves > 1) {
      const int lane = B::lane_id(), wave = wave_of_row(at);
      if constexpr (P.blocks > 1) {
        if constexpr (value == 0) B::cluster_wait();  // see lane_row()
        Mailbox& box = shared.box[value];
        if (lane < P.blocks) {  // each of the first P.blocks lanes posts the wave's result to one block
          TILEWAVE_UNROLL
          for (int i = 0; i < n; ++i) B::post(box, &partial_of<value>(shared, at, i, wave), lane, x[i]);
        }
        B::collect(box, n * all_waves, 0);
      } else {
        if (lane == 0) {
          TILEWAVE_UNROLL
          for (int i = 0; i < n; ++i) partial_of<value>(shared, at, i, wave) = x[i];  // B::store is for device memory
        }
        B::barrier();
      }
    }
  }
  /// Returns value i of those that wave w published.
  template <int value, int values>
  TILEWAVE_DEVICE static float published(const Shared<values>& shared, const LaneRow& at, int i, int w) {
    return shared.partial[value + i][at.slot][w];
  }
  /// Returns the sum of f(wave) over all waves of the row; every lane gets the same bits.
  template <class F>
  TILEWAVE_DEVICE static float sum_over_waves(const F& f) {
    constexpr int group = min_of(all_waves, B::facts.wave_lanes);
    float sum = 0.0f;
    TILEWAVE_UNROLL
    for (int w = 0; w < all_waves; w += group) sum += f(w + B::lane_id() % group);
    return B::template reduce<group>(sum, Sum{});
  }
  /// Returns the number of this lane's wave among those of the row.
  TILEWAVE_DEVICE static int wave_of_row(const LaneRow& at) {
    return at.first / block_columns * waves_per_row + at.lane / B::facts.wave_lanes;
  }
  /// Returns how many columns of a row its wave w holds or walks over. Where a row has only part of a wave, that part
  /// counts as one.
  TILEWAVE_DEVICE static int columns_of_wave(int w, int columns) {
    constexpr int run = group_lanes * P.span * unit, runs = P.chunks / P.span;
    if (P.held && columns == P.columns(X)) return runs * run;
    int start = w % max_of(waves_per_row, 1) * run, count = 0;
    if constexpr (P.held) {
      start += w / max_of(waves_per_row, 1) * block_columns;
    } else {
      count = columns / block_columns * (runs * run);
      columns %= block_columns;
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < runs; ++i) {
      count += max_of(min_of(columns - start - i * P.lanes * P.span * unit, run), 0);
    }
    return count;
  }
  /// Returns how many columns of a row that is held the first P.span chunks of its wave w have.
  TILEWAVE_DEVICE static int columns_of_first_run(int w, int columns) {
    constexpr int run = group_lanes * P.span * unit;
    const int start = w % max_of(waves_per_row, 1) * run + w / max_of(waves_per_row, 1) * block_columns;
    return max_of(min_of(columns - start, run), 0);
  }

 private:
  template <int value, int values>
  TILEWAVE_DEVICE static float& partial_of(Shared<values>& shared, const LaneRow& at, int i, int w) {
    return shared.partial[value + i][at.slot][w];
  }
  template <class Op>
  struct Single {
    template <int lanes>
    TILEWAVE_DEVICE Vec<float, 1> across(Vec<float, 1> x) const {
      x[0] = B::template reduce<lanes>(x[0], Op{});
      return x;
    }
    TILEWAVE_DEVICE Vec<float, 1> merge(Vec<float, 1> x, Vec<float, 1> y) const {
      x[0] = Op{}(x[0], y[0]);
      return x;
    }
  };
};

}  // namespace tilewave
