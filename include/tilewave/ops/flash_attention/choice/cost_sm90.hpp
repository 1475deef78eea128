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

/// Returns microseconds on an H200, if lengths are the capacities. Blocks take rounds of items, and an item costs its
/// start, its end and its tiles of keys. Three wave groups keep the matrix unit busier than two, but lose more of a
/// tile that no query fills. The rates are fitted to the cells of docs/notebook/2026-11-28-flash-attention.md.
constexpr double flash_attention_cost_sm90(const FlashAttentionProblem& p, const FlashAttentionPolicy& policy) {
  if (policy.path == FlashAttentionPath::registers) return flash_attention_registers_cost_sm90(p, policy);
  constexpr double begin = 8.0;  // us
  const FlashAttentionSpec& s = p.spec;
  const std::int32_t heads = detail::flash_row_heads(policy, p), queries = policy.rows / heads;
  const double flops = 2.0 * policy.rows * policy.keys * (s.head_size + s.value_size);  // for a tile of keys
  const bool three = policy.waves > 2, small = s.head_size <= 64, fp8 = is_fp8(s.kv);
  const double rate = fp8 ? (three ? (small ? 4.9 : 7.8) : (small ? 3.9 : 7.4))
                          : (three ? (small ? 4.3 : 5.75) : (small ? 3.6 : 5.5));  // MFLOP per us
  const double keys = flash_attention_keys(p);
  const bool causal = p.causal || p.window_right >= 0;
  // us per item; tiles with a mask cost more
  const double ends = three ? (causal ? (small && fp8 ? 4.0 : small || fp8 ? 3.2 : 2.0) : 2.4) : 1.6;
  double seen = causal ? keys - p.q_length / 2.0 + queries / 2.0 : keys;
  if (p.window_left >= 0) seen = min_of(seen, double(p.window_left) + queries);
  const double tiles = max_of(seen, 0.0) / policy.keys + (causal ? 0.5 : 0.0);
  const double items = double(p.batch) * (p.q_heads / heads) * ceil_div(p.q_length, queries);
  const double rounds = items / sm90_facts.compute_units;
  const bool alike = !causal && p.window_left < 0;
  const double started = double(static_cast<std::int64_t>(rounds)) < rounds ? double(std::int64_t(rounds) + 1) : rounds;
  const double clustered = policy.cluster > 1 ? 1.1 : 1.0;
  return begin + clustered * (alike ? started : rounds + 0.6) * (ends + tiles * flops * 1e-6 / rate);
}

}  // namespace tilewave
