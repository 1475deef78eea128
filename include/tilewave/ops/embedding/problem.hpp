// SPDX-License-Identifier: MIT
// The problem describes one call of an embedding: raw pointers, extents, and int64 strides in elements.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/embedding/spec.hpp"
#include "tilewave/tile/index_list.hpp"

namespace tilewave {

/// The table may be a part of the vocabulary, as engines divide it among devices: it has the rows of ids from
/// vocab_start on. An id outside [vocab_start, vocab_start + vocab_rows), also a negative one, gives a row of zeros.
struct EmbeddingProblem {
  EmbeddingSpec spec{};

  // tensors on the device; columns contiguous
  const void* table = nullptr;  // [vocab_rows, columns], of any size
  const void* ids = nullptr;    // [rows], of type id_type
  void* out = nullptr;          // [rows, columns]; overlaps nothing

  IndexType id_type = IndexType::i32;
  float scale = 1.0f;

  std::int32_t rows = 0, columns = 0;  // rows are tokens
  std::int32_t vocab_rows = 0;
  std::int64_t vocab_start = 0;
  std::int64_t table_stride = 0, out_stride = 0;
};

}  // namespace tilewave
