// SPDX-License-Identifier: MIT
// A launch checks a Problem, prepares the arguments of the kernels and queues them.
#pragma once

#include <type_traits>

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/mla_decode/check.hpp"
#include "tilewave/ops/mla_decode/combine.hpp"
#include "tilewave/ops/mla_decode/kernel.hpp"
#include "tilewave/ops/paged_attention/merge/balanced_combine.hpp"
#include "tilewave/ops/paged_attention/merge/combine.hpp"

namespace tilewave {

/// What combine knows of a balanced launch.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeCombined {
  static constexpr int head_size = latent_value_size, block_tokens = P.tokens, block_rows = P.rows;
  static constexpr int chip_blocks = paged_attention_chip_blocks(P, B::facts);
  static constexpr DType out = DType::bf16;
  static constexpr bool lockstep = true;
};

/// The launches of an entry: decode, then combine. Combine has no blocks if decode leaves no partial results.
struct MlaDecodeLaunches {
  LaunchShape decode, combine;
};
inline MlaDecodeLaunches mla_decode_launches(const MlaDecodeProblem& p, const MlaDecodePolicy& policy,
                                             const ArchFacts& facts) {
  const bool balanced = policy.balanced();
  const int combine_waves =
      balanced ? paged_attention_combine_threads / facts.wave_lanes : paged_attention_combine_waves_of_block;
  MlaDecodeLaunches launches{.decode = {.grid = mla_decode_blocks(p, policy, facts),
                                        .block = policy.block_waves() * facts.wave_lanes,
                                        .cluster = mla_decode_cluster(p, policy)},
                             .combine = {.grid = 0, .block = combine_waves * facts.wave_lanes}};
  if (mla_decode_partials(p, policy, facts) > 0) {
    const std::int32_t row_waves = balanced ? mla_decode_combine_waves(p, policy, facts) : 1;
    std::int64_t waves = p.output_rows() * row_waves;
    if (balanced && policy.path == MlaDecodePath::tensor) {
      const auto rows = static_cast<std::int32_t>(p.output_rows());
      const std::int32_t of_wave = mla_combine_rows(rows, row_waves, mla_combine_held_waves(facts));
      waves = std::int64_t{ceil_div(rows, of_wave)} * row_waves;
    }
    launches.combine.grid = ceil_div<std::int64_t>(waves, combine_waves);
  }
  return launches;
}

namespace detail {

/// Returns ok if path tensor takes the problem: strides and extents that tensor maps can express.
inline Status mla_tensor_takes(const MlaDecodePolicy& policy, const MlaDecodeProblem& p) {
  constexpr StatusCode stride = StatusCode::bad_stride;
  if (!(p.softmax_scale > 0.0f)) return {StatusCode::bad_value, "tensor: softmax_scale must be positive"};
  if (p.q_head_stride <= 0 || p.q_row_stride != p.num_q_heads * p.q_head_stride)
    return {stride, "tensor: heads and query tokens of q must be evenly spaced"};
  if (!mla_decode_copies(p.spec, policy)) return {};
  if (mla_decode_box_rows(p) % 8 != 0)
    return {StatusCode::unsupported_block_size,
            "tensor: block_size must be a multiple of 8, unless tokens are gathered"};
  if (p.token_stride <= 0 || (p.num_pages > 1 && (p.page_stride < 0 || p.page_stride % p.token_stride != 0)))
    return {stride, "tensor: pages must be a whole number of tokens apart"};
  if (p.num_pages < 1 || (p.num_pages - 1) * (p.page_stride / p.token_stride) + p.block_size > 0x7fff0000)
    return {StatusCode::bad_extent, "tensor: no rows of the cache, or 2^31 of them"};
  return {};
}

/// Returns ok if path lds takes the problem: pages of whole groups of tokens, whose bytes 31 bits can count.
inline Status mla_lds_takes(const MlaDecodeProblem& p) {
  if (p.block_size % mla_lds_page_tokens != 0)
    return {StatusCode::unsupported_block_size, "lds: block_size must be a multiple of 16"};
  const std::int64_t page_bytes = std::int64_t{size_of(p.spec.kv)} * p.block_size;  // where tokens are an element apart
  if (p.token_stride < 0 || p.token_stride >= ceil_div(std::int64_t{1} << 31, page_bytes))
    return {StatusCode::bad_stride, "lds: tokens of a page must not lie backwards, or span 2 GiB"};
  if (p.page_stride < 0 || p.page_stride >= (std::int64_t{1} << 36) / size_of(p.spec.kv))
    return {StatusCode::bad_stride, "lds: pages must lie forwards, less than 2^36 bytes apart"};
  return {};
}

}  // namespace detail

/// Returns ok if an entry of this policy takes a problem that mla_decode_check accepts, else what it refuses.
inline Status mla_decode_takes(const MlaDecodePolicy& policy, const MlaDecodeProblem& p, const ArchFacts& facts) {
  if (p.batch == 0) return {};  // strides of nothing may be anything
  if (policy.balanced() && p.split_tokens > 0) {
    return {StatusCode::no_matching_entry, "a balanced entry makes no batch-invariant cuts"};
  }
  if (policy.path == MlaDecodePath::tensor) {
    if (Status s = detail::mla_tensor_takes(policy, p); !s.ok()) return s;
  }
  if (policy.path == MlaDecodePath::lds) {
    if (Status s = detail::mla_lds_takes(p); !s.ok()) return s;
  }
  const MlaDecodeLaunches launches = mla_decode_launches(p, policy, facts);
  if (!check_launch(launches.decode, facts).ok() || !check_launch(launches.combine, facts).ok()) {
    return {StatusCode::bad_extent, "more sequences, heads and splits than one launch has blocks or lanes for"};
  }
  return {};
}

/// Queues decode on the stream, and combine if decode leaves partial results. Nothing is allocated, synchronised or
/// read from the device, and the grid depends on capacities only, so the call can be captured in a graph. Errors are
/// those of mla_decode_check and mla_decode_takes, no_matching_entry if the entry is of another spec,
/// workspace_too_small, and launch_failed with the runtime's reason.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
Status mla_decode_launch(const MlaDecodeProblem& p, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = mla_decode_check(p, B::facts); !s.ok()) return s;
  if (Status s = mla_decode_takes(P, p, B::facts); !s.ok()) return s;
  if (p.batch == 0) return {};
  const std::size_t needed = mla_decode_workspace_size(p, P, B::facts);
  if (Status s = check_workspace(p.workspace, p.workspace_bytes, needed); !s.ok()) return s;
  using Decode = typename MlaDecodeKernel<B, S, P>::type;
  typename Decode::Args args{};
  if (Status s = Decode::prepare(p, args); !s.ok()) return s;
  const MlaDecodeLaunches launches = mla_decode_launches(p, P, B::facts);
  static_assert(Decode::block_threads == P.block_waves() * B::facts.wave_lanes,
                "launches are planned for as many lanes as the decode kernel has");
  if (Status s = B::template launch<Decode>(launches.decode, args, stream); !s.ok() || launches.combine.grid == 0)
    return s;
  using Balanced = std::conditional_t<P.path == MlaDecodePath::tensor, MlaDecodeCombine<B, MlaDecodeCombined<B, S, P>>,
                                      BalancedCombine<B, MlaDecodeCombined<B, S, P>>>;
  using Combine = std::conditional_t<P.balanced(), Balanced, PagedAttentionCombine<B, latent_value_size, DType::bf16>>;
  return B::template launch<Combine>(launches.combine, args.decode().attention, stream);
}

}  // namespace tilewave
