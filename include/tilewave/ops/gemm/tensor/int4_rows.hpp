// SPDX-License-Identifier: MIT
// Int4 weights as the 64-row side of a wave group's products. Codes lie in the ring as they lie in memory, sixteen rows
// by sixteen k in 128 bytes. A lane widens the codes of its two rows into the registers that a product reads.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/gemm/args.hpp"
#include "tilewave/ops/gemm/epilogue.hpp"

namespace tilewave {

/// A scale as value * power * factor, where the power of two is a pair of type T. Every code, less a zero point, times
/// the power is exact, and so are codes before the bias of widening is subtracted. The value is 1 to 2, or less for
/// scales below T's normal numbers. A scale of zero is a power of zero, so that values are never zero. Those that are
/// no numbers are in the value.
template <DType T>
struct GemmSignificand {
  static constexpr float factor = T == DType::bf16 ? 0x1p7f : 0x1p10f;
  float value;
  std::uint32_t power;

  TILEWAVE_DEVICE explicit GemmSignificand(float scale) {
    constexpr bool bf16 = T == DType::bf16;
    constexpr int least = bf16 ? 1 : 127 - 14, mantissa = bf16 ? 7 : 10, to_field = bf16 ? 7 : 127 - 15 + 10;
    const auto bits = __builtin_bit_cast(std::uint32_t, scale);
    const auto of = static_cast<int>(bits >> 23 & 0xffu);  // the exponent
    const int exponent = of == 255 ? 127 : of < least ? least : of;
    value = of < least ? scale * __builtin_bit_cast(float, static_cast<std::uint32_t>(254 - least) << 23)
            : of < 255 ? __builtin_bit_cast(float, (bits & 0x807fffffu) | 127u << 23)
                       : scale;
    const int field = exponent - to_field;
    power = (field > 0 ? static_cast<std::uint32_t>(field) << mantissa : (1u << mantissa) >> (1 - field)) * 0x10001u;
    if (bits << 1 == 0) value = 1.0f, power = 0;
  }
};

/// A stage is 128 k, or 64. A strip of it is a line of 128 bytes for each 16 k, with the swizzle of copy_tensor. An SM
/// takes about 120 cycles to start a copy of any size, so one copy brings all strips that are contiguous.
template <class B, GemmSpec S, GemmPolicy P, class TileRows>
struct GemmInt4Rows {
  static constexpr int step = P.depth_bytes / size_of(S.a), strip_chunks = step * 8 / 16, strips = P.columns / 16;
  static constexpr int slice_k = 32 / size_of(S.a);                                      // values of k in a product
  static constexpr int scale_k = S.four_bit() ? min_of(S.scale_k, step) : step;          // of a stage
  static constexpr int scales_per_stage = step / scale_k, k_slices = scale_k / slice_k;  // k slices under one scale
  static constexpr int box_strips = S.gated ? TileRows::run / 16 : strips;
  /// Preshuffled, a line of a strip is 16 k. Fragments are lines of 32 k, and no swizzle: a lane's words lie together.
  static constexpr bool fragments = S.weights == GemmWeights::fragments;
  static constexpr int line_k = fragments ? 32 : 16, line_bytes = 8 * line_k;
  /// Codes of MXFP4 under bf16 are widened with their scales in the exponents, less two: then all are exact, the least
  /// as subnormals, and the largest, 6 times 2^127, fits. Sums stay in the matrix unit.
  static constexpr bool scales_in_exponents = S.mxfp4() && S.a == DType::bf16;
  /// Sums of int4 stay in the matrix unit, too. Codes are widened with the exponents of their scales, exactly. A
  /// scale's significand is the unit in which sums count, so they are multiplied by its ratio to the next one.
  static constexpr bool rescaled = detail::gemm_rescales_sums(S, P);
  /// Codes are multiplied by their scales and rounded. Sums stay in the matrix unit.
  static constexpr bool rounded = S.rounds_weights();
  /// What makes sums of the values that `widen` makes those of the weights. It multiplies whole sums, since a scale of
  /// 2^127 leaves no room for it.
  static constexpr float factor = rescaled              ? GemmSignificand<S.a>::factor
                                  : scales_in_exponents ? 4.0f
                                  : !is_fp8(S.a)        ? 1.0f
                                                        : 1.0f / (S.mxfp4() ? B::fp4_fp8_unit : B::i4_fp8_unit);

  /// B as the tensor map sees it: the strips of all layers, each of K / line_k lines.
  static TensorShape shape(const void* b, std::int32_t k, std::int64_t strips_of_all) {
    return {b,          DType::i8,           line_bytes,    k / line_k, strips_of_all,
            line_bytes, std::int64_t{k} * 8, step / line_k, box_strips, fragments};
  }
  /// Starts the copies of a stage's codes. All lanes of a wave call this. Columns beyond N repeat the last strip, and
  /// nothing stores them.
  template <class Map, class Mbarrier>
  TILEWAVE_DEVICE static void copy(const GemmArgs& a, const Map& map, const GemmTile& tile, std::int32_t stage,
                                   Chunk* to, Mbarrier* full) {
    const int first = B::lane_id() * box_strips;
    if (first >= strips) return;
    const std::int32_t column = min_of(tile.first_column + TileRows::column(16 * first), a.n - 16);
    const std::int32_t row = gemm_row_of_b<S>(a, column, TileRows::half(16 * first));
    const std::int32_t strip = tile.layer * a.b_layer_strips + row / 16;
    B::copy_tensor(to + first * strip_chunks, map, 0, stage * (step / line_k), strip, full);
  }

  /// What widening needs of a row under a scale, as a pair of A's type: its zero point, or its scale.
  /// Where sums are rescaled, the exponents come first, and then what is subtracted from codes.
  static constexpr bool row_pairs = S.zero_points || scales_in_exponents || rounded || rescaled;
  static constexpr int scale_count = scales_per_stage * P.columns;  // of a stage

  /// Gates and ups beside each other in a lane, see detail::gemm_pairs_halves.
  static constexpr bool pairs = detail::gemm_pairs_halves(S, P);
  /// Returns the row of 64 of a wave group that half h of a product's operand has in a lane.
  TILEWAVE_DEVICE static int row_of(int wave, int h) {
    return (pairs ? 8 * wave + 32 * h : 16 * wave + 8 * h) + B::lane_id() / 4;
  }

  /// Widens the codes of 64 rows from k slice `first_slice` of the stage on, under one scale, into operands a of
  /// group_multiply. A lane reads all 16 k, as its neighbours do, and keeps the two or four of each eight that are its
  /// own. `of_rows`: the pairs of the stage's rows, [scales_per_stage][P.columns], from the first of the 64 rows on.
  template <int slices>
  TILEWAVE_DEVICE static void widen(const Chunk* rows, const std::uint32_t* of_rows, int wave, int first_slice,
                                    Chunk (&codes)[slices]) {
    using Words = Vec<std::uint32_t, 2>;  // 16 k of a row, half a unit
    const int lane = B::lane_id(), own = lane % 4, row = lane / 4;
    // Rows 8 to 15 of a strip are the upper half h of others: with pairs of a gate and its up, both halves are rows of
    // strips two apart.
    const int wave_strip = pairs ? wave / 2 : wave, upper = pairs ? wave % 2 : 0;
    const auto* const strip = reinterpret_cast<const Words*>(rows + wave_strip * strip_chunks);
    // The unit of a row in line l is row / 2 ^ l % 8. Four lines depend on the lane; the others differ by constants.
    // Every second strip of 64 k begins in the middle of the eight lines that the swizzle counts.
    const int middle = (strip_chunks < 64 ? wave_strip % 2 : 0) ^ upper;
    const Words* of_line[4];
    TILEWAVE_UNROLL
    for (int l = 0; l < 4; ++l) of_line[l] = strip + 2 * (row / 2 ^ l) + row % 2;
    std::uint32_t own_pairs[2]{}, own_offsets[2]{};
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t* const of_row = of_rows + first_slice / k_slices * P.columns + row_of(wave, h);
      if constexpr (row_pairs) own_pairs[h] = *of_row;
      if constexpr (rescaled) own_offsets[h] = of_row[scale_count];
    }
    TILEWAVE_UNROLL
    for (int p = 0; p < slices; ++p) {
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const auto words_of = [&](int sixteen) TILEWAVE_INLINE_LAMBDA {
          const int line = (first_slice + p) * (slice_k / 16) + sixteen;  // of the strip's 8
          if constexpr (pairs) return of_line[line % 4][line * 16 + 8 * (line / 4 ^ middle) + 4 * h * strip_chunks];
          return of_line[line % 4][line * 16 + 8 * (h ^ line / 4 ^ middle)];
        };
        if constexpr (size_of(S.a) == 2) {
          Words pairs;
          if constexpr (S.mxfp4()) {
            pairs = B::template widen_fp4_pairs<S.a>(words_of(0), own);
          } else if constexpr (rescaled) {
            pairs = B::template widen_i4_pairs_times<S.a>(words_of(0), own, own_pairs[h], own_offsets[h]);
          } else if constexpr (S.zero_points) {
            pairs = B::template widen_i4_pairs<S.a>(words_of(0), own, own_pairs[h]);
          } else {
            pairs = B::template widen_i4_pairs<S.a>(words_of(0), own);
          }
          if constexpr (scales_in_exponents || rounded) {
            TILEWAVE_UNROLL
            for (int i = 0; i < 2; ++i) pairs[i] = B::multiply_bf16(pairs[i], own_pairs[h]);
          }
          codes[p][h] = pairs[0];
          codes[p][2 + h] = pairs[1];
        } else {
          TILEWAVE_UNROLL
          for (int half = 0; half < 2; ++half) {
            const Words words = words_of(half);
            const std::uint32_t word = own < 2 ? words[0] : words[1];
            codes[p][2 * half + h] = S.mxfp4() ? B::widen_fp4_quad(word, own % 2) : B::widen_i4_quad(word, own % 2);
          }
        }
      }
    }
  }

  /// A wave's registers for the scales of a stage, [scales_per_stage][P.columns], between device and shared memory.
  struct FetchedScales {
    static constexpr int lanes = B::facts.wave_lanes, per_load = 4, count = scales_per_stage * P.columns / per_load;
    using Scales = Packed<S.group_scale(), per_load>;
    using Zeros = Packed<DType::i8, per_load>;
    static constexpr int loads = ceil_div(count, lanes);
    Scales scales[loads], before[rescaled ? loads : 1];  // before: those of the scale_k before
    Zeros zeros[S.zero_points ? loads : 1];

    TILEWAVE_DEVICE void load(const GemmArgs& a, const GemmTile& tile, std::int32_t stage) {
      const auto* const first =
          static_cast<const Storage<S.group_scale()>*>(a.b_group_scale) + tile.layer * a.b_scale_layer_stride;
      for_each_load([&](int i, int at) TILEWAVE_INLINE_LAMBDA {
        const int r = at % P.columns, scale = at / P.columns;
        const std::int32_t column = min_of(tile.first_column + TileRows::column(r), a.n - per_load);
        const std::int32_t row = gemm_row_of_b<S>(a, column, TileRows::half(r));
        const std::int32_t k = min_of(stage * step + scale * scale_k, a.k - S.scale_k);  // beyond K, A is 0
        const std::int64_t offset = k / S.scale_k * a.b_scale_k_stride + row;
        scales[i] = B::load(reinterpret_cast<const Scales*>(first + offset));
        if constexpr (rescaled) {
          const std::int64_t earlier = max_of(k - 1, 0) / S.scale_k * a.b_scale_k_stride + row;
          before[i] = B::load(reinterpret_cast<const Scales*>(first + earlier));
        }
        if constexpr (S.zero_points)
          zeros[i] =
              B::load(reinterpret_cast<const Zeros*>(a.b_mx_scale + tile.layer * a.b_scale_layer_stride + offset));
      });
    }
    template <class Shared>
    TILEWAVE_DEVICE void store(Shared& shared, int slot) {
      for_each_load([&](int i, int at) TILEWAVE_INLINE_LAMBDA {
        const Vec<float, per_load> wide = tilewave::widen<B, S.group_scale(), per_load>(scales[i]);
        if constexpr (rescaled) {
          store_rescaled(shared, slot, i, at, wide);
        } else {
          Vec<std::uint32_t, per_load> pairs;
          TILEWAVE_UNROLL
          for (int e = 0; e < per_load; ++e) {
            constexpr float part = rounded ? 1.0f : 0.25f;
            const std::uint32_t scale = __builtin_bit_cast(std::uint32_t, part * wide[e]) >> 16;
            pairs[e] = scales_in_exponents || rounded ? scale | scale << 16
                       : S.zero_points ? zeros_of(static_cast<std::int8_t>(zeros[S.zero_points ? i : 0][0] >> 8 * e))
                                       : 0;
          }
          if constexpr (!scales_in_exponents && !rounded)
            *reinterpret_cast<Vec<float, per_load>*>(shared.b_scale[slot] + at) = wide;
          if constexpr (row_pairs)
            *reinterpret_cast<Vec<std::uint32_t, per_load>*>(shared.row_pairs[slot] + at) = pairs;
        }
      });
    }

   private:
    TILEWAVE_DEVICE static std::uint32_t zeros_of(int zero) {
      if constexpr (S.zero_points || rescaled) return B::template i4_zeros<S.a>(zero);
      return 0;
    }
    template <class Shared>
    TILEWAVE_DEVICE void store_rescaled(Shared& shared, int slot, int i, int at, const Vec<float, per_load>& wide) {
      using Significand = GemmSignificand<S.a>;
      const Vec<float, per_load> earlier = tilewave::widen<B, S.group_scale(), per_load>(before[rescaled ? i : 0]);
      Vec<float, per_load> ratios, significands;
      Vec<std::uint32_t, per_load> powers, offsets;
      TILEWAVE_UNROLL
      for (int e = 0; e < per_load; ++e) {
        const Significand own(wide[e]);
        const int zero = S.zero_points ? static_cast<std::int8_t>(zeros[S.zero_points ? i : 0][0] >> 8 * e) : 0;
        significands[e] = own.value;
        ratios[e] = Significand(earlier[e]).value / own.value;
        powers[e] = own.power;
        offsets[e] = B::template i4_offsets<S.a>(zeros_of(zero), own.power);
      }
      *reinterpret_cast<Vec<float, per_load>*>(shared.b_scale[slot] + at) = ratios;
      *reinterpret_cast<Vec<float, per_load>*>(shared.b_scale[slot] + scale_count + at) = significands;
      *reinterpret_cast<Vec<std::uint32_t, per_load>*>(shared.row_pairs[slot] + at) = powers;
      *reinterpret_cast<Vec<std::uint32_t, per_load>*>(shared.row_pairs[slot] + scale_count + at) = offsets;
    }
    /// Calls body(number, offset in [scales_per_stage][P.columns]) for each load of the lane.
    template <class Body>
    TILEWAVE_DEVICE void for_each_load(const Body& body) {
      TILEWAVE_UNROLL
      for (int i = 0; i < ceil_div(count, lanes); ++i) {
        const int load = i * lanes + B::lane_id();
        if (count % lanes == 0 || load < count) body(i, load * per_load);
      }
    }
  };
};

}  // namespace tilewave
