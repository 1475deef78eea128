// SPDX-License-Identifier: MIT
// What a block and one of its waves compute at a time.
#pragma once

#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

/// A row block of one KV head of one sequence, with all of the sequence's tokens or a part of them. A row block is the
/// query rows that a block holds; rows are the query tokens times the heads of the GQA ratio.
struct PagedAttentionWorkItem {
  std::int32_t sequence, kv_head, first_row;  // first_row: of this wave, in [0, query_tokens * gqa_ratio)
  std::int32_t wave_row, wave_token;          // this wave among those that differ in rows, and in tokens
  std::int32_t first, end;                    // tokens [first, end) that at least one row attends
  std::int32_t begin, tiles;                  // this wave's first token and number of tiles
  std::int32_t full_first, full_end;          // tokens [full_first, full_end) that every row attends
  bool beyond_table;                          // the sequence is longer than its block table; its output is NaN
  std::int32_t slot;                          // of the partial result; -1 if the result is whole

  /// Returns whether some row attends the token.
  TILEWAVE_DEVICE bool attends(std::int32_t token) const { return token >= first && token < end; }
  /// Returns whether a tile of `count` tokens from `token` on needs a mask, as not every row attends all of them.
  TILEWAVE_DEVICE bool is_edge(std::int32_t token, std::int32_t count) const {
    return token < full_first || token + count > full_end;
  }
};

/// The query token and head of a row, and its row in q, out and lse.
struct QueryRow {
  std::int32_t token, head;
  std::int64_t out_row;
};
TILEWAVE_DEVICE QueryRow query_row(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item, std::int32_t row) {
  const std::int32_t token = a.gqa_ratio.quotient(row);
  return {token, item.kv_head * a.gqa_ratio.divisor + row - token * a.gqa_ratio.divisor,
          item.sequence * std::int64_t{a.query_tokens} + token};
}

}  // namespace tilewave
