// SPDX-License-Identifier: MIT
// The policies that entries of a spec are built for: one list for dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/attention/value_tiles.hpp"
#include "tilewave/core/value_list.hpp"
#include "tilewave/ops/paged_attention/check.hpp"
#include "tilewave/ops/paged_attention/policy.hpp"

namespace tilewave {

/// Policies of a spec, in the order that paged_attention_policies documents.
using PagedAttentionPolicies = ValueList<PagedAttentionPolicy, 11>;

namespace detail {

/// Policies straight to registers, by rising number of query rows that a block holds: 16, 32, 64. Where bulk entries
/// serve most problems there is only the one of 16. Two waves on a SIMD leave a lane 256 registers (255 on sm90) for
/// outputs, Q and the ring of KV; three leave 168, and four 128.
constexpr PagedAttentionPolicies register_policies(ArchId arch, const PagedAttentionSpec& s, bool bulk) {
  const bool wide = s.head_size == 256, narrow = s.head_size == 64, fp8 = is_fp8(s.kv);
  // This is not const. g++ 12 keeps the const of a copied member in the identity of a template argument, and then the
  // kernel that nvcc registered is not the one that is launched.
  PagedAttentionPrefetch one_tile = narrow ? PagedAttentionPrefetch{1, 2} : PagedAttentionPrefetch{2, 4};
  PagedAttentionPolicies policies;
  if (facts_of(arch).matrix == Matrix::mma) {
    // A wave has half the lanes of one of gfx9, so its 16 rows take twice the registers. Hence Q lives in shared
    // memory. A tile of fp8 is 64 tokens of scores, so fp8 keeps only half a tile in flight.
    PagedAttentionPrefetch prefetch = wide             ? PagedAttentionPrefetch{4, fp8 ? 1 : 2}
                                      : narrow || !fp8 ? one_tile
                                                       : PagedAttentionPrefetch{2, 2};
    policies.add({.row_tiles = 1, .waves = {1, 4}, .prefetch = prefetch, .q_shared = true});
    if (bulk) return policies;
    policies.add({.row_tiles = 1, .waves = {2, 2}, .prefetch = prefetch, .q_shared = true});
    policies.add({.row_tiles = 1, .waves = {4, 1}, .prefetch = prefetch, .q_shared = true});
    return policies;
  }
  if (wide) {
    policies.add({.row_tiles = 1, .waves = {1, 4}, .prefetch = {2, 2}});
    policies.add({.row_tiles = 1, .waves = {2, 2}, .prefetch = {2, 2}});
    policies.add({.row_tiles = 1, .waves = {4, 1}, .prefetch = {2, 2}});
    return policies;
  }
  // One more wave has more bytes in flight than a second tile for each wave. 16 rows in 16 bits leave registers for it.
  PagedAttentionPrefetch one_row_tile = !fp8                            ? PagedAttentionPrefetch{1, 2}
                                        : s.quant == Scaling::per_token ? one_tile
                                                                        : PagedAttentionPrefetch{1, 4};
  const int waves = narrow ? 3 : 2, of_two_tiles = s.quant == Scaling::per_token ? 2 : waves;
  policies.add({.row_tiles = 1, .waves = {1, 4}, .prefetch = one_row_tile, .waves_per_simd = fp8 ? waves : waves + 1});
  for (const int rows : {1, 2}) {
    policies.add({.row_tiles = 2,
                  .waves = {rows, 4 / rows},
                  .prefetch = one_tile,
                  .q_shared = fp8,
                  .waves_per_simd = of_two_tiles});
  }
  return policies;
}

/// How many blocks of a bulk entry an SM holds, and how many wave groups each block has.
struct BulkBlocks {
  int per_sm = 2, groups = 1;
};

/// A bulk policy of 8, 16 or 32 query rows. There are three kinds:
/// - two blocks on an SM, each with 96 KiB of KV on its way;
/// - one block of two wave groups with twice that, for problems that have fewer than two blocks for each SM;
/// - three blocks with 64 KiB each, for problems whose blocks do little, or would leave a second round of two half
/// empty.
constexpr PagedAttentionPolicy bulk_policy(const PagedAttentionSpec& s, int rows, BulkBlocks blocks = {}) {
  // Stages have 32 or 16 KiB, but at least 64 tokens, and fewer tokens for the registers and probabilities of 32 rows.
  // Native products need fewer registers, but with 32 rows a stage takes so long that the ring should have six.
  const bool three = blocks.per_sm == 3, half = three || (s.native && rows == 32);
  const int bytes_per_token = 2 * s.head_size * size_of(s.kv);
  const int most_tokens = rows == 8 ? 256 : (s.native ? 4096 : 2048) / rows;
  const int stage_tokens = max_of(64, min_of((half ? 16 : 32) * 1024 / bytes_per_token, most_tokens));
  const int ring = blocks.groups * (three ? 64 : 96) * 1024;
  // Scales of tokens may leave room for one stage less. The driver keeps 1 KiB of a block's part of 228 KiB. For each
  // query row there are Q, two stages' probabilities and what waves publish to each other, and for each stage its
  // barriers.
  const bool per_token = s.quant == Scaling::per_token;
  const int row_bytes = (s.head_size + 2 * stage_tokens) * (s.native ? 1 : 2) + 20;
  const int room = 228 * 1024 / blocks.per_sm - 1024 - 32 - blocks.groups * rows * row_bytes;
  const int stage_bytes = stage_tokens * (bytes_per_token + (per_token ? 8 : 0)) + (per_token ? 16 : 48);
  const int stages = min_of(ring / (stage_tokens * bytes_per_token), align_down(room / stage_bytes, blocks.groups));
  // As many waves fetch as there are registers for, because small pages need many copies.
  PagedAttentionPrefetch prefetch{
      .slices = 1, .stages = stages, .stage_tokens = stage_tokens, .waves = three ? 1 : 2 * blocks.groups};
  return {
      .row_tiles = rows / 8, .waves = {1, 4 * blocks.groups}, .prefetch = prefetch, .waves_per_simd = three ? 4 : 3};
}

constexpr PagedAttentionPolicy balanced(PagedAttentionPolicy policy) {
  policy.schedule = PagedAttentionSchedule::balanced;
  return policy;
}

}  // namespace detail

/// The policy straight to registers of specs for which none was tuned: 16 query rows a block. A tile of K, then of V,
/// is in flight, or as much of it as the outputs of wide heads leave registers for.
constexpr PagedAttentionPolicy paged_attention_other_policy(ArchId arch, const PagedAttentionSpec& s) {
  const bool sm90 = facts_of(arch).matrix == Matrix::mma;
  const int tiles = value_tiles(atom_of(arch), s.value_shape()).count;
  const bool wide = tiles > (sm90 ? 16 : 12);
  PagedAttentionPrefetch prefetch{.slices = !wide ? 1 : sm90 ? tiles / 8 : 2, .stages = 2};
  if (sm90 && is_fp8(s.kv) && s.head_size > 64) {
    prefetch.stages = 1;
    if (s.any_block_size && !wide) prefetch.slices = 2;  // a lane keeps 8 addresses of K tokens for a tile
  }
  return {.row_tiles = 1, .waves = {1, 4}, .prefetch = prefetch, .q_shared = sm90};
}

/// Returns whether a spec has bulk entries: ok, or no_matching_entry with the reason.
constexpr Status paged_attention_has_bulk(ArchId arch, const PagedAttentionSpec& s) {
  constexpr StatusCode none = StatusCode::no_matching_entry;
  if (!facts_of(arch).wave_groups || !facts_of(arch).tensor_copies)
    return {none, "bulk entries need bulk copies and wave groups, which only sm90 has"};
  if (s.values != ValueLayout::dim_major && (size_of(s.kv) != 2 || s.any_block_size))
    return {none, "bulk entries for token_major values are for 16 bits and pages of whole 16 tokens"};
  if (s.head_size != 64 && s.head_size != 128) return {none, "there are bulk entries for head_size 64 and 128 alone"};
  return {};
}

/// The policies of a spec. First come those straight to registers, by rising query rows. Then comes the smallest of
/// them with the balanced schedule, or the bulk ones. A spec with native products has bulk policies only, so it has
/// none on other architectures. A head size or layout for which nothing was tuned has one policy, and the same one
/// balanced.
constexpr PagedAttentionPolicies paged_attention_policies(ArchId arch, const PagedAttentionSpec& s) {
  const bool bulk = paged_attention_has_bulk(arch, s).ok();
  if (s.native && !(bulk && paged_attention_check_native(s).ok())) return {};
  PagedAttentionPolicies policies;
  const bool tuned = s.head_size == 64 || s.head_size == 128 || s.head_size == 256;
  if (s.values != ValueLayout::dim_major || !tuned) {
    policies.add(paged_attention_other_policy(arch, s));
    policies.add(detail::balanced(policies[0]));
    if (!bulk) return policies;
    for (const int rows : {8, 16}) {
      policies.add(detail::bulk_policy(s, rows));
      policies.add(detail::balanced(detail::bulk_policy(s, rows)));
    }
    policies.add(detail::bulk_policy(s, 8, {.per_sm = 3}));  // leaves room for the next kernel of a chain
    return policies;
  }
  if (!s.native) policies = detail::register_policies(arch, s, bulk);
  if (!bulk) {
    policies.add(detail::balanced(policies[0]));
    return policies;
  }
  for (const int rows : {8, 16, 32}) policies.add(detail::bulk_policy(s, rows));
  for (const int rows : {8, 16, 32}) {
    policies.add(detail::balanced(detail::bulk_policy(s, rows)));
    if (rows == 32) continue;
    policies.add(detail::bulk_policy(s, rows, {.per_sm = 1, .groups = 2}));
    policies.add(detail::bulk_policy(s, rows, {.per_sm = 3}));
  }
  return policies;
}

}  // namespace tilewave
