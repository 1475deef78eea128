// SPDX-License-Identifier: MIT
// Modelled times, by which splits and entries are chosen. They follow from capacities only, since a plan serves all
// lengths.
#pragma once

#include <cmath>
#include <limits>

#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

/// Microseconds of an entry straight to registers on CDNA. A block's tiles run one after the other, beside the memory
/// that serves all blocks. A split context takes a second launch, which merges. The constants were fitted to modelled
/// times, not to measured ones: those of the simulator's clock for MI300X and MI355X
/// (docs/notebook/2026-11-23-clock-choices.md).
inline double paged_attention_cdna_cost(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                        const ArchFacts& facts, int splits, std::int64_t resident) {
  constexpr double start = 6.3, merge = 4.2, merge_split = 0.06,
                   achieved = 0.75;  // us; part of the data sheet's bandwidth
  const double head = 0.5 + 0.5 * p.spec.head_size / 128, rows = 0.72 + 0.28 * policy.block_rows() / 16;
  const int block_tokens = policy.block_tokens(p.spec);
  const double tile = per_arch(facts.id, 0.62, 0.485, 0.62) * block_tokens / 128 * head * rows;
  const std::int64_t attended = p.max_attended(), tiles = ceil_div<std::int64_t>(attended, block_tokens);
  const double rounds = static_cast<double>(ceil_div(paged_attention_grid(p, policy, 1) * splits, resident));
  const double computing = rounds * static_cast<double>(ceil_div<std::int64_t>(tiles, splits)) * tile;
  const double bytes =
      2.0 * p.spec.head_size * size_of(p.spec.kv) * static_cast<double>(attended) * p.batch * p.num_kv_heads;
  const double reading = bytes / (achieved * facts.hbm_bytes_per_second) * 1e6;
  return start + std::cbrt(computing * computing * computing + reading * reading * reading) +
         (splits > 1 ? merge + merge_split * splits : 0.0);
}

/// The splits of a problem for an entry straight to registers. A batch-invariant call takes
/// paged_attention_fixed_splits. Other calls take the number of least modelled time. On sm90 its unit is one block tile
/// while memory is not the limit. A round of blocks costs its tiles, plus a start and a merge. Tiles take longer once
/// more than 90 % of the resident blocks compete for memory. More than one split adds the combine launch. (The
/// constants were fitted to the decode sweep on an H200, 2026-11-21.)
inline int paged_attention_splits(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                  const ArchFacts& facts) {
  if (p.split_tokens > 0) return paged_attention_fixed_splits(p, policy);
  constexpr double saturation = 0.9, block_cost = 1.5, combine_cost = 1.5, combine_cost_per_split = 1.0 / 8;
  const std::int64_t base = paged_attention_grid(p, policy, 1);
  const std::int64_t resident =
      std::int64_t{facts.compute_units} * facts.simds_per_cu * policy.waves_per_simd / policy.waves_per_block();
  const std::int64_t tiles =
      max_of<std::int64_t>(1, ceil_div<std::int64_t>(p.max_attended(), policy.block_tokens(p.spec)));
  int best = 1;
  double best_cost = std::numeric_limits<double>::max();
  for (int splits = 1; splits <= max_splits && splits <= tiles; ++splits) {
    const double rounds = static_cast<double>(ceil_div(base * splits, resident));
    const double busy = static_cast<double>(min_of(base * splits, resident)) / static_cast<double>(resident);
    const double tile_cost = max_of(1.0, busy / saturation);
    const double cost_sm90 =
        rounds * (static_cast<double>(ceil_div<std::int64_t>(tiles, splits)) * tile_cost + block_cost) +
        (splits > 1 ? combine_cost + combine_cost_per_split * splits : 0.0);
    const double cost =
        facts.family == Family::hopper ? cost_sm90 : paged_attention_cdna_cost(p, policy, facts, splits, resident);
    if (cost < best_cost) {
      best_cost = cost;
      best = splits;
    }
  }
  return best;
}

/// Microseconds of a bulk entry on an H200, its launch aside. Three things run beside each other: what blocks compute
/// one after the other, their copies, and the memory that serves all of them. The longest decides, and the others show.
/// - A stage takes the arithmetic of a wave group, 22 % longer with every doubling of the wave groups on the SM.
/// - A copy takes the wave that issues it 60 ns. Of long copies an SM does 110 GB/s in this sum. Boxes of tokens take
///   1.2 to 2.1 us to come, as many at a time as the ring has stages (docs/notebook/2026-11-28-engine-steps.md).
/// - Clusters of four and more leave an eighth of the chip idle, since its parts hold no whole number of them.
/// - One more block that reads the same KV at the same time costs a seventh of the first reading.
/// - Balanced plans count 5 % more. Sequences may be shorter than the table is wide, and the ends of balanced plans are
///   the part that does not shrink with them.
///
/// The constants were fitted to 115200 measurements of 5650 problems on 2026-11-22, a third of them of sequences
/// shorter than their capacity (docs/notebook/2026-11-22-decode-kernel.md). The plan of least cost takes 1.5 % more
/// time than the fastest on average, and 2.2 % for shorter sequences. In one problem of a hundred it takes 15 % more.
inline double paged_attention_bulk_cost(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                        const ArchFacts& facts, int splits) {
  constexpr double ends = 3.1, octet_end = 0.45, group_end = 0.35, cluster_end = 1.0;  // us
  constexpr double combine_end = 3.6, combine_octet = 1.0, item_change = 4.0;          // us
  constexpr double memory = 4.55e6, sm_copies = 110e3;                                 // bytes a us
  const bool balanced = policy.balanced(), fp8 = is_fp8(p.spec.kv);
  const int groups = policy.wave_groups(), stage_tokens = policy.prefetch.stage_tokens;
  const std::int64_t attended = p.max_attended();
  const double row_octets = policy.block_rows() / 8, tiles = stage_tokens / 64;
  const double bytes_a_token = 2.0 * p.spec.head_size * size_of(p.spec.kv);
  const double stage_bytes = stage_tokens * bytes_a_token;

  const std::int64_t items = max_of<std::int64_t>(1, paged_attention_grid(p, policy, 1));
  const std::int64_t stages = max_of<std::int64_t>(1, ceil_div<std::int64_t>(attended, stage_tokens));
  const std::int64_t resident = paged_attention_resident(policy, facts, splits);
  const std::int64_t blocks = balanced ? min_of(resident, items * stages) : items * splits;
  const std::int64_t per_block = balanced ? ceil_div(items * stages, blocks) : ceil_div<std::int64_t>(stages, splits);
  const double rounds = static_cast<double>(ceil_div(blocks, resident));
  const double on_an_sm = static_cast<double>(ceil_div<std::int64_t>(min_of(blocks, resident), facts.compute_units));

  const double narrow = p.spec.head_size == 64 ? 0.535 : 1.0;
  const double scaled = p.spec.quant == Scaling::per_token ? 0.06 : 0.0;
  const double products = p.spec.native ? 0.07 + 0.08 * row_octets
                          : fp8         ? 0.31 + 0.1 * row_octets
                                        : 0.275 + 0.034 * row_octets;
  const double tile = products * narrow + scaled;
  const double arithmetic = (fp8 ? 0.125 : 0.07) + tiles * tile;
  const double beside_others = 1.0 + 0.22 * std::log2(on_an_sm * groups);
  const double changes = balanced ? item_change * static_cast<double>(items) / static_cast<double>(resident) : 0.0;
  const double computing =
      rounds * static_cast<double>(ceil_div<std::int64_t>(per_block, groups)) * arithmetic * beside_others + changes;

  const PagedAttentionCopies copies = paged_attention_copies(p, policy);
  const std::int32_t stage_copies = stage_tokens / copies.segment * copies.segment_copies();
  const double issue = 0.21 + 0.06 * static_cast<double>(stage_copies) / policy.prefetch.waves;
  const double busy = min_of(1.0, static_cast<double>(blocks) / facts.compute_units);
  const double box_us = p.spec.values == ValueLayout::token_major ? (1.2 + 0.9 * busy) / policy.prefetch.stages : 0.0;
  const double copying =
      rounds * static_cast<double>(per_block) * max_of(max_of(issue, box_us), on_an_sm * stage_bytes / sm_copies);

  const std::int64_t heads = std::int64_t{p.batch} * p.num_kv_heads, readers = items / max_of<std::int64_t>(heads, 1);
  const double rereads = static_cast<double>(readers - 1) * (balanced ? 1.0 : 0.15);
  const double tokens = static_cast<double>(align_up(attended, std::int64_t{p.block_size}) * heads);
  const double one_stream =
      groups > 1 ? 1.02 : 1.0;  // a single block reads for an SM, where other policies have two or three
  const double reading = tokens * bytes_a_token / memory * (1.0 + rereads) * one_stream;

  // The work of other blocks hides the start and the end of a block, if its SM has others and it waits for none of
  // them.
  const double shown = policy.blocks_per_cu(facts) > 1 && splits == 1 && !balanced ? 0.4 : 1.0;
  const double merge = balanced ? combine_end + combine_octet * row_octets : splits > 1 ? cluster_end : 0.0;
  const double both_ends = ends + octet_end * row_octets + merge + (groups > 1 ? group_end : 0.0);
  const double at_work =
      std::cbrt(computing * computing * computing + copying * copying * copying + reading * reading * reading);
  // Boxes of tokens by three blocks an SM are for chains: two of them leave room where the next product fetches its
  // weights, which is worth some 7 us (docs/notebook/2026-11-28-step-squares.md).
  const bool for_chains = p.spec.values == ValueLayout::token_major && policy.blocks_per_cu(facts) > 2;
  const bool leaves_room = p.tables_ready && blocks > facts.compute_units && (on_an_sm <= 2.0 || rounds == 1.0);
  return (both_ends * (1.0 + (rounds - 1.0) * shown) + at_work) * (balanced ? 1.05 : 1.0) + (!for_chains   ? 0.0
                                                                                             : leaves_room ? -7.0
                                                                                                           : 1e6);
}

}  // namespace tilewave
