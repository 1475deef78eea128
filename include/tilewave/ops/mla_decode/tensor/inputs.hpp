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

  /// Two waves ask for the tensor maps, for the row of the block table, and for the queries that the block probably
  /// begins with, while lengths say with which it does: their addresses are translated meanwhile.
  TILEWAVE_DEVICE static void touch(const Args& args, int wave) {
    if (wave == 0 && B::lane_id() == 0) {
      B::prefetch_map(args.q);
      if constexpr (L::maps_cache) B::prefetch_map(args.kv);
    }
    if (wave != 1) return;
    const PagedAttentionArgs& a = args.of.attention;
    const std::int32_t parts = max_of(a.balanced_blocks, 1);
    const std::int32_t part = min_of(a.row_blocks.quotient(B::block_id()), parts - 1);
    const std::int64_t sequence = L::policy.balanced() ? std::int64_t{part} * a.batch / parts : 0;
    if (B::lane_id() == 0) B::prefetch(a.block_table + sequence * a.table_row_stride);
    if (B::lane_id() == 1)
      B::prefetch(static_cast<const char*>(a.q) + sequence * a.query_tokens * a.q_row_stride * size_of(L::spec.q));
  }
};

}  // namespace tilewave
