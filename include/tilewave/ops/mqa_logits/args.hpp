// SPDX-License-Identifier: MIT
// What the kernels of an indexer's logits take, and the queries of a block.
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
  std::int64_t q_stride, q_head_stride;  // in bytes, as those of k
  std::int64_t weights_stride;
  std::int64_t q_scale_stride;
  std::int64_t k_page_stride, k_stride, k_unit_stride;
  std::int64_t k_scale_page_stride, logits_stride, table_stride;
  FastDiv chunks, groups, block_size;  // chunks of columns; groups of queries of a sequence
  std::int32_t queries, columns, chunk_columns;
  std::int32_t most_length;  // paged: keys that the table and the columns hold
};

/// max(0, x) in one instruction: of whole numbers, as which positive floats are in order and negative ones below 0.
TILEWAVE_DEVICE float positive(float x) {
  return __builtin_bit_cast(float, max_of(__builtin_bit_cast(std::int32_t, x), 0));
}

/// The queries of a block, and its columns.
struct MqaLogitsPlace {
  std::int32_t sequence, first_query, queries;
  std::int32_t first_column, end_column;

  template <class B>
  TILEWAVE_DEVICE static MqaLogitsPlace of(const MqaLogitsArgs& a, int most_queries) {
    const std::int32_t block = B::block_id(), of_chunk = a.chunks.quotient(block);
    MqaLogitsPlace at;
    at.sequence = a.groups.quotient(of_chunk);
    at.first_query = (of_chunk - at.sequence * a.groups.divisor) * most_queries;
    at.queries = min_of(most_queries, a.queries - at.first_query);
    at.first_column = (block - of_chunk * a.chunks.divisor) * a.chunk_columns;
    at.end_column = min_of(at.first_column + a.chunk_columns, a.columns);
    return at;
  }
  /// The place of a query, or of the last one beyond it, among all.
  TILEWAVE_DEVICE std::int64_t query(const MqaLogitsArgs& a, int i) const {
    return std::int64_t{sequence} * a.queries + first_query + min_of(i, queries - 1);
  }
};

/// The keys that a query sees, and what is written of others.
struct MqaLogitsReach {
  std::int32_t first, end;
  float other;

  template <class B, MqaKeys keys>
  TILEWAVE_DEVICE static MqaLogitsReach of(const MqaLogitsArgs& a, const MqaLogitsPlace& at, int i) {
    constexpr float infinity = __builtin_inff(), nan = __builtin_nanf("");
    const std::int32_t query = at.first_query + min_of(i, at.queries - 1);
    std::int32_t first = 0, end;
    bool known;
    if constexpr (keys == MqaKeys::paged) {
      const std::int32_t length = B::uniform(B::load(a.context_lengths + at.sequence));
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
