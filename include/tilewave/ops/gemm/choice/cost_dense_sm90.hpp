// SPDX-License-Identifier: MIT
// How long a dense product is expected to take on an H200: what chooses among entries. Not a promise, only an order.
#pragma once

#include "tilewave/ops/gemm/choice/corrections_sm90.hpp"
#include "tilewave/ops/gemm/choice/cost_sm90.hpp"

namespace tilewave {

/// The constants of gemm_model_dense_sm90, in microseconds, cycles and bytes a cycle. They were fitted to the shapes of
/// docs/notebook/tuned/gemm_dense_sm90_2026-11-28.csv.gz, and then the corrections of policies
/// (docs/notebook/2026-11-28-gemm-copies-and-choice.md).
struct GemmDenseCost {
  double cycles_per_us = 1604.5, launch = 5.231, two_blocks = 1.147;  // earlier, with two blocks an SM
  // Factors of the matrix unit's cycles: products under 176 and under 240 columns, tiles of three wave groups, of one
  // group that is not swapped, swapped tiles, and promoted sums.
  double narrow = 1.047, middle = 0.993, three_groups = 0.969, one_group = 0.000, swapped = 1.181, promoted = 1.160;
  // The same where block scales are added: for one group, three, large tiles and others.
  double block_one = 3.909, block_three = 1.193, block_large = 1.152, block = 1.269;
  // Few rows with block scales: factor of the products, and the chain of a stage, with its part a column.
  double chain_factor = 1.227, chain = 131.18, chain_column = 4.847, chain_groups = 1.789;
  // What copies bring a block: swapped or few rows, others, one of few blocks, and all blocks together.
  double rate_swapped = 61.97, rate = 38.88, rate_alone = 74.84, rate_of_all = 9468.6, few_columns = 0.874,
         beside = 1.000;
  // A stage takes no less, and so much of a wave group's products more.
  double stage = 272.45, stage_of_products = 0.248;
  // Rows of the last band of tiles that are not there, of all blocks, that a cycle skips.
  double absent_rows = 15.055;
  double epilogue = 0.460, epilogue_of_tile = 2.094, epilogue_block = 0.898;
  double merge = 0.031, merge_swapped = 0.500, merge_of_split = 0.000, merge_of_tile = 7.245, merge_beside_rows = 0.000;
  // The matrix unit waits so long between tiles whose values leave late, and those of the last tile take so long.
  // Boxes of a tile take six stages to leave.
  double late_epilogue = 0.363, late_last = 0.925, late_stage = 0.587;
  double pingpong_epilogue = 3.265, pingpong_epilogue_of_tile = 2.345, pingpong_first = 1.189;
  double passes = 0.000, split_round = 1.461, memory_round = 0.000;
  double bytes_per_us = 5.186e6, reread = 0.278, reread_rows = 0.000, used = 0.432, used_few_rows = 0.398,
         used_least = 0.495;
  double stream = 1.075, stream_without_round = 1.202, combine = 0.000, combine_of_parts = 0.294;
};

/// The constants of operands of 16 bits. Those above are for fp8.
inline constexpr GemmDenseCost gemm_dense_cost_sixteen_bits{.cycles_per_us = 1610.0,
                                                            .launch = 6.000,
                                                            .two_blocks = 0.040,
                                                            .narrow = 1.134,
                                                            .middle = 1.081,
                                                            .three_groups = 0.982,
                                                            .one_group = 1.054,
                                                            .swapped = 0.964,
                                                            .promoted = 0.715,
                                                            .block_one = 3.611,
                                                            .block_three = 0.018,
                                                            .block_large = 0.014,
                                                            .block = 0.026,
                                                            .chain_factor = 0.004,
                                                            .chain = 0.010,
                                                            .chain_column = 0.031,
                                                            .chain_groups = 1.645,
                                                            .rate_swapped = 0.037,
                                                            .rate = 0.154,
                                                            .rate_alone = 77.94,
                                                            .rate_of_all = 23327.9,
                                                            .few_columns = 1.039,
                                                            .beside = 1.928,
                                                            .stage = 212.8,
                                                            .stage_of_products = 0.007,
                                                            .absent_rows = 15.70,
                                                            .epilogue = 0.000,
                                                            .epilogue_of_tile = 1.376,
                                                            .epilogue_block = 2.954,
                                                            .merge = 0.215,
                                                            .merge_swapped = 0.423,
                                                            .merge_of_split = 0.010,
                                                            .merge_of_tile = 5.992,
                                                            .merge_beside_rows = 2.387,
                                                            .late_epilogue = 1.011,
                                                            .late_last = 1.994,
                                                            .late_stage = 0.109,
                                                            .pingpong_epilogue = 3.467,
                                                            .pingpong_epilogue_of_tile = 0.027,
                                                            .pingpong_first = 1.127,
                                                            .passes = 0.605,
                                                            .split_round = 2.797,
                                                            .memory_round = 1.603,
                                                            .bytes_per_us = 6.287e6,
                                                            .reread = 0.075,
                                                            .reread_rows = 0.000,
                                                            .used = 0.213,
                                                            .used_few_rows = 0.000,
                                                            .used_least = 0.660,
                                                            .stream = 0.008,
                                                            .stream_without_round = 4.528,
                                                            .combine = 0.104,
                                                            .combine_of_parts = 0.039};
inline constexpr GemmDenseCost gemm_dense_cost_fp8{};

/// True for the specs whose choice gemm_cost_dense_sm90 makes. Other ones have few policies, and gemm_cost_sm90.
constexpr bool gemm_is_dense_sm90(const GemmSpec& s) {
  return s.groups == GemmGroups::one && !s.gated && !s.four_bit() && s.a != DType::i8 &&
         s.weights == GemmWeights::row_major && s.layout == GemmLayout::nt && s.out_scale != Scaling::per_group;
}

/// Microseconds on an H200: the longer of what the stages and what the bytes take, and what is there once.
inline double gemm_model_dense_sm90(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p, int splits,
                                    const GemmDenseCost& c) {
  const GemmSpec& spec = problem.spec;
  const int element = size_of(spec.a);
  const double sms = sm90_facts.compute_units, n = problem.n, k = problem.k, layers = problem.batch;
  const double tiles = gemm_tile_count(problem, m, p).tiles;
  // Blocks share K only where tiles leave some of them nothing to do.
  if (splits > 1 && tiles * splits > 1.22 * sms) return 1e6;
  // Many bands of few rows were not timed where columns are many.
  if (p.swapped && m > max_of(256, 8 * p.rows) && problem.n > 512) return 1e6;
  const double slots = double(clusters_at_a_time(p.sharers() * splits) * p.waves_per_simd);
  const double steps = double(ceil_div(ceil_div(problem.k * element, p.depth_bytes), splits));
  const double rounds_started = double(std::int64_t((tiles + slots - 1) / slots));
  const bool block = spec.scale == Scaling::per_block, scaled_large = block && !p.swapped;

  // 64 rows of one side by n of the other and 32 bytes of k take n / 2 cycles.
  const double tall = p.swapped ? p.columns : p.rows, wide = p.swapped ? p.rows : p.columns;
  double cycles = tall / 64 * max_of(wide, 32.0) / 2 * (p.depth_bytes / 32);
  if (scaled_large) {
    const bool large = p.waves() > 1 && p.waves() != 3 && (tall >= 256 || wide >= 256);
    cycles *= p.waves() == 1 ? c.block_one : p.waves() == 3 ? c.block_three : large ? c.block_large : c.block;
  } else {
    if (!p.pingpong) {
      cycles *= wide >= 240 || tall >= 256 ? 1.0 : wide >= 176 ? c.middle : c.narrow;
      if (p.waves() == 3) cycles *= c.three_groups;
      if (p.waves() == 1 && !p.swapped) cycles *= c.one_group;
    }
    if (p.swapped) cycles *= c.swapped;
    if (block) {
      const double groups = p.waves() > 1 ? c.chain_groups : 1.0;
      cycles = max_of(c.chain_factor * cycles, (c.chain + c.chain_column * wide) * groups);
    }
    if (spec.has_sums_to_choose() && spec.sums == GemmSums::promoted) cycles *= c.promoted;
  }

  // All blocks read the same rows of B where columns are few. Two blocks of an SM take turns.
  const bool alone = n <= 256 && p.waves() == 1 && p.cluster_columns == 1 && element == 2;
  // So do blocks beside each other with the same rows of A, where these are many and columns few.
  const std::int32_t across = ceil_div(problem.n, p.columns * p.cluster_columns);
  const double few_columns = (alone ? c.few_columns : 1.0) /
                             (m >= 1024 && across > 1 && problem.n <= 512 && p.cluster_columns == 1 ? c.beside : 1.0);
  const double turns = p.waves_per_simd > 1 && tiles > sms ? 2.0 : 1.0;
  const double of_group = cycles / (p.pingpong ? 1 : p.waves());
  const double bands = ceil_div(m, p.rows), absent = m > p.rows ? bands * p.rows - m : 0.0;
  const auto stage_us = [&](double blocks) {
    const double active = min_of(blocks, sms);
    const double rate = few_columns * max_of(p.swapped || m <= 128 || p.sharers() > 1 ? c.rate_swapped : c.rate,
                                             min_of(c.rate_alone, c.rate_of_all / active));
    const double own_rows = double(min_of(p.rows, m)) / p.cluster_columns, own_columns = double(p.columns) / p.cluster;
    // Shared boxes leave L2 once, and reach each block.
    const double reached = (double(min_of(p.rows, m)) + p.columns) * p.depth_bytes / c.rate_alone;
    const double copied =
        max_of((own_rows + own_columns) * p.depth_bytes / rate, reached) + absent * active / bands / c.absent_rows;
    return max_of(cycles, turns * max_of(c.stage + c.stage_of_products * of_group, copied)) / c.cycles_per_us;
  };
  const double tile_us = steps * stage_us(tiles * splits * p.sharers());

  const double area = p.rows * p.columns / 32768.0;  // in tiles of 128 x 256
  const double own_epilogue = p.late         ? c.late_epilogue + c.late_stage * max_of(6.0 - steps, 0.0)
                              : scaled_large ? c.epilogue_block - (area == 0.5 ? 0.1 : 0.0)
                                             : c.epilogue + c.epilogue_of_tile * area;
  const double merge = splits == 1 ? 0.0
                                   : c.merge + (p.swapped ? c.merge_swapped : 0.0) + c.merge_of_split * splits +
                                         c.merge_of_tile * area + (bands > 1 ? c.merge_beside_rows * area : 0.0);
  const double epilogue = own_epilogue + merge,
               long_epilogue = c.pingpong_epilogue + c.pingpong_epilogue_of_tile * area;
  double rounds = rounds_started, combine = 0;
  if (p.stream) {
    const GemmTail tail = gemm_tail(p, tiles, slots, steps, c.combine, c.combine_of_parts);
    rounds = tail.rounds, combine = tail.us;
  }
  double products = rounds * tile_us + rounds_started * epilogue + (p.late ? c.late_last : 0.0);
  if (p.pingpong) {
    // A wave group's epilogue lies beside the products of the other.
    products =
        (rounds - 1) * max_of(tile_us, (tile_us + long_epilogue) / 2) + c.pingpong_first * tile_us + long_epilogue;
  } else if (!p.stream && rounds_started > 1) {  // fewer blocks share what is read in the last round
    products += steps * stage_us((tiles - (rounds_started - 1) * slots) * splits * p.sharers()) - tile_us;
  }
  // Blocks that share K take longer where there are several rows of tiles.
  const double passes = splits > 1 && bands > 1 ? c.passes : 0.0;

  // Rows of tiles below each other read B again from L2, all of it if they are all there at once.
  const double bytes = layers * ((double(m) * element + n * element) * k + m * n * size_of(spec.out));
  const double band_rows =
      rounds_started == 1 && splits == 1 ? 1.0 : double(ceil_div(min_of(m, 1024), p.rows * p.cluster));
  double reread = c.reread * (band_rows - 1) * n * k * element * layers;
  // Blocks beside each other read the same rows of A, unless they share them.
  const double beside = ceil_div(min_of(problem.n, 1024), p.columns * p.cluster_columns);
  reread += c.reread_rows * (beside - 1) * double(m) * k * element * layers;
  // Blocks that have nothing left leave bandwidth to the others, which cannot use all of it.
  const double share = tiles / (rounds * slots) * (slots * p.sharers() * splits / sms);
  const double used =
      max_of(c.used_least, min_of(1.0, (p.swapped && p.rows <= 32 ? c.used_few_rows : c.used) + 0.5 * share));
  const double memory = (bytes + reread) / (c.bytes_per_us * used) + (p.pingpong ? long_epilogue : epilogue) +
                        (splits > 1 ? c.split_round * (rounds - 1) : c.memory_round * (rounds_started - 1));
  const double us = c.launch - (p.waves_per_simd > 1 ? c.two_blocks : 0.0) + passes + max_of(products, memory);
  return p.stream ? (rounds >= 1 ? c.stream : c.stream_without_round) * (us + combine) : us;
}

/// The same with what the model does not know of the policy.
inline double gemm_cost_dense_sm90(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p, int splits) {
  if (p.path == GemmPath::weights_in_registers) return gemm_cost_dense_few_rows(problem, m, p);
  const GemmDenseCost& c = size_of(problem.spec.a) > 1 ? gemm_dense_cost_sixteen_bits : gemm_dense_cost_fp8;
  return gemm_corrected_us(problem.spec, p, splits, gemm_model_dense_sm90(problem, m, p, splits, c));
}

}  // namespace tilewave
