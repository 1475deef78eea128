// SPDX-License-Identifier: MIT
// The problem describes one call of a sampling: raw pointers, extents, and int64 strides in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewave/core/config.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/sampling/spec.hpp"

namespace tilewave {

/// A parameter of every row: `value`, or device memory if data is given. The kernel reads it, so a captured graph uses
/// the contents at the time it runs: data[row], or data[0] for all rows if it is `shared`.
template <class T>
struct RowValue {
  T value{};
  const T* data = nullptr;
  bool shared = false;

  TILEWAVE_HOST_DEVICE constexpr bool of_each_row() const { return data != nullptr && !shared; }
};

/// Draws one token a row from softmax(x / temperature) of the logits that the filters leave.
///
/// Filters never separate equal logits. Their order is: top_k keeps the k largest logits and all that equal the k-th.
/// top_p then keeps the fewest of the largest whose probabilities, among those that top_k left, add up to p, and their
/// equals. min_p keeps the tokens that are at least min_p times as likely as the likeliest. The likeliest token always
/// stays.
///
/// A filter is off in these cases: top_k from columns on, and 0 and below; top_p from 1 on, and NaN; min_p of 0 and
/// below, and NaN. A temperature below 1e-5 (or NaN) takes the largest logit, and the first of equals; no filter
/// matters then. NaN is never chosen and counts for nothing; +inf leaves only its equals. A row of only -inf and NaN
/// gives token -1, with a log probability of -inf. Weights are integers in units of 2^-31 of the largest one. A log
/// probability may therefore be off by columns * 2^-32 (3e-5 for 128256 columns) where most of the vocabulary is a flat
/// tail some 22 below the largest logit.
///
/// With a workspace, blocks of a chip without clusters share rows in two launches, where the rows are too few to fill
/// it.
///
/// Draws are Philox4x32-10 with key `seed` and counter {try, row, offset}. Tries are counted within a row, since top_p
/// rejects some. row is 0 where every row has a seed of its own, so that a request draws the same wherever it stands in
/// the batch. The same logits, parameters, seed and offset give the same token, in every room and by every entry.
struct SamplingProblem {
  SamplingSpec spec{};

  // tensors on the device
  const void* x = nullptr;         // [rows, columns] logits; columns contiguous
  std::int32_t* tokens = nullptr;  // [rows]
  float* logprobs = nullptr;       // optional [rows]: natural log of the token's probability, before any filter

  RowValue<float> temperature{1.0f}, top_p{1.0f}, min_p{0.0f};
  RowValue<std::int32_t> top_k{0};
  RowValue<std::uint64_t> seed{0}, offset{0};
  bool raw_logprobs = false;  // true: of the logits as they are; false: at the temperature, where there is one

  std::int32_t rows = 0, columns = 0;  // columns are the vocabulary, at most max_vocabulary
  std::int64_t row_stride = 0;

  void* workspace = nullptr;  // optional, see sampling_workspace_size; 16-byte aligned
  std::size_t workspace_bytes = 0;
};

inline constexpr std::int32_t max_vocabulary = 1 << 18;

}  // namespace tilewave
