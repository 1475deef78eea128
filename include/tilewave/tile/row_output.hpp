// SPDX-License-Identifier: MIT
// The end of every row operation: values of a row in f32 become elements of the output, which may be quantised.
#pragma once

#include "tilewave/tile/quant_scale.hpp"
#include "tilewave/tile/row.hpp"

namespace tilewave {

struct RowOutputArgs {
  void* out;
  // f32 scales: per_tensor [1] is read; per_token [rows] and per_group [rows, ceil(columns / 128)] are written, the
  // latter with scale_stride and scale_group_stride. e8m0 scales (mx): [rows, columns / 32] with scale_stride, or
  // shuffled.
  void* scale;
  RowStrides strides;
  std::int64_t scale_stride;
  // per_group keeps scale_group_stride here. mx keeps the padded groups of a row divided by 8 where scales are
  // shuffled, else 0, and mx_carry in the high half.
  std::int64_t of_groups = 0;

  TILEWAVE_DEVICE constexpr std::int32_t shuffled_eights() const { return static_cast<std::int32_t>(of_groups); }
  TILEWAVE_DEVICE constexpr std::int32_t carry() const { return static_cast<std::int32_t>(of_groups >> 32); }
};

/// Returns what the kernels take of a problem that has an output.
template <class Problem>
constexpr RowOutputArgs row_output_args(const Problem& p) {
  std::int64_t of_groups = p.spec.scale == Scaling::per_group ? p.scale_group_stride : 0;
  if (p.spec.scale == Scaling::mx) {
    const std::int64_t eights = p.scale_layout == ScaleLayout::shuffled ? (p.columns + 255) / 256 : 0;
    of_groups = (std::int64_t{mx_carry(p.spec.out, p.mx_rounding)} << 32) + eights;
  }
  return {p.out, p.scale, p.out_strides, p.scale_stride, of_groups};
}

/// Returns ok if a policy can write an output with a scaling, or the law that it breaks.
constexpr Status row_output_status(const ArchFacts& facts, DType x, Scaling mode, const RowPolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  if (mode != Scaling::per_group && mode != Scaling::mx) return {};
  const int columns = p.vec / size_of(x) * p.span, group = group_of(mode);
  if (columns > group) return {bad, "a lane's run of columns lies inside one group of a scale"};
  if (columns * (p.lanes < facts.wave_lanes ? p.lanes : facts.wave_lanes) < group)
    return {bad, "the lanes of a row in one wave have a whole group of a scale"};
  if (mode == Scaling::mx && !p.wide(x)) return {bad, "mx scales are of rows that wide accesses take"};
  return {};
}

/// The type of a row's output and its scaling.
struct RowOutputSpec {
  DType type;
  Scaling scale;
};

template <class B, DType X, RowOutputSpec O, RowPolicy P>
struct RowOutput {
  static constexpr DType type = O.type;
  static constexpr Scaling mode = O.scale;
  using Tile = Row<B, X, P>;
  using LaneRow = typename Tile::LaneRow;
  using Window = typename Tile::Window;
  static_assert(row_output_status(B::facts, X, mode, P).ok(),
                "a law of policies is broken: row_output_status(facts, x, mode, policy).reason says which");
  static constexpr int unit = Tile::unit;
  // values stay in f32 between amax and output
  static constexpr bool keep = mode == Scaling::per_token && Tile::keeps;
  // Chunks that one store writes. They are neighbours in aligned rows, and a store has at most 16 bytes.
  static constexpr int joined = is_fp6(type) ? P.span
                                : !P.wide(X) ? 1
                                             : max_of(1, min_of(P.span, 16 / bytes_of(type, unit)));
  static constexpr int group = group_of(mode), group_lanes = max_of(1, group / (unit * P.span));

  /// Writes the row. `each(body)` calls body(from) for every tile of the row once the tile is loaded; `value(chunk,
  /// from)` then returns the values of a chunk in f32. Values beyond the row must be 0 where a quantised output
  /// searches for the largest.
  template <int reduction, int reductions, class Each, class Value>
  TILEWAVE_DEVICE static void write(const RowOutputArgs& a, const RowExtent& extent, const LaneRow& at,
                                    typename Tile::template Shared<reductions>& shared, const Each& each,
                                    const Value& value) {
    auto* row = static_cast<Storage<type>*>(a.out) + extent.offset(at.row, a.strides);
    float inverse = 1.0f;
    Vec<float, unit> kept[keep ? P.chunks : 1];
    if constexpr (mode == Scaling::per_tensor) {
      inverse = 1.0f / B::load(static_cast<const float*>(a.scale));
    } else if constexpr (mode == Scaling::per_token) {
      float largest = 0.0f;
      each([&](int from) {
        TILEWAVE_UNROLL
        for (int c = 0; c < P.chunks; ++c) {
          const Vec<float, unit> values = value(c, from);
          if constexpr (keep) kept[c] = values;
          largest = amax(largest, values);
          if constexpr (!keep) {  // one chunk at a time: all of them together would spill
            largest = __builtin_bit_cast(float, B::opaque(__builtin_bit_cast(std::uint32_t, largest)));
            B::sched_fence();
          }
        }
      });
      largest = Tile::template reduce<reduction>(shared, at, largest, Max{});
      inverse = quant_factor(type, largest);
      if (at.leader) B::store(static_cast<float*>(a.scale) + at.row, quant_scale(type, largest));
    }
    each([&](int from) {
      const Window out = Tile::template window<type>(row, at, from, extent.columns);
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; c += P.span) {
        Vec<float, unit> values[P.span];
        TILEWAVE_UNROLL
        for (int s = 0; s < P.span; ++s) {
          if constexpr (keep) {
            values[s] = kept[c + s];
          } else {
            values[s] = value(c + s, from);
          }
        }
        const int first = from + Tile::column(at.lane, c);
        if constexpr (mode == Scaling::per_group || mode == Scaling::mx) {
          inverse = scale_group_of(a, at, first, at.active && first < extent.columns, values);
        }
        store(out, Tile::column(at.lane, c), inverse, values);
      }
    });
  }

  /// Returns the larger of `largest` and the magnitudes of the values. A NaN does not count.
  TILEWAVE_DEVICE static float amax(float largest, Vec<float, unit> values) {
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) values[e] = abs_of(values[e]);
    return Max{}(largest, fold(values, Max{}));
  }

 private:
  /// Stores the scale of a group of columns and returns the number that multiplies its values.
  TILEWAVE_DEVICE static float scale_group_of(const RowOutputArgs& a, const LaneRow& at, int first, bool there,
                                              const Vec<float, unit> (&values)[P.span]) {
    const bool stores = there && at.lane % group_lanes == 0;
    float largest = 0.0f;
    if constexpr (mode == Scaling::per_group) {
      TILEWAVE_UNROLL
      for (int s = 0; s < P.span; ++s) largest = amax(largest, values[s]);
      largest = B::template reduce<group_lanes>(largest, Max{});
      auto* scale = static_cast<float*>(a.scale) + at.row * a.scale_stride + first / group * a.of_groups;
      if (stores) B::store(scale, quant_scale(type, largest));
      return quant_factor(type, largest);
    } else {  // compared as integers, a NaN is larger than an infinity; min_of makes it one
      std::int32_t most = 0;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit * P.span; ++e) {
        most = max_of(most, __builtin_bit_cast(std::int32_t, abs_of(values[e / unit][e % unit])));
      }
      largest = __builtin_bit_cast(float, min_of(most, 0x7f800000));
      largest = B::template reduce<group_lanes>(largest, Max{});
      const std::uint8_t scale = mx_scale(type, a.carry(), largest);
      const std::int64_t offset = a.shuffled_eights() > 0 ? shuffled_scale(at.row, first / group, a.shuffled_eights())
                                                          : at.row * a.scale_stride + first / group;
      if (stores) B::store(static_cast<std::uint8_t*>(a.scale) + offset, scale);
      return mx_factor(scale);
    }
  }
  TILEWAVE_DEVICE static void store(const Window& out, int first, float inverse,
                                    const Vec<float, unit> (&values)[P.span]) {
    constexpr int joined_bytes = bytes_of(type, joined * unit);
    const Window whole{out.base, out.bytes / joined_bytes * joined_bytes};
    TILEWAVE_UNROLL
    for (int s = 0; s < P.span; s += joined) {
      const int offset = bytes_of(type, first + s * unit);
      Vec<float, joined * unit> scaled;
      TILEWAVE_UNROLL
      for (int e = 0; e < joined * unit; ++e) {
        scaled[e] = values[s + e / unit][e % unit];
        if constexpr (mode != Scaling::none) scaled[e] *= inverse;
      }
      put<joined * unit>(whole, offset, scaled);
      if constexpr (joined > 1 && mode != Scaling::mx) {  // a row may end between joined chunks
        if (out.bytes == whole.bytes || offset != static_cast<int>(whole.bytes)) continue;
        TILEWAVE_UNROLL
        for (int j = 0; j + 1 < joined; ++j) {
          Vec<float, unit> part;
          TILEWAVE_UNROLL
          for (int e = 0; e < unit; ++e) part[e] = scaled[j * unit + e];
          put<unit>(out, offset + j * bytes_of(type, unit), part);
        }
      }
    }
  }
  // Stores the values with one access, or with several of 16 bytes where the output is wider than the input.
  template <int n>
  TILEWAVE_DEVICE static void put(const Window& to, int offset, const Vec<float, n>& values) {
    if constexpr (is_fp6(type)) {  // 24 bytes that are aligned to 8
      const Packed<type, n> codes = narrow<B, type, n>(values);
      TILEWAVE_UNROLL
      for (int i = 0; i < 3; ++i)
        to.store_stream(offset + 8 * i, Vec<std::uint32_t, 2>{{codes[2 * i], codes[2 * i + 1]}});
    } else {
      constexpr int per_store = min_of(n, 16 / size_of(type) * packing_of(type));
      TILEWAVE_UNROLL
      for (int i = 0; i < n; i += per_store) {
        Vec<float, per_store> part;
        TILEWAVE_UNROLL
        for (int e = 0; e < per_store; ++e) part[e] = values[i + e];
        to.store_stream(offset + bytes_of(type, i), narrow<B, type, per_store>(part));
      }
    }
  }
};

}  // namespace tilewave
