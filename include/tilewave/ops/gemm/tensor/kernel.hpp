// SPDX-License-Identifier: MIT
// GEMM of rooms with a tensor copy engine and products of wave groups.
// Grid: at most as many blocks as the chip holds at a time; each block takes tile after tile from GemmTileQueue.
// Who does what: one wave fetches boxes of 128 bytes of K of A and B into a ring of stages. The wave groups multiply,
// each its part of the tile, and write it out while the next tile's stages arrive. No wave group waits for another,
// so the epilogue of one can run beside the products of another.
// The 64-row side of a product is called tall. It is A, or B where P.swapped is set, so that few rows of A cost few
// columns. Blocks of a cluster fetch B's boxes for one another (P.cluster), or they share the K of one tile and merge
// their partials through shared memory in fixed order (args.splits).
// Shared memory: the ring; the boxes of output of each wave group; scales.
// Bound: the matrix rate where M is large, else B's bytes over memory bandwidth.
#pragma once

#include "tilewave/ops/gemm/tensor/fetching.hpp"
#include "tilewave/ops/gemm/tensor/int4_loop.hpp"
#include "tilewave/ops/gemm/tensor/late_output.hpp"
#include "tilewave/ops/gemm/tensor/scaled_tiles.hpp"
#include "tilewave/ops/gemm/tensor/tile_queue.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue = GemmIdentity>
struct GemmTensorKernel {
  using Room = B;
  using L = GemmTensorLayout<B, S, P, Epilogue>;
  using Args = typename L::Args;
  using Maps = typename L::Maps;
  using Ring = typename L::Ring;
  using Sums = typename L::Sums;
  using Fetching = GemmFetching<B, S, P, Epilogue>;
  using TileQueue = GemmTileQueue<L, S, P>;
  using PostedTiles = GemmPostedTiles<L>;
  struct Board {
    GemmTileBoard<B> board;
  };
  struct NoBoard {};
  struct NoTiles {
    TILEWAVE_DEVICE NoTiles(const Args&, int) {}
    TILEWAVE_DEVICE static void look_ahead() {}
  };
  /// Pingpong: a wave group may begin its tile once the other has begun all products of the tile before. Then the full
  /// barriers of the ring are in the phase before the one that it waits for: it does not follow them in between.
  struct Turns {
    typename B::Mbarrier turn[2];
  };
  struct NoTurns {};
  struct WithOutGroups {
    typename L::Output::OutGroups out_groups;
  };
  struct NoOutGroups {};
  struct Shared : L::Shared,
                  std::conditional_t<L::shares_out_groups, WithOutGroups, NoOutGroups>,
                  std::conditional_t<L::posts_tiles, Board, NoBoard>,
                  std::conditional_t<P.pingpong, Turns, NoTurns> {};
  static constexpr bool waits_itself = true;
  static constexpr bool shift_registers = L::wave_groups > 1 && P.waves_per_simd == 1;
  /// The lanes that fetch. One wave copies boxes, and some may find the norms of rows. Where rows are gathered or
  /// scales come by stages, or registers are handed over, there is a whole wave group.
  static constexpr int fetching_lanes = shift_registers || L::gathered || L::shared_scales
                                            ? L::wave_group_lanes
                                            : (L::norms ? 2 : 1) * B::facts.wave_lanes;
  static constexpr int block_threads = L::wave_groups * L::wave_group_lanes + fetching_lanes;
  static constexpr int waves_per_simd = ceil_div(block_threads * P.waves_per_simd, 4 * B::facts.wave_lanes);
  static constexpr bool most_registers = P.pingpong || (P.late && L::wave_groups == 2);
  // Two stages of scales of fragments, and gathered rows beside them, need more than 40, and so do ratios of scales.
  static constexpr bool scales_ahead = (L::fragments || detail::gemm_rescales_sums(S, P)) && L::wave_groups == 2;
  static constexpr int fetching_registers = most_registers        ? 24
                                            : scales_ahead        ? (L::fragments ? 72 : 56)
                                            : L::wave_groups == 2 ? 40
                                            : L::wave_groups == 3 ? 32
                                                                  : 24;
  static constexpr int multiplying_registers = most_registers        ? 240
                                               : scales_ahead        ? (L::fragments ? 216 : 224)
                                               : L::wave_groups == 2 ? 232
                                               : L::wave_groups == 3 ? 160
                                                                     : 112;
  static_assert(!shift_registers || fetching_registers + L::wave_groups * multiplying_registers <=
                                        65536 / block_threads / 8 * 8 * (L::wave_groups + 1),
                "wave groups may hand over no more registers than the block begins with");

  TILEWAVE_DEVICE static void run(const Args& a, const Maps& maps, Shared& begin) {
    // An opaque offset keeps the base of shared memory in a register. Without it, the compiler computes the base from
    // the block's rank in its cluster wherever an address is needed.
    const std::uint32_t offset = B::opaque(std::uint32_t{0});
    Shared& shared = *reinterpret_cast<Shared*>(reinterpret_cast<char*>(&begin) + offset);
    const int wave_group = B::wave_id() / L::wave_group_waves;
    if (B::wave_id() == 0) {
      if constexpr (P.pingpong) {
        if (B::elected()) {
          for (auto& turn : shared.turn) B::mbarrier_init(&turn, L::wave_group_waves);
        }
      }
      if constexpr (L::shares_out_groups) {
        if (B::elected()) B::mbarrier_init(&shared.out_groups.published, L::wave_groups * L::wave_group_waves);
      }
      shared.ring.begin();
      if constexpr (L::norms) shared.norm.ring.begin(1, L::wave_groups * L::wave_group_waves);
      if constexpr (L::posts_tiles) shared.board.barriers.begin(1, L::readers_of_tiles);
    }
    if (B::wave_id() == L::wave_groups * L::wave_group_waves && B::elected()) {
      if (!L::gathered) B::prefetch_map(maps.a);
      for (const auto& map : maps.b) B::prefetch_map(map);
      if (L::out_in_boxes && a.wide_stores) B::prefetch_map(maps.out);
    }
    const int rank = a.clustered() ? B::cluster_rank() : 0;
    // The wave that copies finds its first tile while the barriers are initialised. Tables of groups may not be there.
    std::conditional_t<S.groups == GemmGroups::one, GemmTilesAhead<TileQueue>, NoTiles> early_tiles(a, rank);
    if (B::wave_id() == L::wave_groups * L::wave_group_waves) early_tiles.look_ahead();
    // B's boxes may be on their way before the kernel in front is over. The fetching wave then waits behind them.
    const bool early = L::copies_b_early && a.gemm.b_ready && a.gemm.k > 0;
    if (!early) B::wait_for_previous();
    // Blocks that share K reach into each other's shared memory only after the barrier of merge.
    if constexpr (L::sharers > 1) {
      B::cluster_arrive_relaxed();  // the ring's begin() showed its barriers to the cluster
      B::cluster_wait();
    } else {
      B::barrier();
    }
    if (early && B::wave_id() != L::wave_groups * L::wave_group_waves) B::wait_for_previous();
    if (wave_group == L::wave_groups) {
      if constexpr (shift_registers) B::template give_registers<fetching_registers>();
      const int wave = B::wave_id() - L::wave_groups * L::wave_group_waves;
      if (wave == 0) {
        if constexpr (S.groups == GemmGroups::one) {
          Fetching::copy_tiles(a, maps, early_tiles, rank, shared, early);
        } else {
          TileQueue queue(a, rank);
          if constexpr (L::posts_tiles) {
            GemmPostingQueue<L, TileQueue> posting(queue, shared.board);
            Fetching::copy_tiles(a, maps, posting, rank, shared, early);
          } else {
            Fetching::copy_tiles(a, maps, queue, rank, shared, early);
          }
        }
        B::launch_next();  // all that this block reads of A and B is on its way
      } else if constexpr (L::gathered || L::shared_scales) {
        with_tiles(a, rank, shared, [&](auto&& tiles) TILEWAVE_INLINE_LAMBDA {
          if constexpr (L::gathered) {
            Fetching::copy_rows(a, tiles, wave - 1, shared);
          } else {
            Fetching::copy_scales(a, tiles, wave - 1, shared);
          }
        });
      } else if constexpr (L::norms) {
        if (a.normalises && wave == 1) L::RowNorm::run(a, TileQueue(a, rank), shared.norm);
      }
      if (a.merges()) L::Output::join_merge();
    } else {
      if constexpr (shift_registers) B::template take_registers<multiplying_registers>();
      with_tiles(a, rank, shared, [&](auto&& tiles) TILEWAVE_INLINE_LAMBDA {
        if constexpr (L::scales_of_next_tile) {
          multiply_with_scales_ahead(a, maps, tiles, wave_group, shared);
        } else {
          multiply(a, maps, tiles, rank, wave_group, shared);
        }
      });
    }
    if (a.blocks_share_k()) {
      // No block leaves while others may still read its shared memory. What was read of it was used by then, so there
      // is no need for a release, which would wait for all stores.
      B::cluster_arrive_relaxed();
      B::cluster_wait();
    }
  }

  /// Begins the products of one stage as one batch. Products take `count` tall tiles from tile `first` on, and the
  /// wide side from row `wide_first` on. A `fresh` batch overwrites the sums.
  template <int count, int sums_per_tile>
  TILEWAVE_DEVICE static void begin_stage(int wave_group, const Shared& shared, int slot, bool fresh,
                                          Vec<typename L::Sum, sums_per_tile> (&sums)[count], int first = 0,
                                          int wide_first = 0) {
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < P.depth_bytes / 32; ++k_slice) {
      TILEWAVE_UNROLL
      for (int t = 0; t < count; ++t) {
        const int row = L::tall_row(wave_group) + 64 * (first + t);
        const auto tall = L::template operand<true>(shared.tall[slot], row, k_slice);
        const auto wide = L::template operand<false>(shared.wide[slot], L::wide_row(wave_group) + wide_first, k_slice);
        B::template group_multiply<S.a, 2 * sums_per_tile>(tall, wide, sums[t], !(fresh && k_slice == 0));
      }
    }
    B::group_mma_end();
  }

 private:
  /// Calls `work` with the tiles of a wave that does not copy boxes.
  template <class Work>
  TILEWAVE_DEVICE static void with_tiles(const Args& a, int rank, Shared& shared, Work&& work) {
    if constexpr (L::posts_tiles) {
      work(PostedTiles(a, shared.board));
    } else if constexpr (P.late) {
      work(GemmTilesAhead<TileQueue>(a, rank));
    } else {
      work(TileQueue(a, rank));
    }
  }

  /// Few rows of fp8: in front of its first tile a wave group runs the epilogue of columns beyond C, which writes
  /// nothing, while the first boxes are on their way. A kernel's code comes from memory, and after each jump the next
  /// lines of it are waited for: so the epilogue's lie in caches when the sums are there. It saves 2 to 3 %. Tiles of
  /// 16 bits, some with more code, gain nothing (docs/notebook/2026-11-28-gemm-scales-ahead.md).
  static constexpr bool may_fetch_code = is_fp8(S.a) && L::plain && !P.pingpong && !P.late && !P.stream && !S.gated &&
                                         S.groups == GemmGroups::one && L::out_in_boxes && S.out_scale == Scaling::none;
  template <class Queue>
  TILEWAVE_DEVICE static void multiply(const Args& a, const Maps& maps, Queue& queue, int rank, int wave_group,
                                       Shared& shared) {
    using Scaled = GemmScaledLoops<B, S, P, Epilogue>;
    using Int4 = GemmInt4Loop<B, S, P, Epilogue>;
    Ring ring;
    GemmTile tile;
    typename Args::Steps steps;
    typename L::Output output(&maps);
    RingSlot<1> normed;
    int number = -1;  // of the tile among the block's
    bool fetches_code = may_fetch_code && output.leaves_out_columns(a);
    while (fetches_code || queue.next(tile, steps)) {
      if constexpr (may_fetch_code) {
        if (fetches_code) tile = {0, 0, 0, a.gemm.m, align_up(a.gemm.n, P.columns)}, steps = {0, 0};
      }
      if constexpr (P.pingpong) {
        if (++number % 2 != wave_group) {  // the other wave group's tile
          ring.skip(steps.end - steps.first);
          continue;
        }
      }
      if constexpr (L::leaves_rows_out) {
        if (a.k_steps <= L::most_steps_left_out && tile.first_row + L::tall_row(wave_group) >= tile.row_end) {
          pass_stages(steps, shared, ring);
          continue;
        }
      }
      output.begin(a, tile, wave_group);
      const auto end_tile = [&](Sums(&sums)[L::tiles]) TILEWAVE_INLINE_LAMBDA {
        if (P.stream && steps.partial >= 0) return output.store_partial(a, steps.partial, wave_group, sums);
        if (a.merges()) return output.merge(a, tile, rank, wave_group, shared, sums);
        if constexpr (P.waves_k > 1) {
          return;
        } else if constexpr (P.late) {
          output.round(a, tile, wave_group, shared, sums);
        } else {
          output.write(a, tile, wave_group, shared, sums);
        }
      };
      Sums sums[L::tiles];
      if constexpr (L::heights.count > 1) {
        Int4::run_as_high(tile, steps, wave_group, shared, ring, end_tile);
        continue;
      } else if constexpr (L::packed) {
        Int4::run(steps, wave_group, shared, ring, sums);
      } else if constexpr (L::shared_scales && P.swapped) {
        Scaled::scales_in_shared(steps, wave_group, shared, ring, sums);
      } else if constexpr (L::shared_scales && L::scaled_ahead) {
        Scaled::overlapped(typename L::NoScaleReader(a.gemm, tile, wave_group, steps), steps, wave_group, shared, ring,
                           sums);
      } else if constexpr (L::shared_scales) {
        Scaled::shared_halves(steps, wave_group, shared, ring, sums);
      } else if constexpr (L::block_scales || L::promoted) {
        typename L::StageScaleReader reader(a.gemm, tile, wave_group, steps);
        if constexpr (L::scaled_ahead) {
          Scaled::overlapped(reader, steps, wave_group, shared, ring, sums);
        } else {
          Scaled::halves(reader, steps, wave_group, shared, ring, sums);
        }
      } else if constexpr (P.late) {
        multiply_late(a, output, queue, steps, wave_group, shared, ring, sums);
      } else {
        if constexpr (P.pingpong) B::mbarrier_wait(&shared.turn[wave_group], (number / 2 + wave_group + 1) % 2);
        multiply_plain(steps, wave_group, shared, ring, sums, may_fetch_code && fetches_code);
      }
      if constexpr (L::norms) {  // blocks that share K multiply what they have merged
        if (a.normalises && a.gemm.splits == 1) L::RowNorm::take(shared.norm, normed, wave_group, sums);
      }
      end_tile(sums);
      fetches_code = false;
    }
    if constexpr (P.late) output.write_rest(a, wave_group, shared);
    output.finish();
  }

  /// The same where the scales of the next tile are asked for below a tile's last stages.
  template <class Queue>
  TILEWAVE_DEVICE static void multiply_with_scales_ahead(const Args& a, const Maps& maps, Queue& queue, int wave_group,
                                                         Shared& shared) {
    typename L::Output output(&maps);
    GemmScaledTiles<B, S, P, Epilogue>::run(
        a, queue, wave_group, shared,
        [&](const GemmTile& tile) TILEWAVE_INLINE_LAMBDA { output.begin(a, tile, wave_group); },
        [&](const GemmTile& tile, Sums(&sums)[L::tiles])
            TILEWAVE_INLINE_LAMBDA { output.write(a, tile, wave_group, shared, sums); });
    output.finish();
  }

  /// The same for P.late: the values of the tile before leave below the first stages, and the next tile is found.
  template <class Queue>
  TILEWAVE_DEVICE static void multiply_late(const Args& a, typename L::Output& output, Queue& queue,
                                            typename Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                            Sums (&sums)[L::tiles]) {
    int before = 0;
    std::int32_t step = steps.first;
    const auto begin = [&](bool first) TILEWAVE_INLINE_LAMBDA {
      L::wait_full(shared, ring);
      begin_stage(wave_group, shared, ring.slot, first, sums);
    };
    const auto end_stage_before = [&](bool first) TILEWAVE_INLINE_LAMBDA {
      if (!first) {
        B::template group_mma_wait<1>();
        shared.ring.release(before);
      }
      before = ring.slot;
      ++step, ring.advance();
    };
    begin(true);
    end_stage_before(true);
    TILEWAVE_UNROLL
    for (int i = 0; i < L::Output::steps; ++i) {
      const bool more = step < steps.end;
      if (more) begin(false);
      output.write_some(a, wave_group, shared, i);
      if (more) end_stage_before(false);
    }
    queue.look_ahead();
    while (step < steps.end) {
      begin(false);
      end_stage_before(false);
    }
    end_products(shared, before, sums);
  }

  /// Passes the stages of a tile of which the wave group has no row that counts.
  TILEWAVE_DEVICE static void pass_stages(typename Args::Steps steps, Shared& shared, Ring& ring) {
    for (std::int32_t step = steps.first; step < steps.end; ++step, ring.advance()) {
      B::mbarrier_wait(&shared.ring.full[ring.slot], ring.round);
      shared.ring.release(ring.slot);
    }
  }

  /// Sums stay in the matrix unit over all of K. The products of a step are begun before those of the step before are
  /// waited for, so the unit always has a batch queued. Every tile and every split has a step, even where K is 0. Sums
  /// that might have no step would have to be cleared first, and the loop took 6 % longer where tiles are 16 x 64.
  /// With `none` there are no products, and the sums are anything (may_fetch_code).
  TILEWAVE_DEVICE static void multiply_plain(typename Args::Steps steps, int wave_group, Shared& shared, Ring& ring,
                                             Sums (&sums)[L::tiles], bool none) {
    int before = 0;
    std::int32_t step = steps.first;
    for (bool any = !none; any; any = step < steps.end) {
      L::wait_full(shared, ring);
      begin_stage(wave_group, shared, ring.slot, step == steps.first, sums);
      if (step != steps.first) {  // the products of the step before are done, so its slot is free
        B::template group_mma_wait<1>();
        shared.ring.release(before);
      }
      before = ring.slot;
      ++step, ring.advance();
    }
    if constexpr (P.pingpong) B::mbarrier_arrive(&shared.turn[1 - wave_group]);
    end_products(shared, before, sums, none);
  }
  /// Waits for the products of the last stage.
  TILEWAVE_DEVICE static void end_products(Shared& shared, int slot, Sums (&sums)[L::tiles], bool none = false) {
    B::template group_mma_wait<0>();
    if (!none) shared.ring.release(slot);
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) B::group_mma_fence(sums[t]);
  }
};

}  // namespace tilewave
