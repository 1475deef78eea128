// SPDX-License-Identifier: MIT
// A launch checks a Problem, prepares the kernel's arguments and queues the kernel.
#pragma once

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/flash_attention/check.hpp"
#include "tilewave/ops/flash_attention/kernel.hpp"
#include "tilewave/ops/flash_attention/launch_lds.hpp"
#include "tilewave/ops/flash_attention/launch_tensor.hpp"

namespace tilewave {

namespace detail {

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
Status flash_launch_registers(const FlashAttentionProblem& p, hipStream_t stream) {
  using Kernel = FlashAttentionRegisters<B, S, P>;
  const std::int64_t rows = std::int64_t{p.q_length} * (p.q_heads / p.kv_heads);
  const std::int64_t tiles = ceil_div<std::int64_t>(rows, P.rows), blocks = tiles * p.kv_heads * p.batch;
  const LaunchShape shape{blocks, Kernel::block_threads};
  if (rows > (std::int64_t{1} << 31) - 65536 || !check_launch(shape, B::facts).ok())
    return {StatusCode::bad_extent, "more queries and heads than one launch has blocks or lanes for"};
  const typename Kernel::Args args{.attention = flash_attention_args(p),
                                   .row_tiles = FastDiv::by(static_cast<std::int32_t>(tiles)),
                                   .kv_heads = FastDiv::by(p.kv_heads)};
  return B::template launch<Kernel>(shape, args, stream);
}

}  // namespace detail

/// Returns ok if an entry of this policy takes a problem that flash_attention_check accepts, else the field it refuses.
inline Status flash_attention_takes(const FlashAttentionPolicy& policy, const FlashAttentionProblem& p) {
  if (policy.path == FlashAttentionPath::lds) return detail::flash_lds_takes(policy, p);
  if (policy.path == FlashAttentionPath::tensor) return detail::flash_tensor_takes(policy, p);
  return {};
}

/// Queues the kernel on the stream, and what combines splits if it has any. Nothing is allocated, synchronised or read
/// from the device, and the grid depends on capacities only, so the call can be captured in a graph. Errors: those of
/// flash_attention_check and flash_attention_takes; workspace_too_small; no_matching_entry if the entry is of another
/// spec; launch_failed with the runtime's reason.
template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
Status flash_attention_launch(const FlashAttentionProblem& p, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = flash_attention_check(p, B::facts); !s.ok()) return s;
  if (p.batch == 0 || p.q_tokens() == 0) return {};
  if (Status s = flash_attention_takes(P, p); !s.ok()) return s;
  if constexpr (P.path == FlashAttentionPath::lds) {
    return detail::flash_launch_lds<B, S, P>(p, stream);
  } else if constexpr (P.path == FlashAttentionPath::tensor) {
    return detail::flash_launch_tensor<B, S, P>(p, stream);
  } else {
    return detail::flash_launch_registers<B, S, P>(p, stream);
  }
}

}  // namespace tilewave
