// SPDX-License-Identifier: MIT
// What decode of latent attention and its combine receive. Its schedules, partials and combines are those of paged
// attention with one KV head, so most of it is PagedAttentionArgs. Also the numbers of a launch that follow from a
// problem and a policy: splits, blocks, workspace.
#pragma once

#include <limits>
#include <numeric>

#include "tilewave/ops/mla_decode/policy.hpp"
#include "tilewave/ops/mla_decode/problem.hpp"
#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

/// In `attention`, k is the cache, k_strides has its page and token, k_scale is kv_scale, and the rest of K and V is
/// unused. balanced_blocks counts parts, see mla_decode_parts. Pages have scales behind their rows from `page_scales`
/// bytes on.
struct MlaDecodeArgs {
  PagedAttentionArgs attention;
  const float* q_scale;
  std::int64_t page_scales;

  const MlaDecodeArgs& decode() const { return *this; }
};

/// Tiles of one split of a batch-invariant call, 0 for other calls.
constexpr std::int32_t mla_decode_split_tiles(const MlaDecodeProblem& p, const MlaDecodePolicy& policy) {
  return static_cast<std::int32_t>(ceil_div<std::int64_t>(p.split_tokens, policy.tokens));
}
constexpr std::int32_t mla_decode_row_blocks(const MlaDecodeProblem& p, const MlaDecodePolicy& policy) {
  return ceil_div(p.sequence_rows(), policy.rows);
}

/// Returns the blocks of a cluster. Two neighbouring row blocks that walk the same tokens side by side fetch half of
/// each tile, for both.
constexpr std::int32_t mla_decode_cluster(const MlaDecodeProblem& p, const MlaDecodePolicy& policy) {
  const bool shares = policy.waves == 12 && policy.balanced();
  return shares && mla_decode_row_blocks(p, policy) % 2 == 0 ? 2 : 1;
}

/// Returns the splits of a sequence with the even schedule. A batch-invariant call takes as many as the longest
/// sequence fills. Another takes as many as fill the chip once.
constexpr std::int32_t mla_decode_splits(const MlaDecodeProblem& p, const MlaDecodePolicy& policy,
                                         const ArchFacts& facts) {
  if (policy.balanced()) return 1;
  const std::int64_t tiles = max_of<std::int64_t>(1, ceil_div<std::int64_t>(p.capacity(), policy.tokens));
  const std::int64_t items = max_of<std::int64_t>(1, std::int64_t{p.batch} * mla_decode_row_blocks(p, policy));
  const std::int64_t wanted = p.split_tokens > 0 ? ceil_div<std::int64_t>(tiles, mla_decode_split_tiles(p, policy))
                                                 : paged_attention_chip_blocks(policy, facts) / items;
  return static_cast<std::int32_t>(max_of<std::int64_t>(1, min_of(min_of<std::int64_t>(max_splits, tiles), wanted)));
}

/// Returns the parts into which a balanced launch cuts all tiles of the batch. Each has a block for every row block of
/// a sequence. They walk the same tokens side by side, so that all but one of them find rows of the cache in L2.
///
/// There are as many parts as the chip holds, but no more than tiles in the longest batch that the block table can
/// hold. A few less are better if whole sequences, or equal shares of one, fill them: a part that begins or ends inside
/// a sequence has one more item, and leaves a partial result. Such an end costs as much as `end_tiles` tiles.
constexpr std::int64_t mla_decode_parts(const MlaDecodeProblem& p, const MlaDecodePolicy& policy,
                                        const ArchFacts& facts) {
  constexpr std::int64_t end_tiles = 4;
  const std::int64_t sequence = max_of<std::int64_t>(1, ceil_div<std::int64_t>(p.capacity(), policy.tokens));
  const std::int64_t batch = max_of(1, p.batch), tiles = batch * sequence;
  const std::int64_t held = paged_attention_chip_blocks(policy, facts) / mla_decode_row_blocks(p, policy);
  const std::int64_t most = max_of<std::int64_t>(1, min_of(held, tiles));
  const std::int64_t rounds = ceil_div(batch, most);  // whole sequences of a part, if there are as many
  const std::int64_t alike = batch <= most ? most / batch * batch : ceil_div(batch, rounds);
  const auto cost = [&](std::int64_t parts) {
    const bool whole = batch % parts == 0 || parts % batch == 0;
    const std::int64_t items = whole ? max_of<std::int64_t>(1, batch / parts) : batch / parts + 2;
    return ceil_div(tiles, parts) + items * end_tiles;
  };
  return cost(alike) <= cost(most) ? alike : most;
}
/// Returns the blocks of a launch.
constexpr std::int64_t mla_decode_blocks(const MlaDecodeProblem& p, const MlaDecodePolicy& policy,
                                         const ArchFacts& facts) {
  const std::int64_t row_blocks = mla_decode_row_blocks(p, policy);
  if (policy.balanced()) return row_blocks * mla_decode_parts(p, policy, facts);
  return p.batch * row_blocks * mla_decode_splits(p, policy, facts);
}

/// Returns the partial results that a launch may leave for combine. A block of a balanced launch has two slots.
constexpr std::int64_t mla_decode_partials(const MlaDecodeProblem& p, const MlaDecodePolicy& policy,
                                           const ArchFacts& facts) {
  if (policy.balanced()) return 2 * mla_decode_blocks(p, policy, facts) * policy.rows;
  const std::int64_t splits = mla_decode_splits(p, policy, facts);
  return splits > 1 ? splits * p.output_rows() : 0;
}
constexpr std::size_t mla_decode_workspace_size(const MlaDecodeProblem& p, const MlaDecodePolicy& policy,
                                                const ArchFacts& facts) {
  return static_cast<std::size_t>(mla_decode_partials(p, policy, facts)) * (latent_value_size + 1) * sizeof(float);
}

/// Returns the number of tokens that one box of path tensor holds: those that lie together in a page and in a tile.
constexpr std::int32_t mla_decode_box_rows(const MlaDecodeProblem& p) { return std::gcd(p.block_size, 64); }

/// In the combine of path tensor a compute unit holds so many blocks. A wave has as many output rows as let the chip
/// hold all of them, or a part of the partial results of one.
inline constexpr int mla_combine_blocks_of_unit = 2, mla_combine_at_once = 4;  // partial results that a wave loads
constexpr std::int32_t mla_combine_held_waves(const ArchFacts& facts) {
  return mla_combine_blocks_of_unit * facts.compute_units * (paged_attention_combine_threads / facts.wave_lanes);
}
TILEWAVE_HOST_DEVICE constexpr std::int32_t mla_combine_rows(std::int32_t rows, std::int32_t row_waves,
                                                             std::int32_t held_waves) {
  return row_waves > 1 ? 1 : max_of(1, ceil_div(rows, held_waves));
}
/// Returns the waves that share a row in the combine of a balanced launch: all of a block if there are few rows, which
/// have many partial results. On path tensor else as many as have some of them each, if the chip holds all at once.
constexpr std::int32_t mla_decode_combine_waves(const MlaDecodeProblem& p, const MlaDecodePolicy& policy,
                                                const ArchFacts& facts) {
  const std::int32_t most = paged_attention_combine_threads / facts.wave_lanes;
  if (p.output_rows() <= 2 * facts.compute_units) return most;
  if (policy.path != MlaDecodePath::tensor) return 1;
  const std::int64_t partials = mla_decode_parts(p, policy, facts) / max_of(1, p.batch);
  std::int32_t waves = 1;
  while (2 * waves <= most && waves * mla_combine_at_once < partials &&
         2 * waves * p.output_rows() <= mla_combine_held_waves(facts)) {
    waves *= 2;
  }
  return waves;
}

/// Returns the arguments of all kernels of an entry. The problem has passed all checks.
inline MlaDecodeArgs mla_decode_args(const MlaDecodeProblem& p, const MlaDecodePolicy& policy, const ArchFacts& facts) {
  MlaDecodeArgs args{};
  args.q_scale = p.q_scale;
  args.page_scales = std::int64_t{p.block_size} * p.spec.row().token_bytes();
  PagedAttentionArgs& a = args.attention;
  a.context_lengths = p.context_lengths;
  a.splits = FastDiv::by(mla_decode_splits(p, policy, facts));
  a.row_blocks = FastDiv::by(mla_decode_row_blocks(p, policy));
  a.kv_heads = FastDiv::by(1);
  a.cluster = 1;
  a.block_table = p.block_table, a.table_row_stride = p.table_row_stride, a.table_columns = p.table_columns;
  a.capacity = static_cast<std::int32_t>(p.capacity());
  a.window = std::numeric_limits<std::int32_t>::max();
  a.query_tokens = p.query_tokens;
  a.block_size = FastDiv::by(p.block_size);
  a.k = p.kv, a.k_scale = p.kv_scale;
  a.k_strides = {.page = p.page_stride, .head = 0, .unit = 0, .token = p.token_stride};
  a.batch = p.batch;
  a.balanced_blocks = static_cast<std::int32_t>(mla_decode_parts(p, policy, facts));
  a.q = p.q, a.q_row_stride = p.q_row_stride, a.q_head_stride = p.q_head_stride;
  a.gqa_ratio = FastDiv::by(p.num_q_heads);
  a.rows = p.sequence_rows();
  a.num_q_heads = p.num_q_heads;
  a.scale_log2 = p.softmax_scale * log2_e;
  a.split_tiles = mla_decode_split_tiles(p, policy);
  a.output_rows = static_cast<std::int32_t>(p.output_rows());
  a.sinks = p.sinks;
  a.out = p.out, a.lse = p.lse, a.out_row_stride = p.out_row_stride, a.out_head_stride = p.out_head_stride;
  a.partial_out = static_cast<float*>(p.workspace);
  if (p.workspace != nullptr) a.partial_lse = a.partial_out + mla_decode_partials(p, policy, facts) * latent_value_size;
  a.combine_waves = FastDiv::by(mla_decode_combine_waves(p, policy, facts));
  return args;
}

}  // namespace tilewave
