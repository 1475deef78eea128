// SPDX-License-Identifier: MIT
// How long a dense product is expected to take on an H200: what chooses among entries. Not a promise, only an order.
#pragma once

#include "tilewave/ops/gemm/choice/cost_sm90.hpp"
#include "tilewave/ops/gemm/choice/policy_costs_sm90.hpp"
#include "tilewave/ops/gemm/few_rows/strides.hpp"

namespace tilewave {

/// True for the specs whose choice gemm_cost_dense_sm90 makes: one product, whose weights are row-major, or int4 under
/// 16 bits. Other ones have few policies, and gemm_cost_sm90.
constexpr bool gemm_is_dense_sm90(const GemmSpec& s) {
  if (s.groups != GemmGroups::one || s.gated || s.out_scale == Scaling::per_group) return false;
  if (s.b == DType::i4) return size_of(s.a) == 2 && s.scale_k == 128 && !s.rounds_weights();
  return !s.four_bit() && s.a != DType::i8 && s.weights == GemmWeights::row_major && s.layout == GemmLayout::nt;
}

namespace detail {

/// Microseconds of things that lie beside each other. None of them is hidden whole: three that take equally long take
/// 1.3 times as long as one.
inline double beside_each_other(double a, double b, double c) {
  a *= a, b *= b, c *= c;
  return std::sqrt(std::sqrt(a * a + b * b + c * c));
}

/// Up to 8 rows straight to registers (few_rows/dense_kernel.hpp): memory, or the runs of a block one after the other,
/// of which each waits for memory and then takes the SM's share of it.
inline double gemm_cost_dense_few_rows(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p,
                                       const GemmDenseCost& c, const GemmPolicyCost& of) {
  if (m > p.rows || !GemmFewRowsStrides(problem).check().ok()) return 1e6;
  const double row_bytes = double(problem.k) * size_of(problem.spec.a), layers = problem.batch;
  const double blocks = layers * ceil_div(problem.n, p.columns), sms = sm90_facts.compute_units;
  const double rounds = std::ceil(blocks / (sms * p.waves_per_simd));
  const double run_bytes = double(p.waves_k) * p.stages * p.depth_bytes;  // of a row of B, by all waves of a block
  const double runs = std::ceil(row_bytes / run_bytes);
  // Each block reads A, mostly from L2. An SM takes in 75 GB/s, and the part of.split more.
  const double bytes = (layers * problem.n + 0.10 * blocks * m) * row_bytes, memory = c.memory * of.memory * 1e6;
  const double run =
      min_of(run_bytes, row_bytes) * p.columns / min_of(memory / min_of(blocks, sms), 75e3 * (1 + of.split));
  return of.start + beside_each_other(bytes / memory, rounds * runs * (of.stage + run), 0) +
         of.tile * min_of(rounds, 2.0) + of.merge * (m - 1) / 8;
}

/// Int4 weights straight to registers (few_rows/kernel.hpp): memory, the work of the block that has most strips, and
/// the stages of one of its waves.
inline double gemm_cost_int4_few_rows(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p,
                                      const GemmDenseCost& c, const GemmPolicyCost& of) {
  if (m > p.rows) return 1e6;  // would read all weights again
  const GemmFewRowsWork work = gemm_few_rows_work(problem, p);
  return of.start +
         beside_each_other(work.bytes / (1e6 * c.memory * of.memory), of.stage * work.waves,
                           (1 + of.split) * work.block) +
         of.tile * work.passes + of.merge * (m - 1) / p.rows;
}

/// Says whether nothing is known of a plan: it was not timed where it is, or is never among the best.
inline bool gemm_dense_unknown(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p, int splits,
                               double tiles) {
  const bool four_bit = problem.spec.four_bit();
  // Blocks share K only where tiles leave some of them nothing to do.
  if (splits > 1 && tiles * splits > 1.22 * sm90_facts.compute_units) return true;
  // Many bands of few rows were not timed where columns are many.
  if (p.swapped && m > max_of(256, 8 * p.rows) && problem.n > 512 && !(four_bit && p.rows >= 128)) return true;
  // Nor were tiles that up to 32 rows leave empty for the most part, and wide ones of up to eight.
  if (m <= 32 && p.rows > 64 && p.rows >= 2 * m && p.columns <= 128) return true;
  return m <= 8 && !four_bit && (p.rows > 64 || p.columns > 128);
}

/// TB/s that all blocks together have from L2. Blocks that share rows of A have more where there are many bands of
/// rows, whose columns of B are in L2: with one band, each block of a cluster waits for the memory of all.
inline double gemm_l2_rate(const GemmPolicy& p, int splits, double bands, const GemmDenseCost& c) {
  if (splits > 1) return c.l2_split;
  if (p.cluster_columns > 1)
    return (p.cluster_columns > 2 ? c.l2_rows_by_four : c.l2_rows) * (1 + c.rows_by_bands * (1 - 1 / bands));
  return p.cluster > 1 ? c.l2_columns : c.l2;
}

/// Microseconds of the merge of blocks that share the K of a tile of `area` times 128 x 256, of whose rows a part is
/// there. Clusters that fill more than half of the places that the chip has for them take longer.
inline double gemm_merge_us(int splits, double area, double rows_there, double places_taken, const GemmDenseCost& c,
                            const GemmPolicyCost& of) {
  const double of_number[] = {0, c.by_three, 0, c.by_five, c.by_six, c.by_seven, c.by_eight};  // from two on
  return of.merge + of.split * (splits - 1) - c.merge_rows * area * (1 - rows_there) +
         of_number[min_of(splits, 8) - 2] + c.crowded * max_of(places_taken - 0.5, 0.0);
}

}  // namespace detail

/// Microseconds on an H200 by given constants: what a block's tiles take one after the other, beside what all blocks
/// have from L2 and from memory, round by round, and what is there once. How the constants were fitted is in
/// docs/notebook/2026-11-28-gemm-unseen-shapes.md and 2026-11-28-gemm-choice-long-k.md.
inline double gemm_model_dense_sm90(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p, int splits,
                                    const GemmDenseCost& c, const detail::GemmPolicyCost& of) {
  const GemmSpec& spec = problem.spec;
  if (p.path == GemmPath::weights_in_registers) {
    return spec.four_bit() ? detail::gemm_cost_int4_few_rows(problem, m, p, c, of)
                           : detail::gemm_cost_dense_few_rows(problem, m, p, c, of);
  }
  const int element = size_of(spec.a);
  const double sms = sm90_facts.compute_units, n = problem.n, k = problem.k, layers = problem.batch;
  const double tiles = gemm_tile_count(problem, m, p).tiles, blocks = p.sharers() * splits;  // of a tile
  if (detail::gemm_dense_unknown(problem, m, p, splits, tiles)) return 1e6;
  const double slots = double(clusters_at_a_time(p.sharers() * splits) * p.waves_per_simd);
  const double steps = ceil_div(ceil_div(problem.k * element, p.depth_bytes), splits);

  // Bytes of a value of B, and of a row of it in a stage.
  const double b_value = spec.four_bit() ? 0.5 + 2.0 / spec.scale_k : element,
               b_row = p.depth_bytes * b_value / element;

  // A stage of one block: its products, or what it takes in.
  const double rows = min_of(p.rows, m), area = p.rows * p.columns / 32768.0;  // in tiles of 128 x 256
  const double stage =
      detail::beside_each_other(of.stage, (rows * p.depth_bytes + p.columns * b_row) * 1e-3 / c.intake, 0);
  // What it has from L2. Rows of A that many blocks read at a time leave L2 less often; B's of one band of tiles come
  // from memory.
  const std::int32_t across = ceil_div(problem.n, p.columns * p.cluster_columns);
  const double a_again = c.a_again + (1 - c.a_again) * min_of(1.0, c.a_readers / across);
  const double from_l2 = steps * (rows * p.depth_bytes / p.cluster_columns * a_again +
                                  p.columns * b_row / p.cluster * (m > p.rows ? 1.0 : c.b_once));
  const double l2 = 1e6 * detail::gemm_l2_rate(p, splits, ceil_div(m, p.rows * p.cluster), c);
  // Boxes of rows shared by a cluster do not end with A (gemm_launch), and rows beyond it take time of all blocks.
  const double absent = p.cluster_columns > 1 && m < p.rows ? (p.rows - m) / double(p.cluster_columns) : 0.0;
  // Where few columns lie under many rows, the same rows of A are read by blocks far from each other.
  const bool few_columns = m >= 1024 && problem.n <= 512 && p.cluster_columns == 1;
  const double a_memory = few_columns && across > 1 ? 1 + c.a_memory : 1.0;
  const double bytes = layers * ((a_memory * m * element + n * b_value) * k + double(m) * n * size_of(spec.out));
  const double memory = bytes / (1e6 * c.memory * of.memory * tiles);  // of a tile
  const auto round = [&](double at_a_time, double part, bool last) {   // `part` of the steps of so many tiles
    const double active = at_a_time * blocks;
    double tile = part * steps * stage * (1 + of.crowd * min_of(1.0, active / sms));
    if (p.waves_per_simd > 1 && active > sms) tile *= 1 + c.second_block + c.turns * min_of(1.0, active / sms - 1);
    // Under pingpong a wave group's epilogue lies beside the products of the other.
    if (p.pingpong) {
      tile = last ? tile + of.tile : max_of(tile, (tile + of.tile) / 2);
    } else {
      tile += (last ? 0.0 : of.tile) + (p.late ? c.late_stage * max_of(6.0 - steps, 0.0) : 0.0);
    }
    return c.absent * 1e-4 * absent * active * steps * part +
           (few_columns && splits == 1 ? 1 + c.few_columns : 1.0) *
               detail::beside_each_other(tile, part * active * from_l2 / l2, part * at_a_time * memory);
  };
  double us = of.start + (p.sharers() > 1 ? c.clusters_start * min_of(1.0, tiles / slots) : 0.0);
  if (p.stream) {
    const GemmTail tail = gemm_tail(p, tiles, slots, steps);
    const double whole = std::floor(tiles / slots);
    return us + whole * round(slots, 1.0, false) + round(slots, tail.rounds - whole, true) + tail.us;
  }
  const double rounds = std::ceil(tiles / slots) - 1;  // before the last
  us += round(tiles - rounds * slots, 1.0, true);
  if (rounds > 0) us += rounds * round(slots, 1.0, false) + c.second_round;
  if (splits > 1) us += detail::gemm_merge_us(splits, area, rows / p.rows, tiles / slots, c, of);
  return us;
}

/// The same by the constants of the spec and the policy.
inline double gemm_cost_dense_sm90(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p, int splits) {
  const GemmSpec& spec = problem.spec;
  return gemm_model_dense_sm90(problem, m, p, splits, gemm_dense_cost(spec), gemm_policy_cost(spec, p));
}

}  // namespace tilewave
