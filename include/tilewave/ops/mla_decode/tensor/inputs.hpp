// SPDX-License-Identifier: MIT
// What kernels of path tensor do with a call's inputs before they compute: tensor maps, and early requests.
#pragma once

#include "tilewave/ops/mla_decode/args.hpp"

namespace tilewave {

/// L is the kernel's layout.
template <class B, class L>
struct MlaDecodeInputs {
  using Args = typename L::Args;

  static Status prepare(const MlaDecodeProblem& p, Args& args) {
    constexpr MlaDecodeSpec spec = L::spec;
    args.of = mla_decode_args(p, L::policy, B::facts);
    args.q_sequence_rows = p.sequence_rows();
    args.cluster = mla_decode_cluster(p, L::policy);
    const std::int32_t parts = args.of.attention.balanced_blocks;
    if (L::policy.balanced() && parts > 0 && p.table_columns > 0)
      args.sequences = p.batch % parts == 0 ? p.batch / parts : 0;
    const std::int64_t q_bytes = p.q_head_stride * size_of(spec.q), kv_bytes = p.token_stride * size_of(spec.kv);
    const std::int64_t q_rows = p.output_rows();
    if (Status s = B::make_tensor_map({p.q, spec.q, spec.head_size, q_rows, 1, q_bytes, q_bytes, L::rows}, args.q);
        !s.ok())
      return s;
    if constexpr (L::maps_cache) {
      args.box_rows = mla_decode_box_rows(p);
      args.page_rows = static_cast<std::int32_t>(p.num_pages > 1 ? p.page_stride / p.token_stride : 0);
      const std::int64_t rows = (p.num_pages - 1) * args.page_rows + p.block_size;
      const int columns = spec.row().token_bytes() / size_of(spec.kv);
      return B::make_tensor_map({p.kv, spec.kv, columns, rows, 1, kv_bytes, kv_bytes, args.box_rows}, args.kv);
    }
    return {};
  }

  /// Waves ask for the tensor maps, and for what the block probably begins with, while lengths say with what it does:
  /// their addresses are translated meanwhile. A block that begins inside a sequence asks for the row of the block
  /// table and for queries. One that has whole sequences asks for lengths, and for all queries of its rows, too. Else
  /// each of these would wait for the one before, a microsecond where pages are cold.
  TILEWAVE_DEVICE static void touch(const Args& args, int wave) {
    const PagedAttentionArgs& a = args.of.attention;
    const int lane = B::lane_id();
    if (wave == 0 && lane == 0) {
      B::prefetch_map(args.q);
      if constexpr (L::maps_cache) B::prefetch_map(args.kv);
    }
    if (args.sequences == 0) {
      if (wave == 1) touch_inside(args);
      return;
    }
    if (wave == 1 && lane * lengths_of_line < a.batch) B::prefetch(a.context_lengths + lane * lengths_of_line);
    if (lane != 0) return;
    if (wave == 2) touch_queries(args, first_sequence(args));
    if (wave == 3) B::prefetch(a.block_table + first_sequence(args) * a.table_row_stride);
  }
  /// A wave that has nothing to do yet asks for rows of the first tile.
  TILEWAVE_DEVICE static void touch_rows(const Args& args) {
    const PagedAttentionArgs& a = args.of.attention;
    if (args.sequences == 0 || B::lane_id() != 0) return;
    const std::int32_t sequence = first_sequence(args);
    const std::int32_t length = B::load(a.context_lengths + sequence);
    if (length <= 0 || length > a.capacity) return;
    const std::int32_t page = B::load(a.block_table + sequence * a.table_row_stride);
    const auto* const row = static_cast<const char*>(a.k) + page * a.k_strides.page * size_of(L::spec.kv);
    const std::int32_t rows = min_of(min_of(L::tokens, a.block_size.divisor), length);
    const bool dense = a.k_strides.token * size_of(L::spec.kv) == L::read_bytes;
    B::prefetch(row, static_cast<std::uint32_t>((dense ? rows : 1) * L::read_bytes));
  }

  /// Asks for the queries of a sequence that the block's rows have, with a balanced schedule.
  TILEWAVE_DEVICE static void touch_queries(const Args& args, std::int32_t sequence) {
    const PagedAttentionArgs& a = args.of.attention;
    const std::int32_t row = a.row_blocks.remainder(B::block_id()) * L::rows;
    const auto* const q = static_cast<const char*>(a.q) +
                          (std::int64_t{sequence} * args.q_sequence_rows + row) * a.q_head_stride * size_of(L::spec.q);
    constexpr int bytes = L::spec.head_size * size_of(L::spec.q);
    const bool dense = a.q_head_stride == L::spec.head_size;
    B::prefetch(q, static_cast<std::uint32_t>((dense ? min_of(L::rows, a.rows - row) : 1) * bytes));
  }

 private:
  static constexpr int lengths_of_line = 32;

  /// Returns the sequence with which the block begins if all have as many tokens.
  TILEWAVE_DEVICE static std::int32_t first_sequence(const Args& args) {
    const PagedAttentionArgs& a = args.of.attention;
    return min_of(a.row_blocks.quotient(B::block_id()) * args.sequences, a.batch - 1);
  }
  TILEWAVE_DEVICE static void touch_inside(const Args& args) {
    const PagedAttentionArgs& a = args.of.attention;
    const std::int32_t parts = max_of(a.balanced_blocks, 1);
    const std::int32_t part = min_of(a.row_blocks.quotient(B::block_id()), parts - 1);
    const std::int64_t sequence = L::policy.balanced() ? std::int64_t{part} * a.batch / parts : 0;
    if (B::lane_id() != 0) return;
    B::prefetch(a.block_table + sequence * a.table_row_stride);
    touch_queries(args, static_cast<std::int32_t>(sequence));
  }
};

}  // namespace tilewave
