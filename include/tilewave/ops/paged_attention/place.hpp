// SPDX-License-Identifier: MIT
// What a block and a wave work on at a time.
#pragma once

#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

/// What a block and a wave are.
struct PagedAttentionPlace {
  std::int32_t sequence, kv_head, first_row;  // first_row: of this wave, in [0, mtp * group)
  std::int32_t wave_row, wave_token;
  std::int32_t first, end;            // tokens [first, end) that at least one row attends
  std::int32_t begin, tiles;          // this wave's first token and number of tiles
  std::int32_t full_first, full_end;  // tokens that every row attends
  bool beyond_table;
  std::int32_t slot;  // of the partial result; -1: the result is whole

  /// Whether some row attends the token.
  TILEWAVE_DEVICE bool attends(std::int32_t token) const { return token >= first && token < end; }
  /// Whether a tile of `count` tokens from `token` on needs a mask: not every row attends all of them.
  TILEWAVE_DEVICE bool is_edge(std::int32_t token, std::int32_t count) const {
    return token < full_first || token + count > full_end;
  }
};

/// What a query row of a place's kv head is: a head of one of the sequence's new tokens.
struct QueryRow {
  std::int32_t token, head;
  std::int64_t out_row;  // of Q, out and lse
};
TILEWAVE_DEVICE QueryRow query_row(const PagedAttentionArgs& a, const PagedAttentionPlace& at, std::int32_t row) {
  const std::int32_t token = a.group.quotient(row);
  return {token, at.kv_head * a.group.divisor + row - token * a.group.divisor,
          at.sequence * std::int64_t{a.query_tokens} + token};
}

}  // namespace tilewave
