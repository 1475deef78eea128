// SPDX-License-Identifier: MIT
// MXFP4 codes in the order of fragments (GemmWeights::fragments), as the 64-row side of a wave group's products. A lane
// reads the words that are its own, and makes two bf16 of a code's bits by a mask and a product with its scale.
#pragma once

#include "tilewave/ops/gemm/fragments.hpp"
#include "tilewave/ops/gemm/tensor/int4_rows.hpp"

namespace tilewave {

/// A code whose bits stand where the exponent of a bf16 ends and the mantissa begins is its value times 2^-126. Times
/// 2^(e - 3) it is a quarter of the value under the scale 2^(e - 127), exactly. That factor is a bf16 for e up to 130.
/// Above, as hardly any checkpoint has it, it is 2^127 times a second one, and a stage has a flag that says so.
template <class B, GemmSpec S, GemmPolicy P, class TileRows>
struct GemmFp4Fragments : GemmInt4Rows<B, S, P, TileRows> {
  using Rows = GemmInt4Rows<B, S, P, TileRows>;
  static constexpr int scales = Rows::scales_per_stage, slices = scales * Rows::k_slices;
  static constexpr std::uint32_t largest = 130;
  /// The factors of a row in a stage, each twice in a word, or the second one below the first, beyond `largest`.
  using Factors = Vec<std::uint32_t, scales>;

  /// Returns the eight codes of a word (GemmFragment), each pair as two bf16 that are 2^-126 times the values.
  TILEWAVE_DEVICE static Chunk placed(std::uint32_t word) {
    constexpr std::uint32_t both = 0x81c081c0u;
    return {{word << 6 & both, word << 2 & both, (word >> 4 | word << 28) & both,
             (word & 0x81808180u) | (word >> 8 & 0x00400040u)}};
  }
  /// The place of a row's factors. Lanes store four rows that follow each other, and read eight: both without conflicts
  /// of banks.
  TILEWAVE_DEVICE static int place(int row) { return row ^ (row / 8 & 3); }

  /// Reads the factors of the lane's two rows of 64. `factors` are those of the tile, of which the 64 rows begin at
  /// `first`, and `beyond` is the flag of the stage.
  TILEWAVE_DEVICE static void read_factors(const std::uint32_t* factors, int first, int wave, bool beyond,
                                           Factors (&own)[2], Factors (&second)[2]) {
    const auto* const all = reinterpret_cast<const Factors*>(factors);
    const int row = first + 16 * wave + B::lane_id() / 4;
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) own[h] = all[place(row + 8 * h)];
    if (beyond) split(own, second);
  }
  /// Widens the codes under a scale into operands of two products. `rows` are those of the wave group's strips.
  TILEWAVE_DEVICE static void widen_scale(const Chunk* rows, int wave, int scale, bool beyond, const Factors (&own)[2],
                                          const Factors (&second)[2], Chunk (&codes)[2]) {
    using Words = Vec<std::uint32_t, 2>;  // of a lane, for 32 k of a strip
    const auto* const words = reinterpret_cast<const Words*>(rows + wave * Rows::strip_chunks) + B::lane_id();
    const Words both = words[scale * B::facts.wave_lanes];
    TILEWAVE_UNROLL
    for (int slice = 0; slice < 2; ++slice) {
      codes[slice] = placed(both[slice]);
      TILEWAVE_UNROLL
      for (int i = 0; i < 4; ++i) codes[slice][i] = B::multiply_bf16(codes[slice][i], own[i % 2][scale]);
    }
    if (!beyond) return;
    TILEWAVE_UNROLL
    for (int slice = 0; slice < 2; ++slice) {
      TILEWAVE_UNROLL
      for (int i = 0; i < 4; ++i) codes[slice][i] = B::multiply_bf16(codes[slice][i], second[i % 2][scale]);
    }
  }
  /// Widens the codes of 64 rows of a stage, from slice `first_slice` on, into operands a of group_multiply.
  template <int count>
  TILEWAVE_DEVICE static void widen(const Chunk* rows, const std::uint32_t* factors, int first, int wave, bool beyond,
                                    int first_slice, Chunk (&codes)[count]) {
    Factors own[2], second[2];
    read_factors(factors, first, wave, beyond, own, second);
    TILEWAVE_UNROLL
    for (int scale = 0; scale < count / 2; ++scale) {
      Chunk two[2];
      widen_scale(rows, wave, first_slice / 2 + scale, beyond, own, second, two);
      TILEWAVE_UNROLL
      for (int slice = 0; slice < 2; ++slice) codes[2 * scale + slice] = two[slice];
    }
  }

  /// A wave's registers for the scales of a stage, between device and shared memory. A lane has four rows at a time.
  struct FetchedScales {
    static constexpr int lanes = B::facts.wave_lanes, count = P.columns / 4, loads = ceil_div(count, lanes);
    using Scales = Packed<DType::e8m0, 4>;
    Scales loaded[loads][scales];

    TILEWAVE_DEVICE void load(const GemmArgs& a, const GemmTile& tile, std::int32_t stage) {
      const auto* const begin = static_cast<const std::uint8_t*>(a.b_group_scale) + tile.layer * a.b_scale_layer_stride;
      for_each_load([&](int i, int r) TILEWAVE_INLINE_LAMBDA {
        const std::int32_t column = min_of(tile.first_column + TileRows::column(r), a.n - 4);
        const auto* const of_rows = begin + gemm_row_of_b<S>(a, column, TileRows::half(r));
        TILEWAVE_UNROLL
        for (int s = 0; s < scales; ++s) {
          const std::int32_t k_block = min_of(stage * scales + s, a.k / 32 - 1);  // beyond K, A is 0
          loaded[i][s] = B::load(reinterpret_cast<const Scales*>(of_rows + k_block * a.b_scale_k_stride));
        }
      });
    }
    template <class Shared>
    TILEWAVE_DEVICE void store(Shared& shared, int slot) {
      std::uint32_t beyond = 0;  // not 0 where a byte is above `largest`, 128 + 2
      auto* const to = reinterpret_cast<Factors*>(shared.row_pairs[slot]);
      for_each_load([&](int i, int r) TILEWAVE_INLINE_LAMBDA {
        TILEWAVE_UNROLL
        for (int s = 0; s < scales; ++s) {
          const std::uint32_t four = loaded[i][s][0];
          beyond |= ((four & 0x7f7f7f7fu) + 0x7d7d7d7du) & four & 0x80808080u;
        }
        TILEWAVE_UNROLL
        for (int e = 0; e < 4; ++e) {
          Factors factors;
          TILEWAVE_UNROLL
          for (int s = 0; s < scales; ++s) factors[s] = ((loaded[i][s][0] >> 8 * e & 0xffu) + 124u) * 0x00800080u;
          to[place(r + e)] = factors;
        }
      });
      const bool any = B::any(beyond != 0);
      if (any) {
        B::wave_barrier();
        for (int i = B::lane_id(); i < scales * P.columns; i += lanes) {
          std::uint32_t& factor = shared.row_pairs[slot][i];
          factor = both_factors((factor & 0xffffu) >> 7);
        }
      }
      if (B::lane_id() == 0) shared.row_pairs[slot][scales * P.columns] = any;
    }

   private:
    /// Calls body(number, first of four rows) for each load of the lane.
    template <class Body>
    TILEWAVE_DEVICE void for_each_load(const Body& body) {
      TILEWAVE_UNROLL
      for (int i = 0; i < loads; ++i) {
        const int load = i * lanes + B::lane_id();
        if (count % lanes == 0 || load < count) body(i, 4 * load);
      }
    }
  };

 private:
  static constexpr std::uint32_t most = largest + 124, one = 127u << 7, nan = 0x7fc0;  // an exponent, and bf16
  /// Returns a row's word, of a scale e from e + 124.
  TILEWAVE_DEVICE static std::uint32_t both_factors(std::uint32_t exponent) {
    if (exponent <= most) return exponent * 0x00800080u;
    return most << 23 | (exponent == 255 + 124 ? nan : (exponent - 127) << 7);
  }
  /// Makes pairs of the first and of the second factors.
  TILEWAVE_DEVICE static void split(Factors (&own)[2], Factors (&second)[2]) {
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      TILEWAVE_UNROLL
      for (int s = 0; s < scales; ++s) {
        const std::uint32_t low = own[h][s] & 0xffffu, high = own[h][s] >> 16;
        own[h][s] = high * 0x10001u;
        second[h][s] = (low == high ? one : low) * 0x10001u;
      }
    }
  }
};

}  // namespace tilewave
