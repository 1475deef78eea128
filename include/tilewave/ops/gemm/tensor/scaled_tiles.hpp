// SPDX-License-Identifier: MIT
// The tiles of a block whose block scales lanes load themselves (GemmTensorLayout::scales_of_next_tile): the first
// scales of a tile are loaded below the last stages of the tile before, so that its first products wait for none.
#pragma once

#include "tilewave/ops/gemm/tensor/scaled_loops.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
struct GemmScaledTiles {
  using Loops = GemmScaledLoops<B, S, P, Epilogue>;
  using L = typename Loops::L;
  using Args = typename L::Args;
  using Steps = typename Loops::Steps;
  using Shared = typename Loops::Shared;
  using Ring = typename Loops::Ring;
  using Sums = typename Loops::Sums;
  using Scales = typename Loops::Scales;
  using Reader = typename L::StageScaleReader;

  /// Calls begin_tile(tile) in front of each tile's sums, and end_tile(tile, sums) behind them. All tiles of a block
  /// have as many steps.
  template <class Queue, class Begin, class End>
  TILEWAVE_DEVICE static void run(const Args& a, Queue& queue, int wave_group, Shared& shared, const Begin& begin_tile,
                                  const End& end_tile) {
    Ring ring;
    GemmTile tile{}, next{};
    Steps steps{}, next_steps{};
    Scales even{}, odd{};
    bool found = queue.next(tile, steps), scales_ahead = false;
    // Stages alternate between two sets of scales. Where they are no pairs, the next tile would begin with the other.
    const bool any = steps.first < steps.end, pairs = any && (steps.end - steps.first) % 2 == 0;
    Reader reader(a.gemm, tile, wave_group, steps);
    while (found) {
      begin_tile(tile);
      if (!scales_ahead) {
        reader = Reader(a.gemm, tile, wave_group, steps);
        reader.next(even);
        reader.next(odd);
      }
      Sums sums[L::tiles];
      L::clear(sums);
      bool next_found = false;
      const auto look_ahead = [&] {
        next_found = queue.next(next, next_steps);
        scales_ahead = next_found && pairs;
        if (scales_ahead) reader = Reader(a.gemm, next, wave_group, next_steps);
      };
      const auto nothing = [] {};
      if (any) L::wait_full(shared, ring);
      std::int32_t step = steps.first;
      for (; step + 2 <= steps.end; step += 2) {
        Loops::multiply_stage(even, reader, step, steps, wave_group, shared, ring, sums, [&] {
          if (step + 2 == steps.end) look_ahead();  // all scales of the tile are on their way
        });
        Loops::multiply_stage(odd, reader, step + 1, steps, wave_group, shared, ring, sums, nothing);
      }
      if (step < steps.end) Loops::multiply_stage(even, reader, step, steps, wave_group, shared, ring, sums, nothing);
      if (!pairs) look_ahead();
      end_tile(tile, sums);
      found = next_found, tile = next, steps = next_steps;
    }
  }
};

}  // namespace tilewave
