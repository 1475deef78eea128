// SPDX-License-Identifier: MIT
// GEMM on CDNA through LDS. A block has one tile of C, and a wave keeps the sums of its part of it in registers. With
// P.splits, several blocks share the K of a tile. The loop goes over steps of 128 bytes of K, or 128 values of K with
// MX scales. A step's rows of A and of B lie in rings of slots in LDS. A wave reads a step as k slices, one slice ahead
// of the products that use it.
//
// There are two paths into LDS. On path direct (gfx950) lanes copy 16 bytes each straight from memory to LDS, several
// steps ahead. On path staged (gfx942) lanes load 16 bytes into registers and store them to LDS one step later. A step
// begins behind a barrier: its rows are in LDS, and all waves have read the step before, whose slots may be
// overwritten. Reads, copies and products are issued in the order in which they stand here, so a single wave keeps the
// matrix unit busy. LDS plan: P.stages slots of A, and as many of B, or one more where that fits. Bound: matrix rate.
//
// The drawing is one step s in time, as a wave of the largest tile has it: bf16, 256 x 256 by 2 x 4 waves. A step has
// four k slices of 16 values. A slice has eight products, of four rows of 32 (a0 .. a3) by two columns of 32 (b0, b1).
// What stands below a product is issued behind it. Fragments are read into an even and an odd set of registers in turn.
// In the first step, the products of "slice 3 of step s - 1" multiply zeros.
//
// Path direct (gfx950) has two slots of A and three of B. Between its copy and the wait for it, a row of A has at least
// half a step and a row of B at least a whole one.
//
// wait until at most 4 copies are under way, those of B(s + 1): this wave's copies of A(s) and B(s) have landed
// barrier: the copies of all waves have landed, and all reads of step s - 1 are done
// product            0    1    2    3    4    5    6    7      slice 3 of step s - 1, from the odd set
//     read LDS              b0   b1   a0        a1   a2   a3     slice 0 of step s, into the even set
//     copy to LDS                     A                   A      A(s + 1), into the slot of A(s - 1)
// product            0    1    2    3    4    5    6    7      slice 0, from the even set
//     read LDS              b0   b1   a0        a1   a2   a3     slice 1, into the odd set
//     copy to LDS                     A                   A      A(s + 1): the other two of four
// product            0    1    2    3    4    5    6    7      slice 1, from the odd set
//     read LDS              b0   b1   a0        a1   a2   a3     slice 2, into the even set
//     copy to LDS                     B                   B      B(s + 2), into the slot of B(s - 1)
// product            0    1    2    3    4    5    6    7      slice 2, from the even set
//     read LDS              b0   b1   a0        a1   a2   a3     slice 3, into the odd set, for step s + 1
//     copy to LDS                     B                   B      B(s + 2): the other two of four
//
// Path staged (gfx942) has one slot of A and one of B, which fill LDS. They are written between two barriers.
//
// barrier: all reads of step s - 1 are done
// product                 0    1    2    3                     slice 3 of step s - 1
//     registers to LDS      AA   AA   BB   BB                    step s, of which a wave has four units of A, four of B
//     memory to registers   AA   AA   BB   BB                    step s + 1, into the registers that were just stored
// barrier: step s is in LDS
// product                 4    5    6    7                     the same slice
//     read LDS              b0   b1a0 a1   a2a3                  slice 0 of step s
// slices 0, 1 and 2 follow as above, without copies
// The staged tile of 64 x 64 has two slots and only the first barrier: stores and loads are spread over all of a step.
#pragma once

#include "tilewave/ops/gemm/lds/codes.hpp"
#include "tilewave/ops/gemm/lds/order.hpp"
#include "tilewave/ops/gemm/lds/transposed.hpp"
#include "tilewave/ops/gemm/wave_tile/group_scales.hpp"
#include "tilewave/ops/gemm/wave_tile/mx_scales.hpp"
#include "tilewave/ops/gemm/wave_tile/walk_output.hpp"
#include "tilewave/ops/gemm/wave_tile/wide_output.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue = GemmIdentity>
struct GemmLdsKernel {
  using Room = B;
  using W = GemmWaveTile<B, S, P, UserEpilogue>;
  using Map = typename W::Map;
  using Args = typename W::Args;
  static constexpr int block_threads = W::block_threads;
  static constexpr int waves_per_simd = P.waves_per_simd * W::waves / B::facts.simds_per_cu;

  static constexpr bool direct = P.path == GemmPath::direct;
  template <int rows, int tiles>
  using Transposed = std::conditional_t<direct, GemmTransposedLines<W, rows, tiles>, GemmTransposedRows<W, rows>>;
  template <DType type, int rows, int tiles, bool transposed>
  using Rows = std::conditional_t<transposed, Transposed<rows, tiles>, GemmLdsRows<W, type, rows>>;
  using RowsA = Rows<S.a, P.rows, W::tiles_m, transposed_a(S.layout)>;
  template <bool strips>
  using WideRowsB = std::conditional_t<strips, GemmLdsStrips<W, S.b, P.columns>,
                                       Rows<S.b, P.columns, W::tiles_n, transposed_b(S.layout)>>;
  using RowsB =
      std::conditional_t<S.four_bit(), GemmLdsCodes<W, P.columns>, WideRowsB<S.weights == GemmWeights::preshuffled>>;
  using Scales = GemmStepScales<W, direct>;

  static constexpr int a_slots = P.stages;
  static constexpr int lds_of_block = B::facts.lds_bytes / P.waves_per_simd;
  static constexpr int a_bytes = P.rows * RowsA::row_bytes, b_bytes = P.columns * RowsB::row_bytes;  // of a slot
  static constexpr bool extra_b_slot =
      direct && Scales::copies == 0 && lds_of_block >= (a_bytes + b_bytes) * a_slots + b_bytes;
  static constexpr int b_slots = extra_b_slot ? a_slots + 1 : a_slots;
  static constexpr int k_slices = RowsA::k_slices;  // of a step

  struct Shared : Scales::template InLds<a_slots> {
    alignas(16) Chunk a[a_slots][a_bytes / sizeof(Chunk)];
    alignas(16) Chunk b[b_slots][b_bytes / sizeof(Chunk)];
  };
  static_assert(sizeof(Shared) <= lds_of_block, "slots and scales exceed a block's part of LDS");
  using Output = GemmWideOutput<W, sizeof(Shared)>;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const typename W::BlockWork work(a, B::block_id(), true);
    if (!work.exists) return;
    typename W::WaveSums sums;
    W::clear(sums);
    if constexpr (W::walks) {
      if (const std::int32_t walk = B::uniform(std::int32_t{a.walk}); walk > 1) {
        const std::int32_t tiles = min_of(walk, ceil_div(a.gemm.n - work.tile.first_column, W::tile_columns));
        of_rows(work.tile, [&](auto rows) TILEWAVE_INLINE_LAMBDA {
          MainLoop<rows, true>(a, work.tile, shared, tiles).walk(a, work.tile, sums);
        });
        return;
      }
    }
    const auto steps = a.steps(work.split);
    if (steps.first < steps.end) {
      of_rows(work.tile, [&](auto rows) TILEWAVE_INLINE_LAMBDA {
        MainLoop<rows, false>(a, work.tile, shared).run(steps.first, steps.end, sums);
      });
    }
    if constexpr (S.mxfp4()) W::multiply(sums, RowsB::factor);
    if (W::exchanges || Output::serves(a, work.tile)) B::lds_barrier();  // The rings are free from here on.
    Output(a, work.tile, reinterpret_cast<typename Output::Shared&>(shared)).finish(work, sums);
  }

 private:
  /// The operands of a wave's products of one k slice.
  struct Fragments {
    Chunk a[W::tiles_m][Map::chunks_a], b[W::tiles_n][Map::chunks_b];
    typename Scales::SliceScales scales;
  };
  /// Calls multiply(rows of products that a wave has). Those without rows of a low group are left out.
  template <class Multiply>
  TILEWAVE_DEVICE static void of_rows(const GemmTile& tile, const Multiply& multiply) {
    if constexpr (detail::gemm_low_groups(S, P)) {
      static_assert(P.waves_rows == 1, "all waves have the same rows");
      if (tile.row_end - tile.first_row <= W::side) {
        multiply(Index<1>{});
        return;
      }
    }
    multiply(Index<W::tiles_m>{});
  }
  // A wave reads so many units of B from LDS for a k slice, and copies so many for a step.
  static constexpr int b_reads = W::tiles_n * Map::chunks_b;
  static constexpr int a_copies = RowsA::copies + Scales::copies, b_copies = RowsB::copies,
                       copies = a_copies + b_copies;

  /// The main loop, with so many rows of products of a wave, over one tile or over those of a walk.
  template <int tiles_m, bool walks>
  struct MainLoop {
    static constexpr int products = tiles_m * W::tiles_n;  // of a wave for a k slice
    static constexpr int reads = Scales::reads + b_reads + tiles_m * Map::chunks_a;
    static_assert(direct || a_slots == 2 || products >= 2, "one slot: reads stand beside the second half of products");
    Shared& shared;
    RowsA rows_a;
    RowsB rows_b;
    Scales scales;
    typename Scales::StepScales step_scales{};
    Fragments fragments[2] = {};  // of even and of odd k slices

    TILEWAVE_DEVICE MainLoop(const Args& a, const GemmTile& tile, Shared& in, std::int32_t tiles = 1)
        : shared(in),
          rows_a(a.gemm.a, tile.a_layer * a.gemm.a_layer_stride, a.gemm.a_stride, typename W::TileRowsA(a.gemm, tile),
                 a.gemm.k, W::first_row()),
          rows_b(make_rows_b(a.gemm, tile, tiles)),
          scales(a, tile, in),
          ahead_{.tiles = tiles} {}

    /// Adds the products of steps [first, end) to the sums.
    TILEWAVE_DEVICE void run(std::int32_t first, std::int32_t end, typename W::WaveSums& sums) {
      fill_slots(first);
      // The first loop runs whole steps only, in rounds after which all slots come again. There everything but the step
      // is a constant.
      const std::int32_t whole = min_of(end, rows_a.k_bytes / RowsA::row_bytes) - steps_ahead;
      std::int32_t step = first;
      for (; step + slot_period <= whole; step += slot_period) {
        static_for<slot_period>(
            [&](auto i) TILEWAVE_INLINE_LAMBDA { run_step<true, i>(step + i, i % a_slots, i % b_slots, sums); });
      }
      for (int a_slot = 0, b_slot = 0; step < end; ++step) {
        run_step<false, unknown>(step, a_slot, b_slot, sums);
        a_slot = a_slot + 1 == a_slots ? 0 : a_slot + 1;
        b_slot = b_slot + 1 == b_slots ? 0 : b_slot + 1;
      }
      multiply_slice<1, 0, products>(sums, [](auto) TILEWAVE_INLINE_LAMBDA {});
      scales.template accumulate<tiles_m>(step_scales, sums);
      if constexpr (direct) B::template copies_wait<0>();
    }

    /// Multiplies and writes the tiles of a walk. Their steps follow each other as those of one tile do: the last
    /// products of a tile stand in the next one's first step, and behind them the tile is written.
    TILEWAVE_DEVICE void walk(const Args& a, GemmTile tile, typename W::WaveSums& sums) {
      static_assert(a_slots == b_slots, "A and B of a step are copied together");
      const GemmWalkOutput<W> output(a.gemm, tile);
      ahead_.steps = a.k_steps;
      ahead_.next_b = B::uniform(rows_b.next_tile(gemm_row_of_b<S>(a.gemm, W::tile_columns, 0)));
      ahead_.next_scale = B::uniform(scales.next_tile(a.gemm));
      const std::int32_t steps = ahead_.tiles * a.k_steps;
      std::int32_t left = steps, step = 0;
      fill_slots(0);
      B::loads_wait();  // Their values are used in the loop, where a wait for them would be one for copies, too.
      for (int slot = 0;; slot = slot + 1 == a_slots ? 0 : slot + 1) {
        begin_step<false, unknown>(step, slot, slot, sums);
        if (step == 0 && left < steps) {
          output.write(a, tile, tiles_m, sums);
          W::clear(sums);
          tile.first_column += W::tile_columns;
        }
        if (left-- == 0) break;
        end_step<false, unknown>(step, slot, slot, sums);
        step = step + 1 == a.k_steps ? 0 : step + 1;
      }
      B::template copies_wait<0>();
    }

   private:
    detail::GemmAhead<B> ahead_;  // on a walk, what is copied next
    TILEWAVE_DEVICE static RowsB make_rows_b(const GemmArgs& g, const GemmTile& tile, std::int32_t tiles) {
      if constexpr (S.four_bit()) {
        return RowsB(g, tile, W::first_column());
      } else {
        return RowsB(g.b, tile.layer * g.b_layer_stride, g.b_stride, typename W::TileRowsB(g, tile, tiles), g.k,
                     W::first_column());
      }
    }
    static constexpr int slot_period = a_slots == b_slots ? a_slots : a_slots * b_slots;  // in steps
    static_assert(slot_period % Scales::period == 0, "a round of slots is whole groups of steps that share scales");
    static constexpr int unknown = -1;
    static constexpr int steps_ahead = direct ? b_slots - 1 : a_slots;  // that a step's copies are at most
    /// So many copies may be under way when a step begins: those issued behind the copies of its rows of A. Step s
    /// issues the copies of A of step s - 1 + a_slots, then those of B of step s - 1 + b_slots.
    static constexpr int pending = (a_slots - 2) * copies + (b_slots > a_slots ? b_copies : 0);

    /// Issues the copies or loads that the first steps expect to be under way.
    TILEWAVE_DEVICE void fill_slots(std::int32_t first) {
      if constexpr (direct) {
        static_for<b_slots - 1>([&](auto s) TILEWAVE_INLINE_LAMBDA {
          constexpr int a_step = s + a_slots - b_slots;
          if constexpr (a_step >= 0) {
            static_for<a_copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { copy_a<i, false>(first + a_step, a_step); });
          }
          static_for<b_copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { copy_b<i, false>(first + s, s); });
          if constexpr (walks) ahead_.advance();
        });
      } else {
        static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { load<i, false>(first); });
        if constexpr (a_slots == 2) {
          static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { store_then_load<i, false>(first + 1, 0); });
        }
      }
    }

    /// One step of the drawing: the products of the last slice of the step before, then those of all but the last slice
    /// of this step. `whole`: this step and those that it copies lie within K. `number` is the step's in a round of
    /// slots, or unknown. Steps begin with one whose sums are scaled anew.
    template <bool whole, int number>
    TILEWAVE_DEVICE void run_step(std::int32_t step, int a_slot, int b_slot, typename W::WaveSums& sums) {
      begin_step<whole, number>(step, a_slot, b_slot, sums);
      end_step<whole, number>(step, a_slot, b_slot, sums);
    }
    /// Its part as far as the end of the step before.
    template <bool whole, int number>
    TILEWAVE_DEVICE void begin_step(std::int32_t step, int a_slot, int b_slot, typename W::WaveSums& sums) {
      constexpr bool one_slot = !direct && a_slots == 1;
      constexpr int storing = one_slot ? max_of(products / 2, 1) : 0;  // The first products stand beside stores.
      if constexpr (direct) B::template copies_wait<pending>();
      B::lds_barrier();
      if constexpr (one_slot) {  // All waves have read the slot, so it may be written again.
        multiply_slice<1, 0, storing>(sums, [&](auto product) TILEWAVE_INLINE_LAMBDA {
          detail::gemm_interleave<copies, storing, product>(
              [&](auto i) TILEWAVE_INLINE_LAMBDA { store_then_load<i, whole>(step + 1, 0); });
        });
        B::lds_barrier();
      }
      if constexpr (!whole) clean_end(step, a_slot, b_slot);
      multiply_slice<1, storing, products>(sums, [&](auto product) TILEWAVE_INLINE_LAMBDA {
        constexpr int left = products - storing;
        detail::gemm_interleave<reads, left, product>(
            [&](auto i) TILEWAVE_INLINE_LAMBDA { read<i>(fragments[0], step, a_slot, b_slot, 0); });
        issue_copies<whole, product, left, 0>(step, a_slot, b_slot);
      });
      if (scaled_anew<number>(step)) scales.template accumulate<tiles_m>(step_scales, sums);
    }
    template <int number>
    TILEWAVE_DEVICE static bool scaled_anew(std::int32_t step) {
      return (number != unknown ? number : step) % Scales::period == 0;
    }
    template <bool whole, int number>
    TILEWAVE_DEVICE void end_step(std::int32_t step, int a_slot, int b_slot, typename W::WaveSums& sums) {
      B::sched_fence();
      if (scaled_anew<number>(step)) step_scales = scales.load(step, a_slot);
      static_for<k_slices - 1>([&](auto slice) TILEWAVE_INLINE_LAMBDA {
        multiply_slice<slice % 2, 0, products>(sums, [&](auto product) TILEWAVE_INLINE_LAMBDA {
          detail::gemm_interleave<reads, products, product>([&](auto i) TILEWAVE_INLINE_LAMBDA {
            read<i>(fragments[1 - slice % 2], step, a_slot, b_slot, slice + 1);
          });
          issue_copies<whole, product, products, slice + 1>(step, a_slot, b_slot);
        });
      });
      if constexpr (walks) ahead_.advance();
    }

    /// Issues the copies that stand behind product `product` of `count`, while slice `slice` of the step is read. A
    /// step's copies are spread over all of its products.
    template <bool whole, int product, int count, int slice>
    TILEWAVE_DEVICE void issue_copies(std::int32_t step, int a_slot, int b_slot) {
      if constexpr (direct) {
        detail::gemm_interleave<copies, k_slices * count, slice * count + product>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          if constexpr (i < a_copies) {
            copy_a<i, whole>(step - 1 + a_slots, (a_slot + a_slots - 1) % a_slots);
          } else {
            copy_b<i - a_copies, whole>(step - 1 + b_slots, (b_slot + b_slots - 1) % b_slots);
          }
        });
      } else if constexpr (a_slots == 2) {
        detail::gemm_interleave<copies, k_slices * count, slice * count + product>(
            [&](auto i) TILEWAVE_INLINE_LAMBDA { store_then_load<i, whole>(step + 2, 1 - a_slot); });
      }
    }
    /// Copy i of A: its rows come first, then their scales.
    template <int i, bool whole>
    TILEWAVE_DEVICE void copy_a(std::int32_t step, int slot) {
      if constexpr (i < RowsA::copies) {
        rows_a.template copy<i, whole>(shared.a[slot], walks ? ahead_.step : step);
      } else if constexpr (walks) {
        scales.template copy<i - RowsA::copies>(ahead_.step, slot, ahead_.scale());
      } else {
        scales.template copy<i - RowsA::copies>(step, slot);
      }
    }
    template <int i, bool whole>
    TILEWAVE_DEVICE void copy_b(std::int32_t step, int slot) {
      if constexpr (walks) {
        rows_b.template copy<i, whole>(shared.b[slot], ahead_.step, ahead_.b());
      } else {
        rows_b.template copy<i, whole>(shared.b[slot], step);
      }
    }
    /// Stores unit i, which was loaded before, into its slot, and loads that of step `next` into its registers.
    template <int i, bool whole>
    TILEWAVE_DEVICE void store_then_load(std::int32_t next, int slot) {
      if constexpr (i < a_copies) {
        rows_a.template store<i>(shared.a[slot]);
      } else {
        rows_b.template store<i - a_copies>(shared.b[slot]);
      }
      load<i, whole>(next);
    }
    template <int i, bool whole>
    TILEWAVE_DEVICE void load(std::int32_t step) {
      if constexpr (i < a_copies) {
        rows_a.template load<i, whole>(step);
      } else {
        rows_b.template load<i - a_copies, whole>(step);
      }
    }
    /// Read i of a k slice. Scales and B come first, since the first products need them.
    template <int i>
    TILEWAVE_DEVICE void read(Fragments& to, std::int32_t step, int a_slot, int b_slot, int slice) const {
      if constexpr (i < Scales::reads) {
        scales.template read<i>(to.scales, step, a_slot, slice);
      } else if constexpr (constexpr int unit = i - Scales::reads; unit < b_reads) {
        constexpr int t = unit / Map::chunks_b, c = unit % Map::chunks_b;
        to.b[t][c] = rows_b.read(shared.b[b_slot], t, slice, c);
      } else {
        constexpr int t = (unit - b_reads) / Map::chunks_a, c = (unit - b_reads) % Map::chunks_a;
        to.a[t][c] = rows_a.read(shared.a[a_slot], t, slice, c);
      }
    }
    /// Issues products [from, to) of an even or odd slice, and calls between_products(index) behind each.
    template <int parity, int from, int to, class BetweenProducts>
    TILEWAVE_DEVICE void multiply_slice(typename W::WaveSums& sums, const BetweenProducts& between_products) {
      const Fragments& operands = fragments[parity];
      auto& into = scales.step_sums(sums);
      static_for<to - from>([&](auto index) TILEWAVE_INLINE_LAMBDA {
        constexpr int i = from + index, m = i / W::tiles_n, n = i % W::tiles_n;
        if constexpr (Map::by_lane) {
          Chunk a[Map::chunks_a], b[Map::chunks_b];
          detail::gemm_arrange<S.a, parity>(operands.a[m], a);
          detail::gemm_arrange<S.b, parity>(operands.b[n], b);
          Scales::template multiply<m, n>(operands.scales, b, a, into[m][n]);
        } else {
          Scales::template multiply<m, n>(operands.scales, operands.b[n], operands.a[m], into[m][n]);
        }
        B::keep(into[m][n]);
        between_products(index);
        B::sched_fence();
      });
    }
    /// Clears what lies beyond K: elements that share 16 bytes with the last ones of a row, and scales.
    TILEWAVE_DEVICE void clean_end(std::int32_t step, int a_slot, int b_slot) {
      const bool ends = rows_a.ends_within(step);
      if (!ends && !scales.ends_within(step)) return;
      if (ends) {
        rows_a.clean(shared.a[a_slot]);
        rows_b.clean(shared.b[b_slot]);
      }
      scales.clean(step, a_slot);
      B::lds_barrier();
    }
  };
};

}  // namespace tilewave
