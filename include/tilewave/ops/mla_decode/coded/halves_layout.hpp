// SPDX-License-Identifier: MIT
// The layout of blocks of 64 query rows on codes: its shared memory, and who waits for whom.
#pragma once

#include "tilewave/ops/mla_decode/coded/layout.hpp"

namespace tilewave {

/// As MlaDecodeCodedLayout, for 64 query rows: each wave group sums half of the dimensions of values. Tiles are counted
/// from a block's first on, through all of its items, and group n % 2 makes the scores and probabilities of tile n.
/// What both have of a tile, they have twice, for even ones and odd ones.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeCodedHalvesLayout : MlaDecodeCodedOrder<B, S, P> {
  using Base = MlaDecodeCodedOrder<B, S, P>;
  using Base::rows, Base::groups, Base::group_waves, Base::box_size;
  using typename Base::Mbarrier;
  static constexpr int stages = 3, free_waves = groups * group_waves;
  static constexpr int value_blocks = Base::half_boxes;
  TILEWAVE_DEVICE static int first_value_box(int group) { return group * value_blocks / 2; }  // of 128 codes
  using Sums = LaneSums<B, value_blocks, rows>;

  struct Shared {
    alignas(1024) Chunk q[Base::score_boxes * Base::q_box_size];
    alignas(1024) Chunk probabilities[2][Base::q_box_size];
    alignas(1024) Chunk codes[stages][Base::tile_size];
    typename Base::template WideProbabilities<2> wide;
    typename Base::Aside aside;
    typename Base::Scales scales[stages];
    std::uint32_t tile_unit[2], unit[groups];  // of sums of values behind a tile, and of a group's
    float unit_factor[2];                      // of sums of codes so far, before a tile is added
    // When all tiles of an item have probabilities, sums and references take the places of what these came from.
    union {
      // Probabilities of a row's scores are 2^(score * scale + offset): scales and offsets of two rows, of each wave.
      Vec<float, 4> lines[groups][group_waves][Base::lanes];
      alignas(16) float of_wave[groups][rows][group_waves];  // sums
    };
    union {
      alignas(16) float largest[groups][group_waves][rows];  // of a wave's scores
      float reference[groups][rows];                         // of a group's sums, log2 units
    };
    alignas(16) float references[2][rows], factor[2][rows];  // of a tile; of the outputs so far, before it is added
    std::int32_t raised[2];                                  // whether a factor is other than 1
    Mbarrier q_full, q_free;
    Mbarrier full[stages], free[stages];
    Mbarrier referenced[2];      // the references of a tile
    Mbarrier ready[2], used[2];  // the probabilities of a tile
    Mbarrier merged;
  };
  static_assert(int{sizeof(Shared::q) + sizeof(Shared::probabilities)} >= rows * Base::staged_row * int{sizeof(float)});

  TILEWAVE_DEVICE static void begin(Shared& shared) {
    if (B::elected()) {
      for (auto* barrier : {&shared.q_full, &shared.q_free, &shared.merged, &shared.used[0], &shared.used[1]})
        B::mbarrier_init(barrier, groups * group_waves);
      for (int stage = 0; stage < stages; ++stage) {
        B::mbarrier_init(&shared.full[stage], Base::full_waves);
        B::mbarrier_init(&shared.free[stage], free_waves);
      }
      for (int odd = 0; odd < 2; ++odd) {
        B::mbarrier_init(&shared.referenced[odd], group_waves);
        B::mbarrier_init(&shared.ready[odd], group_waves);
      }
    }
    B::mbarrier_ready();
  }
};

}  // namespace tilewave
