// SPDX-License-Identifier: MIT
// The launch of path lds says which problems the kernel takes, prepares its arguments and queues it.
#pragma once

#include <limits>

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/flash_attention/check.hpp"
#include "tilewave/ops/flash_attention/kernel.hpp"
#include "tilewave/ops/flash_attention/row_heads.hpp"

namespace tilewave::detail {

/// Returns ok if path lds takes the problem, else the field it refuses. The spec is served by then; these are limits of
/// run-time values.
inline Status flash_lds_takes(const FlashAttentionPolicy& policy, const FlashAttentionProblem& p) {
  if (!(p.softmax_scale > 0.0f)) return {StatusCode::bad_value, "lds: softmax_scale must be positive"};
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 4096;  // bytes
  const std::int64_t of_k = p.spec.paged() ? p.k_page_strides.token : p.k_strides.token,
                     of_v = p.spec.paged() ? p.v_page_strides.token : p.v_strides.token;
  if (of_k < 0 || of_v < 0) return {StatusCode::bad_stride, "lds: tokens of K or V must not lie backwards"};
  const std::int64_t of_token = max_of(of_k, of_v), elements = most / size_of(p.spec.kv);
  if (of_token > elements / max_of(policy.keys, p.block_size))
    return {StatusCode::bad_stride, "lds: the keys of one tile or page, as tokens of K or V lie apart, span 2 GiB"};
  if (!p.spec.paged() && of_token > 2 * elements / (p.kv_length + std::int64_t{policy.stages + 1} * policy.keys))
    return {StatusCode::bad_stride, "lds: the keys of a sequence, as tokens of K or V lie apart, span 4 GiB"};
  if (p.spec.paged()) {
    if (p.block_size % flash_page_keys != 0) {
      return {StatusCode::unsupported_block_size, "lds: block_size must be a multiple of 16"};
    }
    if (p.k_page_strides.unit != p.spec.unit()) {
      return {StatusCode::bad_stride, "lds: dimensions of K must be contiguous"};
    }
    for (const std::int64_t page : {p.k_page_strides.page, p.v_page_strides.page}) {
      if (page < 0 || page >= std::int64_t{1} << 35)
        return {StatusCode::bad_stride, "lds: pages must lie forwards, less than 2^35 elements apart"};
    }
    if (policy.stages > 2 && p.table_columns > flash_lds_page_ids) {  // copies go straight into LDS
      return {StatusCode::bad_extent, "lds: table_columns must be 8192 or less"};
    }
  }
  return {};
}

/// Returns the heads whose rows share row tiles. Under a causal mask, too, all that share a kv head do: a block has
/// fewer queries then, and so fewer tiles of keys with a mask. Rows are counted in 32 bits.
constexpr std::int32_t flash_lds_row_heads(const FlashAttentionPolicy& policy, const FlashAttentionProblem& p) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() - 4096;
  const std::int32_t ratio = p.q_heads / p.kv_heads;
  if (std::int64_t{p.q_length} * p.q_heads > most) return 1;
  return p.causal && ratio <= policy.rows ? ratio : flash_row_heads(policy, p);
}

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
Status flash_launch_lds(const FlashAttentionProblem& p, hipStream_t stream) {
  using Kernel = FlashAttentionLds<B, S, P>;
  const std::int32_t row_heads = flash_lds_row_heads(P, p);
  const std::int64_t tiles = ceil_div(std::int64_t{p.q_length} * row_heads, std::int64_t{P.rows}),
                     blocks = tiles * (p.q_heads / row_heads) * p.batch;
  const LaunchShape shape{blocks, Kernel::block_threads};
  if (!check_launch(shape, B::facts).ok())
    return {StatusCode::bad_extent, "more queries and heads than one launch has blocks or lanes for"};
  const typename Kernel::Args args{.attention = flash_attention_args(p),
                                   .row_tiles = FastDiv::by(static_cast<std::int32_t>(tiles)),
                                   .heads = FastDiv::by(p.q_heads / row_heads),
                                   .row_heads = {FastDiv::by(row_heads)},
                                   .blocks = static_cast<std::int32_t>(blocks),
                                   .in_order = p.batch_invariant};
  return B::template launch<Kernel>(shape, args, stream);
}

}  // namespace tilewave::detail
