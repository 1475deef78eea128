// SPDX-License-Identifier: MIT
// How long a launch is expected to take: what chooses among entries. Not a promise, only an order.
#pragma once

#include <cmath>

#include "tilewave/ops/gemm/choice/tile_count.hpp"
#include "tilewave/ops/gemm/stream.hpp"

namespace tilewave {

/// A streamed product: rounds of tiles, of which the last is as long as a block's share of what is left, and what it
/// takes to put sums aside and to add them up, by a launch of its own.
struct GemmTail {
  double rounds, us;
};
inline GemmTail gemm_tail(const GemmPolicy& p, double tiles, double slots, double steps, double once = 3.0,
                          double of_parts = 0.1) {
  const double whole = double(std::int64_t(tiles / slots)), tail = tiles - whole * slots;
  if (tail == 0) return {whole, 0};
  const double blocks = min_of(slots, max_of(tail, tail * steps / GemmStream::min_stages));
  const double share = double(std::int64_t(tail * steps / blocks + 0.99));
  const double megabytes = (blocks + tail) * p.rows * p.columns * 4e-6;
  return {whole + share / max_of(steps, 1.0), once + megabytes / 3.5 + megabytes / 4.5 + of_parts * blocks / tail};
}

/// What codes of four bits under few rows (few_rows/kernel.hpp) have to do: bytes, the passes of a block, microseconds
/// of work of the block that has most strips, and of the stages of one of its waves. The constants are those of
/// docs/notebook/2026-11-28-gemm-clusters.md.
struct GemmFewRowsWork {
  double bytes, passes, block, waves;
};
inline GemmFewRowsWork gemm_few_rows_work(const GemmProblem& problem, const GemmPolicy& p) {
  const std::int32_t slots =
      max_of(1, sm90_facts.compute_units * p.waves_per_simd / max_of(1, std::int32_t{problem.batch}));
  const std::int32_t groups = p.waves_columns, halves = problem.spec.gated ? 2 : 1, of_pass = p.columns / 16;  // of B
  const std::int32_t strips = halves * ceil_div(ceil_div(gemm_out_columns(problem), 16), slots);
  const std::int32_t full = strips / of_pass, rest = strips - full * of_pass;
  const double passes = full + (rest > 0);
  const double stages = ceil_div(problem.k, 128), wave_stages = ceil_div(ceil_div(problem.k, 128), p.waves_k);
  const double bytes = double(problem.batch) * problem.n * problem.k * (0.5 + 2.0 / problem.spec.scale_k);
  // A strip of a stage takes `of_strip` of the block's time, and a group takes `of_group` once, for its operands of A.
  const double of_strip = p.rows > 8 ? 0.0236 : 0.0091, of_group = p.rows > 8 ? 0.0099 : 0.0087;
  const double block =
      p.waves_per_simd * stages * (strips * of_strip + (full * groups + min_of(rest, groups)) * of_group);
  const double wave_strips = full * (of_pass / groups) + ceil_div(rest, groups);
  return {bytes, passes, block, wave_stages * (0.495 * passes + 0.276 * wave_strips)};
}

/// Returns the microseconds of that, as gemm_cost_sm90 counts them: a launch and both ends of each pass, and the
/// longest of memory, work and waves.
inline double gemm_cost_few_rows(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p) {
  if (m > p.rows) return 1e6;  // would read all weights again
  const GemmFewRowsWork work = gemm_few_rows_work(problem, p);
  const double rounds = max_of(1.0, double(problem.batch) / sm90_facts.compute_units);
  return 5.82 + max_of(work.bytes / 4.36e6, rounds * max_of(work.block, work.waves)) + 1.12 * rounds * work.passes;
}

/// Microseconds on an H200: the longer of what the products and what the bytes take, and what is there once. How its
/// constants were fitted is in docs/notebook/2026-11-23-gemm-stream-k.md and 2026-11-27-gemm-in-turns.md.
inline double gemm_cost_sm90(const GemmProblem& problem, std::int32_t m, const GemmPolicy& p, int splits) {
  const GemmSpec& spec = problem.spec;
  const int element = size_of(spec.a);
  // bytes of an element
  const bool contiguous = spec.groups == GemmGroups::contiguous;
  const double b_bytes = spec.four_bit() ? 0.5 + double(size_of(spec.group_scale())) / spec.scale_k : element;
  const double sms = sm90_facts.compute_units;
  GemmTileCount count = gemm_tile_count(problem, m, p);
  // Weights in fragments: cycles of a stage of 64 rows of B under so many of A.
  const detail::GemmHeights heights = detail::gemm_heights(spec, p);
  const int by_waves = max_of(heights.by_waves, 16);
  // Waves that multiply one tile of 64 rows of B read A's rows twice as often as those that multiply two.
  const double by_wave = spec.gated ? 5.7 : 8.0;
  const auto of_fragments = [&](double rows) {
    return rows <= 16 ? 240 + 5.7 * rows : rows <= by_waves ? 240 + by_wave * rows : 270 + 3.5 * rows;
  };
  double fragment_cycles = of_fragments(p.rows);
  if (spec.weights == GemmWeights::fragments && heights.count > 1 && contiguous) {
    const double groups = gemm_groups_hit(problem, m);
    const GemmHeightCost cost = gemm_height_cost(m / groups, heights, of_fragments);
    count.tiles = groups * cost.tiles * ceil_div(problem.n, p.columns);
    // A loop takes a little longer than that, and gathers fill three stages too slowly (2026-11-28-moe-heights.md). One
    // that multiplies three tiles a wave takes less (2026-11-28-moe-stages-in-pairs.md).
    const double loop = p.rows > 16 ? 1.05 : p.waves_rows > 1 ? 1.04 : 0.99;
    fragment_cycles = cost.of_tiles / cost.tiles * loop;
    if (spec.gathered && p.rows > 80) fragment_cycles *= 1 + 0.5 * min_of(1.0, m / groups / 128);
  }
  // Block scales: rows of a group, and its tiles.
  const bool group_scales = spec.scale == Scaling::per_block && !p.swapped && spec.groups != GemmGroups::one;
  double group_rows_scaled = 0.0;
  if (group_scales) {
    group_rows_scaled = count.rows / (contiguous ? gemm_groups_hit(problem, m) : max_of(1, problem.groups));
    const double tiles = gemm_tiles_of_group(group_rows_scaled, p.rows * p.cluster);
    count.tiles = tiles * ceil_div(problem.n, p.columns) * count.rows / group_rows_scaled;
  }
  if (p.path == GemmPath::weights_in_registers) return gemm_cost_few_rows(problem, m, p);
  const double slots = double(clusters_at_a_time(p.sharers() * splits) * p.waves_per_simd);
  const double steps = double(ceil_div(ceil_div(problem.k * element, p.depth_bytes), splits));
  const double rounds_started = double(std::int64_t((count.tiles + slots - 1) / slots));  // rounds
  const GemmTail tail = gemm_tail(p, count.tiles, slots, steps);
  const double rounds = p.stream ? tail.rounds : rounds_started;
  // 64 rows of one side by n of the other and 32 bytes of k take n / 2 cycles, at 1.75 GHz under load; narrow tiles
  // wait for shared memory, block scales for additions.
  const double tall = p.swapped ? p.columns : p.rows, wide = p.swapped ? p.rows : p.columns;
  double cycles = tall / 64 * max_of(wide, 32.0) / 2 * (p.depth_bytes / 32);
  const bool block = problem.spec.scale == Scaling::per_block, scaled_large = block && !p.swapped;
  if (scaled_large) {
    const bool large = p.waves() > 1 && p.waves() != 3 && (tall >= 256 || wide >= 256);
    cycles *= p.waves() == 1 ? 2.0 : p.waves() == 3 ? 1.52 : p.waves_columns == 2 ? 1.6 : large ? 1.36 : 1.53;
    // Groups of few tiles have their weights from memory (docs/notebook/2026-11-28-groups.md).
    if (group_scales && p.waves() != 3) cycles *= 1 + 0.25 * min_of(1.0, 128 / max_of(1.0, group_rows_scaled));
  } else {
    cycles *= (p.pingpong ? 1.0 : wide >= 240 || tall >= 256 ? 1.0 : wide >= 176 ? 1.03 : 1.08);
    // With block scales, a stage of few rows is a chain: products, their sums' scales, additions.
    if (block) cycles = max_of(1.4 * cycles, (270 + 2.8 * wide) * (p.waves_rows > 1 ? 1.5 : 1.0));
    // Rows that count have scales that lie apart, and gathered ones come by lanes.
    if (block && contiguous) cycles *= 1 + min_of(1.0, m / gemm_groups_hit(problem, m) / 32);
    // Lanes that gather many rows take longer than the products (docs/notebook/2026-11-28-moe-heights.md).
    if (spec.gathered && p.swapped && p.rows >= 64) cycles *= 2.0;
    if (spec.gathered && !p.swapped && !block) cycles *= 1 + 0.4 * min_of(1.0, m / gemm_groups_hit(problem, m) / 256);
    if (spec.has_sums_to_choose() && spec.sums == GemmSums::promoted) cycles *= 1.035;
  }
  const bool fragments = spec.weights == GemmWeights::fragments;
  if (spec.four_bit()) {  // a stage of 128 k: a chain of waits, and the groups of an SM widen in turn
    if (fragments) {      // blocks of an SM widen in turn, where there are two
      const double beside = min_of(double(p.waves_per_simd), max_of(1.0, count.tiles * splits / sms));
      cycles = tall / 64 * beside * fragment_cycles;
    } else if (p.waves_k > 1) {  // groups that share K hide each other's waits
      cycles = 390 + 5.2 * wide;
    } else {
      const double groups = tall / 64 * (count.tiles * splits > sms ? p.waves_per_simd : 1);
      cycles = 250 + 3.25 * wide * element + 320 * groups;
    }
    // Tiles of 256 rows have stages of 64 k; sums of int4 are multiplied between them
    // (docs/notebook/2026-11-27-gemm-four-bits.md, 2026-11-28-gemm-int4-in-unit.md).
    if (p.depth_bytes < 128 * element) cycles *= spec.mxfp4() ? 0.535 : spec.rounds_weights() ? 0.55 : 0.6;
  }
  // What copies bring a block a cycle: from L2 more than what streams from memory, and most where few ask. The two of a
  // stage take 262 cycles to begin, whatever their size; two blocks of an SM take turns.
  const double active = min_of(count.tiles * p.sharers() * splits, sms);
  const double few_columns =
      problem.n <= 256 && p.waves() == 1 && element == 2 ? 0.85 : 1.0;  // all blocks read the same rows of B
  const double rate =
      spec.four_bit() ? 50.0 : max_of(p.swapped || m <= 128 ? 50.0 : 60.0, min_of(70.0, 6700 / active)) * few_columns;
  const double begin = spec.four_bit() ? 0.0 : 262.0;
  const double blocks_in_turn = !spec.four_bit() && p.waves_per_simd > 1 && count.tiles > sms ? 2.0 : 1.0;
  const double copy_cycles =
      blocks_in_turn * max_of(begin, (p.rows + p.columns * b_bytes / element) * p.depth_bytes / rate);
  const double area = p.rows * p.columns / 32768.0;  // in tiles of 128 x 256
  const double own_epilogue = spec.four_bit() ? 0.6 + 1.2 * area
                              : scaled_large  ? (area == 0.5 ? 0.4 : 0.5)
                                              : 0.3 + 0.8 * area;
  const double merge = fragments         ? 0.7 + 0.3 * splits + 5.0 * area
                       : spec.four_bit() ? 2.0 + 0.3 * splits + 10.0 * area
                                         : 1.2 + 0.2 * splits + 2.0 * area + (area >= 0.5 && m > 128 ? 4.0 : 0.0);
  const double epilogue = own_epilogue + (splits > 1 ? merge : p.waves_k > 1 ? 1.2 : 0.0);
  // Under pingpong a wave group's epilogue lies beside the products of the other, and is longer: it has fewer boxes.
  const double tile_us = steps * max_of(cycles, copy_cycles) / 1750, long_epilogue = 4.9 * area;
  // Two blocks of an SM take the tiles of fragments that it has in turn, whichever rounds these belong to.
  const double turns = fragments && p.waves_per_simd > 1 && count.tiles * splits > sms
                           ? std::ceil(count.tiles * splits / sms) / p.waves_per_simd
                           : rounds;
  const double products = p.pingpong
                              ? (rounds - 1) * max_of(tile_us, (tile_us + long_epilogue) / 2) + tile_us + long_epilogue
                              : turns * tile_us + rounds_started * epilogue;
  // Clusters of further rows of tiles come late, where they are not all there from the beginning.
  const double passes = p.swapped && splits > 1 ? 0.7 * min_of(double(ceil_div(m, p.rows)), rounds_started) - 0.7 : 0.0;
  const double layers = spec.groups == GemmGroups::one ? problem.batch
                        : contiguous                   ? gemm_groups_hit(problem, m)
                                                       : problem.groups;
  // Groups have whole tiles of A read, unless rows are gathered. Tiles of 32 rows, or with hardly any rows, are read
  // two to ten percent more slowly.
  const bool grouped = spec.groups != GemmGroups::one;
  const double rows_read =
      grouped && !spec.gathered ? count.tiles / ceil_div(problem.n, p.columns) * p.rows * p.cluster : count.rows;
  // In contiguous groups with few rows, tiles that are high for their width bring rows that do not count in place of
  // weights. Gathered rows are those that count, and weights stream as fast as there is room for them in the ring
  // (docs/notebook/2026-11-27-moe-layer.md).
  const double high_ratio = min_of(1.0, std::pow(double(p.rows) / p.columns, 1.3)),
               room = p.stages * p.columns * p.depth_bytes;
  const double group_rows = contiguous ? m / gemm_groups_hit(problem, m) : 0.0;
  const double idle_rows =
      !contiguous      ? 1.0
      : !spec.gathered ? 1 + 0.6 * high_ratio * (1 - count.rows / rows_read)
                       : (p.swapped ? 1 + 0.05 * min_of(1.0, group_rows / 64) : 1.0) / min_of(1.0, 0.55 + room / 290e3);
  // A group's further tiles of few rows read its weights again, from L2 (docs/notebook/2026-11-28-moe-launches.md).
  const double read_again = contiguous && !spec.gathered && !spec.four_bit() && p.rows < 64
                                ? 1 + 0.25 * (count.tiles / (layers * ceil_div(problem.n, p.columns)) - 1)
                                : 1.0;
  const double bytes = ((rows_read * element + layers * problem.n * b_bytes) * problem.k +
                        count.rows * problem.n * size_of(problem.spec.out)) *
                       (grouped && (p.rows < 64 || rows_read > 3 * count.rows) ? 1.05 : 1.0) * idle_rows * read_again;
  // Blocks that have nothing left leave bandwidth to the others, which cannot use all of it.
  const double bandwidth_share = count.tiles / (rounds * slots) * (slots * p.sharers() * splits / sms);
  // What rows of tiles below each other read again comes from L2, all of it if they are all there at once; blocks of a
  // second round begin anew.
  const bool at_once = (rounds_started == 1 && splits == 1) || grouped;  // of a group
  const double row_bands = at_once ? 1.0 : double(ceil_div(min_of(m, 1024), p.rows * p.cluster));
  const double reread_bytes = 0.4 * (row_bands - 1) * problem.n * problem.k * b_bytes * layers;
  const bool streams = spec.four_bit() || (p.swapped && p.rows <= 32) || (group_scales && p.waves_columns == 2);
  const double used = max_of(0.6, min_of(1.0, (streams ? 0.6 : 0.5) + 0.5 * bandwidth_share));
  // Stages that are asked for in pairs (docs/notebook/2026-11-28-moe-stages-in-pairs.md).
  const double pairs = contiguous && p.swapped && !spec.four_bit() && p.stages >= 9 ? 0.983 : 1.0;
  const double memory = (bytes + reread_bytes) * pairs / (4.4e6 * used) + (p.pingpong ? long_epilogue : epilogue) +
                        (splits > 1 ? 4 * (rounds - 1) : 0.4 * (rounds_started - 1));
  const double us = 3.5 + passes + max_of(products, memory);
  // Streamed products took 3 to 6 % more beside whole tiles than this says, without a whole round 8 %.
  return p.stream ? (rounds >= 1 ? 1.06 : 1.08) * (us + tail.us) : us;
}

}  // namespace tilewave
