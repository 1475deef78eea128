// SPDX-License-Identifier: MIT
// What decode and combine receive: a Problem with its divisions prepared and its workspace laid out. Also the numbers
// of a launch that follow from a problem and a policy: splits, blocks, workspace, copies.
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

/// The most splits of the context of one sequence.
inline constexpr int max_splits = 128;
/// The most splits that a bulk entry takes. They are the blocks of a cluster, which merge through shared memory.
inline constexpr int max_bulk_splits = 8;
/// Lanes of a block of the combine kernel behind a balanced decode.
inline constexpr int paged_attention_combine_threads = 256;
/// Waves of a block of the combine kernel behind split decode. A wave has a row.
inline constexpr int paged_attention_combine_waves_of_block = 4;
/// The most query tokens of a sequence in one call.
inline constexpr int max_mtp = 8;

/// Arguments of decode and combine. Strides are in elements, as in the Problem. The order is that in which a block that
/// fetches needs them. On sm90 the first read of every 64 bytes takes 135 cycles. What leads to the length is in the
/// first 48 bytes, which share a line with the launch's own parameters.
struct PagedAttentionArgs {
  const std::int32_t* context_lengths;
  FastDiv splits;
  FastDiv row_blocks;  // blocks that share a sequence, KV head and split, and differ in query rows
  FastDiv kv_heads;
  std::int32_t cluster;  // splits of a bulk launch, which merge through shared memory; else 1

  const std::int32_t* block_table;
  std::int64_t table_row_stride;
  std::int32_t table_columns;
  std::int32_t capacity;      // tokens that the block table has room for
  std::int32_t window;        // tokens of the sliding window, or int32 max for none
  std::int32_t query_tokens;  // of a sequence, mtp
  FastDiv block_size;
  std::int32_t segment;        // bulk: tokens that lie together in a page and in a stage
  std::int32_t segment_shift;  // bulk: log2 of that
  std::int32_t segment_bytes;  // bulk: of a segment's K, V and their scales
  float stage_ns;              // bulk: time in which the memory delivers a stage; 0 where blocks are not paced
  float last_stage_ns;         // the same for blocks of the last round

  std::int32_t last_round;     // bulk: the first block of the last round
  FastDiv k_copies, v_copies;  // bulk: contiguous copies of a segment
  FastDiv segment_copies;      // bulk: all of them, those of the scales included
  const void* k;
  const void* v;
  std::int32_t batch;
  std::int32_t balanced_blocks;  // of a balanced launch

  PagedKeyStrides k_strides;
  PagedValueStrides v_strides;

  const float* k_scale;
  const float* v_scale;
  std::int64_t scale_page_stride, scale_head_stride;
  const void* q;
  std::int64_t q_row_stride, q_head_stride;

  FastDiv gqa_ratio;  // query heads of a KV head
  std::int32_t rows;  // query_tokens * gqa_ratio
  std::int32_t num_q_heads;
  float scale_log2;          // softmax scale * log2(e); with a soft cap softmax scale / cap
  float cap_log2;            // soft cap * log2(e)
  std::int32_t split_tiles;  // least block tiles of a split: the fixed cuts of a batch-invariant call, else 0
  std::int32_t output_rows;  // batch * mtp * num_q_heads

  const float* alibi_slopes;
  const float* sinks;  // may be null
  void* out;
  float* lse;  // may be null
  std::int64_t out_row_stride, out_head_stride;
  float* partial_out;  // [batch * mtp, num_q_heads, splits, head_size], each divided by its own sum
  float* partial_lse;  // [batch * mtp, num_q_heads, splits], natural log

  const std::int32_t* stage_starts;  // balanced: the stages before each sequence; may be null
  FastDiv combine_waves;             // balanced: waves that share a row in combine, 1 or all of a block

  // The strides that a lane multiplies in its loop. They are in 16 bytes, so that 32 bits hold them and a product takes
  // one operation. v_token_step is that of a unit for dim_major values. scale_page_step is in elements.
  std::int32_t k_page_step, k_token_step, v_page_step, v_token_step, scale_page_step;
  bool tables_ready;  // boxes: tables may be read before the kernel in front is over
  bool next_at_once;  // boxes: blocks leave room for those of the next kernel, which may begin behind the wait
};
static_assert(offsetof(PagedAttentionArgs, block_table) == 48,
              "tools relocate pointers of the arguments by this offset");

/// The byte offsets of the pointers in PagedAttentionArgs, for tools that relocate the arguments of a kernel.
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

/// Block tiles of one split of a batch-invariant call, 0 for other calls.
constexpr std::int32_t paged_attention_split_tiles(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy) {
  return static_cast<std::int32_t>(ceil_div<std::int64_t>(p.split_tokens, policy.block_tokens(p.spec)));
}

/// The splits that a batch-invariant call takes: as many as the longest sequence fills, at most max_splits. The first
/// tile of a sequence may begin up to a wave's tile before its window.
constexpr int paged_attention_fixed_splits(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy) {
  const std::int64_t tokens = p.max_attended() + (p.sliding_window > 0 ? AtomFacts::groups * p.spec.unit() : 0);
  const std::int64_t tiles = max_of<std::int64_t>(1, ceil_div<std::int64_t>(tokens, policy.block_tokens(p.spec)));
  return static_cast<int>(
      min_of<std::int64_t>(max_splits, ceil_div<std::int64_t>(tiles, paged_attention_split_tiles(p, policy))));
}

/// Blocks that the chip holds at a time, which is the most that a balanced launch has.
template <class Policy>
constexpr std::int32_t paged_attention_chip_blocks(const Policy& policy, const ArchFacts& facts) {
  return facts.compute_units * policy.blocks_per_cu(facts);
}

/// Blocks of a launch that run at the same time, in whole clusters. Clusters of four and more leave an eighth of an
/// H200 idle, since its parts do not hold a whole number of them.
constexpr std::int32_t paged_attention_resident(const PagedAttentionPolicy& policy, const ArchFacts& facts,
                                                int num_splits) {
  const std::int32_t all = paged_attention_chip_blocks(policy, facts);
  if (!policy.bulk()) return all;
  return align_down(num_splits >= 4 ? all / 8 * 7 : all, num_splits);
}

/// Blocks of a decode launch with the even schedule. Capacities fix them, never lengths.
constexpr std::int64_t paged_attention_grid(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                            int num_splits) {
  return std::int64_t{1} * p.batch * p.num_kv_heads * ceil_div(p.kv_head_rows(), policy.block_rows()) * num_splits;
}

/// Blocks of a balanced launch: as many as the chip holds, but no more than there are stages in the longest batch that
/// the block table can hold. A window may begin inside a stage.
constexpr std::int32_t paged_attention_balanced_blocks(const PagedAttentionProblem& p,
                                                       const PagedAttentionPolicy& policy, const ArchFacts& facts) {
  const std::int64_t stage = policy.block_tokens(p.spec);
  const std::int64_t tokens = min_of(p.capacity(), p.max_attended() + (p.sliding_window > 0 ? stage - 1 : 0));
  const std::int64_t row_blocks = paged_attention_grid(p, policy, 1), chip = paged_attention_chip_blocks(policy, facts);
  return static_cast<std::int32_t>(max_of<std::int64_t>(1, min_of(chip, row_blocks * ceil_div(tokens, stage))));
}

/// Workspace bytes of the even schedule: partial outputs and their lse. One split leaves no partials.
constexpr std::size_t paged_attention_workspace_size(const PagedAttentionProblem& p, int num_splits) {
  if (num_splits <= 1) return 0;
  const std::size_t partials = static_cast<std::size_t>(p.output_rows()) * num_splits;
  return partials * (p.spec.head_size + 1) * sizeof(float);
}

/// Workspace bytes of an entry, for the partials that a second launch combines. A block of a balanced launch has two
/// slots of block_rows() rows.
constexpr std::size_t paged_attention_workspace_size(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                                     const ArchFacts& facts, int num_splits) {
  if (policy.balanced()) {
    const std::size_t partials =
        std::size_t{2} * paged_attention_balanced_blocks(p, policy, facts) * policy.block_rows();
    return partials * (p.spec.head_size + 1) * sizeof(float);
  }
  return policy.bulk() ? 0 : paged_attention_workspace_size(p, num_splits);
}

/// Waves that share a row in the combine of a balanced launch. If there are few rows, each has many partials.
constexpr std::int32_t paged_attention_combine_waves(const PagedAttentionProblem& p, const ArchFacts& facts) {
  return p.output_rows() <= 2 * facts.compute_units ? paged_attention_combine_threads / facts.wave_lanes : 1;
}

/// How a bulk launch copies KV: in segments, tokens that lie together in a page and in a stage. A segment takes some
/// copies of K, of V and of scales, each contiguous in the page and in the stage.
struct PagedAttentionCopies {
  std::int32_t segment, k_copies, v_copies, scale_copies;
  constexpr std::int32_t segment_copies() const { return k_copies + v_copies + scale_copies; }
};
constexpr PagedAttentionCopies paged_attention_copies(const PagedAttentionProblem& p,
                                                      const PagedAttentionPolicy& policy) {
  const std::int32_t unit = p.spec.unit(), segment = std::gcd(p.block_size, policy.prefetch.stage_tokens);
  if (p.spec.values == ValueLayout::token_major) return {segment, 1, 1, 0};  // boxes side by side
  const bool whole_page = segment == p.block_size && p.k_strides.unit == std::int64_t{p.block_size} * unit;
  const bool packed_values = p.v_strides.unit == std::int64_t{p.spec.head_size} * unit;
  return {.segment = segment,
          .k_copies = whole_page ? 1 : p.spec.head_size / unit,
          .v_copies = packed_values ? 1 : segment / unit,
          .scale_copies = p.spec.quant == Scaling::per_token ? 2 : 0};
}

/// What bounds the tokens that a sequence attends.
constexpr AttentionLimits paged_attention_limits(const PagedAttentionProblem& p) {
  return {p.mtp, static_cast<std::int32_t>(p.capacity()),
          p.sliding_window > 0 ? p.sliding_window : std::numeric_limits<std::int32_t>::max()};
}

namespace detail {

/// Pointers and strides, as the Problem has them.
inline void set_tensors(PagedAttentionArgs& a, const PagedAttentionProblem& p) {
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
}

/// How the stages of a bulk launch are copied.
inline void set_copies(PagedAttentionArgs& a, const PagedAttentionProblem& p, const PagedAttentionPolicy& policy) {
  const PagedAttentionCopies copies = paged_attention_copies(p, policy);
  a.segment = copies.segment;
  while ((1 << a.segment_shift) < a.segment) ++a.segment_shift;
  a.segment_bytes = a.segment * (2 * p.spec.head_size * size_of(p.spec.kv) + copies.scale_copies * int{sizeof(float)});
  a.k_copies = FastDiv::by(copies.k_copies);
  a.v_copies = FastDiv::by(copies.v_copies);
  a.segment_copies = FastDiv::by(copies.segment_copies());
}

/// Which blocks of a bulk launch are paced (AttentionPace): those of at most two rounds, each of at least three
/// quarters of the chip. More rounds even out by themselves, and few blocks are bound by latency. The pace is 94 % of
/// the memory's peak, since an H200 reads at 4.5 of 4.8 TB/s. fp8 computes for as long as it reads, and ends sooner
/// with 92 %; boxes of tokens end 1 % sooner with 97 %.
inline void set_pace(PagedAttentionArgs& a, const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                     const ArchFacts& facts, int num_splits) {
  const bool boxes = p.spec.values == ValueLayout::token_major;
  const double bytes_a_second = (is_fp8(p.spec.kv) ? 0.92 : boxes ? 0.97 : 0.94) * facts.hbm_bytes_per_second;
  const std::int64_t stage_bytes = std::int64_t{policy.prefetch.stage_tokens} / a.segment * a.segment_bytes;
  const double stage_ns = 1e9 * static_cast<double>(stage_bytes) / bytes_a_second;
  const std::int64_t blocks =
      max_of<std::int64_t>(1, policy.balanced() ? a.balanced_blocks : paged_attention_grid(p, policy, num_splits));
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

/// The arguments of both kernels of an entry. The problem has passed all checks.
inline PagedAttentionArgs paged_attention_args(const PagedAttentionProblem& p, const PagedAttentionPolicy& policy,
                                               const ArchFacts& facts, int num_splits) {
  PagedAttentionArgs a{};
  detail::set_tensors(a, p);
  const AttentionLimits limits = paged_attention_limits(p);
  a.query_tokens = limits.query_tokens, a.capacity = limits.capacity, a.window = limits.window;
  if (const std::size_t bytes = paged_attention_workspace_size(p, policy, facts, num_splits); bytes > 0) {
    a.partial_out = static_cast<float*>(p.workspace);
    a.partial_lse = a.partial_out + bytes / sizeof(float) / (p.spec.head_size + 1) * p.spec.head_size;
  }
  a.batch = p.batch;
  a.tables_ready = p.tables_ready;
  a.rows = p.kv_head_rows();
  a.num_q_heads = p.num_q_heads;
  a.output_rows = static_cast<std::int32_t>(p.output_rows());
  a.table_columns = p.table_columns;
  a.block_size = FastDiv::by(p.block_size);
  a.gqa_ratio = FastDiv::by(p.gqa_ratio());
  a.kv_heads = FastDiv::by(p.num_kv_heads);
  a.row_blocks = FastDiv::by(ceil_div(a.rows, policy.block_rows()));
  a.splits = FastDiv::by(num_splits);
  a.split_tiles = paged_attention_split_tiles(p, policy);
  a.scale_log2 = p.spec.soft_cap ? p.softmax_scale / p.soft_cap : p.softmax_scale * log2_e;
  a.cap_log2 = p.soft_cap * log2_e;
  a.balanced_blocks = paged_attention_balanced_blocks(p, policy, facts);
  a.combine_waves = FastDiv::by(paged_attention_combine_waves(p, facts));
  a.cluster = policy.bulk() && !policy.balanced() ? num_splits : 1;
  if (policy.bulk()) {
    a.next_at_once = policy.balanced() || paged_attention_grid(p, policy, num_splits) <= facts.compute_units;
    detail::set_copies(a, p, policy);
    detail::set_pace(a, p, policy, facts, num_splits);
  }
  return a;
}

}  // namespace tilewave
