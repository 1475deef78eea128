// SPDX-License-Identifier: MIT
// The layout of MlaDecodeSwapped: its shared memory and its operands.
#pragma once

#include "tilewave/ops/mla_decode/tensor/layout.hpp"

namespace tilewave {

/// q has boxes of 32 or 16 rows by 128 bytes. Tiles of tokens lie as in MlaDecodeTensor, and each wave group has a
/// stage of its own, and a box for its probabilities: 64 tokens of each query row.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeSwappedLayout : MlaDecodeTensorLayout<B, S, P> {
  using Base = MlaDecodeTensorLayout<B, S, P>;
  using Base::rows, Base::groups, Base::group_waves, Base::tokens, Base::box_size, Base::last_box;
  using typename Base::Args, typename Base::Mbarrier;
  // Boxes of codes that lanes hold in registers. There must be room for them, and two tiles have a multiple of them.
  static constexpr int held_boxes = S.layout == LatentLayout::groups_128 ? 6 : Base::score_boxes;

  static constexpr bool grouped = false;        // whether codes meet scales of groups in registers
  static constexpr int row_squares = rows / 8;  // pairs of 8 x 8 scores of a wave
  using Scores = Vec<float, rows / 2>;
  // A part has 64 dimensions of all rows.
  using Sums = LaneSums<B, last_box, rows>;
  // Results pass through the place of q: half of the dimensions of all rows, as f32. Rows that follow each other begin
  // four banks apart.
  static constexpr int half_dimensions = latent_value_size / 2, staged_row = half_dimensions + 4;  // floats

  struct Shared {
    alignas(1024) Chunk q[Base::boxes * Base::q_box_size];
    alignas(1024) Chunk kv[Base::stages][Base::boxes * box_size];
    alignas(1024) Chunk probabilities[groups][Base::q_box_size];
    typename Base::Aside aside;
    alignas(16) float of_wave[groups][rows][group_waves];  // maxima of a tile, or sums
    float reference[groups][rows];                         // of a group's sums, log2 units
    Mbarrier q_full, q_free;
    Mbarrier full[Base::stages][Base::boxes];
    Mbarrier free[Base::stages][groups][Base::parts];  // both halves of a stage are freed by the same group
    Mbarrier merged;
  };
  static_assert(int{sizeof(Shared::q)} >= rows * staged_row * int{sizeof(float)}, "q has room for half of the results");

  TILEWAVE_DEVICE static void begin(Shared& shared) {
    if (B::elected()) {
      Base::begin_fetching(shared);
      B::mbarrier_init(&shared.merged, groups * group_waves);
    }
    B::mbarrier_ready();
  }

  /// Returns which of eight tokens is row r of eight, of scores.
  TILEWAVE_DEVICE static int token_of(int r) { return r; }
  /// Returns which of sixteen dimensions is row r + 8 h of sixteen, of values' products of a block of 64 dimensions.
  TILEWAVE_DEVICE static int dimension_of(int r, int h, int) { return r + 8 * h; }
  TILEWAVE_HOST_DEVICE static constexpr bool is_wide(int) { return false; }
  TILEWAVE_DEVICE static void put_q(Shared& shared, int r, int u, const Chunk& words) {
    shared.q[u / Base::box_chunks * Base::q_box_size + Base::chunk_of(r, u % Base::box_chunks)] = words;
  }
  /// Multiplies each row's sums by its factor.
  template <class AnySums>
  TILEWAVE_DEVICE static void scale(AnySums& out, const Vec<float, rows / 4>& factors) {
    TILEWAVE_UNROLL
    for (int box = 0; box < AnySums::parts; ++box) {
      TILEWAVE_UNROLL
      for (int e = 0; e < rows / 2; ++e) out.of[box][e] *= factors[2 * (e / 4) + e % 2];
    }
  }

  /// Return the operands of a k slice: 32 bytes of a tile's rows or of q, and as many tokens of 64 dimensions of values
  /// or of probabilities.
  TILEWAVE_DEVICE static SwizzledOperand key_operand(const Shared& shared, int stage, int k_slice) {
    return {shared.kv[stage] + k_slice / 4 * box_size, 0, k_slice % 4};
  }
  template <class AnyShared>
  TILEWAVE_DEVICE static SwizzledOperand q_operand(const AnyShared& shared, int k_slice) {
    return {shared.q + k_slice / 4 * Base::q_box_size, 0, k_slice % 4};
  }
  TILEWAVE_DEVICE static TransposedOperand value_operand(const Shared& shared, int stage, int box, int k_slice) {
    return {shared.kv[stage] + box * box_size, tokens, 0, k_slice};
  }
  template <class AnyShared>
  TILEWAVE_DEVICE static SwizzledOperand probability_operand(const AnyShared& shared, int group, int k_slice) {
    return {shared.probabilities[group], 0, k_slice};
  }
};

}  // namespace tilewave
