// SPDX-License-Identifier: MIT
// The expected time of a launch on sm90 chooses among entries. It is not a promise, only an order.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/flash_attention/policy.hpp"
#include "tilewave/ops/flash_attention/problem.hpp"
#include "tilewave/ops/flash_attention/row_heads.hpp"

namespace tilewave {

/// Returns the keys of the longest sequence, as far as capacities tell.
constexpr double flash_attention_keys(const FlashAttentionProblem& p) {
  return p.spec.paged() ? double(p.table_columns) * p.block_size : p.kv_length;
}

/// Returns microseconds of path registers on an H200. It begins in a third of the time that path tensor takes, and is
/// slow then.
constexpr double flash_attention_registers_cost_sm90(const FlashAttentionProblem& p,
                                                     const FlashAttentionPolicy& policy) {
  const std::int64_t tiles = ceil_div<std::int64_t>(std::int64_t{p.q_length} * (p.q_heads / p.kv_heads), policy.rows);
  const double blocks = double(p.batch) * p.kv_heads * tiles, at_once = 2.0 * sm90_facts.compute_units;
  const double rounds = blocks > at_once ? blocks / at_once : 1.0;
  return 2.0 + rounds * 1.4 * (flash_attention_keys(p) / policy.keys + (rounds > 1.0 ? 4.0 : 0.0));
}

/// Returns the row tiles of path tensor, or the most that packed sequences may have.
constexpr double flash_attention_row_tiles(const FlashAttentionProblem& p, const FlashAttentionPolicy& policy) {
  const std::int32_t heads = detail::flash_row_heads(policy, p), queries = policy.rows / heads;
  const double most = double(p.batch) * ceil_div(p.q_length, queries);
  const double packed = p.q_starts != nullptr ? double(p.total_q) / queries + p.batch : most;
  return min_of(most, packed) * (p.q_heads / heads);
}

/// The time of path tensor on an H200, if lengths are the capacities. Blocks take rounds of items. An item costs its
/// start, its end and its tiles of keys. Items alike begin and end together, so a round that is not full takes as long
/// as one that is. Three wave groups keep the matrix unit busier than two, but lose more of a tile that no query fills.
/// The rates are fitted to the cells of docs/notebook/2026-11-28-flash-attention.md; those of fp8 of large heads to
/// 2026-11-28-flash-attention-kept-sums.md there.
struct FlashAttentionTensorCost {
  double rounds, ends;         // without splits; us of an item's start and end
  double longest, mean;        // us of the tiles of keys of an item
  double alike;                // 1 if all items see as many keys, 0 if some see almost none
  double partials, clustered;  // us of the partials of a split; a factor

  /// Returns the rate of products of fp8, in MFLOP per us as all rates are.
  static constexpr double fp8_rate(const FlashAttentionSpec& s, bool three, bool causal) {
    if (s.head_size <= 64) return three ? 4.9 : 3.9;
    if (s.head_size <= 128) return !three ? 7.4 : causal ? 8.5 : 7.8;
    return !three ? 8.5 : causal ? 10.2 : 9.4;
  }

  constexpr FlashAttentionTensorCost(const FlashAttentionProblem& p, const FlashAttentionPolicy& policy)
      : rounds(flash_attention_row_tiles(p, policy) / sm90_facts.compute_units),
        ends(1.6),
        longest(0),
        mean(0),
        alike(1),
        // Another launch combines partials, which lie in L2 mostly.
        partials(2.0 * double(p.q_tokens()) * p.q_heads * p.spec.value_size * sizeof(float) / 4e6),
        clustered(policy.cluster > 1 ? 1.1 : 1.0) {
    const FlashAttentionSpec& s = p.spec;
    const std::int32_t queries = policy.rows / detail::flash_row_heads(policy, p);
    const double flops = 2.0 * policy.rows * policy.keys * (s.head_size + s.value_size);  // for a tile of keys
    const bool three = policy.waves > 2, small = s.head_size <= 64, fp8 = is_fp8(s.kv);
    const double keys = flash_attention_keys(p);
    const bool causal = p.causal || p.window_right >= 0;
    const double rate = fp8 ? fp8_rate(s, three, causal) : three ? (small ? 4.3 : 5.75) : (small ? 3.6 : 5.5);
    // Tiles with a mask cost more.
    if (three) ends = causal ? (small && fp8 ? 4.0 : fp8 ? 3.6 : small ? 3.2 : 2.0) : 2.4;
    const double most = p.window_left >= 0 ? min_of(keys, double(p.window_left) + queries) : keys;
    const double least = causal ? min_of(most, max_of(keys - p.q_length, 0.0) + queries) : most;
    const auto tiles = [&](double seen) {
      return (max_of(seen, 0.0) / policy.keys + (causal ? 0.5 : 0.0)) * flops * 1e-6 / rate;
    };
    longest = tiles(most);
    mean = tiles(causal ? min_of(most, keys - p.q_length / 2.0 + queries / 2.0) : most);
    if (most > 0.0) alike = least / most;
  }

  /// Returns microseconds if so many splits share the keys of a row tile.
  constexpr double of(int splits) const {
    constexpr double begin = 8.0, combine = 4.0;
    const double items = rounds * splits, whole = double(static_cast<std::int64_t>(items));
    const double started = whole < items ? whole + 1 : items;
    const double of_items = (alike * started + (1.0 - alike) * (items + 0.6)) * (ends + mean / splits);
    return begin + clustered * max_of(ends + longest / splits, of_items) +
           (splits > 1 ? combine + splits * partials : 0.0);
  }
};

/// The most splits of a sequence's keys.
inline constexpr int flash_most_splits = 32;

/// Returns the splits of path tensor for a problem with a workspace: more than one where they promise to save a
/// twentieth. Batch-invariant calls have none.
constexpr int flash_attention_splits_sm90(const FlashAttentionProblem& p, const FlashAttentionPolicy& policy) {
  if (p.batch_invariant || !policy.splits_keys() || p.q_tokens() <= 0) return 1;
  const FlashAttentionTensorCost cost(p, policy);
  if (cost.rounds > 4.0) return 1;
  int best = 1;
  double least = 0.95 * cost.of(1);
  const auto most = static_cast<int>(min_of(flash_attention_keys(p) / policy.keys, double(flash_most_splits)));
  for (int splits = 2; splits <= most; ++splits) {
    const double us = cost.of(splits);
    if (us < least) best = splits, least = us;
  }
  return best;
}

/// Returns the expected microseconds of an entry, with the splits that it would have.
constexpr double flash_attention_cost_sm90(const FlashAttentionProblem& p, const FlashAttentionPolicy& policy) {
  if (policy.path == FlashAttentionPath::registers) return flash_attention_registers_cost_sm90(p, policy);
  return FlashAttentionTensorCost(p, policy).of(flash_attention_splits_sm90(p, policy));
}

/// Returns the bytes of a problem's workspace: partials of splits, and their lse.
constexpr std::size_t flash_attention_splits_size(const FlashAttentionProblem& p, int splits) {
  if (splits == 1) return 0;
  return sizeof(float) * static_cast<std::size_t>(p.q_tokens()) * p.q_heads * (p.spec.value_size + 1) * splits;
}
constexpr std::size_t flash_attention_workspace_size(const FlashAttentionProblem& p,
                                                     const FlashAttentionPolicy& policy) {
  return flash_attention_splits_size(p, flash_attention_splits_sm90(p, policy));
}

}  // namespace tilewave
