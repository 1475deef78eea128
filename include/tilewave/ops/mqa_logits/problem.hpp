// SPDX-License-Identifier: MIT
// One call of an indexer's logits: raw pointers, extents, and strides in elements.
#pragma once

#include <cstdint>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/mqa_logits/spec.hpp"

namespace tilewave {

/// Paged: query n of sequence b is number b * queries + n, and sees keys t <= context_lengths[b] - queries + n, of
/// which the last is its own. Ranges: there is one sequence, and query n sees keys starts[n] <= t < ends[n].
///
/// Every logit is written. Those of keys that a query does not see are -infinity. Lengths and ranges are on the device
/// and are not checked before. A length outside [0, columns] or beyond the block table makes all logits of its queries
/// NaN. So does a range that is not empty and leaves [0, columns).
///
/// No table entry is read behind that of the last key that a query sees, and no page of keys or scales. They need not
/// exist. Entries that are read must be pages, from 0 to pages - 1: the device reads where they lead. Logits overlap
/// nothing else.
struct MqaLogitsProblem {
  MqaLogitsSpec spec{};

  // tensors on the device
  const void* q = nullptr;         // [sequences * queries, heads, head_size]
  const void* q_scale = nullptr;   // fp4: e8m0 [sequences * queries, heads, head_size / 32]
  const float* weights = nullptr;  // [sequences * queries, heads]; all scales but those of keys are part of them
  const void* k = nullptr;  // paged [pages, block_size, head_size], else [columns, head_size]; fp4: [pages, units of 32
                            // dimensions, 64, 32]
  // paged [pages, block_size], else [columns]; fp4: e8m0 [pages, units, 16, 4], with token 16 j + i of a page at [i, j]
  const void* k_scale = nullptr;
  float* logits = nullptr;                        // [sequences * queries, columns]
  const std::int32_t* block_tables = nullptr;     // paged: [sequences, table_columns], of pages
  const std::int32_t* context_lengths = nullptr;  // paged: [sequences], the queries' own keys included
  const std::int32_t* starts = nullptr;           // ranges: [queries]
  const std::int32_t* ends = nullptr;             // ranges: [queries]

  std::int32_t sequences = 0;  // ranges: 1
  std::int32_t queries = 0;    // of a sequence
  std::int32_t columns = 0;    // paged: the most keys of a sequence, else all keys
  // paged only
  std::int32_t pages = 0;
  std::int32_t block_size = 0;  // any; fp4: 64
  std::int32_t table_columns = 0;

  std::int64_t q_stride = 0, q_head_stride = 0;  // from a query, a head to the next
  std::int64_t q_scale_stride = 0;               // fp4: from a query to the next, heads side by side
  std::int64_t weights_stride = 0;               // from a query to the next
  std::int64_t k_page_stride = 0, k_stride = 0;  // from a page, a key to the next
  std::int64_t k_unit_stride = 0;                // fp4: from a unit to the next
  std::int64_t k_scale_page_stride = 0;          // from a page to the next; scales of a page lie side by side
  std::int64_t logits_stride = 0;                // from a query to the next
  std::int64_t table_stride = 0;                 // from a sequence to the next
};

}  // namespace tilewave
