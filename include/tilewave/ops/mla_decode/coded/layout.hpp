// SPDX-License-Identifier: MIT
// The layout of MlaDecodeCoded: its shared memory, and which rows of its products are which tokens and dimensions.
#pragma once

#include "tilewave/ops/mla_decode/swapped/layout.hpp"

namespace tilewave {

/// An operand in registers has a row for each group of four lanes. So that reads of sixteen codes meet no bank twice,
/// rows of scores are tokens in another order. So that four lanes have sixteen codes each that lie together, 64
/// dimensions of scores are in another order, too. Of values, lanes have two neighbouring dimensions.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeCodedOrder : MlaDecodeSwappedLayout<B, S, P> {
  using Base = MlaDecodeSwappedLayout<B, S, P>;
  static_assert(S.head_size == 576 || S.layout == LatentLayout::groups_64, "64 dimensions follow 512 codes, or 448");
  static constexpr DType type = DType::f16;
  static constexpr bool converts_q = true, grouped = S.layout != LatentLayout::plain;
  // The last 64 dimensions of values may be bf16. Their products take probabilities of their own.
  static constexpr bool wide_values = S.layout == LatentLayout::groups_64;
  using Aside = typename Base::Units;
  static constexpr int code_boxes = 5, tile_size = code_boxes * Base::box_size;  // chunks
  // The last box has codes, or bf16 behind codes in groups.
  static constexpr int code_blocks = S.row().codes() / 64, last_column = grouped ? S.row().wide_byte() : 512;
  static constexpr int full_waves = grouped ? 3 : 1;  // that make a tile full
  static constexpr int scale_blocks = grouped ? S.row().group() / 64 : 1;

  /// The scales of a tile's tokens. A token's are f16 over a power of two, its unit, so that the largest is below
  /// 2. Units are biased exponents. Values' products want scales of two tokens of eight pairs, one after the other:
  /// those of group g, lane l % 4, sixteen tokens s and half h of these at [g][l % 4][2 s + h].
  struct GroupScales {
    static constexpr int groups = S.row().scales();
    alignas(16) std::uint16_t pair[groups][4][8][2];
    std::uint32_t unit[Base::tokens], largest[2];
  };
  struct NoScales {
    static constexpr int groups = 1;
  };
  using Scales = std::conditional_t<grouped, GroupScales, NoScales>;
  /// Probabilities of products with bf16: they have no units.
  template <int count>
  struct SomeWideProbabilities {
    alignas(1024) Chunk of[count][Base::q_box_size];
  };
  struct NoWideProbabilities {};
  template <int count>
  using WideProbabilities = std::conditional_t<wide_values, SomeWideProbabilities<count>, NoWideProbabilities>;
  /// Returns the power of two with a biased exponent.
  TILEWAVE_DEVICE static float power(std::uint32_t exponent) { return __builtin_bit_cast(float, exponent << 23); }

  /// Returns which row of eight has token t of eight.
  TILEWAVE_DEVICE static int row_of(int t) { return t % 4 * 2 + t / 4; }
  /// Returns which of eight tokens is row r of eight. Rows 2 i and 2 i + 1 are four tokens apart.
  TILEWAVE_DEVICE static int token_of(int r) { return r / 2 | r % 2 * 4; }
  /// Returns which of sixteen dimensions is row r + 8 h of sixteen of values' products, of block n of 64 dimensions.
  TILEWAVE_DEVICE static int dimension_of(int r, int h, int n) { return is_wide(n) ? r + 8 * h : 2 * r + h; }
  /// Returns whether values of block n of 64 dimensions are bf16.
  TILEWAVE_HOST_DEVICE static constexpr bool is_wide(int n) { return wide_values && n == code_blocks; }
  /// Puts dimensions 8 u to 8 u + 7 of row r of q where products find them: of 64 dimensions, 16 c + 4 i + 2 h and the
  /// next come to 16 i + 8 h + 2 c.
  template <class AnyShared>
  TILEWAVE_DEVICE static void put_q(AnyShared& shared, int r, int u, const Chunk& words) {
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const int slice = 2 * (u % 2) + w / 2, half = w % 2;
      shared.q[u / 8 * Base::q_box_size + Base::chunk_of(r, 2 * slice + half)][u % 8 / 2] = words[w];
    }
  }
  template <class AnyShared>
  TILEWAVE_DEVICE static SwizzledOperand wide_operand(const AnyShared& shared, int group, int k_slice) {
    return {shared.wide.of[group], 0, k_slice};
  }
  /// Multiplies sums of codes by each row's factor and by `of_units`, and others, which are the last part if `wide`, by
  /// the row's alone.
  template <class AnySums>
  TILEWAVE_DEVICE static void scale(AnySums& out, const Vec<float, Base::rows / 4>& factors, float of_units,
                                    bool wide) {
    TILEWAVE_UNROLL
    for (int part = 0; part < AnySums::parts; ++part) {
      const float unit = wide_values && wide && part == AnySums::parts - 1 ? 1.0f : of_units;
      TILEWAVE_UNROLL
      for (int e = 0; e < Base::rows / 2; ++e) out.of[part][e] *= factors[2 * (e / 4) + e % 2] * unit;
    }
  }
};

/// Shared memory holds q as MlaDecodeSwapped has it, but for that order, and a ring of tiles as the copy engine brings
/// them: boxes of 64 tokens by 128 codes, of which the last is half empty. Lanes read codes from there and widen them
/// in registers, as the left operands of products. Results pass through the place of q, and that of probabilities where
/// it is too small.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeCodedLayout : MlaDecodeCodedOrder<B, S, P> {
  using Base = MlaDecodeCodedOrder<B, S, P>;
  using Base::rows, Base::groups, Base::group_waves;
  using typename Base::Mbarrier;
  static constexpr int stages = rows == 16 && !Base::wide_values ? 5 : 4, free_waves = group_waves;
  // Blocks of 64 dimensions of values that a group has.
  static constexpr int value_blocks = Base::last_box;
  TILEWAVE_DEVICE static int first_value_box(int) { return 0; }

  struct Shared {
    alignas(1024) Chunk q[Base::score_boxes * Base::q_box_size];
    alignas(1024) Chunk probabilities[groups][Base::q_box_size];
    alignas(1024) Chunk codes[stages][Base::tile_size];
    typename Base::template WideProbabilities<groups> wide;
    typename Base::Aside aside;
    typename Base::Scales scales[stages];
    alignas(16) float of_wave[groups][rows][group_waves];  // maxima of a tile, or sums
    float reference[groups][rows];                         // of a group's sums, log2 units
    std::uint32_t unit[groups];                            // of a group's sums of values, where scales are of groups
    Mbarrier q_full, q_free;
    Mbarrier full[stages], free[stages];
    Mbarrier merged;
  };
  static_assert(int{sizeof(Shared::q) + sizeof(Shared::probabilities)} >= rows * Base::staged_row * int{sizeof(float)});

  TILEWAVE_DEVICE static void begin(Shared& shared) {
    if (B::elected()) {
      for (auto* barrier : {&shared.q_full, &shared.q_free, &shared.merged})
        B::mbarrier_init(barrier, groups * group_waves);
      for (int stage = 0; stage < stages; ++stage) {
        B::mbarrier_init(&shared.full[stage], Base::full_waves);
        B::mbarrier_init(&shared.free[stage], group_waves);
      }
    }
    B::mbarrier_ready();
  }
};

}  // namespace tilewave
