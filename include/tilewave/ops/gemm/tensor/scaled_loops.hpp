// SPDX-License-Identifier: MIT
// Main loops of GemmTensorKernel whose sums are scaled or promoted stage by stage. A stage is 128 k. The matrix unit
// sums one stage, and lanes scale that sum and add it to their own in f32, since the unit's own sums of fp8 keep fewer
// bits. Each loop is a different way to keep the matrix unit busy during the additions.
#pragma once

#include "tilewave/ops/gemm/tensor/layout.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
struct GemmTensorKernel;

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
struct GemmScaledLoops {
  using Kernel = GemmTensorKernel<B, S, P, Epilogue>;
  using L = GemmTensorLayout<B, S, P, Epilogue>;
  using Steps = typename L::Args::Steps;
  using Shared = typename Kernel::Shared;
  using Ring = typename L::Ring;
  using Sums = typename L::Sums;
  using Scales = typename L::StageScales;

  /// Scales come through shared memory. A wave group waits for each stage's products before it adds.
  TILEWAVE_DEVICE static void scales_in_shared(Steps steps, int wave_group, Shared& shared, Ring& ring,
                                               Sums (&sums)[L::tiles]) {
    L::clear(sums);
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      L::wait_full(shared, ring);
      Sums part[L::tiles];
      Kernel::begin_stage(wave_group, shared, ring.slot, true, part);
      Scales scales;
      scales.read(shared, ring.slot, wave_group);
      B::template group_mma_wait<0>();
      shared.ring.release(ring.slot);
      add_scaled(scales, part, sums);
    }
  }

  /// The same a part at a time, where registers hold the sums of a tile and of one part (see halves). The scales of a
  /// stage are read while the last products of the stage before run: a read between two products took longer
  /// (docs/notebook/2026-11-27-groups-beside-deepgemm.md).
  TILEWAVE_DEVICE static void shared_halves(Steps steps, int wave_group, Shared& shared, Ring& ring,
                                            Sums (&sums)[L::tiles]) {
    L::clear(sums);
    if (steps.first == steps.end) return;
    Scales scales;
    L::wait_full(shared, ring);
    scales.read(shared, ring.slot, wave_group);
    for (std::int32_t step = steps.first; step < steps.end; ++step) {
      typename Scales::Products products = scales.products();
      B::group_mma_fence(products.of_all);
      constexpr int parts_per_tile = L::wave_group_wide / L::part_wide, parts = L::tiles * parts_per_tile;
      Ring ahead = ring;
      ahead.advance();
      TILEWAVE_UNROLL
      for (int i = 0; i < parts; ++i) {
        const int t = i / parts_per_tile, wide_first = i % parts_per_tile * L::part_wide;
        Vec<float, L::part_wide / 2> part[1];
        Kernel::begin_stage(wave_group, shared, ring.slot, true, part, t, wide_first);
        if (i == parts - 1 && step + 1 < steps.end) {
          L::wait_full(shared, ahead);
          scales.read(shared, ahead.slot, wave_group);
        }
        B::template group_mma_wait<0>();
        if (i == parts - 1) shared.ring.release(ring.slot);
        add_scaled(products, part, sums, t, wide_first);
      }
      ring = ahead;
    }
  }

  /// One part of a stage after the other, where registers hold the sums of a tile and of one part. A part is a 64-row
  /// tile, or half of its wide side. While one wave group adds, the others multiply. The matrix unit waits for
  /// everything between a part's additions and the next products, so the next stage is waited for before that.
  TILEWAVE_DEVICE static void halves(typename L::StageScaleReader& reader, Steps steps, int wave_group, Shared& shared,
                                     Ring& ring, Sums (&sums)[L::tiles]) {
    L::clear(sums);
    if (steps.first == steps.end) return;
    Scales even{}, odd{};
    reader.next(even);
    reader.next(odd);
    L::wait_full(shared, ring);
    const auto nothing = [] {};
    const auto multiply = [&](Scales& scales, std::int32_t step) TILEWAVE_INLINE_LAMBDA {
      multiply_stage(scales, reader, step, steps, wave_group, shared, ring, sums, nothing);
    };
    std::int32_t step = steps.first;
    if constexpr (L::promoted) {  // there are no scales to alternate, and ptxas spills in a loop of two steps
      for (; step < steps.end; ++step) multiply(even, step);
    } else {
      for (; step + 2 <= steps.end; step += 2) {
        multiply(even, step);
        multiply(odd, step + 1);
      }
      if (step < steps.end) multiply(even, step);
    }
  }

  /// Multiplies a stage part by part, adds the parts, and asks for the scales of the stage after the next. `below` runs
  /// beside the first part's products.
  template <class Reader, class Below>
  TILEWAVE_DEVICE static void multiply_stage(Scales& scales, Reader& reader, std::int32_t step, Steps steps,
                                             int wave_group, Shared& shared, Ring& ring, Sums (&sums)[L::tiles],
                                             const Below& below) {
    // The fence holds the products of scales in registers before `scales` is loaded anew. A moved load would be
    // waited for on the spot.
    typename Scales::Products products = scales.products();
    if constexpr (L::block_scales) B::group_mma_fence(products.of_all);
    constexpr int parts_per_tile = L::wave_group_wide / L::part_wide, parts = L::tiles * parts_per_tile;
    TILEWAVE_UNROLL
    for (int i = 0; i < parts; ++i) {
      const int t = i / parts_per_tile, wide_first = i % parts_per_tile * L::part_wide;
      Vec<float, L::part_wide / 2> part[1];
      Kernel::begin_stage(wave_group, shared, ring.slot, true, part, t, wide_first);
      if (i == 0) {
        below();
        reader.next(scales);
      }
      if (i == parts - 1 && step + 1 < steps.end) {
        Ring ahead = ring;
        ahead.advance();
        L::wait_full(shared, ahead);
      }
      B::template group_mma_wait<0>();
      if (i == parts - 1) shared.ring.release(ring.slot);
      add_scaled(products, part, sums, t, wide_first);
    }
    ring.advance();
  }

  /// The products of the next stage run while the sums of one are added, and the scales of the stage after that load.
  /// Scales in shared memory are read when the products of their stage have begun.
  template <class Reader>
  TILEWAVE_DEVICE static void overlapped(Reader&& reader, Steps steps, int wave_group, Shared& shared, Ring& ring,
                                         Sums (&sums)[L::tiles]) {
    L::clear(sums);
    if (steps.first == steps.end) return;
    const std::int32_t last = steps.end - 1;
    Sums even[L::tiles], odd[L::tiles];
    // Each set is loaded where it was last used. A copy of a set would wait for its load.
    Scales even_scales{}, odd_scales{};
    reader.next(even_scales);
    reader.next(odd_scales);
    Ring ahead = ring;
    const auto begin = [&](Sums(&part)[L::tiles], Scales& scales) TILEWAVE_INLINE_LAMBDA {
      L::wait_full(shared, ahead);
      Kernel::begin_stage(wave_group, shared, ahead.slot, true, part);
      if constexpr (L::shared_scales) scales.read(shared, ahead.slot, wave_group);
      ahead.advance();
    };
    std::int32_t step = steps.first;
    const auto add = [&](Sums(&part)[L::tiles], Scales& scales) TILEWAVE_INLINE_LAMBDA {
      shared.ring.release(ring.slot);
      ring.advance();
      add_scaled(scales, part, sums);
      reader.next(scales);
      ++step;
    };
    begin(even, even_scales);
    while (step + 2 <= last) {  // the compiler follows waits only along straight code
      begin(odd, odd_scales);
      B::template group_mma_wait<1>();
      add(even, even_scales);
      begin(even, even_scales);
      B::template group_mma_wait<1>();
      add(odd, odd_scales);
    }
    if (step < last) {
      begin(odd, odd_scales);
      B::template group_mma_wait<1>();
      add(even, even_scales);
      B::template group_mma_wait<0>();
      add(odd, odd_scales);
    } else {
      B::template group_mma_wait<0>();
      add(even, even_scales);
    }
  }

 private:
  /// Adds the sums of one stage, scaled, to those of all stages. `part` has `count` tiles from tile `first` on, from
  /// row `wide_first` of the wide side on.
  template <class StageScales, int count, int sums_per_tile>
  TILEWAVE_DEVICE static void add_scaled(const StageScales& scales, Vec<float, sums_per_tile> (&part)[count],
                                         Sums (&sums)[L::tiles], int first = 0, int wide_first = 0) {
    TILEWAVE_UNROLL
    for (int t = 0; t < count; ++t) {
      B::group_mma_fence(part[t]);
      TILEWAVE_UNROLL
      for (int i = 0; i < sums_per_tile; ++i) {
        const int at = wide_first / 2 + i;
        sums[first + t][at] += part[t][i] * scales.of(first + t, at);
      }
    }
  }
};

}  // namespace tilewave
