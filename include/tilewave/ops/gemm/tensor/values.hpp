// SPDX-License-Identifier: MIT
// Values of a tile of GemmTensorKernel: sums times the scales of their rows and columns, with bias, residual and
// activation, and their codes where out is quantised.
#pragma once

#include "tilewave/ops/gemm/tensor/sum_map.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
struct GemmTensorKernel;

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
class GemmTensorValues : public GemmSumMap<B, S, P, UserEpilogue> {
 public:
  using SumMap = GemmSumMap<B, S, P, UserEpilogue>;
  using L = typename SumMap::L;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Sums = typename L::Sums;
  using Epilogue = typename SumMap::Epilogue;
  using SumMap::per_group;
  static constexpr bool boxes = L::out_in_boxes;
  static constexpr bool row_scales = L::row_scales;
  /// What two wave groups tell each other of output scales, see L::shares_out_groups.
  struct OutGroups {
    typename B::Mbarrier published;
    float largest[2][L::wave_groups][64];  // one set of a tile, another of the next
  };

 protected:
  using SumMap::element;
  using SumMap::out_factor_;
  using SumMap::sum_of;
  using SumMap::tiles_c;
  using SumMap::wide_c;
  using InTile = typename SumMap::InTile;

  /// The barriers around the filling of boxes also order the scales in shared memory.
  static constexpr bool barriers_of_boxes = boxes && !P.swapped && !P.late;

  /// Loads the scales of a tile, see GemmTensorOutput::begin.
  TILEWAVE_DEVICE void load_scales(const Args& a, const GemmTile& tile, int wave_group) {
    if constexpr (row_scales) {
      TILEWAVE_UNROLL
      for (int i = 0; i < 2 * L::tiles; ++i) {
        const InTile at = element(wave_group, i / 2 % tiles_c, 2 * (i % 2));
        tall_scale_[i] = P.swapped ? Epilogue::column_scale(a.gemm, tile, at.column, i / 2 / tiles_c)
                                   : Epilogue::row_scale(a.gemm, tile, at.row);
      }
      TILEWAVE_UNROLL
      for (int r = 0; r < rounds; ++r) {
        const int wide =
            L::wide_row(wave_group) + min_of(r * L::wave_group_lanes + L::lane_in_wave_group(), L::wave_group_wide - 1);
        using Rows = typename L::TileRows;
        wide_scale_[r] = P.swapped ? Epilogue::row_scale(a.gemm, tile, wide)
                                   : Epilogue::column_scale(a.gemm, tile, Rows::column(wide), Rows::half(wide));
      }
    }
  }
  /// Hides from the compiler that both cases multiply sums by the same factors. Where registers are full it computes
  /// those products in front of the branch, and spills them.
  TILEWAVE_DEVICE void hold_factors() {
    const auto held = [](float value) TILEWAVE_INLINE_LAMBDA {
      return __builtin_bit_cast(float, B::opaque(__builtin_bit_cast(std::uint32_t, value)));
    };
    factor_ = held(factor_);
    for (float& scale : tall_scale_) scale = held(scale);
  }
  /// Makes the factors of the tile's values. Those of the wide side go to shared memory.
  TILEWAVE_DEVICE void take_scales(const Args& a, int wave_group, Shared& shared) {
    factor_ = Epilogue::tensor_scale(a.gemm);
    if constexpr (L::packed) factor_ *= L::Codes::factor;
    out_factor_ = Epilogue::out_factor(a.gemm);
    if constexpr (row_scales) {
      TILEWAVE_UNROLL
      for (float& scale : tall_scale_) scale *= factor_;
      if (!barriers_of_boxes) B::group_barrier();  // all lanes have read the scales of the tile before
      TILEWAVE_UNROLL
      for (int r = 0; r < rounds; ++r) {
        const int at = r * L::wave_group_lanes + L::lane_in_wave_group();
        if (at < L::wave_group_wide) shared.wide_scale[wave_group][at] = wide_scale_[r];
      }
      if (!barriers_of_boxes) B::group_barrier();
    }
  }

  /// Makes a lane's values of `wide` rows of the wide side of tile t of the wave group, from `from` on.
  template <bool extras, int wide>
  TILEWAVE_DEVICE Vec<float, L::sums_of(wide)> values_of(const Args& a, const GemmTile& tile, int wave_group,
                                                         Shared& shared, const Sums (&sums)[L::tiles], int t,
                                                         int from) {
    Vec<float, L::sums_of(wide)> parts[L::halves];
    const int first = L::sums_of(from);
    TILEWAVE_UNROLL
    for (int half = 0; half < L::halves; ++half) {
      TILEWAVE_UNROLL
      for (int i = 0; i < L::sums_of(wide); ++i) parts[half][i] = static_cast<float>(sum_of(sums, half, t, first + i));
    }
    const auto at = [&](int i) TILEWAVE_INLINE_LAMBDA { return element(wave_group, t, first + i); };
    const float* const wide_scale =
        shared.wide_scale[row_scales ? wave_group : 0] + (row_scales ? from + 2 * (B::lane_id() % 4) : 0);
    const auto scale_of = [&](int i, int half) TILEWAVE_INLINE_LAMBDA {
      if constexpr (!row_scales) return factor_;
      const int of_tall = L::pairs ? half : 2 * (P.swapped ? t + half * tiles_c : t) + i / 2 % 2;
      return tall_scale_[of_tall] * wide_scale[8 * (i / L::sums_of(8)) + i % 2 + (P.swapped ? 0 : half * wide_c)];
    };
    Epilogue::template apply<extras>(a.gemm, a.epilogue, tile, parts, at, scale_of);
    return parts[0];
  }
  /// Makes the largest magnitudes of a lane's two rows those of both wave groups that share their 128 columns.
  TILEWAVE_DEVICE void merge_largest(Shared& shared, int wave_group, float (&largest)[2]) {
    using KernelShared = typename GemmTensorKernel<B, S, P, UserEpilogue>::Shared;
    auto& groups = static_cast<KernelShared&>(shared).out_groups;
    const int row = 16 * L::wave_in_wave_group() + B::lane_id() / 4;
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      largest[h] = B::template reduce<4>(largest[h], Max{});
      if (B::lane_id() % 4 == 0) groups.largest[merged_ % 2][wave_group][row + 8 * h] = largest[h];
    }
    B::mbarrier_arrive(&groups.published);
    B::mbarrier_wait(&groups.published, merged_ % 2);
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h)
      largest[h] = max_of(largest[h], groups.largest[merged_ % 2][wave_group ^ 1][row + 8 * h]);
    ++merged_;
  }
  /// Quantised values, four elements a word. A few are rounded at a time, because registers are few.
  template <bool extras, int wide>
  TILEWAVE_DEVICE Vec<std::uint32_t, wide / 8> codes_of(const Args& a, const GemmTile& tile, int wave_group,
                                                        Shared& shared, const Sums (&sums)[L::tiles], int t, int from) {
    constexpr int step = min_of(wide, 16), kept = per_group ? wide / 2 : step / 2;
    Vec<float, kept> values;
    Vec<std::uint32_t, wide / 8> codes;
    float factor[2] = {out_factor_, out_factor_}, largest[2] = {0.0f, 0.0f};  // one for each of the lane's two rows
    const auto round = [&](int word, int first) TILEWAVE_INLINE_LAMBDA {
      Vec<float, 4> four;
      TILEWAVE_UNROLL
      for (int e = 0; e < 4; ++e) four[e] = values[first + e] * factor[e / 2];
      codes[word] = narrow<B, S.out, 4>(four)[0];
    };
    TILEWAVE_UNROLL
    for (int done = 0; done < wide; done += step) {
      const Vec<float, step / 2> some = values_of<extras, step>(a, tile, wave_group, shared, sums, t, from + done);
      TILEWAVE_UNROLL
      for (int i = 0; i < step / 2; ++i) {
        values[(done / 2 + i) % kept] = some[i];
        if constexpr (per_group) {
          const std::int32_t column = tile.first_column + element(wave_group, t, (from + done) / 2 + i).column;
          largest[i / 2 % 2] = Epilogue::amax(a.gemm, column, largest[i / 2 % 2], some[i]);
        } else if (i % 4 == 3) {
          round((done / 2 + i) / 4, i - 3);
        }
      }
    }
    if constexpr (per_group) {
      static_assert(wide == scale_group || L::shares_out_groups, "a lane has a quarter of two rows of 128 columns");
      if constexpr (L::shares_out_groups) merge_largest(shared, wave_group, largest);
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const InTile at = element(wave_group, t, from / 2 + 2 * h);
        const int first = at.column / scale_group * scale_group;
        factor[h] = SumMap::template keep_scale<4>(a, tile, at.row, first, largest[h]);
      }
      TILEWAVE_UNROLL
      for (int word = 0; word < wide / 8; ++word) round(word, 4 * word);
    }
    return codes;
  }

 private:
  float factor_ = 1.0f;
  int merged_ = 0;                  // how often merge_largest was called
  float tall_scale_[2 * L::tiles];  // one for each of the lane's two rows of a tile
  static constexpr int rounds = ceil_div(L::wave_group_wide, L::wave_group_lanes);
  float wide_scale_[rounds];  // loaded, and not yet in shared memory
};

}  // namespace tilewave
