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

  /// Runs the tile's products with `high` rows of A for each wave group, all of them or a height of L::heights.
  template <int high = L::wave_group_wide>
  TILEWAVE_DEVICE static void run(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                  Sums (&sums)[L::tiles]) {
    if constexpr (L::fragments && high <= max_of(L::heights.by_waves, 16)) {
      run_waves<high>(steps, wave_group, shared, ring, sums);
    } else if constexpr (L::fragments) {
      run_fragments<high>(steps, wave_group, shared, ring, sums);
    } else if constexpr (P.waves_k > 1) {
      run_sharing_k(steps, wave_group, shared, ring, sums);
    } else if constexpr (Codes::rescaled || (Codes::rounded && Codes::step == 64)) {
      run_rescaled(steps, wave_group, shared, ring, sums);
    } else if constexpr (Codes::scales_in_exponents || Codes::rounded) {
      run_in_unit<high>(steps, wave_group, shared, ring, sums);
    } else {
      run_scaled<high>(steps, wave_group, shared, ring, sums);
    }
  }

  /// Runs a tile as high as its rows ask for, at least height number `number`, and calls end(sums). Each height has a
  /// loop and sums of its own: where those of several loops meet, ptxas waits for each product (C7512, C7515).
  template <int number = 0, class End>
  TILEWAVE_DEVICE static void run_as_high(const GemmTile& tile, typename L::Args::Steps steps, int wave_group,
                                          Shared& shared, Ring& ring, const End& end) {
    constexpr int high = L::heights.rows[number], last = L::heights.count - 1;
    if (number == last || tile.row_end - tile.first_row <= high) {
      Sums sums[L::tiles];
      run<high>(steps, wave_group, shared, ring, sums);
      end(sums);
    } else if constexpr (number < last) {
      run_as_high<number + 1>(tile, steps, wave_group, shared, ring, end);
    }
  }

 private:
  using Widened = Chunk[L::tiles][Codes::k_slices];

  /// Groups of few rows wait for each batch of their scales: codes of the next one are widened meanwhile. Experts of
  /// Kimi-K2-Thinking take 4 to 5 % less by it (docs/notebook/2026-11-28-moe-int4.md). Elsewhere it was not timed.
  static constexpr bool widens_ahead =
      S.groups != GemmGroups::one && size_of(S.a) == 2 && Codes::scales_per_stage > 1 && L::wave_group_wide <= 64;

  /// A batch's sums, of `high` rows of A, are scaled and added to those of the tile.
  template <int high>
  TILEWAVE_DEVICE static void run_scaled(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                         Sums (&sums)[L::tiles]) {
    constexpr int last = Codes::scales_per_stage - 1, sets = widens_ahead ? 2 : 1;
    L::clear(sums);
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      L::wait_full(shared, ring);
      Widened codes[sets];
      static_for<Codes::scales_per_stage>([&](auto scale) TILEWAVE_INLINE_LAMBDA {
        // Read here, scales are there before the products begin. ptxas put reads behind the first products in front of
        // the last one, which then began late: all of a 128 x 128 tile took 4 to 9 % longer.
        const Vec<float, 2 * L::tiles> scales = scales_of_rows(wave_group, shared, ring.slot, scale);
        if constexpr (!widens_ahead || scale == 0) widen(wave_group, shared, ring.slot, scale, codes[0]);
        Vec<typename L::Sum, high / 2> part[L::tiles];
        begin_products<high, false>(wave_group, shared, ring.slot, scale, codes[scale % sets], part);
        if constexpr (widens_ahead && scale < last)
          widen(wave_group, shared, ring.slot, scale + 1, codes[(scale + 1) % sets]);
        B::template group_mma_wait<0>();
        if (scale == last) shared.ring.release(ring.slot);
        add_scaled(scales, part, sums);
      });
    }
  }

  /// Sums stay in the matrix unit, those of `high` rows of A.
  template <int high>
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
        begin_products<high, true>(wave_group, shared, ring.slot, scale, codes[scale], sums);
      });
      B::template group_mma_wait<0>();
      shared.ring.release(ring.slot);
    }
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) B::group_mma_fence(sums[t]);
  }

  /// Sums stay in the matrix unit, and are multiplied where scales change, unless codes are rounded with theirs. Codes
  /// are widened while the products of the batch before run. Batches of more than two slices are serialised by ptxas
  /// (C7513).
  TILEWAVE_DEVICE static void run_rescaled(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                           Sums (&sums)[L::tiles]) {
    static_assert(L::tiles == 1, "a wave group has 64 rows of B");
    constexpr int stage_slices = Codes::step / Codes::slice_k, batch = 2, stage_batches = stage_slices / batch;
    constexpr int scale_batches = S.scale_k / Codes::slice_k / batch;
    constexpr int batches = max_of(scale_batches, stage_batches), stages = batches / stage_batches;  // of a turn
    L::clear(sums);
    B::group_mma_fence(sums[0]);
    const auto multiply_sums = [&](const Vec<float, 2>& factors) TILEWAVE_INLINE_LAMBDA {
      B::template group_mma_wait<0>();
      B::group_mma_fence(sums[0]);
      if constexpr (Codes::rounded) return;
      TILEWAVE_UNROLL
      for (int i = 0; i < Sums::size; ++i) sums[0][i] *= factors[i / 2 % 2];
      B::group_mma_fence(sums[0]);
    };
    Chunk codes[2][batch];
    int before = 0;  // the slot of the batch before
    for (std::int32_t step = steps.first; step < steps.end; step += stages) {
      static_for<batches>([&](auto number) TILEWAVE_INLINE_LAMBDA {
        constexpr int first_slice = number * batch % stage_slices;
        if constexpr (first_slice == 0) L::wait_full(shared, ring);
        const int slot = B::uniform(ring.slot);  // for the addresses of products, which are scalars
        B::template group_mma_wait<1>();         // the products of the codes that are overwritten
        if constexpr (number > stage_batches && first_slice == batch) shared.ring.release(before);
        if (Codes::rounded && number == 1 && step != steps.first) shared.ring.release(before);
        widen_slices(wave_group, shared, slot, first_slice, codes[number % 2]);
        if constexpr (!Codes::rounded && number % scale_batches == 0)
          multiply_sums(scales_of_rows(wave_group, shared, slot, first_slice / Codes::k_slices));
        if (!Codes::rounded && number == 0 && step != steps.first) shared.ring.release(before);
        B::group_mma_begin();
        static_for<batch>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          B::template group_multiply<S.a, L::wave_group_wide>(
              codes[number % 2][i], wide_rows(wave_group, shared, slot, first_slice + i), sums[0]);
        });
        B::group_mma_end();
        if constexpr (first_slice + batch == stage_slices) {
          if constexpr (number + 1 == batches || stages > 1) before = slot;
          ring.advance();
        }
      });
    }
    const bool any = steps.first < steps.end;
    Vec<float, 2> last{{1.0f, 1.0f}};  // the significands of the last scales
    if (any && !Codes::rounded) last = scales_of_rows(wave_group, shared, before, 2 * Codes::scales_per_stage - 1);
    multiply_sums(last);
    if (any) shared.ring.release(before);
  }

  /// Wave groups take stages in turn, and each has sums of its own, which stay in the matrix unit. By itself a group
  /// widens and multiplies one after the other: the unit is busy with the products of the others.
  TILEWAVE_DEVICE static void run_sharing_k(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                            Sums (&sums)[L::tiles]) {
    static_assert(L::tiles == 1 && Codes::rounded, "a wave group has 64 rows of B, and sums without scales");
    constexpr int batch = 4;
    const int k_group = wave_group / L::stage_groups;
    L::clear(sums);
    B::group_mma_fence(sums[0]);
    ring.advance(k_group);
    for (std::int32_t step = steps.first + k_group; step < steps.end; step += P.waves_k, ring.advance(P.waves_k)) {
      L::wait_full(shared, ring);
      const int slot = B::uniform(ring.slot);  // for the addresses of products, which are scalars
      static_for<Codes::step / Codes::slice_k / batch>([&](auto number) TILEWAVE_INLINE_LAMBDA {
        Chunk codes[batch];
        widen_slices(wave_group, shared, slot, number * batch, codes);
        B::group_mma_begin();
        static_for<batch>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          B::template group_multiply<S.a, L::wave_group_wide>(
              codes[i], wide_rows(wave_group, shared, slot, number * batch + i), sums[0]);
        });
        B::group_mma_end();
        B::template group_mma_wait<0>();
        B::group_mma_fence(sums[0]);
      });
      shared.ring.release(ring.slot);
    }
  }

  /// The products that begin together, of a 64-row tile. Two batches of codes are in registers: one is widened while
  /// the other's products run. Tiles with many sums have room for half a stage.
  static constexpr int batch =
      L::tiles > 1 && L::wave_group_wide <= 64 && L::heights.count == 1 ? Codes::slices : Codes::slices / 2;

  /// Sums stay in the matrix unit, those of `high` rows of A. Codes are widened while the products of the batch before
  /// run, which may be the last of the stage before.
  template <int high>
  TILEWAVE_DEVICE static void run_fragments(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                            Sums (&sums)[L::tiles]) {
    L::clear(sums);
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) B::group_mma_fence(sums[t]);
    Chunk codes[2][batch];
    int before = 0;
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      L::wait_full(shared, ring);
      const int slot = B::uniform(ring.slot);  // for the addresses of products, which are scalars
      const std::uint32_t* const factors = shared.row_pairs[ring.slot];
      const bool beyond = factors[Codes::scales * P.columns] != 0;
      static_for<L::tiles * Codes::slices / batch>([&](auto number) TILEWAVE_INLINE_LAMBDA {
        constexpr int t = number * batch / Codes::slices, first_slice = number * batch % Codes::slices;
        B::template group_mma_wait<1>();  // the products of the codes that are overwritten
        if (number == 1 && step != steps.first) shared.ring.release(before);
        const int first = L::tall_row(wave_group) + 64 * t;
        Codes::widen(shared.tall[ring.slot] + first / 16 * Codes::strip_chunks, factors, first, L::wave_in_wave_group(),
                     beyond, first_slice, codes[number % 2]);
        if constexpr (batch == Codes::slices) B::group_mma_fence(sums[t]);  // else the batch before still adds to them
        B::group_mma_begin();
        static_for<batch>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          B::template group_multiply<S.a, high>(codes[number % 2][i],
                                                wide_rows(wave_group, shared, slot, first_slice + i), sums[t]);
        });
        B::group_mma_end();
      });
      before = ring.slot;
    }
    B::template group_mma_wait<0>();
    if (steps.first < steps.end) shared.ring.release(before);
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) B::group_mma_fence(sums[t]);
  }

  /// Few rows of A: waves multiply for themselves. A product of a wave group takes 32 cycles for up to 32 rows of A,
  /// those of its waves 8 for each eight. The lane's words and sums are the same.
  template <int high>
  TILEWAVE_DEVICE static void run_waves(typename L::Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                        Sums (&sums)[L::tiles]) {
    constexpr int panels = high / 8;  // of eight rows of A
    constexpr bool pairs = panels > 1;
    constexpr int loaded = pairs ? align_up(panels, 2) : panels;  // of an odd number a load brings one more
    L::clear(sums);
    // A load brings four parts of eight rows by 16 bytes: of two panels for one slice of k, or of one for two.
    const int lane = B::lane_id(), part = lane / 8, row = L::wide_row(wave_group) + pairs * (part / 2) * 8 + lane % 8;
    const int unit = pairs ? part % 2 : part;
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      B::mbarrier_wait(&shared.ring.full[ring.slot], ring.round);
      const std::uint32_t* const factors = shared.row_pairs[ring.slot];
      const bool beyond = factors[Codes::scales * P.columns] != 0;
      const auto multiply = [&](auto of_stage) TILEWAVE_INLINE_LAMBDA {
        constexpr bool rare = decltype(of_stage)::value;
        typename Codes::Factors own[L::tiles][2], second[L::tiles][2];
        TILEWAVE_UNROLL
        for (int t = 0; t < L::tiles; ++t)
          Codes::read_factors(factors, L::tall_row(wave_group) + 64 * t, L::wave_in_wave_group(), rare, own[t],
                              second[t]);
        static_for<Codes::scales>([&](auto scale) TILEWAVE_INLINE_LAMBDA {
          typename B::KvOperand rows[2][loaded];
          TILEWAVE_UNROLL
          for (int load = 0; load < loaded; ++load) {
            const int slice = pairs ? load % 2 : 0, panel = pairs ? load / 2 * 2 : 0,
                      first_unit = scale * 4 + 2 * slice;
            const Chunk* const box = shared.wide[ring.slot] + first_unit / 8 * (L::wide_rows * L::row_chunks);
            const Chunk parts =
                B::load_matrices(box + (row + 8 * panel) * L::row_chunks + ((first_unit % 8 + unit) ^ row % 8));
            TILEWAVE_UNROLL
            for (int i = 0; i < 2; ++i) {
              auto& to = pairs ? rows[slice][panel + i] : rows[i][0];
              to = {{parts[2 * i], parts[2 * i + 1]}};
            }
          }
          TILEWAVE_UNROLL
          for (int t = 0; t < L::tiles; ++t) {
            const int first = L::tall_row(wave_group) + 64 * t;
            Chunk codes[2];
            Codes::widen_scale(shared.tall[ring.slot] + first / 16 * Codes::strip_chunks, L::wave_in_wave_group(),
                               scale, rare, own[t], second[t], codes);
            TILEWAVE_UNROLL
            for (int slice = 0; slice < 2; ++slice) {
              TILEWAVE_UNROLL
              for (int panel = 0; panel < panels; ++panel) {
                const Chunk& c = codes[slice];
                typename B::Accumulator sum;
                TILEWAVE_UNROLL
                for (int i = 0; i < 4; ++i) sum[i] = sums[t][4 * panel + i];
                sum = B::mma(rows[slice][panel], {{c[0], c[2], c[1], c[3]}}, sum);
                TILEWAVE_UNROLL
                for (int i = 0; i < 4; ++i) sums[t][4 * panel + i] = sum[i];
              }
            }
          }
        });
      };
      if (beyond) {
        multiply(std::true_type{});
      } else {
        multiply(std::false_type{});
      }
      shared.ring.release(ring.slot);
    }
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
    for (int t = 0; t < L::tiles; ++t) widen_slices(wave_group, shared, slot, scale * Codes::k_slices, codes[t], t);
  }
  /// Widens the codes of a tile, from k slice `first_slice` of a stage on, under one scale.
  template <int slices>
  TILEWAVE_DEVICE static void widen_slices(int wave_group, const Shared& shared, int slot, int first_slice,
                                           Chunk (&codes)[slices], int t = 0) {
    const Chunk* const rows = shared.tall[slot] + (L::tall_row(wave_group) / 16 + 4 * t) * Codes::strip_chunks;
    const std::uint32_t* const of_rows = shared.row_pairs[L::has_row_pairs ? slot : 0];
    Codes::widen(rows, of_rows + (L::has_row_pairs ? L::tall_row(wave_group) + 64 * t : 0), L::wave_in_wave_group(),
                 first_slice, codes);
  }
  /// Begins their products as one batch. The first overwrite `part`, unless they are to be added.
  template <int high, bool add, class Part>
  TILEWAVE_DEVICE static void begin_products(int wave_group, const Shared& shared, int slot, int scale, Widened& codes,
                                             Part (&part)[L::tiles]) {
    B::group_mma_begin();
    static_for<Codes::k_slices>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      const SwizzledOperand wide = wide_rows(wave_group, shared, slot, scale * Codes::k_slices + i);
      TILEWAVE_UNROLL
      for (int t = 0; t < L::tiles; ++t)
        B::template group_multiply<S.a, high, (add || i > 0)>(codes[t][i], wide, part[t]);
    });
    B::group_mma_end();
  }
  /// The scales of a lane's two rows of each tile.
  TILEWAVE_DEVICE static Vec<float, 2 * L::tiles> scales_of_rows(int wave_group, const Shared& shared, int slot,
                                                                 int scale) {
    const int first = scale * P.columns + L::tall_row(wave_group), wave = L::wave_in_wave_group();
    Vec<float, 2 * L::tiles> scales;
    TILEWAVE_UNROLL
    for (int i = 0; i < 2 * L::tiles; ++i)
      scales[i] = shared.b_scale[slot][first + 64 * (i / 2) + Codes::row_of(wave, i % 2)];
    return scales;
  }
  template <class Part>
  TILEWAVE_DEVICE static void add_scaled(const Vec<float, 2 * L::tiles>& scales, Part (&part)[L::tiles],
                                         Sums (&sums)[L::tiles]) {
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      B::group_mma_fence(part[t]);
      TILEWAVE_UNROLL
      for (int i = 0; i < Part::size; ++i) sums[t][i] += part[t][i] * scales[2 * t + i / 2 % 2];
    }
  }
};

}  // namespace tilewave
