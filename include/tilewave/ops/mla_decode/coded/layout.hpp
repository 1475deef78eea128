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
  static_assert(Base::one_scale && Base::any_last, "codes become f16, and rows are 576 of them");
  static constexpr int code_boxes = 5, tile_size = code_boxes * Base::box_size;  // chunks

  /// Returns which of eight tokens is row r of eight. Rows 2 i and 2 i + 1 are four tokens apart.
  TILEWAVE_DEVICE static int token_of(int r) { return r / 2 | r % 2 * 4; }
  /// Returns which of sixteen dimensions is row r + 8 h of sixteen of values' products.
  TILEWAVE_DEVICE static int dimension_of(int r, int h) { return 2 * r + h; }
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
};

/// Shared memory holds q as MlaDecodeSwapped has it, but for that order, and a ring of tiles as the copy engine brings
/// them: boxes of 64 tokens by 128 codes, of which the last is half empty. Lanes read codes from there and widen them
/// in registers, as the left operands of products.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeCodedLayout : MlaDecodeCodedOrder<B, S, P> {
  using Base = MlaDecodeCodedOrder<B, S, P>;
  using Base::rows, Base::groups, Base::group_waves;
  using typename Base::Mbarrier;
  static constexpr int stages = rows == 16 ? 5 : 4, free_waves = group_waves;
  // Blocks of 64 dimensions of values that a group has.
  static constexpr int value_blocks = Base::last_box;
  TILEWAVE_DEVICE static int first_value_box(int) { return 0; }

  struct Shared {
    alignas(1024) Chunk q[Base::boxes * Base::q_box_size];
    alignas(1024) Chunk codes[stages][Base::tile_size];
    alignas(1024) Chunk probabilities[groups][Base::q_box_size];
    typename Base::Aside aside;
    alignas(16) float of_wave[groups][rows][group_waves];  // maxima of a tile, or sums
    float reference[groups][rows];                         // of a group's sums, log2 units
    Mbarrier q_full, q_free;
    Mbarrier full[stages], free[stages];
    Mbarrier merged;
  };

  TILEWAVE_DEVICE static void begin(Shared& shared) {
    if (B::lane_id() == 0) {
      for (auto* barrier : {&shared.q_full, &shared.q_free, &shared.merged})
        B::mbarrier_init(barrier, groups * group_waves);
      for (int stage = 0; stage < stages; ++stage) {
        B::mbarrier_init(&shared.full[stage], 1);
        B::mbarrier_init(&shared.free[stage], group_waves);
      }
    }
    B::mbarrier_ready();
  }
};

}  // namespace tilewave
