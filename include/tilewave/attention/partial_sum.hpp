// SPDX-License-Identifier: MIT
// The weighted sum of the partial attention results of one output row: the arithmetic of every combine kernel. P.lanes
// lanes hold the row. There is no shared memory and no barrier. Two reads that depend on each other bound it by their
// latency. So each lane keeps the weights of its own partials, and partials are read `batch` at a time.
#pragma once

#include <type_traits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/tile/element.hpp"
#include "tilewave/tile/row_policy.hpp"

namespace tilewave {

/// The most partials that one output row may have.
inline constexpr int max_partials = 128;

/// Where the partials of one output row lie. Strides are in elements.
struct PartialRow {
  const void* x;     // outputs, each divided by its own sum
  const float* lse;  // natural log of that sum, -inf for a partial without weight
  std::int64_t x_stride, lse_stride;
  std::int32_t count;  // 1 to max_partials

  static constexpr int max_count = max_partials;
  TILEWAVE_DEVICE std::int64_t x_offset(std::int32_t p) const { return p * x_stride; }
  TILEWAVE_DEVICE std::int64_t lse_offset(std::int32_t p) const { return p * lse_stride; }
};

/// The sum over partials of type X. Any row type with the members of PartialRow says where they lie. `guarded` allows
/// NaN in the x of a partial without weight.
template <class B, DType X, RowPolicy P, bool guarded>
struct PartialSum {
  static constexpr int lanes = P.lanes, chunks = P.chunks, unit = P.vec / size_of(X);
  static constexpr int batch = 8, few_at_once = !guarded && lanes * chunks * unit >= 512 ? 2 : batch;
  static_assert(lanes <= B::facts.wave_lanes && lanes % batch == 0,
                "the lanes of a row are within a wave, and share batches of eight partials evenly");

  Vec<float, unit> x[chunks];  // chunk i has the columns from column(i) on
  float lse;                   // natural log of the sum over all partials

  /// The number of this lane among the lanes of its row.
  TILEWAVE_DEVICE static int lane() { return lanes == B::facts.wave_lanes ? B::lane_id() : B::lane_id() % lanes; }
  TILEWAVE_DEVICE static std::int32_t column(int i) { return (i * lanes + lane()) * unit; }

  /// Adds up a row. All lanes of a wave call it together, with the same row.count. Columns from `columns` on are not
  /// read, and their sums mean nothing.
  template <class Row>
  TILEWAVE_DEVICE static PartialSum of(const Row& row, std::int32_t columns) {
    constexpr int lane_weights = ceil_div(Row::max_count, lanes);  // partials whose weights a lane keeps
    constexpr float minus_infinity = -__builtin_inff();
    float weight[lane_weights], maximum = minus_infinity;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_weights; ++i) {
      const int p = i * lanes + lane();
      weight[i] = p < row.count ? B::load(row.lse + row.lse_offset(p)) : minus_infinity;
      maximum = Max{}(maximum, weight[i]);
    }
    maximum = B::template reduce<lanes>(maximum, Max{});
    const float reference = maximum == minus_infinity ? 0.0f : maximum;  // 0 if no partial has weight
    float sum = 0.0f;
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_weights; ++i) {
      weight[i] = B::exp2((weight[i] - reference) * log2_e);
      sum += weight[i];
    }
    sum = B::template reduce<lanes>(sum, Sum{});

    PartialSum total{};
    const int first_lane = B::lane_id() - lane();
    static_for<lane_weights>([&](auto i) {
      for (int first = i * lanes; first < min_of(row.count, (i + 1) * lanes); first += batch) {
        const auto add = [&](auto at_once) TILEWAVE_INLINE_LAMBDA {
          total.template add<at_once>(row, columns, first, [&](int j) TILEWAVE_INLINE_LAMBDA {
            return B::shuffle(weight[i], first_lane + (first + j) % lanes);
          });
        };
        // Wide rows have two partials mostly, and reading one again would take as long.
        if (few_at_once < batch && row.count - first <= few_at_once) {
          add(std::integral_constant<int, few_at_once>{});
        } else {
          add(std::integral_constant<int, batch>{});
        }
      }
    });
    total.scale(sum == 0.0f ? 0.0f : 1.0f / sum);
    total.lse = sum == 0.0f ? minus_infinity : reference + B::log2(sum) * ln_2;
    return total;
  }

  /// Adds `at_once` partials from `first` on. Past the last partial it is read again, with a weight of zero.
  template <int at_once, class Row, class Weight>
  TILEWAVE_DEVICE void add(const Row& row, std::int32_t columns, int first, const Weight& weight) {
    Packed<X, unit> partial[at_once][chunks];
    TILEWAVE_UNROLL
    for (int j = 0; j < at_once; ++j) {
      const auto* from = static_cast<const Storage<X>*>(row.x) + row.x_offset(min_of(first + j, row.count - 1));
      TILEWAVE_UNROLL
      for (int c = 0; c < chunks; ++c) {
        const std::int32_t at = column(c) < columns ? column(c) : 0;
        partial[j][c] = B::load(reinterpret_cast<const Packed<X, unit>*>(from + at));
      }
    }
    TILEWAVE_UNROLL
    for (int j = 0; j < at_once; ++j) {
      const float w = weight(j);
      TILEWAVE_UNROLL
      for (int c = 0; c < chunks; ++c) {
        if constexpr (guarded) zero_unless(w != 0.0f, partial[j][c]);
        const Vec<float, unit> values = widen<B, X, unit>(partial[j][c]);
        TILEWAVE_UNROLL
        for (int e = 0; e < unit; ++e) x[c][e] += w * values[e];
      }
    }
  }

  /// Zeroes values unless they are `kept`. Words are masked, since there are fewer words than elements. The mask is
  /// opaque, because clang turns a conditional value into branches and moves loads into them.
  TILEWAVE_DEVICE static void zero_unless(bool kept, Packed<X, unit>& values) {
    if constexpr (sizeof(values) == sizeof(Chunk)) {
      const std::uint32_t mask = B::opaque(kept ? ~0u : 0u);
      auto words = __builtin_bit_cast(Chunk, values);
      TILEWAVE_UNROLL
      for (int i = 0; i < 4; ++i) words[i] &= mask;
      values = __builtin_bit_cast(Packed<X, unit>, words);
    } else {
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) values[e] = kept ? values[e] : Storage<X>{};
    }
  }

  TILEWAVE_DEVICE void scale(float factor) {
    TILEWAVE_UNROLL
    for (int c = 0; c < chunks; ++c) {
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) x[c][e] *= factor;
    }
  }

  /// Writes the columns of the row below `columns` as elements of type Out.
  template <DType Out>
  TILEWAVE_DEVICE void store(void* to, std::int32_t columns) const {
    constexpr int store_unit = min_of(unit, 16 / size_of(Out));
    TILEWAVE_UNROLL
    for (int c = 0; c < chunks; ++c) {
      if (column(c) >= columns) continue;
      TILEWAVE_UNROLL
      for (int first = 0; first < unit; first += store_unit) {
        Vec<float, store_unit> values;
        TILEWAVE_UNROLL
        for (int e = 0; e < store_unit; ++e) values[e] = x[c][first + e];
        B::store(reinterpret_cast<Packed<Out, store_unit>*>(static_cast<Storage<Out>*>(to) + column(c) + first),
                 narrow<B, Out, store_unit>(values));
      }
    }
  }
};

}  // namespace tilewave
