// SPDX-License-Identifier: MIT
// The expected time of a launch on sm90 chooses among entries. It is not a promise, only an order.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/flash_attention/policy.hpp"
#include "tilewave/ops/flash_attention/problem.hpp"
#include "tilewave/ops/flash_attention/tensor/row_heads.hpp"

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

/// Returns microseconds of path tensor on an H200, if lengths are the capacities and so many splits share the keys of a
/// row tile. Blocks take rounds of items, and an item costs its start, its end and its tiles of keys. Items alike
/// begin and end together, so a round that is not full takes as long as one that is. Three wave groups keep the matrix
/// unit busier than two, but lose more of a tile that no query fills. The rates are fitted to the cells of
/// docs/notebook/2026-11-28-flash-attention.md.
constexpr double flash_attention_tensor_cost_sm90(const FlashAttentionProblem& p, const FlashAttentionPolicy& policy,
                                                  int splits) {
  constexpr double begin = 8.0;  // us
  const FlashAttentionSpec& s = p.spec;
  const std::int32_t queries = policy.rows / detail::flash_row_heads(policy, p);
  const double flops = 2.0 * policy.rows * policy.keys * (s.head_size + s.value_size);  // for a tile of keys
  const bool three = policy.waves > 2, small = s.head_size <= 64, fp8 = is_fp8(s.kv);
  const double rate = fp8 ? (three ? (small ? 4.9 : 7.8) : (small ? 3.9 : 7.4))
                          : (three ? (small ? 4.3 : 5.75) : (small ? 3.6 : 5.5));  // MFLOP per us
  const double keys = flash_attention_keys(p);
  const bool causal = p.causal || p.window_right >= 0;
  // us per item; tiles with a mask cost more
  const double ends = three ? (causal ? (small && fp8 ? 4.0 : small || fp8 ? 3.2 : 2.0) : 2.4) : 1.6;
  const double most = p.window_left >= 0 ? min_of(keys, double(p.window_left) + queries) : keys;
  const double mean = causal ? min_of(most, keys - p.q_length / 2.0 + queries / 2.0) : most;
  const double least = causal ? min_of(most, max_of(keys - p.q_length, 0.0) + queries) : most;
  const auto item = [&](double seen) {
    const double tiles = max_of(seen, 0.0) / policy.keys + (causal ? 0.5 : 0.0);
    return ends + tiles / splits * flops * 1e-6 / rate;
  };
  const double rounds = flash_attention_row_tiles(p, policy) * splits / sm90_facts.compute_units;
  const double started = double(static_cast<std::int64_t>(rounds)) < rounds ? double(std::int64_t(rounds) + 1) : rounds;
  const double alike = most > 0.0 ? least / most : 1.0;
  const double clustered = policy.cluster > 1 ? 1.1 : 1.0;
  // Another launch combines partials, which lie in L2 mostly.
  const double partials = double(p.q_tokens()) * p.q_heads * s.value_size * sizeof(float) * splits;
  const double combine = splits > 1 ? 4.0 + 2.0 * partials / 4e6 : 0.0;
  return begin + combine +
         clustered * max_of(item(most), (alike * started + (1.0 - alike) * (rounds + 0.6)) * item(mean));
}

/// The most splits of a sequence's keys.
inline constexpr int flash_most_splits = 32;

/// Returns the splits of path tensor for a problem with a workspace: more than one where they promise to save a
/// twentieth. Batch-invariant calls have none.
constexpr int flash_attention_splits_sm90(const FlashAttentionProblem& p, const FlashAttentionPolicy& policy) {
  if (p.batch_invariant || !policy.splits_keys() || p.q_tokens() <= 0) return 1;
  if (flash_attention_row_tiles(p, policy) > 4.0 * sm90_facts.compute_units) return 1;
  int best = 1;
  double least = 0.95 * flash_attention_tensor_cost_sm90(p, policy, 1);
  const auto most = static_cast<int>(min_of(flash_attention_keys(p) / policy.keys, double(flash_most_splits)));
  for (int splits = 2; splits <= most; ++splits) {
    const double cost = flash_attention_tensor_cost_sm90(p, policy, splits);
    if (cost < least) best = splits, least = cost;
  }
  return best;
}

/// Returns the expected microseconds of an entry, with the splits that it would have.
constexpr double flash_attention_cost_sm90(const FlashAttentionProblem& p, const FlashAttentionPolicy& policy) {
  if (policy.path == FlashAttentionPath::registers) return flash_attention_registers_cost_sm90(p, policy);
  return flash_attention_tensor_cost_sm90(p, policy, flash_attention_splits_sm90(p, policy));
}

/// Returns the bytes of a problem's workspace: partials of splits, and their lse.
constexpr std::size_t flash_attention_workspace_size(const FlashAttentionProblem& p,
                                                     const FlashAttentionPolicy& policy) {
  const int splits = flash_attention_splits_sm90(p, policy);
  if (splits == 1) return 0;
  return sizeof(float) * static_cast<std::size_t>(p.q_tokens()) * p.q_heads * (p.spec.value_size + 1) * splits;
}

}  // namespace tilewave
