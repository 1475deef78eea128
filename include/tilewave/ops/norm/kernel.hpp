// SPDX-License-Identifier: MIT
// RMSNorm and LayerNorm. A wave of LayerNorm takes the sum and the squares of its columns in one pass, about a value
// next to its mean, and waves merge theirs in one exchange (Chan, Golub, LeVeque 1979). It is next to the mean of
// some of the wave's columns, so nothing cancels. In a row of one value it is that value to the bit, and the output is
// 0. Grid: one block, or one cluster of P.blocks, per P.rows rows. The lanes of a row keep it in registers between the
// statistics and the output (P.held), so it is read once and written once. Shared memory: a few floats per wave. Bound:
// memory.
#pragma once

#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/norm/columns.hpp"

namespace tilewave {

template <class B, NormSpec S, NormPolicy P>
struct Norm {
  using Room = B;
  using Args = NormArgs<S>;
  static_assert(sizeof(Args) <= sm90_arguments_with_launch || (S.kind == NormKind::layer && S.scale != Scaling::none));
  static constexpr bool waits_itself = StagedBackend<B>;
  using Tile = Row<B, S.x, P>;
  using Output = RowOutput<B, S.x, RowOutputSpec{S.out, S.scale}, P>;
  using Columns = NormColumns<B, S, P>;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Tile::unit;
  // Layers reduce the sum and the squares, RMSNorm only the squares; the largest magnitude comes after these.
  static constexpr int amax_value = S.kind == NormKind::layer ? 2 : 1;
  using Shared = typename Tile::template Shared<amax_value + (S.scale == Scaling::per_token)>;

  static constexpr float infinity = __builtin_inff();
  // Layers that are held take squares about a value near the wave's mean, and find the mean in the same pass.
  static constexpr bool center_is_near = S.kind == NormKind::layer && P.held;
  // All columns' values are loaded before the row's statistics.
  static constexpr bool all_ahead = P.held && Columns::ahead == P.chunks;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    if constexpr (waits_itself) {
      prefetch_weight(a);
      B::wait_for_previous();
      B::launch_next();
    }
    const auto at = Tile::lane_row(a.extent, shared);
    const int columns = a.extent.columns;
    const float of_columns = B::reciprocal(static_cast<float>(columns));
    const void* source = Tile::row(a.x, a.extent, at, a.x_strides);
    Tile x;
    Columns by_column;
    if (a.residual != nullptr) {
      B::sched_fence();  // without it clang hoists the loads of both cases, one by one with their uses
      Tile::tiles(at, columns, [&](int from) {
        x.load(source, at, from, columns);
        add_residual(a, x, at, from);
      });
    } else if constexpr (P.held) {
      x.load(source, at, at.first, columns);
    }
    if constexpr (all_ahead) by_column.load(a, at, 0, Columns::ahead, at.first);
    const auto each = [&](const auto& body) {
      Tile::tiles(at, columns, [&](int from) {
        if constexpr (P.held) {
          x.refresh();
        } else {
          x.load(a.residual != nullptr ? row_of_sum(a, at) : source, at, from, columns);
        }
        body(from);
      });
    };

    // The values in f32 that are normalised: x, less a value near the mean for layers.
    Vec<float, unit> kept[Tile::keeps ? P.chunks : 1] = {};
    float center = 0.0f;
    const auto values = [&](int chunk) {
      Vec<float, unit> v = kept[Tile::keeps ? chunk : 0];
      if constexpr (!Tile::keeps) {
        v = x.values(chunk);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] -= center;
      }
      return v;
    };
    if constexpr (Tile::keeps) {
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) kept[c] = x.values(c);
    }
    float off = 0.0f, squares = 0.0f, mean = 0.0f;  // off: what all columns are off the center
    if constexpr (S.kind == NormKind::layer) {
      center = center_of_wave(at, columns, x, each, values);
      if constexpr (Tile::keeps) {
        TILEWAVE_UNROLL
        for (int c = 0; c < P.chunks; ++c) {
          TILEWAVE_UNROLL
          for (int e = 0; e < unit; ++e) kept[c][e] -= center;
        }
      }
    }
    each([&](int from) {
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        Vec<float, unit> v = values(c);
        const float more_off = center_is_near ? fold(v, Sum{}) : 0.0f;
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] *= v[e];
        const float more = fold(v, Sum{});
        // chunks without columns do not count
        if (S.kind == NormKind::rms || from + Tile::column(at.lane, c) < columns) squares += more, off += more_off;
      }
    });
    if constexpr (S.kind == NormKind::rms) {
      squares = Tile::template reduce<0>(shared, at, squares, Sum{});
    } else {
      if constexpr (center_is_near) off = B::template reduce<Tile::group_lanes>(off, Sum{});
      const float mean_off = off * per_column(Tile::wave_of_row(at), columns);
      mean = center + mean_off;
      squares = B::template reduce<Tile::group_lanes>(squares, Sum{}) - off * mean_off;
    }
    if constexpr (S.kind == NormKind::layer && Tile::all_waves > 1)
      merge_waves(at, columns, of_columns, shared, mean, squares);
    const float square = squares * of_columns + a.eps;
    // NaN where the squares leave f32: 0 would hide it
    const float rstd = square < infinity ? B::rsqrt(square) : square - square;
    const float shift = (center - mean) * rstd;
    if (at.leader) {
      if constexpr (S.kind == NormKind::layer) {
        if (a.mean != nullptr) B::store(a.mean + at.row, mean);
      }
      if (a.rstd != nullptr) B::store(a.rstd + at.row, rstd);
    }

    Output::template write<amax_value>(a.output, a.extent, at, shared, each,
                                       [&](int chunk, int from) TILEWAVE_INLINE_LAMBDA {
                                         if constexpr (!all_ahead) load_ahead(a, at, chunk, from, by_column);
                                         Vec<float, unit> v = values(chunk);
                                         by_column.apply(a, at, chunk, from, rstd, shift, v);
                                         return v;
                                       });
  }

 private:
  using LaneRow = typename Tile::LaneRow;

  /// The first blocks bring the weight into L2 while the kernel before still ends: a step of a model meets each weight
  /// once, and rows that were just written are in L2.
  TILEWAVE_DEVICE static void prefetch_weight(const Args& a) {
    constexpr int line = 128, blocks = 4;
    if (B::block_id() >= blocks) return;
    const auto* const weight = static_cast<const char*>(a.weight);
    TILEWAVE_ROLL
    for (int i = (B::block_id() * block_threads + B::block_lane_id()) * line; i < a.extent.columns * size_of(S.weight);
         i += blocks * block_threads * line)
      B::prefetch(weight + i);
  }
  TILEWAVE_DEVICE static void* row_of_sum(const Args& a, const LaneRow& at) {
    return Tile::row(a.residual_out, a.extent, at, a.residual_out_strides);
  }
  /// Turns a wave's mean and its squares about that mean into those of the row. Squares about the row's mean are those
  /// about a wave's, and those of the difference of both means.
  TILEWAVE_DEVICE static void merge_waves(const LaneRow& at, int columns, float of_columns, Shared& shared, float& mean,
                                          float& squares) {
    Tile::template publish<0>(shared, at, Vec<float, 2>{{mean, squares}});
    const auto mean_of = [&](int w) { return Tile::template published<0>(shared, at, 0, w); };
    const auto count_of = [&](int w) { return static_cast<float>(Tile::columns_of_wave(w, columns)); };
    const float near = mean_of(0);
    mean = near + Tile::sum_over_waves([&](int w) { return (mean_of(w) - near) * count_of(w); }) * of_columns;
    squares = Tile::sum_over_waves([&](int w) {
      const float off = mean_of(w) - mean;
      return Tile::template published<0>(shared, at, 1, w) + off * off * count_of(w);
    });
  }
  template <class Each, class Values>
  TILEWAVE_DEVICE static float center_of_wave(const LaneRow& at, int columns, Tile& x, const Each& each,
                                              const Values& values) {
    if constexpr (center_is_near) {
      return near_mean_of_wave(at, columns, values);
    } else {
      return mean_of_wave(at, columns, x, each, values);
    }
  }
  /// Returns a value next to the mean of the wave's first run of columns, which is the value of a row of one value. The
  /// run is one of P.chunks / P.span. So the squares about this value are at most as many times those about the wave's
  /// mean, and the difference of both loses few bits.
  template <class Values>
  TILEWAVE_DEVICE static float near_mean_of_wave(const LaneRow& at, int columns, const Values& values) {
    const int run = Tile::columns_of_first_run(Tile::wave_of_row(at), columns);
    const float of_run = run > 0 ? B::reciprocal(static_cast<float>(run)) : 0.0f;
    float near = 0.0f;
    constexpr int steps = S.x == DType::f32 ? 2 : 1;  // the second one corrects the rounding of the first sum
    TILEWAVE_UNROLL
    for (int step = 0; step < steps; ++step) {
      float off = 0.0f;
      TILEWAVE_UNROLL
      for (int c = 0; c < P.span; ++c) {
        Vec<float, unit> v = values(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] -= near;
        const float more = fold(v, Sum{});
        if (step == 0 || at.first + Tile::column(at.lane, c) < columns) off += more;  // zeros do not count
      }
      near += B::template reduce<Tile::group_lanes>(off, Sum{}) * of_run;
    }
    // Rounding to the type of x corrects it, too, and moves it by less than such values deviate.
    if constexpr (S.x != DType::f32) near = widen<B, S.x, 2>(narrow<B, S.x, 2>(Vec<float, 2>{{near, near}}))[0];
    return near;
  }
  /// Returns the mean of the wave's columns, taken about the mean of its first tile. In a row of one value all summands
  /// are 0 or next to it, and rounding leaves no trace in the mean.
  template <class Each, class Values>
  TILEWAVE_DEVICE static float mean_of_wave(const LaneRow& at, int columns, Tile& x, const Each& each,
                                            const Values& values) {
    const int wave = Tile::wave_of_row(at);
    float near = 0.0f, off = 0.0f;
    each([&](int from) {
      if (from == 0) {
        float sum = 0.0f;
        TILEWAVE_UNROLL
        for (int c = 0; c < P.chunks; ++c) sum += fold(values(c), Sum{});
        sum = B::template reduce<Tile::group_lanes>(sum, Sum{});
        near = sum * per_column(wave, min_of(columns, Tile::block_columns));
        x.refresh();
      }
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        Vec<float, unit> v = values(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) v[e] -= near;
        const float more = fold(v, Sum{});
        if (from + Tile::column(at.lane, c) < columns) off += more;  // chunks without columns do not count
      }
    });
    off = B::template reduce<Tile::group_lanes>(off, Sum{});
    return near + off * per_column(wave, columns);
  }
  /// Returns 1 / columns of a wave of the row, or 0 if it has none.
  TILEWAVE_DEVICE static float per_column(int wave, int columns) {
    const int mine = Tile::columns_of_wave(wave, columns);
    return mine > 0 ? B::reciprocal(static_cast<float>(mine)) : 0.0f;
  }
  /// Loads weight and bias of the chunk that is `ahead` chunks further on; before the first chunk, of all up to it.
  TILEWAVE_DEVICE static void load_ahead(const Args& a, const LaneRow& at, int chunk, int from, Columns& by_column) {
    if (chunk == 0) {
      by_column.load(a, at, 0, Columns::ahead, from);
    } else if (chunk + Columns::ahead - 1 < P.chunks) {
      const int next = chunk + Columns::ahead - 1;
      by_column.load(a, at, next, next + 1, from);
    }
  }
  /// Adds the residual to x and stores the sum.
  TILEWAVE_DEVICE static void add_residual(const Args& a, Tile& x, const LaneRow& at, int from) {
    const void* residual = Tile::row(a.residual, a.extent, at, a.residual_strides);
    const int columns = a.extent.columns;
    Tile r;
    // These chunks fit the registers beside a long row.
    constexpr int together = P.vec == 16 && P.chunks > 8 ? 4 : P.chunks;
    TILEWAVE_UNROLL
    for (int first = 0; first < P.chunks; first += together) {
      if (first > 0) B::sched_fence();  // limits how much is in flight
      r.load(residual, at, from, columns, first, first + together);
      B::sched_fence();  // nothing is waited for before all loads are issued
      TILEWAVE_UNROLL
      for (int c = first; c < first + together; ++c) {
        Vec<float, unit> sum = x.values(c);
        const Vec<float, unit> other = r.values(c);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) sum[e] += other[e];
        x.chunks[c] = narrow<B, S.x, unit>(sum);
        if (!Tile::keeps) B::sched_fence();  // one chunk at a time: rounding all of them together would spill
      }
    }
    x.store(row_of_sum(a, at), at, from, columns);
  }
};

}  // namespace tilewave
