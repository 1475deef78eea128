// SPDX-License-Identifier: MIT
// GEMM with few rows of A on sm90, or any room with products of one wave: operands of 16 or 8 bits straight to
// registers. Grid: a block for each P.columns rows of B of each tile of P.rows rows of A. Its P.waves_k waves share K:
// they take runs of P.stages steps of P.depth_bytes in turn, so that what a block reads of a row at a time lies close
// together. A wave asks for a run of all its rows at once. Nothing waits for another wave but the end, where sums are
// added up through shared memory (output.hpp), and no tensor map or barrier stands before the first load.
// LDS plan: the sums of all waves. Bound: memory bandwidth of B.
#pragma once

#include "tilewave/ops/gemm/few_rows/dense_layout.hpp"
#include "tilewave/ops/gemm/few_rows/output.hpp"

namespace tilewave {

/// The order of K is free, as long as both operands agree on it. Lane l has unit l % 4 of sixteen bytes of a step, of
/// rows 2 (l / 4) and the next one of each strip, and of row l / 4 of each panel of A. Fp8 is widened to f16 exactly.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue = GemmIdentity>
struct GemmDenseFewRowsKernel {
  using Room = B;
  using L = GemmDenseFewRowsLayout<B, S, P, UserEpilogue>;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Atom = typename L::Atom;
  using Output = GemmFewRowsOutput<L, S, UserEpilogue>;
  static constexpr int lanes = L::lanes, waves = L::waves, strips = L::strips, panels = L::panels;
  static constexpr int group_strips = L::group_strips, steps = P.stages;
  static constexpr int block_threads = L::block_threads,
                       waves_per_simd = waves / B::facts.simds_per_cu * P.waves_per_simd;
  static constexpr bool waits_itself = true;
  static constexpr DType type = is_fp8(S.a) ? DType::f16 : S.a;  // of the products; f16 holds every fp8 value

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t row_tile = a.blocks.quotient(B::block_id());
    const std::int32_t block = B::block_id() - row_tile * a.blocks.divisor;  // of the tile of rows
    GemmTile tile{};
    tile.layer = a.row_tiles.quotient(row_tile);
    tile.a_layer = tile.layer;
    tile.first_row = (row_tile - tile.layer * a.row_tiles.divisor) * P.rows;
    tile.row_end = a.m;
    tile.first_column = block * (16 * group_strips);
    const int wave = B::wave_id();
    const Places places(a, tile);
    const std::int32_t whole_steps = a.k / L::step_k, runs = whole_steps / steps;

    bool waiting = a.b_ready;
    if (!waiting) B::wait_for_previous();
    Atom sums[strips][panels];
    TILEWAVE_UNROLL
    for (int i = 0; i < strips * panels; ++i) sums[i / panels][i % panels] = {};
    TILEWAVE_ROLL
    for (std::int32_t run = wave; run < runs; run += waves) {
      const std::int64_t at = std::int64_t{run} * (steps * P.depth_bytes);
      Operands operands[steps];
      B::promised_reads(a.b_ready);
      TILEWAVE_UNROLL
      for (int i = 0; i < steps; ++i) operands[i].load_b(places, at + i * P.depth_bytes);
      B::promised_reads(false);
      if (waiting) B::wait_for_previous();
      waiting = false;
      TILEWAVE_UNROLL
      for (int i = 0; i < steps; ++i) operands[i].load_a(places, at + i * P.depth_bytes);
      TILEWAVE_UNROLL
      for (int i = 0; i < steps; ++i) multiply(operands[i], sums);
    }
    if (waiting) B::wait_for_previous();
    // Steps that fill no run, of which the last may end within a unit.
    TILEWAVE_ROLL
    for (std::int32_t step = runs * steps + wave; step * L::step_k < a.k; step += waves) {
      Operands operands;
      operands.load_part(places, step, a.k);
      multiply(operands, sums);
    }
    B::launch_next();  // all that this wave reads of B is there
    TILEWAVE_UNROLL
    for (int i = 0; i < strips * panels; ++i)
      shared.sums[0][wave][i / panels][i % panels][B::lane_id()] = sums[i / panels][i % panels];
    B::barrier();
    Output::finish(a, tile, min_of(group_strips, ceil_div(a.n - tile.first_column, 16)), shared.sums);
  }

 private:
  /// Where a lane's rows begin, at its unit of the first step. Rows beyond the matrices are read as the last one is,
  /// and what comes of them is not stored.
  struct Places {
    const char *b[strips][2], *a[panels];

    TILEWAVE_DEVICE Places(const Args& args, const GemmTile& tile) {
      GemmArgs gates{};
      gates.gate_stride = args.gate_stride, gates.up_row = args.up_row;
      const int unit = B::lane_id() % 4, row = B::lane_id() / 4;
      TILEWAVE_UNROLL
      for (int i = 0; i < 2 * strips; ++i) {
        const int strip = i / 2;
        const std::int32_t column =
            min_of(tile.first_column + 16 * (strip % group_strips) + 2 * row + i % 2, args.n - 1);
        const std::int64_t of_b = gemm_row_of_b<S>(gates, column, strip / group_strips);
        b[strip][i % 2] = args.b + (tile.layer * std::int64_t{args.b_layer} + of_b * args.b_stride + unit) * 16;
      }
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        const std::int64_t of_a = min_of(tile.first_row + 8 * n + row, args.m - 1);
        a[n] = args.a + (tile.layer * std::int64_t{args.a_layer} + of_a * args.a_stride + unit) * 16;
      }
    }
  };

  /// What a lane has of a step.
  struct Operands {
    Chunk b[strips][2], a[panels];

    TILEWAVE_DEVICE void load_b(const Places& places, std::int64_t at) {
      TILEWAVE_UNROLL
      for (int i = 0; i < 2 * strips; ++i)
        b[i / 2][i % 2] = B::load_stream_line(reinterpret_cast<const Chunk*>(places.b[i / 2][i % 2] + at));
    }
    TILEWAVE_DEVICE void load_a(const Places& places, std::int64_t at) {
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) a[n] = B::load(reinterpret_cast<const Chunk*>(places.a[n] + at));
    }
    /// Loads a step of which K has all, a part or none. Elements beyond K are zeros, and are not read.
    TILEWAVE_DEVICE void load_part(const Places& places, std::int32_t step, std::int32_t k) {
      const std::int64_t at = std::int64_t{step} * P.depth_bytes;
      const std::int32_t elements = k - step * L::step_k - B::lane_id() % 4 * (16 / size_of(S.a));
      TILEWAVE_UNROLL
      for (int i = 0; i < 2 * strips; ++i) b[i / 2][i % 2] = part(places.b[i / 2][i % 2] + at, elements);
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) a[n] = part(places.a[n] + at, elements);
    }

   private:
    TILEWAVE_DEVICE static Chunk part(const char* from, std::int32_t elements) {
      Chunk c{};
      constexpr int of_word = 4 / size_of(S.a);
      const auto* const values = reinterpret_cast<const Storage<S.a>*>(from);
      TILEWAVE_UNROLL
      for (int i = 0; i < 4 * of_word; ++i) {
        if (i < elements) c[i / of_word] |= std::uint32_t{B::load(values + i)} << i % of_word * (32 / of_word);
      }
      return c;
    }
  };

  /// Returns half `half` of eight k of a unit as 16 bits each.
  TILEWAVE_DEVICE static Chunk eight_k(const Chunk& unit, int half) {
    if constexpr (!is_fp8(S.a)) return unit;
    const auto low = B::widen_fp8_to_f16(unit[2 * half]), high = B::widen_fp8_to_f16(unit[2 * half + 1]);
    return {{low[0], low[1], high[0], high[1]}};
  }

  TILEWAVE_DEVICE static void multiply(const Operands& operands, Atom (&sums)[strips][panels]) {
    TILEWAVE_UNROLL
    for (int half = 0; half < 2 / size_of(S.a); ++half) {
      Chunk rows[panels];
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) rows[n] = eight_k(operands.a[n], half);
      TILEWAVE_UNROLL
      for (int s = 0; s < strips; ++s) {
        const Chunk first = eight_k(operands.b[s][0], half), second = eight_k(operands.b[s][1], half);
        TILEWAVE_UNROLL
        for (int p = 0; p < 2; ++p) {
          const typename B::RowsOperand of_b{{first[2 * p], first[2 * p + 1], second[2 * p], second[2 * p + 1]}};
          TILEWAVE_UNROLL
          for (int n = 0; n < panels; ++n) {
            const typename B::KvOperand of_a{{rows[n][2 * p], rows[n][2 * p + 1]}};
            sums[s][n] = type == DType::bf16 ? B::mma(of_a, of_b, sums[s][n]) : B::mma_f16(of_a, of_b, sums[s][n]);
          }
        }
      }
    }
  }
};

}  // namespace tilewave
