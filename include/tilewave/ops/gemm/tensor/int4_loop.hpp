// SPDX-License-Identifier: MIT
// The main loops of GemmTensorKernel for weights of four bits. A lane widens the codes of scale_k values of k into
// registers, the matrix unit multiplies them, and the lane scales that sum and adds it in f32: weights are never
// rounded. Codes of MXFP4 under bf16 have their scales in the exponents, exactly, so their sums stay in the matrix
// unit. While one wave group widens, the others multiply.
#pragma once

#include "tilewave/ops/gemm/tensor/layout.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
struct GemmTensorKernel;

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
struct GemmInt4Loop {
  using L = GemmTensorLayout<B, S, P, Epilogue>;
  using Shared = typename GemmTensorKernel<B, S, P, Epilogue>::Shared;
  using Ring = typename L::Ring;
  using Sums = typename L::Sums;
  using Codes = typename L::Codes;

  TILEWAVE_DEVICE static void run(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                  Sums (&sums)[L::tiles]) {
    if constexpr (L::fragments) {
      run_fragments(steps, wave_group, shared, ring, sums);
    } else if constexpr (Codes::scales_in_exponents) {
      run_in_unit(steps, wave_group, shared, ring, sums);
    } else {
      run_scaled(steps, wave_group, shared, ring, sums);
    }
  }

 private:
  using Widened = Chunk[L::tiles][Codes::k_slices];

  TILEWAVE_DEVICE static void run_scaled(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                         Sums (&sums)[L::tiles]) {
    L::clear(sums);
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      L::wait_full(shared, ring);
      static_for<Codes::scales_per_stage>([&](auto scale) TILEWAVE_INLINE_LAMBDA {
        // Read here, scales are there before the products begin. ptxas put reads behind the first products in front of
        // the last one, which then began late: all of a 128 x 128 tile took 4 to 9 % longer.
        const Vec<float, 2 * L::tiles> scales = scales_of_rows(wave_group, shared, ring.slot, scale);
        Widened codes;
        widen(wave_group, shared, ring.slot, scale, codes);
        Sums part[L::tiles];
        begin_products<false>(wave_group, shared, ring.slot, scale, codes, part);
        B::template group_mma_wait<0>();
        if (scale == Codes::scales_per_stage - 1) shared.ring.release(ring.slot);
        add_scaled(scales, part, sums);
      });
    }
  }

  /// Sums stay in the matrix unit.
  TILEWAVE_DEVICE static void run_in_unit(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                          Sums (&sums)[L::tiles]) {
    L::clear(sums);
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      L::wait_full(shared, ring);
      Widened codes[Codes::scales_per_stage];
      static_for<Codes::scales_per_stage>(
          [&](auto scale) TILEWAVE_INLINE_LAMBDA { widen(wave_group, shared, ring.slot, scale, codes[scale]); });
      TILEWAVE_UNROLL
      for (int t = 0; t < L::tiles; ++t) B::group_mma_fence(sums[t]);
      static_for<Codes::scales_per_stage>([&](auto scale) TILEWAVE_INLINE_LAMBDA {
        begin_products<true>(wave_group, shared, ring.slot, scale, codes[scale], sums);
      });
      B::template group_mma_wait<0>();
      shared.ring.release(ring.slot);
    }
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) B::group_mma_fence(sums[t]);
  }

  /// Sums stay in the matrix unit. While it multiplies one tile of a stage, the next is widened.
  TILEWAVE_DEVICE static void run_fragments(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                            Sums (&sums)[L::tiles]) {
    L::clear(sums);
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      L::wait_full(shared, ring);
      const std::uint32_t* const factors = shared.row_pairs[ring.slot];
      const bool beyond = factors[Codes::scales * P.columns] != 0;
      Chunk codes[L::tiles][Codes::slices];
      static_for<L::tiles>([&](auto t) TILEWAVE_INLINE_LAMBDA {
        const int first = L::tall_row(wave_group) + 64 * t;
        Codes::widen(shared.tall[ring.slot] + first / 16 * Codes::strip_chunks, factors, first, L::wave_in_wave_group(),
                     beyond, codes[t]);
        B::group_mma_fence(sums[t]);
        B::group_mma_begin();
        static_for<Codes::slices>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          B::template group_multiply<S.a, L::wave_group_wide>(codes[t][i], wide_rows(wave_group, shared, ring.slot, i),
                                                              sums[t]);
        });
        B::group_mma_end();
      });
      B::template group_mma_wait<0>();
      shared.ring.release(ring.slot);
    }
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) B::group_mma_fence(sums[t]);
  }

  /// Returns the rows of A of a stage, from k slice `k_slice` on.
  TILEWAVE_DEVICE static SwizzledOperand wide_rows(int wave_group, const Shared& shared, int slot, int k_slice) {
    constexpr int slices_per_box = 128 / 32;
    const Chunk* const box = shared.wide[slot] + k_slice / slices_per_box * (L::wide_rows * L::row_chunks);
    return {box, L::wide_row(wave_group), k_slice % slices_per_box};
  }
  /// Widens the codes under scale number `scale` of a stage.
  TILEWAVE_DEVICE static void widen(int wave_group, const Shared& shared, int slot, int scale, Widened& codes) {
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      const Chunk* const rows = shared.tall[slot] + (L::tall_row(wave_group) / 16 + 4 * t) * Codes::strip_chunks;
      const std::uint32_t* const of_rows = shared.row_pairs[L::has_row_pairs ? slot : 0];
      Codes::widen(rows, of_rows + (L::has_row_pairs ? L::tall_row(wave_group) + 64 * t : 0), L::wave_in_wave_group(),
                   scale, codes[t]);
    }
  }
  /// Begins their products as one batch. The first overwrite `part`, unless they are to be added.
  template <bool add>
  TILEWAVE_DEVICE static void begin_products(int wave_group, const Shared& shared, int slot, int scale, Widened& codes,
                                             Sums (&part)[L::tiles]) {
    B::group_mma_begin();
    static_for<Codes::k_slices>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      const SwizzledOperand wide = wide_rows(wave_group, shared, slot, scale * Codes::k_slices + i);
      TILEWAVE_UNROLL
      for (int t = 0; t < L::tiles; ++t)
        B::template group_multiply<S.a, L::wave_group_wide, (add || i > 0)>(codes[t][i], wide, part[t]);
    });
    B::group_mma_end();
  }
  /// The scales of a lane's two rows of each tile.
  TILEWAVE_DEVICE static Vec<float, 2 * L::tiles> scales_of_rows(int wave_group, const Shared& shared, int slot,
                                                                 int scale) {
    const int row = L::tall_row(wave_group) + 16 * L::wave_in_wave_group() + B::lane_id() / 4;
    Vec<float, 2 * L::tiles> scales;
    TILEWAVE_UNROLL
    for (int i = 0; i < 2 * L::tiles; ++i)
      scales[i] = shared.b_scale[slot][scale * P.columns + row + 64 * (i / 2) + 8 * (i % 2)];
    return scales;
  }
  TILEWAVE_DEVICE static void add_scaled(const Vec<float, 2 * L::tiles>& scales, Sums (&part)[L::tiles],
                                         Sums (&sums)[L::tiles]) {
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      B::group_mma_fence(part[t]);
      TILEWAVE_UNROLL
      for (int i = 0; i < Sums::size; ++i) sums[t][i] += part[t][i] * scales[2 * t + i / 2 % 2];
    }
  }
};

}  // namespace tilewave
