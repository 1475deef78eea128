// SPDX-License-Identifier: MIT
// What the two kernels receive: a Problem with its divisions prepared and its workspace laid out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>

#include "tilewave/attention/reach.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/paged_attention/policy.hpp"
#include "tilewave/ops/paged_attention/problem.hpp"

namespace tilewave {

/// Most splits of one sequence's context.
inline constexpr int max_splits = 128;
/// Most splits that a staged entry takes: the blocks of a cluster, which merge through shared memory.
inline constexpr int max_staged_splits = 8;
/// Lanes of a block that combines the parts of a balanced launch.
inline constexpr int paged_attention_combine_threads = 256;
/// Waves of a block that combines the splits of rows, a row each.
inline constexpr int paged_attention_combine_waves_of_block = 4;
/// Most query tokens of a sequence in one call.
inline constexpr int max_mtp = 8;

/// Arguments of decode and combine. Strides in elements, as in the Problem. In the order in which a block that fetches
/// needs them: on sm90 the first read of every 64 bytes takes 135 cycles, and what finds its length is in the first 48,
/// which share such a line with the launch's own.
struct PagedAttentionArgs {
  const std::int32_t* context_lengths;
  FastDiv splits;
  FastDiv row_groups;  // blocks that share a (sequence, kv head, split) and differ in query rows
  FastDiv kv_heads;
  std::int32_t cluster;  // blocks that merge their splits through shared memory: a staged launch's splits

  const std::int32_t* block_table;
  std::int64_t table_row_stride;
  std::int32_t table_columns;
  std::int32_t capacity;      // tokens the block table can hold
  std::int32_t window;        // sliding window, or int32 max for none
  std::int32_t query_tokens;  // of a sequence, mtp
  FastDiv block_size;
  std::int32_t segment;        // of a staged launch: tokens that lie together in a page and in a stage
  std::int32_t segment_shift;  // log2
  std::int32_t segment_bytes;  // of K, V and their scales
  float stage_ns;              // in which the memory delivers a stage; 0 where blocks are not paced
  float last_stage_ns;         // of blocks in the last round

  std::int32_t last_round;     // where it begins
  FastDiv k_pieces, v_pieces;  // contiguous pieces of a segment
  FastDiv pieces;              // with those of the scales
  const void* k;
  const void* v;
  std::int32_t batch;
  std::int32_t workers;  // blocks of a balanced launch

  PagedKeyStrides k_strides;
  PagedValueStrides v_strides;

  const float* k_scale;
  const float* v_scale;
  std::int64_t scale_page_stride, scale_head_stride;
  const void* q;
  std::int64_t q_row_stride, q_head_stride;

  FastDiv group;      // query heads per kv head
  std::int32_t rows;  // mtp * group
  std::int32_t num_q_heads;
  float scale_log2;          // softmax scale * log2(e); with a soft cap softmax scale / cap
  float cap_log2;            // soft cap * log2(e)
  std::int32_t split_tiles;  // least block tiles of a split: fixed cuts of a batch-invariant call, else 0
  std::int32_t output_rows;  // batch * mtp * num_q_heads

  const float* alibi_slopes;
  const float* sinks;  // may be null
  void* out;
  float* lse;  // may be null
  std::int64_t out_row_stride, out_head_stride;
  float* partial_out;  // [batch * mtp, num_q_heads, splits, head_size], each normalised
  float* partial_lse;  // [batch * mtp, num_q_heads, splits], natural log

  const std::int32_t* stage_starts;  // of a balanced launch, in stages before each sequence; may be null
  FastDiv combine_waves;             // waves that share a row there: 1, or all of a block

  // The strides that a lane multiplies in its loop, in 16 bytes, so that 32 bits hold them: one operation a product. Of
  // V that of a token, or where dim_major of a unit; of scales in elements.
  std::int32_t k_page_step, k_token_step, v_page_step, v_token_step, scale_page_step;
};
static_assert(offsetof(PagedAttentionArgs, block_table) == 48,
              "tools relocate pointers of the arguments by this offset");

/// Byte offsets of the pointers in PagedAttentionArgs, for tools that relocate a kernel's arguments.
struct PointerField {
  const char* name;
  std::size_t offset;
};
inline constexpr std::array<PointerField, 14> paged_attention_pointers{{
    {"q", offsetof(PagedAttentionArgs, q)},
    {"k", offsetof(PagedAttentionArgs, k)},
    {"v", offsetof(PagedAttentionArgs, v)},
    {"out", offsetof(PagedAttentionArgs, out)},
    {"lse", offsetof(PagedAttentionArgs, lse)},
    {"k_scale", offsetof(PagedAttentionArgs, k_scale)},
    {"v_scale", offsetof(PagedAttentionArgs, v_scale)},
    {"sinks", offsetof(PagedAttentionArgs, sinks)},
    {"alibi_slopes", offsetof(PagedAttentionArgs, alibi_slopes)},
    {"block_table", offsetof(PagedAttentionArgs, block_table)},
    {"context_lengths", offsetof(PagedAttentionArgs, context_lengths)},
    {"stage_starts", offsetof(PagedAttentionArgs, stage_starts)},
    {"partial_out", offsetof(PagedAttentionArgs, partial_out)},
    {"partial_lse", offsetof(PagedAttentionArgs, partial_lse)},
}};

/// Block tiles of one split of a batch-invariant call, 0 for others.
constexpr std::int32_t paged_attention_split_tiles(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy) {
  return static_cast<std::int32_t>(ceil_div<std::int64_t>(p.split_tokens, policy.block_tokens(p.spec)));
}

/// Most tokens that one sequence of a problem attends, as far as capacities tell.
constexpr std::int64_t paged_attention_attended(const PagedAttentionProblem& p) {
  const std::int64_t capacity = std::int64_t{p.table_columns} * p.block_size;
  return p.sliding_window > 0 ? min_of(capacity, std::int64_t{p.sliding_window} + p.mtp) : capacity;
}

/// The splits that a batch-invariant call takes: those that the longest sequence fills, at most max_splits. Its first
/// tile may begin up to a wave's tile before the window.
constexpr int paged_attention_fixed_splits(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy) {
  const std::int64_t tokens =
      paged_attention_attended(p) + (p.sliding_window > 0 ? AtomFacts::groups * p.spec.unit() : 0);
  const std::int64_t tiles = max_of<std::int64_t>(1, ceil_div<std::int64_t>(tokens, policy.block_tokens(p.spec)));
  return static_cast<int>(
      min_of<std::int64_t>(max_splits, ceil_div<std::int64_t>(tiles, paged_attention_split_tiles(p, policy))));
}

/// Blocks that the chip holds at a time: most of a balanced launch.
constexpr std::int32_t paged_attention_workers(const PagedAttentionPolicy& policy, const ArchFacts& facts) {
  return facts.compute_units * policy.blocks_per_cu(facts);
}

/// Blocks of a launch that run at the same time, whole clusters. Those of four and more leave an eighth of an H200
/// idle: its parts hold no whole number of them.
constexpr std::int32_t paged_attention_resident(const PagedAttentionPolicy& policy, const ArchFacts& facts,
                                                int num_splits) {
  const std::int32_t all = paged_attention_workers(policy, facts);
  if (!policy.staged()) return all;
  return align_down(num_splits >= 4 ? all / 8 * 7 : all, num_splits);
}

/// Blocks of the decode launch: fixed by capacities, never by lengths.
inline std::int64_t paged_attention_grid(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                         int num_splits) {
  const std::int32_t rows = p.mtp * (p.num_q_heads / p.num_kv_heads);
  return std::int64_t{1} * p.batch * p.num_kv_heads * ceil_div(rows, policy.block_rows()) * num_splits;
}

/// Blocks of a balanced launch: those that the chip holds, but no more than there are stages in the longest batch that
/// the block table can hold. A window may begin inside a stage.
inline std::int32_t paged_attention_workers(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                            const ArchFacts& facts) {
  const std::int64_t stage = policy.block_tokens(p.spec);
  const std::int64_t capacity = std::int64_t{p.table_columns} * p.block_size;
  const std::int64_t tokens = min_of(capacity, paged_attention_attended(p) + (p.sliding_window > 0 ? stage - 1 : 0));
  const std::int64_t items = paged_attention_grid(p, policy, 1), chip = paged_attention_workers(policy, facts);
  return static_cast<std::int32_t>(max_of<std::int64_t>(1, min_of(chip, items * ceil_div(tokens, stage))));
}

/// Workspace bytes for a number of equal parts: partial outputs and their lse, nothing for one part.
constexpr std::size_t paged_attention_workspace_size(const PagedAttentionProblem& p, int num_splits) {
  if (num_splits <= 1) return 0;
  const std::size_t partials = std::size_t{1} * p.batch * p.mtp * p.num_q_heads * num_splits;
  return partials * (p.spec.head_size + 1) * sizeof(float);
}

/// Workspace bytes of an entry: partial outputs and their lse, where a second launch combines them.
inline std::size_t paged_attention_workspace_size(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                                  const ArchFacts& facts, int num_splits) {
  if (policy.balanced()) {
    const std::size_t partials = std::size_t{2} * paged_attention_workers(p, policy, facts) * policy.block_rows();
    return partials * (p.spec.head_size + 1) * sizeof(float);
  }
  return policy.staged() ? 0 : paged_attention_workspace_size(p, num_splits);
}

/// Waves that share a row in the combine of a balanced launch: with few rows there are many parts to each.
constexpr std::int32_t paged_attention_combine_waves(const PagedAttentionProblem& p, const ArchFacts& facts) {
  const std::int64_t rows = std::int64_t{1} * p.batch * p.mtp * p.num_q_heads;
  return rows <= 2 * facts.compute_units ? paged_attention_combine_threads / facts.wave_lanes : 1;
}

/// How a staged launch copies KV: segments, tokens that lie together in a page and in a stage, each in pieces that are
/// contiguous in both.
struct PagedAttentionCopies {
  std::int32_t segment, k_pieces, v_pieces, scale_pieces;
  constexpr std::int32_t pieces() const { return k_pieces + v_pieces + scale_pieces; }
};
constexpr PagedAttentionCopies paged_attention_copies(const PagedAttentionProblem& p,
                                                      const PagedAttentionPolicy& policy) {
  const std::int32_t unit = p.spec.unit(), segment = std::gcd(p.block_size, policy.prefetch.stage_tokens);
  const bool whole_page = segment == p.block_size && p.k_strides.unit == std::int64_t{p.block_size} * unit;
  const bool packed_values = p.v_strides.unit == std::int64_t{p.spec.head_size} * unit;
  return {.segment = segment,
          .k_pieces = whole_page ? 1 : p.spec.head_size / unit,
          .v_pieces = packed_values ? 1 : segment / unit,
          .scale_pieces = p.spec.quant == Scaling::per_token ? 2 : 0};
}

/// What bounds the tokens that a sequence attends.
constexpr AttentionLimits paged_attention_limits(const PagedAttentionProblem& p) {
  return {p.mtp, p.table_columns * p.block_size,
          p.sliding_window > 0 ? p.sliding_window : std::numeric_limits<std::int32_t>::max()};
}

namespace detail {

/// Which blocks of a staged launch are paced (AttentionPace): those of at most two rounds, each of most of the
/// chip, at 94 % of the memory's peak: an H200 reads at 4.5 of 4.8 TB/s; fp8, which computes as long as it reads,
/// ends sooner with 4.4. More rounds even out by themselves; few blocks are bound by latency.
inline void set_pace(PagedAttentionArgs& a, const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                     const ArchFacts& facts, int num_splits) {
  const double bytes_a_second = (is_fp8(p.spec.kv) ? 0.92 : 0.94) * facts.hbm_bytes_per_second;
  const std::int64_t stage_bytes = std::int64_t{policy.prefetch.stage_tokens} / a.segment * a.segment_bytes;
  const double stage_ns = 1e9 * static_cast<double>(stage_bytes) / bytes_a_second;
  const std::int64_t blocks =
      max_of<std::int64_t>(1, policy.balanced() ? a.workers : paged_attention_grid(p, policy, num_splits));
  const std::int64_t resident = paged_attention_resident(policy, facts, num_splits);
  const std::int64_t in_last = (blocks - 1) % resident + 1;
  const auto paced = [&](std::int64_t round) {
    return blocks <= 2 * resident && 4 * round >= 3 * facts.compute_units ? static_cast<float>(stage_ns) : 0.0f;
  };
  a.last_round = static_cast<std::int32_t>(blocks - in_last);
  a.stage_ns = paced(a.last_round);
  a.last_stage_ns = paced(in_last);
}

}  // namespace detail

inline PagedAttentionArgs paged_attention_args(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                               const ArchFacts& facts, int num_splits) {
  const AttentionLimits limits = paged_attention_limits(p);
  PagedAttentionArgs a{};
  a.query_tokens = limits.query_tokens, a.capacity = limits.capacity, a.window = limits.window;
  a.q = p.q;
  a.k = p.k;
  a.v = p.v;
  a.out = p.out;
  a.lse = p.lse;
  a.k_scale = p.k_scale;
  a.v_scale = p.v_scale;
  a.sinks = p.sinks;
  a.alibi_slopes = p.alibi_slopes;
  a.block_table = p.block_table;
  a.context_lengths = p.context_lengths;
  a.stage_starts = p.stage_starts;
  if (const std::size_t bytes = paged_attention_workspace_size(p, policy, facts, num_splits); bytes > 0) {
    a.partial_out = static_cast<float*>(p.workspace);
    a.partial_lse = a.partial_out + bytes / sizeof(float) / (p.spec.head_size + 1) * p.spec.head_size;
  }
  a.q_row_stride = p.q_row_stride;
  a.q_head_stride = p.q_head_stride;
  a.out_row_stride = p.out_row_stride;
  a.out_head_stride = p.out_head_stride;
  a.k_strides = p.k_strides;
  a.v_strides = p.v_strides;
  a.scale_page_stride = p.scale_page_stride;
  a.scale_head_stride = p.scale_head_stride;
  a.table_row_stride = p.table_row_stride;
  const auto step = [&](std::int64_t stride) { return static_cast<std::int32_t>(stride / p.spec.unit()); };
  a.k_page_step = step(p.k_strides.page);
  a.k_token_step = step(p.k_strides.token);
  a.v_page_step = step(p.v_strides.page);
  a.v_token_step = step(p.spec.values == ValueLayout::token_major ? p.v_strides.token : p.v_strides.unit);
  a.scale_page_step = static_cast<std::int32_t>(p.scale_page_stride);
  const std::int32_t group = p.num_q_heads / p.num_kv_heads;
  a.rows = p.mtp * group;
  a.block_size = FastDiv::by(p.block_size);
  a.group = FastDiv::by(group);
  a.splits = FastDiv::by(num_splits);
  a.row_groups = FastDiv::by(ceil_div(a.rows, policy.block_rows()));
  a.kv_heads = FastDiv::by(p.num_kv_heads);
  a.num_q_heads = p.num_q_heads;
  a.split_tiles = paged_attention_split_tiles(p, policy);
  a.output_rows = p.batch * p.mtp * p.num_q_heads;
  a.scale_log2 = p.spec.soft_cap ? p.softmax_scale / p.soft_cap : p.softmax_scale * log2_e;
  a.cap_log2 = p.soft_cap * log2_e;
  a.batch = p.batch;
  a.table_columns = p.table_columns;
  a.workers = paged_attention_workers(p, policy, facts);
  a.combine_waves = FastDiv::by(paged_attention_combine_waves(p, facts));
  a.cluster = policy.staged() && !policy.balanced() ? num_splits : 1;
  if (policy.staged()) {
    const PagedAttentionCopies copies = paged_attention_copies(p, policy);
    a.segment = copies.segment;
    while ((1 << a.segment_shift) < a.segment) ++a.segment_shift;
    a.segment_bytes =
        a.segment * (2 * p.spec.head_size * size_of(p.spec.kv) + copies.scale_pieces * int{sizeof(float)});
    a.k_pieces = FastDiv::by(copies.k_pieces);
    a.v_pieces = FastDiv::by(copies.v_pieces);
    a.pieces = FastDiv::by(copies.pieces());
    detail::set_pace(a, p, policy, facts, num_splits);
  }
  return a;
}

}  // namespace tilewave
