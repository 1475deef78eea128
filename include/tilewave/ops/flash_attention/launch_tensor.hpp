// SPDX-License-Identifier: MIT
// The launch of path tensor (sm90) says which problems the kernel takes, makes its tensor maps and its sections of
// work, and queues it.
#pragma once

#include <numeric>

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/flash_attention/choice/cost_sm90.hpp"
#include "tilewave/ops/flash_attention/kernel.hpp"
#include "tilewave/ops/flash_attention/row_heads.hpp"
#include "tilewave/ops/flash_attention/tensor/combine.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave::detail {

inline constexpr std::int64_t most_flash_rows = (std::int64_t{1} << 31) - 65536;

/// A tensor of tokens as its tensor map sees it: rows lie `token` elements apart, and layers, the heads, `head`. It has
/// `steps` sequences or pages of `length` tokens, `step` elements apart. Packed tokens are one sequence.
struct FlashTokens {
  std::int64_t steps, step, token, head, length;

  /// Returns ok if sequences or pages are a whole number of rows apart.
  constexpr Status check() const {
    if (token <= 0 || head < 0 || (steps > 1 && (step < 0 || step % token != 0)))
      return {StatusCode::bad_stride, "tensor: sequences or pages must be a whole number of tokens apart"};
    return {};
  }
  /// Returns the rows from a sequence or page to the next.
  constexpr std::int64_t step_rows() const { return steps > 1 ? step / token : 0; }
  constexpr std::int64_t rows() const { return (steps - 1) * step_rows() + length; }
  constexpr bool fits() const { return step_rows() <= most_flash_rows && rows() > 0 && rows() <= most_flash_rows; }
};

/// Return q, out, K and V of a problem as tensors of tokens.
constexpr FlashTokens flash_q_tokens(const FlashAttentionProblem& p) {
  const TokenStrides& s = p.q_strides;
  if (p.q_starts != nullptr) return {1, s.sequence, s.token, s.head, p.total_q};
  return {p.batch, s.sequence, s.token, s.head, p.q_length};
}
constexpr FlashTokens flash_out_tokens(const FlashAttentionProblem& p) {
  const TokenStrides& s = p.out_strides;
  if (p.q_starts != nullptr) return {1, s.sequence, s.token, s.head, p.total_q};
  return {p.batch, s.sequence, s.token, s.head, p.q_length};
}
constexpr FlashTokens flash_contiguous_tokens(const FlashAttentionProblem& p, const TokenStrides& s) {
  if (p.kv_starts != nullptr) return {1, s.sequence, s.token, s.head, p.total_kv};
  return {p.batch, s.sequence, s.token, s.head, p.kv_length};
}
constexpr FlashTokens flash_k_tokens(const FlashAttentionProblem& p) {
  const PagedKeyStrides& s = p.k_page_strides;
  if (p.spec.paged()) return {p.num_pages, s.page, s.token, s.head, p.block_size};
  return flash_contiguous_tokens(p, p.k_strides);
}
constexpr FlashTokens flash_v_tokens(const FlashAttentionProblem& p) {
  const PagedValueStrides& s = p.v_page_strides;
  if (p.spec.paged()) return {p.num_pages, s.page, s.token, s.head, p.block_size};
  return flash_contiguous_tokens(p, p.v_strides);
}

/// Returns the number of keys that one box holds: keys that lie together in a page and in a tile.
constexpr std::int32_t flash_box_rows(const FlashAttentionPolicy& policy, const FlashAttentionProblem& p) {
  return p.spec.paged() ? std::gcd(p.block_size, policy.keys) : policy.keys;
}

/// Returns whether a row may see more keys than sums of fp8 are right for: 2^20, where values of one sign lose 4.4 %.
constexpr bool flash_tensor_loses_keys(const FlashAttentionProblem& p) {
  constexpr double most = 1 << 20;
  const bool windowed = p.window_left >= 0 && (p.causal || p.window_right >= 0);
  const double seen = windowed ? 1.0 + p.window_left + max_of(p.causal ? 0 : p.window_right, 0) : most + 1.0;
  return is_fp8(p.spec.kv) && min_of(flash_attention_keys(p), seen) > most;
}

/// Returns ok if path tensor takes the problem: strides of rows, sizes of boxes and extents that tensor maps can
/// express.
inline Status flash_tensor_takes(const FlashAttentionPolicy& policy, const FlashAttentionProblem& p) {
  if (!(p.softmax_scale > 0.0f)) return {StatusCode::bad_value, "tensor: softmax_scale must be positive"};
  const FlashTokens q = flash_q_tokens(p), k = flash_k_tokens(p), v = flash_v_tokens(p);
  for (const FlashTokens* tokens : {&q, &k, &v})
    if (Status s = tokens->check(); !s.ok()) return s;
  if (p.spec.paged()) {
    if (flash_box_rows(policy, p) % 8 != 0)
      return {StatusCode::unsupported_block_size, "tensor: block_size must be a multiple of 8"};
    if (p.k_page_strides.unit != p.spec.unit())
      return {StatusCode::bad_stride, "tensor: dimensions of K must be contiguous"};
    if (k.step_rows() % 8 != 0 || v.step_rows() % 8 != 0)
      return {StatusCode::bad_stride, "tensor: pages must be a multiple of eight tokens apart"};
  }
  if (flash_tensor_loses_keys(p)) return {StatusCode::bad_extent, "tensor: sums of fp8 are of at most 2^20 keys"};
  // The kernel has one number of rows between sequences, for K and V.
  const bool alike = p.spec.paged() || k.step_rows() == v.step_rows();
  const std::int32_t heads = flash_row_heads(policy, p);
  const std::int64_t items = std::int64_t{p.batch} * (p.q_heads / heads) * ceil_div(p.q_length, policy.rows / heads);
  if (!q.fits() || !k.fits() || !v.fits() || !alike || items > most_flash_rows)
    return {StatusCode::bad_extent, "tensor: no rows, or 2^31 of them"};
  return {};
}

/// Returns the sections of the work. If all items are alike, a section is the pairs of one kv head. Else it has as many
/// pairs as give every block an even number of items, since blocks take the sorted items of a section forwards and
/// backwards in turn. If K and V of such a section exceed the last-level cache by more than a quarter, sections of
/// nearly one size fill four fifths of the cache.
template <FlashAttentionPolicy P>
FlashAttentionSections flash_sections(const FlashAttentionProblem& p, std::int32_t blocks, std::int32_t splits,
                                      const ArchFacts& facts) {
  const std::int64_t keys =
      max_of<std::int64_t>(1, p.spec.paged() ? std::int64_t{p.table_columns} * p.block_size : p.kv_length);
  const std::int64_t bytes = keys * (p.spec.head_size + p.spec.value_size) * size_of(p.spec.kv);
  const std::int32_t row_heads = flash_row_heads(P, p), tile_queries = P.rows / row_heads;
  const std::int32_t heads = p.q_heads / row_heads, sharing = heads / p.kv_heads, all = p.batch * heads,
                     tiles = ceil_div(p.q_length, tile_queries * P.cluster);
  const std::int64_t kv_heads_in_l2 = max_of<std::int64_t>(1, facts.last_level_cache_bytes * 4 / 5 / bytes);
  const auto heads_in_l2 = static_cast<std::int32_t>(min_of<std::int64_t>(heads, kv_heads_in_l2 * sharing));
  const bool alike = !p.causal && p.window_left < 0 && p.window_right < 0;
  std::int32_t pairs = alike ? sharing : min_of(all, 2 * blocks / std::gcd(tiles, 2 * blocks));
  if (ceil_div(pairs, sharing) * bytes > facts.last_level_cache_bytes * 5 / 4) {
    const std::int64_t most = facts.last_level_cache_bytes * 4 / 5 / bytes * sharing;
    pairs = ceil_div(
        all, ceil_div(all, static_cast<std::int32_t>(min_of<std::int64_t>(max_of<std::int64_t>(most, sharing), all))));
  }
  return {FastDiv::by(pairs),
          FastDiv::by(pairs * tiles),
          all,
          all * tiles * splits,
          FastDiv::by(heads),
          tiles,
          {FastDiv::by(row_heads)},
          tile_queries,
          heads_in_l2,
          FastDiv::by(splits)};
}

/// Lets a kernel write partials of splits to the workspace. Returns the arguments of what combines them.
template <class Args>
FlashAttentionCombineArgs flash_split_args(const FlashAttentionProblem& p, std::int32_t splits, Args& args) {
  const std::int64_t tokens = p.q_tokens(), rows = tokens * p.q_heads;
  args.partials = static_cast<float*>(p.workspace);
  args.partial_stride = rows * p.spec.value_size, args.partial_lse_stride = rows;
  args.attention.lse = args.partials + splits * args.partial_stride;
  args.attention.lse_head_stride = tokens;
  args.attention.sinks = nullptr;
  return {.partials = args.partials,
          .partial_lse = args.attention.lse,
          .partial_stride = args.partial_stride,
          .partial_lse_stride = rows,
          .q_tokens = tokens,
          .out = p.out,
          .lse = p.lse,
          .sinks = p.sinks,
          .q_starts = p.q_starts,
          .out_strides = p.out_strides,
          .lse_head_stride = p.lse_head_stride,
          .heads = FastDiv::by(p.q_heads),
          .q_length = FastDiv::by(p.q_length),
          .rows = static_cast<std::int32_t>(rows),
          .batch = p.batch,
          .splits = splits};
}

/// Makes the arguments of a kernel, tensor maps among them.
template <class Kernel, FlashAttentionSpec S, FlashAttentionPolicy P>
Status flash_tensor_args(const FlashAttentionProblem& p, std::int32_t splits, typename Kernel::Args& args) {
  using B = typename Kernel::Room;
  args.attention = flash_attention_args(p);
  constexpr std::int32_t clusters = B::facts.compute_units * P.waves_per_simd / P.cluster;
  args.sections = flash_sections<P>(p, clusters, splits, B::facts);
  args.blocks = min_of(args.sections.all_items, clusters) * P.cluster;
  args.box_rows = flash_box_rows(P, p) / P.cluster;
  const auto map = [&](const void* data, DType type, int columns, const FlashTokens& tokens, std::int32_t heads,
                       int box_rows, typename B::TensorMap& to, int side_by_side = 0) {
    const std::int64_t row_stride = tokens.token * size_of(type), head_stride = tokens.head * size_of(type);
    return B::make_tensor_map({.data = data,
                               .type = type,
                               .columns = columns,
                               .rows = tokens.rows(),
                               .layers = heads,
                               .row_stride = row_stride,
                               .layer_stride = heads > 1 ? head_stride : row_stride,
                               .box_rows = box_rows,
                               .side_by_side = side_by_side},
                              to);
  };
  const FlashTokens q = flash_q_tokens(p), k = flash_k_tokens(p), v = flash_v_tokens(p);
  args.q_sequence_rows = static_cast<std::int32_t>(q.step_rows());
  if constexpr (S.storage == KvStorage::paged) {
    args.k_page_rows = static_cast<std::int32_t>(k.step_rows());
    args.v_page_rows = static_cast<std::int32_t>(v.step_rows());
  } else {
    args.kv_sequence_rows = static_cast<std::int32_t>(k.step_rows());
  }
  const std::int32_t heads = args.sections.row_heads.divisor, queries = args.sections.tile_queries;
  args.q_bytes = heads * queries * flash_box_bytes(S, S.head_size);
  // Rows of tiles are queries of a head, or heads of queries.
  const auto rows_map = [&](const void* data, DType type, int columns, const FlashTokens& tokens, int box_rows,
                            typename B::TensorMap& to) {
    if (heads == 1) return map(data, type, columns, tokens, p.q_heads, box_rows, to);
    return B::make_tensor_map({data, type, columns, p.q_heads, tokens.rows(), tokens.head * size_of(type),
                               tokens.token * size_of(type), heads, box_rows / heads},
                              to);
  };
  if (Status s = rows_map(p.q, S.q, S.head_size, q, heads * queries, args.q); !s.ok()) return s;
  const FlashTokens out = flash_out_tokens(p);
  args.out_sequence_rows = static_cast<std::int32_t>(out.step_rows());
  args.out_boxes =
      16 % heads == 0 && out.check().ok() && out.fits() && rows_map(p.out, S.out, S.value_size, out, 16, args.out).ok();
  const int k_boxes = Kernel::L::side_by_side ? Kernel::L::head_boxes : 0,
            v_boxes = Kernel::L::side_by_side ? Kernel::L::value_boxes : 0;
  if (Status s = map(p.k, S.kv, S.head_size, k, p.kv_heads, args.box_rows, args.k, k_boxes); !s.ok()) return s;
  if (Status s = map(p.v, S.kv, S.value_size, v, p.kv_heads, args.box_rows, args.v, v_boxes); !s.ok()) return s;
  return {};
}

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
Status flash_launch_tensor(const FlashAttentionProblem& p, hipStream_t stream) {
  if constexpr (P.splits_keys()) {
    const std::int32_t splits = p.workspace != nullptr ? flash_attention_splits_sm90(p, P) : 1;
    if (splits > 1) {
      const std::size_t needed = flash_attention_splits_size(p, splits);
      if (Status s = check_workspace(p.workspace, p.workspace_bytes, needed); !s.ok()) return s;
      using Kernel = FlashAttentionTensor<B, S, P, true>;
      using Combine = FlashAttentionCombine<B, S>;
      typename Kernel::Args args{};
      if (Status s = flash_tensor_args<Kernel, S, P>(p, splits, args); !s.ok()) return s;
      const FlashAttentionCombineArgs combine = flash_split_args(p, splits, args);
      if (Status s = B::template launch<Kernel>({args.blocks, Kernel::block_threads}, args, stream); !s.ok()) return s;
      return B::template launch<Combine>({ceil_div(combine.rows, Combine::block_rows), Combine::block_threads}, combine,
                                         stream);
    }
  }
  using Kernel = FlashAttentionTensor<B, S, P>;
  typename Kernel::Args args{};
  if (Status s = flash_tensor_args<Kernel, S, P>(p, 1, args); !s.ok()) return s;
  return B::template launch<Kernel>({args.blocks, Kernel::block_threads, P.cluster}, args, stream);
}

}  // namespace tilewave::detail
