// SPDX-License-Identifier: MIT
// The launch of path tensor (sm90) says which problems the kernel takes, makes its tensor maps and its sections of
// work, and queues it.
#pragma once

#include <numeric>

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/flash_attention/kernel.hpp"

namespace tilewave::detail {

/// The rows of a tensor of tokens in its tensor map. Rows lie one token stride apart, and layers are heads. `steps`
/// sequences or pages are `step` elements apart, which are `step_rows` rows.
struct FlashRows {
  std::int64_t step_rows, rows;

  /// Returns ok if sequences or pages are a whole number of rows apart.
  static constexpr Status check(std::int64_t steps, std::int64_t step, std::int64_t token, std::int64_t head) {
    if (token <= 0 || head < 0 || (steps > 1 && (step < 0 || step % token != 0)))
      return {StatusCode::bad_stride, "tensor: sequences or pages must be a whole number of tokens apart"};
    return {};
  }
  static constexpr FlashRows of(std::int64_t steps, std::int64_t step, std::int64_t token, std::int64_t length) {
    const std::int64_t step_rows = steps > 1 ? step / token : 0;
    return {step_rows, (steps - 1) * step_rows + length};
  }
};

/// Returns the number of keys that one box holds: keys that lie together in a page and in a tile.
constexpr std::int32_t flash_box_rows(const FlashAttentionPolicy& policy, const FlashAttentionProblem& p) {
  return p.spec.paged() ? std::gcd(p.block_size, policy.keys) : policy.keys;
}

/// Returns ok if path tensor takes the problem: strides of rows, sizes of boxes and extents that tensor maps can
/// express.
inline Status flash_tensor_takes(const FlashAttentionPolicy& policy, const FlashAttentionProblem& p) {
  if (!(p.softmax_scale > 0.0f)) return {StatusCode::bad_value, "tensor: softmax_scale must be positive"};
  const std::int64_t queries = p.q_starts != nullptr ? 1 : p.batch, length = p.q_starts ? p.total_q : p.q_length;
  if (Status s = FlashRows::check(queries, p.q_strides.sequence, p.q_strides.token, p.q_strides.head); !s.ok())
    return s;
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 65536;
  const auto fits = [&](FlashRows r) { return r.rows <= most && r.rows > 0; };
  bool all = fits(FlashRows::of(queries, p.q_strides.sequence, p.q_strides.token, length));
  if (p.spec.paged()) {
    if (flash_box_rows(policy, p) % 8 != 0)
      return {StatusCode::unsupported_block_size, "tensor: block_size must be a multiple of 8"};
    const PagedKeyStrides& k = p.k_page_strides;
    const PagedValueStrides& v = p.v_page_strides;
    if (k.unit != p.spec.unit()) return {StatusCode::bad_stride, "tensor: dimensions of K must be contiguous"};
    if (Status s = FlashRows::check(p.num_pages, k.page, k.token, k.head); !s.ok()) return s;
    if (Status s = FlashRows::check(p.num_pages, v.page, v.token, v.head); !s.ok()) return s;
    all = all && fits(FlashRows::of(p.num_pages, k.page, k.token, p.block_size)) &&
          fits(FlashRows::of(p.num_pages, v.page, v.token, p.block_size));
  } else {
    const std::int64_t steps = p.kv_starts != nullptr ? 1 : p.batch, keys = p.kv_starts ? p.total_kv : p.kv_length;
    const TokenStrides &k = p.k_strides, &v = p.v_strides;
    if (Status s = FlashRows::check(steps, k.sequence, k.token, k.head); !s.ok()) return s;
    if (Status s = FlashRows::check(steps, v.sequence, v.token, v.head); !s.ok()) return s;
    all = all && fits(FlashRows::of(steps, k.sequence, k.token, keys)) &&
          fits(FlashRows::of(steps, v.sequence, v.token, keys)) &&
          (steps == 1 || k.sequence / k.token == v.sequence / v.token);
  }
  const std::int64_t items = std::int64_t{p.batch} * p.q_heads * ceil_div(p.q_length, policy.rows);
  if (!all || items > most) return {StatusCode::bad_extent, "tensor: no rows, or 2^31 of them"};
  return {};
}

/// Returns the sections of the work. If all items are alike, a section is the heads of one kv head. Else it has as many
/// pairs as give every block an even number of items, since blocks take the sorted items of a section forwards and
/// backwards in turn. If K and V of such a section exceed the last-level cache by more than a quarter, sections of
/// nearly one size fill four fifths of the cache.
template <FlashAttentionPolicy P>
FlashAttentionSections flash_sections(const FlashAttentionProblem& p, std::int32_t blocks, const ArchFacts& facts) {
  const std::int64_t keys =
      max_of<std::int64_t>(1, p.spec.paged() ? std::int64_t{p.table_columns} * p.block_size : p.kv_length);
  const std::int64_t bytes = keys * (p.spec.head_size + p.spec.value_size) * size_of(p.spec.kv);
  const std::int32_t gqa_ratio = p.q_heads / p.kv_heads, all = p.batch * p.q_heads,
                     tiles = ceil_div(p.q_length, P.rows);
  const bool alike = !p.causal && p.window_left < 0 && p.window_right < 0;
  std::int32_t pairs = alike ? gqa_ratio : min_of(all, 2 * blocks / std::gcd(tiles, 2 * blocks));
  if (ceil_div(pairs, gqa_ratio) * bytes > facts.last_level_cache_bytes * 5 / 4) {
    const std::int64_t most = facts.last_level_cache_bytes * 4 / 5 / bytes * gqa_ratio;
    pairs = ceil_div(
        all,
        ceil_div(all, static_cast<std::int32_t>(min_of<std::int64_t>(max_of<std::int64_t>(most, gqa_ratio), all))));
  }
  return {FastDiv::by(pairs), FastDiv::by(pairs * tiles), all, all * tiles, FastDiv::by(p.q_heads), tiles};
}

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
Status flash_launch_tensor(const FlashAttentionProblem& p, hipStream_t stream) {
  using Kernel = FlashAttentionTensor<B, S, P>;
  typename Kernel::Args args{};
  args.attention = flash_attention_args(p);
  constexpr std::int32_t blocks = B::facts.compute_units * P.waves_per_simd;
  args.sections = flash_sections<P>(p, blocks, B::facts);
  args.blocks = min_of(args.sections.all_items, blocks);
  args.box_rows = flash_box_rows(P, p);
  const auto map = [&](const void* data, DType type, int columns, FlashRows rows, std::int64_t token,
                       std::int32_t heads, std::int64_t head, int box_rows, typename B::TensorMap& to) {
    const std::int64_t size = size_of(type), row_stride = token * size;
    return B::make_tensor_map(
        {data, type, columns, rows.rows, heads, row_stride, heads > 1 ? head * size : row_stride, box_rows}, to);
  };
  const bool packed_q = p.q_starts != nullptr, packed_kv = p.kv_starts != nullptr;
  const FlashRows q =
      FlashRows::of(packed_q ? 1 : p.batch, p.q_strides.sequence, p.q_strides.token, packed_q ? p.total_q : p.q_length);
  args.q_sequence_rows = static_cast<std::int32_t>(q.step_rows);
  if (Status s = map(p.q, S.q, S.head_size, q, p.q_strides.token, p.q_heads, p.q_strides.head, P.rows, args.q); !s.ok())
    return s;
  const auto map_kv = [&](FlashRows k, FlashRows v, std::int64_t k_token, std::int64_t k_head, std::int64_t v_token,
                          std::int64_t v_head) {
    const Status s = map(p.k, S.kv, S.head_size, k, k_token, p.kv_heads, k_head, args.box_rows, args.k);
    return s.ok() ? map(p.v, S.kv, S.value_size, v, v_token, p.kv_heads, v_head, args.box_rows, args.v) : s;
  };
  Status mapped;
  if constexpr (S.storage == KvStorage::paged) {
    const PagedKeyStrides& k = p.k_page_strides;
    const PagedValueStrides& v = p.v_page_strides;
    const FlashRows k_rows = FlashRows::of(p.num_pages, k.page, k.token, p.block_size);
    const FlashRows v_rows = FlashRows::of(p.num_pages, v.page, v.token, p.block_size);
    args.k_page_rows = static_cast<std::int32_t>(k_rows.step_rows);
    args.v_page_rows = static_cast<std::int32_t>(v_rows.step_rows);
    mapped = map_kv(k_rows, v_rows, k.token, k.head, v.token, v.head);
  } else {
    const std::int64_t steps = packed_kv ? 1 : p.batch, keys = packed_kv ? p.total_kv : p.kv_length;
    const FlashRows k_rows = FlashRows::of(steps, p.k_strides.sequence, p.k_strides.token, keys);
    const FlashRows v_rows = FlashRows::of(steps, p.v_strides.sequence, p.v_strides.token, keys);
    args.kv_sequence_rows = static_cast<std::int32_t>(k_rows.step_rows);
    mapped = map_kv(k_rows, v_rows, p.k_strides.token, p.k_strides.head, p.v_strides.token, p.v_strides.head);
  }
  if (!mapped.ok()) return mapped;
  return B::template launch<Kernel>({args.blocks, Kernel::block_threads}, args, stream);
}

}  // namespace tilewave::detail
