// SPDX-License-Identifier: MIT
// The problem describes one call of a softmax over rows: raw pointers, extents, and int64 strides in elements.
#pragma once

#include "tilewave/core/status.hpp"
#include "tilewave/ops/softmax/spec.hpp"

namespace tilewave {

/// A row sees its first `visible` columns: all columns, or lengths[row / rows_per_length] if given. causal_rows = Q > 0
/// takes Q - 1 - row % Q of them off, so that the last of Q query rows sees all. Columns that a row does not see are
/// not read; their softmax is 0, their log softmax -inf. A row that sees nothing, or only -inf, has only such outputs,
/// with lse -inf. NaN or +inf among the visible columns makes all of their outputs NaN. Outputs overlap nothing else.
struct SoftmaxProblem {
  SoftmaxSpec spec{};

  // tensors on the device; rows as RowStrides says, columns contiguous
  const void* x = nullptr;                // [rows, columns]
  void* out = nullptr;                    // [rows, columns]; may be x, with its strides
  float* lse = nullptr;                   // optional [rows]: natural log of the sum of exp(x scale)
  const std::int32_t* lengths = nullptr;  // optional [ceil(rows / rows_per_length)]; a negative length is 0

  float scale = 1.0f;

  std::int32_t rows = 0, columns = 0;
  std::int32_t rows_per_length = 1;  // only with lengths
  std::int32_t causal_rows = 0;
  std::int32_t inner_rows = 1;  // see RowStrides
  RowStrides x_strides{}, out_strides{};
};

}  // namespace tilewave
