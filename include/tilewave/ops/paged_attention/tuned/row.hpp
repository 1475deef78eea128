// SPDX-License-Identifier: MIT
// What was found to be fastest, ahead of the cost model: rows of a table that `tilewave tune write` makes.
#pragma once

#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

/// Problems of a spec and a class, and how they are computed. Tokens: what the block table holds.
struct TunedPagedAttention {
  PagedAttentionSpec spec;
  std::int32_t block_size, mtp, num_q_heads, num_kv_heads, batch;
  std::int64_t tokens_from, tokens_to;
  PagedAttentionPolicy policy;
  int num_splits;

  /// Calls that ask for a schedule, or for the same bits in any batch, are not looked up.
  constexpr bool serves(const PagedAttentionProblem& p) const {
    const std::int64_t tokens = std::int64_t{p.table_columns} * p.block_size;
    return !p.balanced && p.split_tokens == 0 && p.sliding_window == 0 && spec == p.spec &&
           block_size == p.block_size && mtp == p.mtp && num_q_heads == p.num_q_heads &&
           num_kv_heads == p.num_kv_heads && batch == p.batch && tokens_from <= tokens && tokens <= tokens_to;
  }
};

/// Whether a tuner may try a policy: legal ones straight to registers.
constexpr Status paged_attention_tuner_status(ArchId arch, const PagedAttentionSpec& s, const PagedAttentionPolicy& p) {
  if (p.staged()) return {StatusCode::bad_value, "tuners try policies straight to registers"};
  if (p.waves_per_simd > 4)
    return {StatusCode::bad_value, "tuners try up to four waves a SIMD, of 128 registers a lane"};
  return paged_attention_policy_status(arch, s, p);
}

}  // namespace tilewave
