// SPDX-License-Identifier: MIT
// GEMM of CDNA through LDS. A step is 128 bytes of K, with mx scales 128 k: rows of A and of B lie in rings of slots,
// and a wave reads them in pieces, one piece ahead of its products. Where the chip copies 16 bytes a lane (path
// direct), rows come straight into LDS, several steps ahead; else (staged) through registers, one step ahead. A turn
// begins behind one barrier, with the step's rows in LDS and all reads of the step before done, whose slot copies
// overwrite; reads, copies and products alternate as they are written here, so that a single wave keeps the matrix unit
// busy. LDS plan: P.stages slots of A, as many of B or one more where that fits. Bound: matrix rate.
//
// One step s in time, as a wave of the largest tile has it: bf16, 256 x 256 by 2 x 4 waves. A step has four pieces of
// 16 k, and each piece eight products, of four rows of 32 (a0 .. a3) by two columns of 32 (b0, b1). What stands below a
// product is issued behind it. Operands are read into two sets of registers by turns. In the first step the products of
// "piece 3 of step s - 1" are of zeros. Direct (gfx950), with two slots of A and three of B: between its copy and the
// wait for it A has at least half a step, B at least a whole one.
//
//   wait until at most 4 copies are under way, those of B(s + 1): this wave's parts of A(s) and B(s) have landed
//   barrier: all waves' parts have, and all reads of step s - 1 are done
//   product            0    1    2    3    4    5    6    7      piece 3 of step s - 1, from the odd set
//     read LDS              b0   b1   a0        a1   a2   a3     piece 0 of step s, into the even set
//     copy to LDS                     A                   A      A(s + 1), into the slot of A(s - 1)
//   product            0    1    2    3    4    5    6    7      piece 0, even set
//     read LDS              b0   b1   a0        a1   a2   a3     piece 1, odd set
//     copy to LDS                     A                   A      A(s + 1): the other two of four
//   product            0    1    2    3    4    5    6    7      piece 1, odd set
//     read LDS              b0   b1   a0        a1   a2   a3     piece 2, even set
//     copy to LDS                     B                   B      B(s + 2), into the slot of B(s - 1)
//   product            0    1    2    3    4    5    6    7      piece 2, even set
//     read LDS              b0   b1   a0        a1   a2   a3     piece 3, odd set; its products are in step s + 1
//     copy to LDS                     B                   B      B(s + 2): the other two of four
//
// Staged (gfx942), where a slot of A and one of B are all of LDS: the one slot is written between two barriers.
//
//   barrier: all reads of step s - 1 are done
//   product                 0    1    2    3                     piece 3 of step s - 1
//     registers to LDS      AA   AA   BB   BB                    step s, of which a wave has four units of A, four of B
//     memory to registers   AA   AA   BB   BB                    step s + 1, into the registers that were just stored
//   barrier: step s is in LDS
//   product                 4    5    6    7                     the same piece
//     read LDS              b0   b1a0 a1   a2a3                  piece 0 of step s
//   then pieces 0, 1 and 2 as above, without copies. With two slots (64 x 64) there is the first barrier alone: stores
//   of step s + 1 and loads of step s + 2 are spread over all of step s, as copies are.
#pragma once

#include "tilewave/ops/gemm/lds/strips.hpp"
#include "tilewave/ops/gemm/lds/transposed.hpp"
#include "tilewave/ops/gemm/wave_tile/block_scales.hpp"
#include "tilewave/ops/gemm/wave_tile/mx_scales.hpp"
#include "tilewave/ops/gemm/wave_tile/wave_tile.hpp"

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
  using Turned = std::conditional_t<direct, GemmTurnedLines<W, rows, tiles>, GemmTurnedRows<W, rows>>;
  template <DType type, int rows, int tiles, bool transposed>
  using Rows = std::conditional_t<transposed, Turned<rows, tiles>, GemmLdsRows<W, type, rows>>;
  using RowsA = Rows<S.a, P.rows, W::tiles_m, transposed_a(S.layout)>;
  using RowsB = std::conditional_t<S.weights == GemmWeights::preshuffled, GemmLdsStrips<W, S.b, P.columns>,
                                   Rows<S.b, P.columns, W::tiles_n, transposed_b(S.layout)>>;
  static constexpr int a_slots = P.stages;
  static constexpr int lds_of_block = B::facts.lds_bytes / P.waves_per_simd;
  using Scales = GemmStepScales<W, direct>;
  static constexpr int a_bytes = P.rows * RowsA::row_bytes, b_bytes = P.columns * RowsB::row_bytes;  // of a slot
  static constexpr bool one_more =
      direct && Scales::copies == 0 && lds_of_block >= (a_bytes + b_bytes) * a_slots + b_bytes;
  static constexpr int b_slots = one_more ? a_slots + 1 : a_slots;
  static constexpr int pieces = RowsA::pieces;

  struct Shared : Scales::template InLds<a_slots> {
    alignas(16) Chunk a[a_slots][a_bytes / sizeof(Chunk)];
    alignas(16) Chunk b[b_slots][b_bytes / sizeof(Chunk)];
  };
  static_assert(sizeof(Shared) <= lds_of_block, "slots and scales exceed a block's part of LDS");

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const typename W::Place place(a, B::block_id(), true);
    if (!place.any) return;
    typename W::AllSums sums;
    W::clear(sums);
    const auto steps = a.steps(place.split);
    if (steps.first < steps.end) Turns(a, place.tile, shared).multiply(steps.first, steps.end, sums);
    if constexpr (W::exchanges) B::lds_barrier();  // the rings are free
    W::finish(a, place, reinterpret_cast<typename W::Exchange&>(shared.a), sums);
  }

 private:
  /// Operands of a wave for one piece.
  struct Piece {
    Chunk a[W::tiles_m][Map::chunks_a], b[W::tiles_n][Map::chunks_b];
    typename Scales::OfPiece scales;
  };
  static constexpr int b_reads = W::tiles_n * Map::chunks_b;
  static constexpr int reads = Scales::reads + b_reads + W::tiles_m * Map::chunks_a;
  static constexpr int products = W::tiles_m * W::tiles_n;
  static_assert(direct || a_slots == 2 || products >= 2, "one slot: reads stand beside the second half of products");
  static constexpr int a_copies = RowsA::copies + Scales::copies, b_copies = RowsB::copies,
                       copies = a_copies + b_copies;

  struct Turns {
    Shared& shared;
    RowsA of_a;
    RowsB of_b;
    Scales scales;
    typename Scales::OfStep scales_now{};
    Piece piece[2] = {};  // the even and the odd ones of a step

    TILEWAVE_DEVICE Turns(const Args& a, const GemmTile& tile, Shared& in)
        : shared(in),
          of_a(a.gemm.a, tile.a_layer * a.gemm.a_layer_stride, a.gemm.a_stride, typename W::RowsOfA(a.gemm, tile),
               a.gemm.k, W::first_row()),
          of_b(a.gemm.b, tile.layer * a.gemm.b_layer_stride, a.gemm.b_stride, typename W::RowsOfB(a.gemm, tile),
               a.gemm.k, W::first_column()),
          scales(a, tile, in) {}

    TILEWAVE_DEVICE void multiply(std::int32_t first, std::int32_t end, typename W::AllSums& sums) {
      prepare(first);
      // Turns with whole steps only, as many as have all slots in turn: there everything but the step is a constant.
      const std::int32_t whole = min_of(end, of_a.k_bytes / RowsA::row_bytes) - ahead;
      std::int32_t step = first;
      for (; step + rounds <= whole; step += rounds) {
        static_for<rounds>([&](auto round) TILEWAVE_INLINE_LAMBDA {
          turn<true>(step + round, round % a_slots, round % b_slots, sums);
        });
      }
      for (int a_slot = 0, b_slot = 0; step < end; ++step) {
        turn<false>(step, a_slot, b_slot, sums);
        a_slot = a_slot + 1 == a_slots ? 0 : a_slot + 1;
        b_slot = b_slot + 1 == b_slots ? 0 : b_slot + 1;
      }
      multiply_piece<1, 0, products>(sums, [](auto) TILEWAVE_INLINE_LAMBDA {});
      scales.fold(scales_now, sums);
      if constexpr (direct) B::template copies_wait<0>();
    }

   private:
    static constexpr int rounds = a_slots == b_slots ? a_slots : a_slots * b_slots;
    static constexpr int ahead = direct ? b_slots - 1 : a_slots;  // steps of what a turn brings at most
    /// Copies that may be under way when a turn begins: those behind A of its step. Batch s of copies, of turn s + 1,
    /// is A of step s + a_slots, then B of step s + b_slots.
    static constexpr int pending = (a_slots - 2) * copies + (b_slots > a_slots ? b_copies : 0);

    TILEWAVE_DEVICE void prepare(std::int32_t first) {
      if constexpr (direct) {
        static_for<b_slots - 1>([&](auto s) TILEWAVE_INLINE_LAMBDA {
          constexpr int of_step = s + a_slots - b_slots;
          if constexpr (of_step >= 0) {
            static_for<a_copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { copy_a<i, false>(first + of_step, of_step); });
          }
          static_for<b_copies>([&](auto i)
                                   TILEWAVE_INLINE_LAMBDA { of_b.template copy<i, false>(shared.b[s], first + s); });
        });
      } else {
        static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { load<i, false>(first); });
        if constexpr (a_slots == 2) {
          static_for<copies>([&](auto i) TILEWAVE_INLINE_LAMBDA { store_then_load<i, false>(first + 1, 0); });
        }
      }
    }

    /// The products of the step before's last piece and of all but the last of this step.
    template <bool whole>
    TILEWAVE_DEVICE void turn(std::int32_t step, int a_slot, int b_slot, typename W::AllSums& sums) {
      constexpr int before = !direct && a_slots == 1 ? max_of(products / 2, 1) : 0;  // of the first products
      if constexpr (direct) B::template copies_wait<pending>();
      B::lds_barrier();
      if constexpr (!direct && a_slots == 1) {  // all have read the slot, which is written again
        multiply_piece<1, 0, before>(sums, [&](auto slot) TILEWAVE_INLINE_LAMBDA {
          interleave<copies, before, slot>([&](auto i)
                                               TILEWAVE_INLINE_LAMBDA { store_then_load<i, whole>(step + 1, 0); });
        });
        B::lds_barrier();
      }
      if constexpr (!whole) clean_end(step, a_slot, b_slot);
      multiply_piece<1, before, products>(sums, [&](auto slot) TILEWAVE_INLINE_LAMBDA {
        constexpr int slots = products - before;
        interleave<reads, slots, slot>([&](auto i)
                                           TILEWAVE_INLINE_LAMBDA { read<i>(piece[0], step, a_slot, b_slot, 0); });
        issue_copies<whole, slot, slots, 0>(step, a_slot, b_slot);
      });
      scales.fold(scales_now, sums);
      B::sched_fence();
      scales_now = scales.load(step, a_slot);
      static_for<pieces - 1>([&](auto p) TILEWAVE_INLINE_LAMBDA {
        multiply_piece<p % 2, 0, products>(sums, [&](auto slot) TILEWAVE_INLINE_LAMBDA {
          interleave<reads, products, slot>(
              [&](auto i) TILEWAVE_INLINE_LAMBDA { read<i>(piece[1 - p % 2], step, a_slot, b_slot, p + 1); });
          issue_copies<whole, slot, products, p + 1>(step, a_slot, b_slot);
        });
      });
    }

    /// Behind product `slot` of `slots` of piece p of a turn: its share of the rows of later steps.
    template <bool whole, int slot, int slots, int p>
    TILEWAVE_DEVICE void issue_copies(std::int32_t step, int a_slot, int b_slot) {
      if constexpr (direct) {
        interleave<copies, pieces * slots, p * slots + slot>([&](auto i) TILEWAVE_INLINE_LAMBDA {
          if constexpr (i < a_copies) {
            copy_a<i, whole>(step - 1 + a_slots, (a_slot + a_slots - 1) % a_slots);
          } else {
            of_b.template copy<i - a_copies, whole>(shared.b[(b_slot + b_slots - 1) % b_slots], step - 1 + b_slots);
          }
        });
      } else if constexpr (a_slots == 2) {
        interleave<copies, pieces * slots, p * slots + slot>(
            [&](auto i) TILEWAVE_INLINE_LAMBDA { store_then_load<i, whole>(step + 2, 1 - a_slot); });
      }
    }
    /// Rows of A, then their scales.
    template <int i, bool whole>
    TILEWAVE_DEVICE void copy_a(std::int32_t step, int slot) {
      if constexpr (i < RowsA::copies) {
        of_a.template copy<i, whole>(shared.a[slot], step);
      } else {
        scales.template copy<i - RowsA::copies>(step, slot);
      }
    }
    /// What was loaded goes into its slot, what comes next into its registers.
    template <int i, bool whole>
    TILEWAVE_DEVICE void store_then_load(std::int32_t next, int slot) {
      if constexpr (i < a_copies) {
        of_a.template put<i>(shared.a[slot]);
      } else {
        of_b.template put<i - a_copies>(shared.b[slot]);
      }
      load<i, whole>(next);
    }
    template <int i, bool whole>
    TILEWAVE_DEVICE void load(std::int32_t step) {
      if constexpr (i < a_copies) {
        of_a.template load<i, whole>(step);
      } else {
        of_b.template load<i - a_copies, whole>(step);
      }
    }
    /// Read i of a piece: scales and B first, which the first products want.
    template <int i>
    TILEWAVE_DEVICE void read(Piece& to, std::int32_t step, int a_slot, int b_slot, int p) const {
      if constexpr (i < Scales::reads) {
        scales.template read<i>(to.scales, step, a_slot, p);
      } else if constexpr (constexpr int of = i - Scales::reads; of < b_reads) {
        constexpr int t = of / Map::chunks_b, c = of % Map::chunks_b;
        to.b[t][c] = of_b.read(shared.b[b_slot], t, p, c);
      } else {
        constexpr int t = (of - b_reads) / Map::chunks_a, c = (of - b_reads) % Map::chunks_a;
        to.a[t][c] = of_a.read(shared.a[a_slot], t, p, c);
      }
    }
    /// What a product of piece p takes of units that a lane has: of the second of fp6 the last six words of two.
    template <DType type, int p, int chunks>
    TILEWAVE_DEVICE static void arrange(const Chunk (&units)[chunks], Chunk (&operand)[chunks]) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4 * chunks; ++w) {
        const int from = is_fp6(type) && p == 1 ? min_of(w + 2, 4 * chunks - 1) : w;
        operand[w / 4][w % 4] = units[from / 4][from % 4];
      }
    }
    /// Products [from, to) of an even or odd piece; between_products(index) is called behind each.
    template <int parity, int from, int to, class BetweenProducts>
    TILEWAVE_DEVICE void multiply_piece(typename W::AllSums& sums, const BetweenProducts& between_products) {
      const Piece& of = piece[parity];
      auto& into = scales.sums_of_step(sums);
      static_for<to - from>([&](auto index) TILEWAVE_INLINE_LAMBDA {
        constexpr int i = from + index, m = i / W::tiles_n, n = i % W::tiles_n;
        if constexpr (Map::by_lane) {
          Chunk of_a_row[Map::chunks_a], of_b_row[Map::chunks_b];
          arrange<S.a, parity>(of.a[m], of_a_row);
          arrange<S.b, parity>(of.b[n], of_b_row);
          Scales::template multiply<m, n>(of.scales, of_b_row, of_a_row, into[m][n]);
        } else {
          Scales::template multiply<m, n>(of.scales, of.b[n], of.a[m], into[m][n]);
        }
        B::keep(into[m][n]);
        between_products(index);
        B::sched_fence();
      });
    }
    /// Of `count` actions spread over `slots`: those of slot `at`.
    template <int count, int slots, int at, class Action>
    TILEWAVE_DEVICE static void interleave(const Action& action) {
      constexpr int from = count * at / slots, to = count * (at + 1) / slots;
      static_for<to - from>([&](auto index) TILEWAVE_INLINE_LAMBDA { action(Index<from + index>{}); });
    }
    /// Elements beyond K that share 16 bytes with some before become 0, and scales beyond K.
    TILEWAVE_DEVICE void clean_end(std::int32_t step, int a_slot, int b_slot) {
      const bool ends = of_a.ends_within(step);
      if (!ends && !scales.ends_within(step)) return;
      if (ends) {
        of_a.clean(shared.a[a_slot]);
        of_b.clean(shared.b[b_slot]);
      }
      scales.clean(step, a_slot);
      B::lds_barrier();
    }
  };
};

}  // namespace tilewave
