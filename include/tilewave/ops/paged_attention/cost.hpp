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

/// Microseconds of a staged entry on an H200, its launch aside. A stage takes the longest of: the wave group's
/// arithmetic; its copies, of which an SM does 73 GB/s; the memory's share of all blocks, with less of it where an SM
/// has less than 128 KiB on its way. (Fitted to measurements of 2026-11-21, docs/paged_attention.md.)
inline double paged_attention_staged_cost(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                          const ArchFacts& facts, int splits) {
  constexpr double start = 2.6, end = 0.5, cluster_end = 0.8, combine_end = 4.5, end_of_eight = 0.15;  // us
  constexpr double sm_copies = 73e3, memory = 4.4e6;                                                   // bytes a us
  const double eights = policy.block_rows() / 8, tiles = policy.prefetch.stage_tokens / 64;
  const double arithmetic =
      0.13 + 0.07 * eights + tiles * ((is_fp8(p.spec.kv) ? 0.38 : 0.25) * p.spec.head_size / 128 + 0.05 * eights);
  const double stage_bytes = 2.0 * policy.prefetch.stage_tokens * p.spec.head_size * size_of(p.spec.kv);
  const std::int64_t resident = paged_attention_workers(policy, facts),
                     items = max_of<std::int64_t>(1, paged_attention_grid(p, policy, 1));
  const std::int64_t stages =
      max_of<std::int64_t>(1, ceil_div<std::int64_t>(paged_attention_attended(p), policy.prefetch.stage_tokens));
  const std::int64_t blocks = policy.balanced() ? min_of(resident, items * stages) : items * splits;
  const std::int64_t rounds = ceil_div(blocks, resident), per_block = policy.balanced()
                                                                          ? ceil_div(items * stages, blocks)
                                                                          : ceil_div<std::int64_t>(stages, splits);
  const double active = static_cast<double>(blocks) / static_cast<double>(rounds);
  const double on_an_sm = static_cast<double>(ceil_div<std::int64_t>(ceil_div(blocks, rounds), facts.compute_units));
  const double in_flight = on_an_sm * policy.prefetch.stages * stage_bytes;
  const double stage = max_of(max_of(arithmetic, on_an_sm * stage_bytes / sm_copies),
                              active * stage_bytes / memory * (in_flight < 128 * 1024 ? 1.07 : 1.0));
  const double starts = start * static_cast<double>(rounds) * facts.compute_units / static_cast<double>(resident);
  return max_of(start, starts) + static_cast<double>(rounds * per_block) * stage + end + end_of_eight * eights +
         (policy.balanced() ? combine_end
          : splits > 1      ? cluster_end
                            : 0.0);
}

}  // namespace tilewave
