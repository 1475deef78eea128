// SPDX-License-Identifier: MIT
// Launches the kernels for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/moe_sort/kernel.hpp"
#include "tilewave/tile/row_check.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave {

namespace detail {

inline Status check_sort_extents(const MoeSortProblem& p) {
  if (p.tokens < 0) return {StatusCode::bad_extent, "tokens is negative"};
  if (p.tokens >= 1 << sorted_token_bits) return {StatusCode::bad_extent, "2^24 tokens or more do not fit a sorted id"};
  if (p.topk < 1 || p.topk > most_sorted_choices) return {StatusCode::bad_extent, "topk must be 1 to 16"};
  if (p.experts < 1 || p.experts > most_sorted_experts) return {StatusCode::bad_extent, "experts must be 1 to 1024"};
  if (p.unit < 1 || p.unit > most_sort_unit) return {StatusCode::bad_extent, "unit must be 1 to 256"};
  if (p.capacity < moe_sort_capacity(p)) return {StatusCode::bad_extent, "capacity is less than moe_sort_capacity"};
  if (p.capacity > 1 << 30) return {StatusCode::bad_extent, "capacity must be 2^30 or less"};
  return {};
}

inline Status check_sort_pointers(const MoeSortProblem& p) {
  if (p.topk_ids == nullptr && p.tokens > 0) return {StatusCode::null_pointer, "topk_ids are null"};
  if (p.sorted_ids == nullptr && p.capacity > 0) return {StatusCode::null_pointer, "sorted_ids are null"};
  if (p.sorted_expert_ids == nullptr && p.capacity > 0) {
    return {StatusCode::null_pointer, "sorted_expert_ids are null"};
  }
  if (p.num_tokens_post_pad == nullptr) return {StatusCode::null_pointer, "num_tokens_post_pad is null"};
  if ((p.sorted_weights == nullptr) != (p.topk_weights == nullptr) && p.tokens > 0) {
    return {StatusCode::null_pointer, "topk_weights and sorted_weights go together"};
  }
  for (const void* words : {static_cast<const void*>(p.topk_ids), static_cast<const void*>(p.topk_weights),
                            static_cast<const void*>(p.expert_mask), static_cast<const void*>(p.sorted_ids),
                            static_cast<const void*>(p.sorted_expert_ids),
                            static_cast<const void*>(p.num_tokens_post_pad), static_cast<const void*>(p.sorted_weights),
                            static_cast<const void*>(p.group_offsets), static_cast<const void*>(p.group_counts),
                            static_cast<const void*>(p.rows), static_cast<const void*>(p.row_tokens)}) {
    if (!element_aligned(words, DType::f32)) return {StatusCode::misaligned, "all tensors need 4-byte alignment"};
  }
  return {};
}

struct SortRegions {
  Region ids, weights, mask, rows;
  std::array<Region, 8> written;  // all outputs, `rows` among them

  explicit SortRegions(const MoeSortProblem& p) {
    const auto choices = [&](const void* data, std::int64_t stride, const char* zero) {
      return Region(data, size_of(DType::f32), p.topk, {{p.tokens, stride, zero}});
    };
    const auto vector = [](const void* data, std::int64_t count) { return vector_region(data, DType::f32, count); };
    ids = choices(p.topk_ids, p.ids_stride, "ids_stride is 0"),
    weights = choices(p.topk_weights, p.weights_stride, "weights_stride is 0");
    mask = vector(p.expert_mask, p.experts), rows = choices(p.rows, p.rows_stride, "rows_stride is 0");
    written = {vector(p.sorted_ids, p.capacity),  vector(p.sorted_expert_ids, ceil_div(p.capacity, p.unit)),
               vector(p.num_tokens_post_pad, 2),  vector(p.sorted_weights, p.capacity),
               vector(p.row_tokens, p.capacity),  vector(p.group_offsets, std::int64_t{p.experts} + 1),
               vector(p.group_counts, p.experts), rows};
  }
  /// True if an output is clear of the inputs and of the first `before` outputs.
  Status check_clear(const Region& output, std::size_t before) const {
    if (!clear_of(output, {ids, weights, mask})) return {StatusCode::bad_value, "an output overlaps an input"};
    for (std::size_t i = 0; i < before; ++i)
      if (overlap(output, written[i])) return {StatusCode::bad_value, "two outputs overlap"};
    return {};
  }
};

inline Status check_sort_regions(const MoeSortProblem& p) {
  const SortRegions r(p);
  if (p.tokens > 0) {
    if (Status s = check_absent<"topk_weights">(p.topk_weights, {p.weights_stride}); !s.ok()) return s;
    if (Status s = check_absent<"rows">(p.rows, {p.rows_stride}); !s.ok()) return s;
  }
  for (const Status& status :
       {check_read<"ids">(r.ids, "ids_stride is 0"), check_read<"weights">(r.weights, "weights_stride is 0"),
        check_written<"rows">(r.rows, "rows of rows overlap")}) {
    if (!status.ok()) return status;
  }
  for (std::size_t i = 0; i < r.written.size(); ++i)
    if (Status s = r.check_clear(r.written[i], i); !s.ok()) return s;
  return {};
}

}  // namespace detail

/// More blocks than this would read each other's counts for longer than they save.
inline constexpr std::int32_t most_sort_blocks = 128;
constexpr std::int32_t moe_sort_tiles(const MoeSortProblem& p, const MoeSortPolicy& policy) {
  return ceil_div(p.tokens * p.topk, policy.tile());
}

/// The division of work among blocks. `cluster` blocks count all choices, a segment each, and every block of the launch
/// places `block_choices`. With MoeSortCounts::workspace a launch of its own counts.
struct MoeSortWork {
  MoeSortCounts counts;
  std::int32_t blocks, cluster, segment, block_choices;
};
constexpr MoeSortWork moe_sort_work(const MoeSortProblem& p, const MoeSortPolicy& policy) {
  const std::int32_t choices = p.tokens * p.topk, tiles = moe_sort_tiles(p, policy);
  if (tiles > policy.tiles_alone) {
    const std::int32_t tiles_of_block = ceil_div(tiles, most_sort_blocks);
    return {MoeSortCounts::workspace, ceil_div(tiles, tiles_of_block), 1, choices, tiles_of_block * policy.tile()};
  }
  const bool clustered = policy.cluster > 1 && choices > policy.batch * policy.threads;
  const std::int32_t cluster = clustered ? policy.cluster : 1;
  constexpr std::int32_t rows_of_block = 32;  // most of these rows are pads where choices are few
  const std::int32_t clusters =
      max_of(min_of(ceil_div(p.capacity, rows_of_block * cluster), policy.most_blocks / cluster), 1);
  const std::int32_t segment = ceil_div(choices, cluster);
  return {clustered ? MoeSortCounts::cluster : MoeSortCounts::block, clusters * cluster, cluster, segment,
          ceil_div(segment, clusters)};
}

/// Returns the bytes of workspace, which are 0 where one launch is enough. They depend on tokens, topk and experts
/// alone, and are never less for more of them.
constexpr std::size_t moe_sort_workspace_size(const MoeSortProblem& p, const MoeSortPolicy& policy) {
  const std::int32_t tiles = moe_sort_tiles(p, policy);
  return tiles <= policy.tiles_alone ? 0 : std::size_t{4} * min_of(tiles, most_sort_blocks) * p.experts;
}

/// Checks every rule that a problem must satisfy. Ids and masks live on the device and are not read. The workspace is
/// checked when an entry is launched.
inline Status moe_sort_check(const MoeSortProblem& p, const ArchFacts&) {
  if (Status s = detail::check_sort_extents(p); !s.ok()) return s;
  if (Status s = detail::check_sort_pointers(p); !s.ok()) return s;
  return detail::check_sort_regions(p);
}

/// Returns the arguments of the kernels.
inline MoeSortArgs moe_sort_args(const MoeSortProblem& p, const MoeSortPolicy& policy) {
  const MoeSortWork work = moe_sort_work(p, policy);
  return {.topk_ids = p.topk_ids,
          .topk_weights = p.topk_weights,
          .expert_mask = p.expert_mask,
          .sorted_ids = p.sorted_ids,
          .sorted_expert_ids = p.sorted_expert_ids,
          .num_tokens_post_pad = p.num_tokens_post_pad,
          .sorted_weights = p.sorted_weights,
          .group_offsets = p.group_offsets,
          .group_counts = p.group_counts,
          .rows = p.rows,
          .row_tokens = p.row_tokens,
          .ids_stride = p.ids_stride,
          .weights_stride = p.weights_stride,
          .rows_stride = p.rows_stride,
          .counts = static_cast<std::uint32_t*>(p.workspace),
          .topk = FastDiv::by(p.topk),
          .unit = FastDiv::by(p.unit),
          .tokens = p.tokens,
          .choices = p.tokens * p.topk,
          .experts = p.experts,
          .capacity = p.capacity,
          .blocks = work.blocks,
          .segment = work.segment,
          .block_choices = work.block_choices};
}

/// Queues one kernel on the stream, or two where there is a workspace. It also runs for no tokens, because outputs say
/// so. Nothing is allocated, synchronised or read from the device. Errors: those of moe_sort_check; no_matching_entry
/// if the entry is of another spec; workspace_too_small; launch_failed with the runtime's reason.
template <class B, MoeSortSpec S, MoeSortPolicy P>
Status moe_sort_launch(const MoeSortProblem& p, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = moe_sort_check(p, B::facts); !s.ok()) return s;
  const std::size_t needed = moe_sort_workspace_size(p, P);
  if (Status s = check_workspace(p.workspace, p.workspace_bytes, needed); !s.ok()) return s;
  if (needed > 0) {
    const detail::SortRegions r(p);
    const Region workspace = vector_region(p.workspace, DType::f32, static_cast<std::int64_t>(needed / 4));
    bool clear = clear_of(workspace, {r.ids, r.weights, r.mask});
    for (const Region& output : r.written) clear = clear && !overlap(workspace, output);
    if (!clear) return {StatusCode::bad_value, "workspace overlaps another tensor"};
  }

  // A block that counts also places one tile, or the 32 choices for which it exists.
  static_assert(P.tiles_alone * P.tile() <= P.most_blocks * P.threads_of(MoeSortCounts::cluster),
                "the lanes of one launch have a choice each of as many as are sorted without a counting launch");
  const MoeSortArgs args = moe_sort_args(p, P);
  const MoeSortCounts counts = moe_sort_work(p, P).counts;
  if (counts == MoeSortCounts::block)
    return B::template launch<MoeSort<B, S, P>>({args.blocks, P.threads}, args, stream);
  if constexpr (P.cluster > 1) {
    using Clusters = MoeSort<B, S, P, MoeSortCounts::cluster>;
    if (counts == MoeSortCounts::cluster) {
      return B::template launch<Clusters>({args.blocks, P.many_threads, P.cluster}, args, stream);
    }
  }
  const Status counted = B::template launch<MoeSortCount<B, S, P>>({args.blocks, P.many_threads}, args, stream);
  if (!counted.ok()) return counted;
  using Counted = MoeSort<B, S, P, MoeSortCounts::workspace>;
  return B::template launch<Counted>({args.blocks, P.many_threads}, args, stream);
}

}  // namespace tilewave
