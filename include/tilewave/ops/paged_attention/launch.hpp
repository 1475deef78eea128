// SPDX-License-Identifier: MIT
// From a Problem to queued kernels: which problems an entry takes, and what it launches.
#pragma once

#include <array>
#include <type_traits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/ops/paged_attention/check.hpp"
#include "tilewave/ops/paged_attention/kernel.hpp"
#include "tilewave/ops/paged_attention/merge/balanced_combine.hpp"
#include "tilewave/ops/paged_attention/merge/combine.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave {

namespace detail {

/// What tensor maps ask of K and V: pages are whole rows apart, in groups of eight.
inline Status check_boxes(const PagedAttentionProblem& p) {
  constexpr StatusCode none = StatusCode::no_matching_entry;
  constexpr std::int64_t most_rows = (std::int64_t{1} << 31) - 65536;
  if (p.k_strides.unit != p.spec.unit()) return {none, "a bulk entry needs a token's dimensions of K side by side"};
  for (const auto [page, token, head] : {std::array{p.k_strides.page, p.k_strides.token, p.k_strides.head},
                                         std::array{p.v_strides.page, p.v_strides.token, p.v_strides.head}}) {
    if (token <= 0 || page < 0 || head < 0 || page % (8 * token) != 0)
      return {none, "a bulk entry needs pages that are a multiple of eight tokens apart"};
    if (token % 8 != 0 || head % 8 != 0) return {none, "a bulk entry needs strides of whole 16 bytes"};
    if (p.num_pages * (page / token) + p.block_size > most_rows)
      return {none, "a bulk entry takes 2^31 rows of tokens"};
  }
  return {};
}

/// What the copies of a bulk entry ask of a problem besides paged_attention_check.
inline Status check_bulk(const PagedAttentionProblem& p) {
  const int unit = p.spec.unit();
  if (p.split_tokens > 0) return {StatusCode::no_matching_entry, "a bulk entry makes no batch-invariant cuts"};
  if (p.spec.values == ValueLayout::token_major) return check_boxes(p);
  if (p.k_strides.token != unit || p.v_strides.dim != unit) {
    return {StatusCode::no_matching_entry, "a bulk entry needs tokens of K and dimensions of V in 16-byte steps"};
  }
  if (p.spec.quant == Scaling::per_token && (!is_aligned(p.k_scale, 16) || !is_aligned(p.v_scale, 16) ||
                                             p.scale_page_stride % 4 != 0 || p.scale_head_stride % 4 != 0)) {
    return {StatusCode::no_matching_entry, "a bulk entry needs the scales of a page at whole 16 bytes"};
  }
  return {};
}

/// Makes the maps of K and V as rows of tokens, a layer for each head, whose boxes are a segment of tokens.
template <class B, PagedAttentionSpec S, class Maps>
Status paged_attention_maps(const PagedAttentionProblem& p, std::int32_t segment, Maps& maps) {
  constexpr int element = size_of(S.kv);
  const auto map = [&](const void* data, std::int64_t page, std::int64_t token, std::int64_t head,
                       typename B::TensorMap& to, std::int32_t& page_rows) {
    page_rows = static_cast<std::int32_t>(page / token);
    return B::make_tensor_map({.data = data,
                               .type = S.kv,
                               .columns = S.head_size,
                               .rows = (p.num_pages - 1) * (page / token) + p.block_size,
                               .layers = p.num_kv_heads,
                               .row_stride = token * element,
                               .layer_stride = (p.num_kv_heads > 1 ? head : token) * element,
                               .box_rows = segment,
                               .side_by_side = S.head_size * element / 128},
                              to);
  };
  const Status of_k = map(p.k, p.k_strides.page, p.k_strides.token, p.k_strides.head, maps.k, maps.k_page_rows);
  if (!of_k.ok()) return of_k;
  return map(p.v, p.v_strides.page, p.v_strides.token, p.v_strides.head, maps.v, maps.v_page_rows);
}

}  // namespace detail

/// The launches of an entry: decode, then combine. Combine has no blocks if decode leaves no partial results.
struct PagedAttentionLaunches {
  LaunchShape decode, combine;
};
inline PagedAttentionLaunches paged_attention_launches(const PagedAttentionProblem& p,
                                                       const PagedAttentionPolicy& policy, const ArchFacts& facts,
                                                       int num_splits) {
  const bool balanced = policy.balanced();
  const std::int64_t grid =
      balanced ? paged_attention_balanced_blocks(p, policy, facts) : paged_attention_grid(p, policy, num_splits);
  // In a chain blocks begin where the kernel before leaves room. Where one or two for each SM fill the chip, alone or
  // in pairs, they are spread over SMs. Others lose by it (docs/notebook/2026-11-28-step-placement.md).
  const std::int64_t share = ceil_div<std::int64_t>(grid, facts.compute_units);
  const bool fills = share <= 2 && 20 * grid >= 19 * share * facts.compute_units;
  PagedAttentionLaunches launches{
      .decode = {.grid = grid,
                 .block = policy.block_waves() * facts.wave_lanes,
                 .cluster = policy.bulk() && !balanced ? num_splits : 1,
                 .spread = policy.bulk() && p.tables_ready && num_splits <= 2 && fills},
      .combine = {.grid = 0,
                  .block = balanced ? paged_attention_combine_threads
                                    : paged_attention_combine_waves_of_block * facts.wave_lanes}};
  if (balanced || (!policy.bulk() && num_splits > 1)) {
    const std::int64_t rows = p.output_rows();
    const std::int64_t waves = rows * (balanced ? paged_attention_combine_waves(p, facts) : 1);
    launches.combine.grid = ceil_div<std::int64_t>(waves, launches.combine.block / facts.wave_lanes);
  }
  return launches;
}

/// Returns whether an entry with this policy takes the problem, cut into num_splits. Errors: no_matching_entry for what
/// only this policy refuses. bad_value for a num_splits that is not 1 to max_splits; not 1, 2, 4 or 8 in bulk; not 1 if
/// balanced; or not paged_attention_fixed_splits for a batch-invariant call. bad_extent for more blocks than a launch
/// has.
inline Status paged_attention_takes(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                    const ArchFacts& facts, int num_splits) {
  if (policy.bulk()) {
    if (Status s = detail::check_bulk(p); !s.ok()) return s;
  }
  if (policy.balanced()) {
    if (p.split_tokens > 0) return {StatusCode::no_matching_entry, "a balanced entry makes no batch-invariant cuts"};
    if (num_splits != 1) return {StatusCode::bad_value, "a balanced entry takes one split"};
  } else if (p.stage_starts != nullptr) {
    return {StatusCode::no_matching_entry, "only a balanced entry takes stage_starts"};
  }
  if (policy.bulk() && (num_splits < 1 || num_splits > min_of(max_bulk_splits, facts.max_cluster_blocks) ||
                        (num_splits & (num_splits - 1)) != 0)) {
    return {StatusCode::bad_value, "a bulk entry takes 1, 2, 4 or 8 splits"};
  }
  if (num_splits < 1 || num_splits > max_splits) return {StatusCode::bad_value, "num_splits must be 1 to 128"};
  if (p.split_tokens > 0 && num_splits != paged_attention_fixed_splits(p, policy)) {
    return {StatusCode::bad_value, "a batch-invariant call takes paged_attention_fixed_splits"};
  }
  const PagedAttentionLaunches launches = paged_attention_launches(p, policy, facts, num_splits);
  if (!check_launch(launches.decode, facts).ok() || !check_launch(launches.combine, facts).ok()) {
    return {StatusCode::bad_extent, "more sequences, heads and splits than one launch has blocks or lanes for"};
  }
  return {};
}

/// Queues decode on the stream, and combine if decode leaves partial results. Nothing is allocated, synchronised or
/// read from the device. The grid depends on capacities only, so the call can be captured in a graph. Errors: those of
/// paged_attention_check and paged_attention_takes; workspace_too_small; launch_failed with the runtime's reason.
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
Status paged_attention_launch(const PagedAttentionProblem& p, int num_splits, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = paged_attention_check(p, B::facts); !s.ok()) return s;
  if (Status s = paged_attention_takes(p, P, B::facts, num_splits); !s.ok()) return s;
  if (p.batch == 0) return {};
  const std::size_t needed = paged_attention_workspace_size(p, P, B::facts, num_splits);
  if (Status s = check_workspace(p.workspace, p.workspace_bytes, needed); !s.ok()) return s;
  if (Status s = detail::check_workspace_region(p, needed); !s.ok()) return s;

  using Decode = typename PagedAttentionKernel<B, S, P>::type;
  const PagedAttentionArgs args = paged_attention_args(p, P, B::facts, num_splits);
  const PagedAttentionLaunches launches = paged_attention_launches(p, P, B::facts, num_splits);
  static_assert(Decode::block_threads == P.block_waves() * B::facts.wave_lanes,
                "launches are planned for as many lanes as the decode kernel has");
  const auto decode = [&]() -> Status {
    if constexpr (P.bulk() && S.values == ValueLayout::token_major) {
      typename Decode::Maps maps{};
      if (Status s = detail::paged_attention_maps<B, S>(p, args.segment, maps); !s.ok()) return s;
      return B::template launch<Decode>(launches.decode, args, maps, stream);
    } else {
      return B::template launch<Decode>(launches.decode, args, stream);
    }
  };
  if (needed == 0) return decode();

  using Combine = std::conditional_t<P.balanced(), PagedAttentionBalancedCombine<B, S, P>,
                                     PagedAttentionCombine<B, S.head_size, S.out>>;
  static_assert(Combine::block_threads == (P.balanced() ? paged_attention_combine_threads
                                                        : paged_attention_combine_waves_of_block * B::facts.wave_lanes),
                "launches are planned for as many lanes as the combine kernel has");
  const Status decoded = decode();
  return decoded.ok() ? B::template launch<Combine>(launches.combine, args, stream) : decoded;
}

}  // namespace tilewave
