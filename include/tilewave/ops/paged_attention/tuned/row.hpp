// SPDX-License-Identifier: MIT
// Rows of a table that `tilewave tune write` makes: what was measured to be fastest. They go before the cost model.
#pragma once

#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

/// A class of problems of a spec, and how they are computed. Tokens count what the block table has room for.
struct TunedPagedAttention {
  PagedAttentionSpec spec;
  std::int32_t block_size, mtp, num_q_heads, num_kv_heads, batch;
  std::int64_t tokens_from, tokens_to;
  PagedAttentionPolicy policy;
  int num_splits;

  /// Returns whether the row decides for a problem. Calls that ask for a schedule, or to be batch-invariant, are not
  /// looked up.
  constexpr bool serves(const PagedAttentionProblem& p) const {
    const std::int64_t tokens = p.capacity();
    return !p.balanced && p.split_tokens == 0 && p.sliding_window == 0 && spec == p.spec &&
           block_size == p.block_size && mtp == p.mtp && num_q_heads == p.num_q_heads &&
           num_kv_heads == p.num_kv_heads && batch == p.batch && tokens_from <= tokens && tokens <= tokens_to;
  }
};

/// Returns whether a tuner may try a policy. It may try legal ones straight to registers.
constexpr Status paged_attention_tuner_status(ArchId arch, const PagedAttentionSpec& s, const PagedAttentionPolicy& p) {
  if (p.bulk()) return {StatusCode::bad_value, "tuners try policies straight to registers"};
  if (p.waves_per_simd > 4)
    return {StatusCode::bad_value, "tuners try up to four waves a SIMD, of 128 registers a lane"};
  return paged_attention_policy_status(arch, s, p);
}

}  // namespace tilewave
