// SPDX-License-Identifier: MIT
// What the kernels of an indexer's logits receive, and which queries, columns and keys a block has.
#pragma once

#include <cstddef>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/mqa_logits/policy.hpp"
#include "tilewave/ops/mqa_logits/problem.hpp"

namespace tilewave {

struct MqaLogitsArgs {
  const std::byte* q;
  const float* weights;
  const std::byte* k;
  const std::byte* q_scale;
  const void* k_scale;
  float* logits;
  const std::int32_t *block_tables, *context_lengths, *starts, *ends;
  std::int64_t q_stride, q_head_stride;  // in bytes, like those of k
  std::int64_t weights_stride;
  std::int64_t q_scale_stride;
  std::int64_t k_page_stride, k_stride, k_unit_stride;
  std::int64_t k_scale_page_stride, logits_stride, table_stride;
  FastDiv chunks, query_blocks, block_size;  // chunks of columns; blocks of a sequence that differ in queries
  std::int32_t queries, columns, chunk_columns;
  std::int32_t most_length;  // paged: keys that both the block table and the columns have room for
};

/// max(0, x) in one instruction, on integers. As integers, positive floats are in order and negative ones are below 0.
TILEWAVE_DEVICE float positive(float x) {
  return __builtin_bit_cast(float, max_of(__builtin_bit_cast(std::int32_t, x), 0));
}

/// The queries and the columns of a block.
struct MqaLogitsWorkItem {
  std::int32_t sequence, first_query, queries;
  std::int32_t first_column, end_column;

  template <class B>
  TILEWAVE_DEVICE static MqaLogitsWorkItem of(const MqaLogitsArgs& a, int most_queries) {
    const std::int32_t block = B::block_id(), of_chunk = a.chunks.quotient(block);
    MqaLogitsWorkItem item;
    item.sequence = a.query_blocks.quotient(of_chunk);
    item.first_query = (of_chunk - item.sequence * a.query_blocks.divisor) * most_queries;
    item.queries = min_of(most_queries, a.queries - item.first_query);
    item.first_column = (block - of_chunk * a.chunks.divisor) * a.chunk_columns;
    item.end_column = min_of(item.first_column + a.chunk_columns, a.columns);
    return item;
  }
  /// The number of query i of the block among all queries. Beyond the last one it is the last one's.
  TILEWAVE_DEVICE std::int64_t query(const MqaLogitsArgs& a, int i) const {
    return std::int64_t{sequence} * a.queries + first_query + min_of(i, queries - 1);
  }
};

/// The keys [first, end) that a query sees, and the logit that is written for all others.
struct MqaLogitsReach {
  std::int32_t first, end;
  float unseen_logit;

  template <class B, MqaKeys keys>
  TILEWAVE_DEVICE static MqaLogitsReach of(const MqaLogitsArgs& a, const MqaLogitsWorkItem& item, int i) {
    constexpr float infinity = __builtin_inff(), nan = __builtin_nanf("");
    const std::int32_t query = item.first_query + min_of(i, item.queries - 1);
    std::int32_t first = 0, end;
    bool known;
    if constexpr (keys == MqaKeys::paged) {
      const std::int32_t length = B::uniform(B::load(a.context_lengths + item.sequence));
      known = length >= 0 && length <= a.most_length;
      end = known ? length - a.queries + query + 1 : 0;
    } else {
      first = B::uniform(B::load(a.starts + query));
      end = B::uniform(B::load(a.ends + query));
      known = first >= end || (first >= 0 && end <= a.columns);
    }
    if (!known || first >= end) return {0, 0, known ? -infinity : nan};
    return {first, end, -infinity};
  }
};

}  // namespace tilewave
