// SPDX-License-Identifier: MIT
// The fetching waves of GemmTensorKernel: one copies boxes of operands into the ring, in front of those who multiply.
// Others copy gathered rows or scales, each every third stage.
#pragma once

#include "tilewave/ops/gemm/tensor/layout.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
struct GemmTensorKernel;

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
struct GemmFetching {
  using L = GemmTensorLayout<B, S, P, Epilogue>;
  using Args = typename L::Args;
  using Maps = typename L::Maps;
  using Ring = typename L::Ring;
  using Shared = typename GemmTensorKernel<B, S, P, Epilogue>::Shared;

  /// The wave that copies boxes: all tiles of the block.
  template <class Queue>
  TILEWAVE_DEVICE static void copy_tiles(const Args& a, const Maps& maps, Queue& queue, int rank, Shared& shared,
                                         bool early) {
    if (L::plain && a.gemm.k == 0) {
      clear_stages(queue, shared);
    } else {
      copy_all(a, maps, queue, rank, shared, early);
    }
  }
  template <class Queue>
  TILEWAVE_DEVICE static void copy_all(const Args& a, const Maps& maps, Queue& queue, int rank, Shared& shared,
                                       bool early) {
    Ring ring;
    GemmTile tile;
    typename Args::Steps steps{};
    while (queue.next(tile, steps)) {
      std::int32_t step = steps.first;
      if (L::copies_b_early && early) {
        step = copy_b_first(a, maps, tile, steps, rank, shared);
        ring.advance(step - steps.first);
        early = false;
      }
      TILEWAVE_ROLL
      for (; step < steps.end; ++step, ring.advance()) {
        if (L::stages_at_once > 1 && (step - steps.first) % L::stages_at_once == 0) {
          Ring last = ring;  // slots become free in order
          last.advance(min_of(L::stages_at_once, steps.end - step) - 1);
          B::mbarrier_wait(&shared.ring.empty[last.slot], last.round ^ 1);
        }
        B::mbarrier_wait(&shared.ring.empty[ring.slot], ring.round ^ 1);
        L::copy_stage(a, maps, tile, step, rank, shared, ring.slot);
      }
    }
    if (early) B::wait_for_previous();  // there was no tile
    drain(ring, shared);
  }
  /// No block leaves while those that share its boxes may still arrive at its barriers.
  TILEWAVE_DEVICE static void drain(Ring ring, Shared& shared) {
    if constexpr (L::sharers > 1) {
      for (int i = 0; i < P.stages; ++i, ring.advance())
        B::mbarrier_wait(&shared.ring.empty[ring.slot], ring.round ^ 1);
    }
  }
  /// Fills the ring's first round: B, then, when the kernel in front is over, A. Returns the first step that is left.
  /// Loops of this wave are not unrolled: their code comes from memory, too, before the first copy does.
  TILEWAVE_DEVICE static std::int32_t copy_b_first(const Args& a, const Maps& maps, const GemmTile& tile,
                                                   typename Args::Steps steps, int rank, Shared& shared) {
    using Operands = typename L::Operands;
    const std::int32_t end = min_of(steps.end, steps.first + P.stages);
    B::promised_reads(true);
    TILEWAVE_ROLL
    for (std::int32_t step = steps.first; step < end; ++step)
      L::template copy_stage<Operands::only_b>(a, maps, tile, step, rank, shared, step - steps.first);
    B::promised_reads(false);
    B::wait_for_previous();
    TILEWAVE_ROLL
    for (std::int32_t step = steps.first; step < end; ++step)
      L::template copy_stage<Operands::only_a>(a, maps, tile, step, rank, shared, step - steps.first);
    return end;
  }

  /// Products whose K is 0 have one stage of zeros.
  template <class Queue>
  TILEWAVE_DEVICE static void clear_stages(Queue& queue, Shared& shared) {
    Ring ring;
    GemmTile tile;
    TILEWAVE_ROLL
    for (typename Args::Steps steps; queue.next(tile, steps); ring.advance(steps.end - steps.first)) {
      B::mbarrier_wait(&shared.ring.empty[ring.slot], ring.round ^ 1);
      L::clear_stage(shared, ring.slot);
    }
    drain(ring, shared);
  }

  /// Fetches the scales of stages through registers, whatever their strides are. Each of the three waves takes every
  /// third stage, and loads its next stage before it stores the current one.
  template <class Queue>
  TILEWAVE_DEVICE static void copy_scales(const Args& a, Queue& queue, int wave, Shared& shared) {
    Ring ring;
    GemmTile tile;
    typename Args::Steps steps;
    typename L::FetchedScales next;
    int turn = 0;
    while (queue.next(tile, steps)) {
      bool loaded = false;
      for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
        if (turn == wave) {
          if (!loaded) next.load(a.gemm, tile, step);
          typename L::FetchedScales now = next;
          loaded = step + L::scale_waves < steps.end;
          if (loaded) next.load(a.gemm, tile, step + L::scale_waves);
          B::mbarrier_wait(&shared.ring.empty[ring.slot], ring.round ^ 1);
          now.store(shared, ring.slot);
          B::mbarrier_arrive(&shared.ring.full[ring.slot]);
        }
        turn = turn + 1 == L::scale_waves ? 0 : turn + 1;
      }
    }
  }

  /// Copies gathered rows of A, and the scales of stages whose scales come through shared memory. Each of the three
  /// waves takes every third stage as soon as its slot is free, and waits for no copy: those who multiply see what
  /// landed, by their own fence (L::wait_full).
  template <class Queue>
  TILEWAVE_DEVICE static void copy_rows(const Args& a, Queue& queue, int wave, Shared& shared) {
    Ring ring;
    GemmTile tile;
    typename Args::Steps steps;
    typename L::GatheredRows rows;
    typename L::FetchedScales next;  // of weights of four bits
    bool loaded = false;
    int turn = 0;
    while (queue.next(tile, steps)) {
      rows.load(a.gemm, tile);
      const float* b_scale = nullptr;  // of this lane's 64 rows of B
      if constexpr (L::block_scales && L::shared_scales) {
        if (B::lane_id() < P.columns / 64) b_scale = L::scales_of_b(a.gemm, tile, 64 * B::lane_id());
      }
      for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
        if (turn == wave) {
          auto* const full = &shared.ring.full[ring.slot];
          typename L::FetchedScales scales;
          if constexpr (L::packed) {  // this stage's were asked for with those of the wave's stage before
            if (!loaded) next.load(a.gemm, tile, step);
            scales = next;
            loaded = step + L::scale_waves < steps.end;
            if (loaded) next.load(a.gemm, tile, step + L::scale_waves);
          }
          B::mbarrier_wait(&shared.ring.empty[ring.slot], ring.round ^ 1);
          rows.copy(a.gemm, step, P.swapped ? shared.wide[ring.slot] : shared.tall[ring.slot]);
          if constexpr (L::block_scales && L::shared_scales) {
            rows.copy_scales(a.gemm, step, shared.a_scale[ring.slot]);
            if (b_scale != nullptr)
              B::copy_lane(&shared.b_scale[ring.slot][B::lane_id()], b_scale + step * a.gemm.b_scale_k_stride);
          }
          B::lane_copies_arrive(full);
          if constexpr (L::packed) scales.store(shared, ring.slot);
          B::mbarrier_arrive(full);  // of what lanes stored themselves
        }
        turn = turn + 1 == L::scale_waves ? 0 : turn + 1;
      }
    }
    B::template lane_copies_wait<0>();
  }
};

}  // namespace tilewave
