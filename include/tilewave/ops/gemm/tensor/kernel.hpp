// SPDX-License-Identifier: MIT
// GEMM of rooms with a tensor copy engine and products of wave groups. Blocks stay: each takes a tile after the other.
// One wave fetches: boxes of 128 bytes of K of A and of B into a ring of stages. Wave groups multiply, each its part of
// the tile, and write it out while the next tile's stages are under way; none waits for another, so that one's epilogue
// lies under the other's products. The products' 64-row side, `tall`, is A, or with P.swapped B, so that few rows of A
// cost few columns. Blocks of a cluster lie below each other and fetch B's boxes for one another (P.cluster), or share
// the K of one tile and merge their sums through shared memory in fixed order (args.splits). LDS plan: the ring; a box
// or two of output for each group. Bound: matrix rate where M is large, else B's bytes over memory bandwidth.
#pragma once

#include "tilewave/ops/gemm/tensor/tile_queue.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue = GemmIdentity>
struct GemmTensorKernel {
  using Room = B;
  using L = GemmTensorLayout<B, S, P, Epilogue>;
  using Args = typename L::Args;
  using Ring = typename L::Ring;
  using Sums = typename L::Sums;
  using Shares = GemmTileQueue<L, S, P>;
  struct Places {
    typename Shares::Place place[L::groups * L::group_waves];
  };
  struct NoPlaces {};
  struct Shared : L::Shared, std::conditional_t<L::places_in_shared, Places, NoPlaces> {};
  static constexpr int block_threads = (L::groups + 1) * L::group_lanes;
  static constexpr int waves_per_simd = (L::groups + 1) * P.waves_per_simd;
  static constexpr bool shift_registers = L::groups > 1 && P.waves_per_simd == 1;
  static constexpr int fetching_registers = L::groups == 2 ? 40 : L::groups == 3 ? 32 : 24;
  static constexpr int multiplying_registers = L::groups == 2 ? 232 : L::groups == 3 ? 160 : 112;
  static_assert(!shift_registers || fetching_registers + L::groups * multiplying_registers <=
                                        65536 / block_threads / 8 * 8 * (L::groups + 1),
                "wave groups may hand over no more registers than the block begins with");

  TILEWAVE_DEVICE static void run(const Args& a, Shared& begin) {
    // Settled, or it is worked out from the block's place in its cluster wherever an address is needed.
    const std::uint32_t from = B::opaque(std::uint32_t{0});
    Shared& shared = *reinterpret_cast<Shared*>(reinterpret_cast<char*>(&begin) + from);
    const int group = B::wave_id() / L::group_waves;
    if (B::wave_id() == 0) shared.ring.begin();
    if (group == L::groups && B::lane_id() == 0) {
      B::prefetch_map(a.a);
      for (const auto& map : a.b) B::prefetch_map(map);
    }
    if (a.clustered()) {
      B::cluster_arrive();
      B::cluster_wait();
    } else {
      B::barrier();
    }
    const int rank = a.clustered() ? B::cluster_rank() : 0;
    Shares shares(a, rank);
    if (group == L::groups) {
      if constexpr (shift_registers) B::template give_registers<fetching_registers>();
      const int wave = B::wave_id() - L::groups * L::group_waves;
      if (wave == 0) {
        fetch(a, shares, rank, shared);
      } else if constexpr (L::shared_scales) {
        fetch_scales(a, shares, wave - 1, shared);
      }
      if (P.splits > 1 && a.gemm.splits > 1) L::Output::join_merge();
    } else {
      if constexpr (shift_registers) B::template take_registers<multiplying_registers>();
      multiply(a, shares, rank, group, shared);
    }
    if (a.clustered()) {  // nobody leaves while others may still write or arrive here
      B::cluster_arrive();
      B::cluster_wait();
    }
  }

 private:
  TILEWAVE_DEVICE static int wave_of(int group) { return group * L::group_waves + L::group_wave(); }

  TILEWAVE_DEVICE static void fetch(const Args& a, Shares& shares, int rank, Shared& shared) {
    Ring ring;
    GemmTile tile;
    typename Args::Steps steps;
    while (shares.next(tile, steps)) {
      for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
        B::mbarrier_wait(&shared.ring.empty[ring.slot], ring.round ^ 1);
        L::copy_stage(a, tile, step, rank, shared, ring.slot);
      }
    }
  }

  /// Scales of stages, for whatever strides they have: a wave takes every third stage, the next one's loads under way.
  TILEWAVE_DEVICE static void fetch_scales(const Args& a, Shares& shares, int wave, Shared& shared) {
    Ring ring;
    GemmTile tile;
    typename Args::Steps steps;
    typename L::FetchedScales next;
    int turn = 0;
    while (shares.next(tile, steps)) {
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

  TILEWAVE_DEVICE static void multiply(const Args& a, Shares& shares, int rank, int group, Shared& shared) {
    Ring ring;
    GemmTile tile;
    typename Args::Steps steps;
    typename L::Output output;
    while (shares.next(tile, steps)) {
      output.begin(a, tile, group);
      if constexpr (L::places_in_shared) shares.save(shared.place[wave_of(group)], tile);
      Sums sums[L::tiles];
      if constexpr (L::packed) {
        multiply_codes(steps, group, shared, ring, sums);
      } else if constexpr (L::shared_scales) {
        mainloop_scales_in_lds(steps, group, shared, ring, sums);
      } else if constexpr (L::block_scales || L::promoted) {
        typename L::StageScaleReader reader(a.gemm, tile, group, steps);
        if constexpr (L::scaled_ahead) {
          mainloop_overlapped(reader, steps, group, shared, ring, sums);
        } else {
          mainloop_halves(reader, steps, group, shared, ring, sums);
        }
      } else {
        multiply_plain(steps, group, shared, ring, sums);
      }
      if constexpr (L::places_in_shared) shares.restore(shared.place[wave_of(group)], tile);
      if (P.stream && steps.aside >= 0) {
        output.store_partial(a, steps.aside, group, sums);
      } else if (P.splits > 1 && a.gemm.splits > 1) {
        output.merge(a, tile, rank, group, shared, sums);
      } else {
        output.write(a, tile, group, shared, sums);
      }
    }
    output.finish();
  }

  /// The products of one stage, as one batch: of `count` tiles from `first` on, of the wide side from `from` on.
  template <int count, int sums_of_tile>
  TILEWAVE_DEVICE static void begin_stage(int group, const Shared& shared, int slot, bool fresh,
                                          Vec<typename L::Sum, sums_of_tile> (&sums)[count], int first = 0,
                                          int from = 0) {
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int piece = 0; piece < P.depth_bytes / 32; ++piece) {
      TILEWAVE_UNROLL
      for (int t = 0; t < count; ++t) {
        const int row = L::tall_row(group) + 64 * (first + t);
        const auto tall = L::template operand<true>(shared.tall[slot], row, piece);
        const auto wide = L::template operand<false>(shared.wide[slot], L::wide_row(group) + from, piece);
        B::template group_multiply<S.a, 2 * sums_of_tile>(tall, wide, sums[t], !(fresh && piece == 0));
      }
    }
    B::group_mma_end();
  }

  TILEWAVE_DEVICE static void multiply_plain(typename Args::Steps steps, int group, Shared& shared, Ring& ring,
                                             Sums (&sums)[L::tiles]) {
    if (steps.first == steps.end) L::clear(sums);
    int before = 0;
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      B::mbarrier_wait(&shared.ring.full[ring.slot], ring.round);
      begin_stage(group, shared, ring.slot, step == steps.first, sums);
      if (step != steps.first) {  // the stage before has been read
        B::template group_mma_wait<1>();
        shared.ring.release(before);
      }
      before = ring.slot;
    }
    B::template group_mma_wait<0>();
    if (steps.first != steps.end) shared.ring.release(before);
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) B::group_mma_fence(sums[t]);
  }

  using Codes = typename L::Codes;
  using Widened = Chunk[L::tiles][Codes::pieces];

  /// Codes of one group of k after the other, whose sum is scaled and added in f32: weights are never rounded. Other
  /// groups of waves multiply while one widens.
  TILEWAVE_DEVICE static void multiply_codes(typename Args::Steps steps, int group, Shared& shared, Ring& ring,
                                             Sums (&sums)[L::tiles]) {
    L::clear(sums);
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      B::mbarrier_wait(&shared.ring.full[ring.slot], ring.round);
      static_for<Codes::groups>([&](auto g) TILEWAVE_INLINE_LAMBDA {
        Widened codes;
        widen(group, shared, ring.slot, g, codes);
        Sums part[L::tiles];
        L::clear(part);
        begin_codes(group, shared, ring.slot, g, codes, part);
        const Vec<float, 2 * L::tiles> scales = scales_of(group, shared, ring.slot, g);
        B::template group_mma_wait<0>();
        if (g == Codes::groups - 1) shared.ring.release(ring.slot);
        add_codes(scales, part, sums);
      });
    }
  }
  /// The codes of group g of a stage, and their products as a batch.
  TILEWAVE_DEVICE static void widen(int group, const Shared& shared, int slot, int g, Widened& codes) {
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      const Chunk* const rows = shared.tall[slot] + (L::tall_row(group) / 16 + 4 * t) * Codes::strip_chunks;
      Codes::widen(rows, L::group_wave(), g, codes[t]);
    }
  }
  TILEWAVE_DEVICE static void begin_codes(int group, const Shared& shared, int slot, int g, const Widened& codes,
                                          Sums (&part)[L::tiles]) {
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) B::group_mma_fence(part[t]);
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int p = 0; p < Codes::pieces; ++p) {
      constexpr int of_box = 128 / 32;
      const int piece = g * Codes::pieces + p;
      const Chunk* const box = shared.wide[slot] + piece / of_box * (L::wide_rows * L::row_chunks);
      const SwizzledOperand wide{box, L::wide_row(group), piece % of_box};
      TILEWAVE_UNROLL
      for (int t = 0; t < L::tiles; ++t) B::template group_multiply<S.a, L::group_wide>(codes[t][p], wide, part[t]);
    }
    B::group_mma_end();
  }
  /// Of a lane's two rows of each tile.
  TILEWAVE_DEVICE static Vec<float, 2 * L::tiles> scales_of(int group, const Shared& shared, int slot, int g) {
    const int row = L::tall_row(group) + 16 * L::group_wave() + B::lane_id() / 4;
    Vec<float, 2 * L::tiles> scales;
    TILEWAVE_UNROLL
    for (int i = 0; i < 2 * L::tiles; ++i)
      scales[i] = shared.b_scale[slot][g * P.columns + row + 64 * (i / 2) + 8 * (i % 2)];
    return scales;
  }
  TILEWAVE_DEVICE static void add_codes(const Vec<float, 2 * L::tiles>& scales, Sums (&part)[L::tiles],
                                        Sums (&sums)[L::tiles]) {
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      B::group_mma_fence(part[t]);
      TILEWAVE_UNROLL
      for (int i = 0; i < Sums::size; ++i) sums[t][i] += part[t][i] * scales[2 * t + i / 2 % 2];
    }
  }

  // Each stage is 128 k, whose sum is scaled and added in f32: the products' own sums of fp8 keep fewer bits.

  using Scales = typename L::StageScales;

  template <class Read, int count, int sums_of_tile>
  TILEWAVE_DEVICE static void add_scaled(const Read& scales, Vec<float, sums_of_tile> (&part)[count],
                                         Sums (&sums)[L::tiles], int first = 0, int from = 0) {
    TILEWAVE_UNROLL
    for (int t = 0; t < count; ++t) {
      B::group_mma_fence(part[t]);
      TILEWAVE_UNROLL
      for (int i = 0; i < sums_of_tile; ++i) {
        const int at = from / 2 + i;
        sums[first + t][at] += part[t][i] * scales.of(first + t, at);
      }
    }
  }

  TILEWAVE_DEVICE static void mainloop_scales_in_lds(typename Args::Steps steps, int group, Shared& shared, Ring& ring,
                                                     Sums (&sums)[L::tiles]) {
    L::clear(sums);
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      B::mbarrier_wait(&shared.ring.full[ring.slot], ring.round);
      Sums part[L::tiles];
      begin_stage(group, shared, ring.slot, true, part);
      Scales scales;
      scales.read(shared, ring.slot, group);
      B::template group_mma_wait<0>();
      shared.ring.release(ring.slot);
      add_scaled(scales, part, sums);
    }
  }

  /// Part after part, where sums leave room for those of one more; other groups multiply while one adds. A part is a
  /// tile, or half of its wide side. What comes between a part's additions and the next products keeps the matrix unit
  /// waiting: the next stage is waited for below the last products of this one.
  TILEWAVE_DEVICE static void mainloop_halves(typename L::StageScaleReader& reader, typename Args::Steps steps,
                                              int group, Shared& shared, Ring& ring, Sums (&sums)[L::tiles]) {
    L::clear(sums);
    if (steps.first == steps.end) return;
    Scales even{}, odd{};
    reader.next(even);
    reader.next(odd);
    B::mbarrier_wait(&shared.ring.full[ring.slot], ring.round);
    const auto take = [&](Scales& scales, std::int32_t step) TILEWAVE_INLINE_LAMBDA {
      // Held, so that they are there before `scales` is loaded anew: moved, what is loaded would be waited for.
      typename Scales::Products products = scales.products();
      if constexpr (L::block_scales) B::group_mma_fence(products.of_all);
      constexpr int of_tile = L::group_wide / L::part_wide, parts = L::tiles * of_tile;
      TILEWAVE_UNROLL
      for (int i = 0; i < parts; ++i) {
        const int t = i / of_tile, from = i % of_tile * L::part_wide;
        Vec<float, L::part_wide / 2> part[1];
        begin_stage(group, shared, ring.slot, true, part, t, from);
        if (i == 0) reader.next(scales);
        if (i == parts - 1 && step + 1 < steps.end) {
          Ring ahead = ring;
          ahead.advance();
          B::mbarrier_wait(&shared.ring.full[ahead.slot], ahead.round);
        }
        B::template group_mma_wait<0>();
        if (i == parts - 1) shared.ring.release(ring.slot);
        add_scaled(products, part, sums, t, from);
      }
      ring.advance();
    };
    std::int32_t step = steps.first;
    if constexpr (L::promoted) {  // of two sets that take no registers ptxas makes spills
      for (; step < steps.end; ++step) take(even, step);
    } else {
      for (; step + 2 <= steps.end; step += 2) {
        take(even, step);
        take(odd, step + 1);
      }
      if (step < steps.end) take(even, step);
    }
  }

  /// With the next stage's products under way while one's are added, and the scales of the one after next.
  TILEWAVE_DEVICE static void mainloop_overlapped(typename L::StageScaleReader& reader, typename Args::Steps steps,
                                                  int group, Shared& shared, Ring& ring, Sums (&sums)[L::tiles]) {
    L::clear(sums);
    if (steps.first == steps.end) return;
    const std::int32_t last = steps.end - 1;
    Sums even[L::tiles], odd[L::tiles];
    // Each set is loaded where it was last used: moved, it would be waited for.
    Scales of_even{}, of_odd{};
    reader.next(of_even);
    reader.next(of_odd);
    Ring ahead = ring;
    const auto begin = [&](Sums(&part)[L::tiles]) TILEWAVE_INLINE_LAMBDA {
      B::mbarrier_wait(&shared.ring.full[ahead.slot], ahead.round);
      begin_stage(group, shared, ahead.slot, true, part);
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
    begin(even);
    while (step + 2 <= last) {  // the compiler follows waits only along straight code
      begin(odd);
      B::template group_mma_wait<1>();
      add(even, of_even);
      begin(even);
      B::template group_mma_wait<1>();
      add(odd, of_odd);
    }
    if (step < last) {
      begin(odd);
      B::template group_mma_wait<1>();
      add(even, of_even);
      B::template group_mma_wait<0>();
      add(odd, of_odd);
    } else {
      B::template group_mma_wait<0>();
      add(even, of_even);
    }
  }
};

}  // namespace tilewave
