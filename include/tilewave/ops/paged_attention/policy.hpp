// SPDX-License-Identifier: MIT
// How paged-attention decode is computed. A policy changes the speed, and the answer only in the order of summation.
#pragma once

#include <string>

#include "tilewave/arch/atom.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/attention/value_tiles.hpp"
#include "tilewave/ops/paged_attention/spec.hpp"

namespace tilewave {

/// The waves of a block that compute, rows * tokens of them: `rows` waves have different query rows of the same tokens,
/// and `tokens` waves have different tokens of the same rows.
struct PagedAttentionWaves {
  int rows = 1;
  int tokens = 4;
  friend constexpr bool operator==(const PagedAttentionWaves&, const PagedAttentionWaves&) = default;
};

/// The ring that keeps loads of KV in flight. In registers, a wave's tile of K, then of V, is cut along head_size into
/// `slices` equal parts, of which `stages` are in flight. So stages == 2 * slices is one whole tile ahead. In shared
/// memory, `stages` of `stage_tokens` of K and V are in flight, and `waves` of their own keep them full
/// (bulk/decode.hpp).
struct PagedAttentionPrefetch {
  int slices = 1;
  int stages = 2;
  int stage_tokens = 0;  // 0: the ring is in registers
  int waves = 0;
  friend constexpr bool operator==(const PagedAttentionPrefetch&, const PagedAttentionPrefetch&) = default;
};

/// Which block works on what. even: every sequence is cut into the same number of equal parts, a block for each.
/// balanced: persistent blocks share all tiles of the batch evenly, whatever the lengths (work_queue.hpp). A second
/// launch then adds up rows that several blocks had.
enum class PagedAttentionSchedule : int { even, balanced };

struct PagedAttentionPolicy {
  int row_tiles = 1;  // tiles of query rows that a wave holds, of 16 rows; bulk: that a wave group holds, of 8
  PagedAttentionWaves waves{};
  PagedAttentionPrefetch prefetch{};
  bool q_shared = false;  // fragments of Q are kept in LDS instead of registers
  PagedAttentionSchedule schedule = PagedAttentionSchedule::even;
  int waves_per_simd =
      2;  // the occupancy that is claimed; it sets the budget of registers, and compiled code is checked

  friend constexpr bool operator==(const PagedAttentionPolicy&, const PagedAttentionPolicy&) = default;

  /// Returns whether K and V go through shared memory by bulk copies, as against straight to registers.
  TILEWAVE_HOST_DEVICE constexpr bool bulk() const { return prefetch.stage_tokens > 0; }
  TILEWAVE_HOST_DEVICE constexpr bool balanced() const { return schedule == PagedAttentionSchedule::balanced; }
  /// Wave groups of a bulk entry, of four waves each, which take stages by turns (bulk/decode.hpp).
  TILEWAVE_HOST_DEVICE constexpr int wave_groups() const { return waves_per_block() / 4; }
  /// Waves that compute.
  TILEWAVE_HOST_DEVICE constexpr int waves_per_block() const { return waves.rows * waves.tokens; }
  /// All waves of a block, those that fetch included.
  TILEWAVE_HOST_DEVICE constexpr int block_waves() const { return waves_per_block() + prefetch.waves; }
  /// Blocks that a CU (SM) holds at a time.
  TILEWAVE_HOST_DEVICE constexpr int blocks_per_cu(const ArchFacts& facts) const {
    return max_of(1, facts.simds_per_cu * waves_per_simd / block_waves());
  }
  /// Query rows that a block holds.
  TILEWAVE_HOST_DEVICE constexpr int block_rows() const { return (bulk() ? 8 : 16) * row_tiles * waves.rows; }
  /// Tokens that a block advances by, which is also what a schedule deals out. In bulk it is a stage. Straight to
  /// registers each wave takes four 16-byte units of V, one for each lane group.
  TILEWAVE_HOST_DEVICE constexpr int block_tokens(const PagedAttentionSpec& s) const {
    return bulk() ? prefetch.stage_tokens : waves.tokens * AtomFacts::groups * s.unit();
  }
};

/// `t256.r1.w1x4.p1x2`: tokens of a block, row tiles, waves rows x tokens, and prefetch slices x stages. A bulk policy
/// has `.b64x3` instead, stages of 64 tokens. `.q` follows if Q is in LDS, and `.balanced`.
inline std::string name_of(const PagedAttentionPolicy& p, const PagedAttentionSpec& s) {
  return "t" + std::to_string(p.block_tokens(s)) + ".r" + std::to_string(p.row_tiles) + ".w" +
         std::to_string(p.waves.rows) + "x" + std::to_string(p.waves.tokens) + (p.bulk() ? ".b" : ".p") +
         std::to_string(p.bulk() ? p.prefetch.stage_tokens : p.prefetch.slices) + "x" +
         std::to_string(p.prefetch.stages) + (p.q_shared ? ".q" : "") + (p.balanced() ? ".balanced" : "");
}

namespace detail {

/// The laws of bulk policies, which have wave groups and products of 64 tokens. See bulk/decode.hpp.
constexpr Status bulk_policy_status(ArchId arch, const PagedAttentionSpec& s, const PagedAttentionPolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  const auto power_of_two = [](int n) { return n > 0 && (n & (n - 1)) == 0; };
  const PagedAttentionPrefetch& ring = p.prefetch;
  const int groups = p.wave_groups();
  if (!per_arch(arch, false, false, true)) return {bad, "bulk: wave groups and the copy engine are sm90's"};
  if (s.native) {
    if (const Status status = paged_attention_check_native(s); !status.ok()) return status;
  }
  if (s.values != ValueLayout::dim_major && (size_of(s.kv) != 2 || s.any_block_size))
    return {bad, "bulk: values of the token_major layout have 16 bits, in pages of whole 16 tokens"};
  if (s.head_size % 64 != 0 || !power_of_two(s.head_size))
    return {bad, "bulk: head_size is 64, 128 or 256, as dimensions are dealt out 64 to a product"};
  if (p.waves.rows != 1) return {bad, "bulk: all waves have the same query rows: waves.rows is 1"};
  if (groups < 1 || p.waves.tokens != 4 * groups) return {bad, "bulk: waves.tokens is 4 for each wave group"};
  if (groups > 2) return {bad, "bulk: a block has one wave group or two"};
  if (groups == 2 && s.head_size > 128) return {bad, "bulk: two wave groups finish one tile of outputs each, of 64"};
  if (groups == 2 && p.balanced()) return {bad, "bulk: the balanced schedule is for one wave group"};
  if (ring.waves < 1) return {bad, "bulk: at least one wave of prefetch.waves fetches"};
  if (4 * groups + ring.waves > 4 * p.waves_per_simd)
    return {bad, "bulk: waves_per_simd leaves room for fewer waves than the block has"};
  if (!power_of_two(p.row_tiles) || p.row_tiles > 8)
    return {bad, "bulk: row_tiles is 1, 2, 4 or 8: products have 8 to 64 columns of query rows"};
  if (ring.slices != 1) return {bad, "bulk: stages are whole: prefetch.slices is 1"};
  if (ring.stages < 1 || ring.stages % groups != 0)
    return {bad, "bulk: wave groups take stages by turns: prefetch.stages is a multiple of them"};
  if (!power_of_two(ring.stage_tokens) || ring.stage_tokens < 64 || ring.stage_tokens > 512)
    return {bad, "bulk: stage_tokens is 64, 128, 256 or 512: one lane for each page of 16 tokens"};
  // Bytes that the blocks of a cluster send each other, PagedAttentionBulkLayout::Received, against those of the ring.
  if (p.row_tiles * (2048 + 512 * max_of(8, s.head_size / 16)) >
      ring.stages * 2 * ring.stage_tokens * s.head_size * size_of(s.kv))
    return {bad, "bulk: what blocks of a cluster send each other must fit into the ring: more stages, fewer rows"};
  return {};
}

/// The laws of policies straight to registers.
constexpr Status register_policy_status(ArchId arch, const PagedAttentionSpec& s, const PagedAttentionPolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  const AtomFacts& atom = atom_of(arch);
  if (s.native) return {bad, "native products of fp8 are for bulk policies"};
  if (p.row_tiles < 1) return {bad, "row_tiles must be positive"};
  if (p.prefetch.waves != 0) return {bad, "waves that fetch are for bulk policies: prefetch.waves is 0"};
  if (p.waves.rows < 1) return {bad, "waves.rows must be positive"};
  if (p.waves.tokens < 1 || p.waves.tokens > 8 || (p.waves.tokens & (p.waves.tokens - 1)) != 0)
    return {bad, "waves.tokens is 1, 2, 4 or 8: their partials are merged in pairs"};
  if (s.head_size % 16 != 0) return {bad, "head_size is a multiple of 16, the width of an atom"};
  if (p.prefetch.slices < 1) return {bad, "prefetch.slices must be positive"};
  // A lane's 16-byte loads of K for a tile.
  const int k_chunks = ceil_div(s.head_size, AtomFacts::groups * s.unit()) * (s.unit() / atom.kv_per_lane);
  if (k_chunks % p.prefetch.slices != 0) return {bad, "prefetch.slices does not divide a lane's loads of K for a tile"};
  const ValueTiles values = value_tiles(atom, s.value_shape());
  if (values.count / values.width % p.prefetch.slices != 0)
    return {bad, "prefetch.slices does not divide the tiles of V, see value_tiles"};
  if (p.prefetch.stages < 1) return {bad, "prefetch.stages must be positive"};
  const int per_tile = 2 * p.prefetch.slices;
  if (per_tile % p.prefetch.stages != 0 && p.prefetch.stages % per_tile != 0)
    return {bad, "prefetch.stages divides the slices of a tile of K and V, or is a multiple of them"};
  return {};
}

}  // namespace detail

/// Returns whether an architecture can have a kernel for a policy of a spec. If not, the status says which law the
/// policy breaks. Kernels assert it, tests hold all lists against it, and tuners ask it. A bulk kernel asserts besides
/// that shared memory holds as many blocks as waves_per_simd claims.
constexpr Status paged_attention_policy_status(ArchId arch, const PagedAttentionSpec& s,
                                               const PagedAttentionPolicy& p) {
  if (p.waves_per_simd < 1) return {StatusCode::bad_value, "waves_per_simd must be positive"};
  const PagedAttentionPrefetch& ring = p.prefetch;
  for (const int number : {p.row_tiles, p.waves.rows, p.waves.tokens, ring.slices, ring.stages, ring.stage_tokens,
                           ring.waves, p.waves_per_simd})  // so products do not wrap
    if (number > 1024) return {StatusCode::bad_value, "the numbers of a policy go up to 1024"};
  return p.bulk() ? detail::bulk_policy_status(arch, s, p) : detail::register_policy_status(arch, s, p);
}

}  // namespace tilewave
