// SPDX-License-Identifier: MIT
// Modelled times, by which splits and entries are chosen. From capacities only: a plan serves all lengths.
#pragma once

#include <limits>

#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

/// Splits of a problem for an entry straight to registers. Batch-invariant: paged_attention_fixed_splits. Else those
/// that keep the chip busy: the number that minimises modelled time. The unit is one block tile while memory is not
/// yet the limit. A round of blocks costs its tiles, stretched once more than 90 % of the resident blocks compete for
/// memory, plus a start and merge; more than one split adds the combine launch. (Constants fitted to the decode sweep
/// on an H200, 2026-11-21.)
inline int paged_attention_splits(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                  const ArchFacts& facts) {
  if (p.split_tokens > 0) return paged_attention_fixed_splits(p, policy);
  constexpr double saturation = 0.9, block_cost = 1.5, combine_cost = 1.5, combine_cost_per_split = 1.0 / 8;
  const std::int64_t base = paged_attention_grid(p, policy, 1);
  const std::int64_t resident =
      std::int64_t{facts.compute_units} * facts.simds_per_cu * policy.waves_per_simd / policy.waves_per_block();
  const std::int64_t tiles =
      max_of<std::int64_t>(1, ceil_div<std::int64_t>(paged_attention_attended(p), policy.block_tokens(p.spec)));
  int best = 1;
  double best_cost = std::numeric_limits<double>::max();
  for (int splits = 1; splits <= max_splits && splits <= tiles; ++splits) {
    const double rounds = static_cast<double>(ceil_div(base * splits, resident));
    const double busy = static_cast<double>(min_of(base * splits, resident)) / static_cast<double>(resident);
    const double tile_cost = max_of(1.0, busy / saturation);
    const double cost = rounds * (static_cast<double>(ceil_div<std::int64_t>(tiles, splits)) * tile_cost + block_cost) +
                        (splits > 1 ? combine_cost + combine_cost_per_split * splits : 0.0);
    if (cost < best_cost) {
      best_cost = cost;
      best = splits;
    }
  }
  return best;
}

/// Microseconds of a staged entry on an H200, its launch aside: what blocks do one after the other, or the memory for
/// all of them, whichever is longer. A stage takes a wave group's arithmetic, half as long again with two blocks an SM,
/// or its copies, of which an SM does 73 GB/s. Clusters of four and more leave an eighth of the chip idle, since its
/// parts hold no whole number of them. Memory is 7 % slower where blocks do not spread evenly over the SMs, 5 % where
/// an SM has less than 128 KiB on its way, 6 % for each further block that reads the same KV at the same time. (Fitted
/// to 700 measurements of 2026-11-21, docs/paged_attention.md.)
inline double paged_attention_staged_cost(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                          const ArchFacts& facts, int splits) {
  constexpr double start = 2.6, end = 0.5, cluster_end = 0.8, combine_end = 4.5, end_of_eight = 0.15;  // us
  constexpr double change_of_item = 4.0;                                                               // us
  constexpr double sm_copies = 73e3, memory = 4.4e6;                                                   // bytes a us
  const bool balanced = policy.balanced(), narrow = p.spec.head_size == 64 && policy.block_rows() == 8;
  const std::int64_t stage_tokens = policy.prefetch.stage_tokens, attended = paged_attention_attended(p);
  const double eights = policy.block_rows() / 8, tiles = static_cast<double>(stage_tokens / 64);
  const double bytes_a_token = 2.0 * p.spec.head_size * size_of(p.spec.kv);
  const double stage_bytes = static_cast<double>(stage_tokens) * bytes_a_token;

  const std::int64_t items = max_of<std::int64_t>(1, paged_attention_grid(p, policy, 1));
  const std::int64_t stages = max_of<std::int64_t>(1, ceil_div(attended, stage_tokens));
  const std::int64_t all_resident = paged_attention_workers(policy, facts);
  const std::int64_t resident = splits < 4 ? all_resident : all_resident / 8 * 7;
  const std::int64_t blocks = balanced ? min_of(resident, items * stages) : items * splits;
  const std::int64_t per_block = balanced ? ceil_div(items * stages, blocks) : ceil_div<std::int64_t>(stages, splits);
  const double rounds = static_cast<double>(ceil_div(blocks, resident));
  const double on_an_sm = static_cast<double>(ceil_div<std::int64_t>(min_of(blocks, resident), facts.compute_units));

  const bool fp8 = is_fp8(p.spec.kv);
  const double tile = (fp8 ? 0.26 + 0.03 * eights : 0.2 + 0.05 * eights) * (narrow ? 0.65 : 1.0);
  const double arithmetic = (fp8 ? 0.47 : 0.3) + 0.02 * eights + tiles * tile;
  const double stage = max_of(arithmetic * (0.5 + 0.5 * on_an_sm), on_an_sm * stage_bytes / sm_copies);
  const double changes = balanced ? change_of_item * static_cast<double>(items) / static_cast<double>(resident) : 0.0;
  const double chain = rounds * static_cast<double>(per_block) * stage + changes;

  const std::int64_t heads = std::int64_t{p.batch} * p.num_kv_heads, readers = items / max_of<std::int64_t>(heads, 1);
  const double again = static_cast<double>(readers - 1) * (balanced ? 1.0 : 0.06);
  const double spread = static_cast<double>(blocks) / (rounds * on_an_sm * facts.compute_units);
  const bool uneven = 2 * blocks > facts.compute_units && spread < 0.9;
  const bool shallow = on_an_sm * policy.prefetch.stages * stage_bytes < 128 * 1024;
  const double slower = (1.0 + again) * (uneven ? 1.07 : shallow ? 1.05 : 1.0) * (balanced ? 1.02 : 1.0);
  const double tokens = static_cast<double>(align_up(attended, std::int64_t{p.block_size}) * heads);
  const double from_memory = tokens * bytes_a_token / memory * slower;

  // Another block's work hides the start and the end of one, where an SM has two and they wait for no others.
  const double shown = all_resident > facts.compute_units && splits == 1 ? 0.5 : 1.0;
  const double ends = start + end + end_of_eight * eights + (balanced ? combine_end : splits > 1 ? cluster_end : 0.0);
  return ends * (1.0 + (rounds - 1.0) * shown) + max_of(chain, from_memory);
}

}  // namespace tilewave
