// SPDX-License-Identifier: MIT
// One call of a sampling: raw pointers, extents, int64 element strides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewave/core/config.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/sampling/spec.hpp"

namespace tilewave {

/// A parameter of every row: `value`; or where data is given, on the device and read by the kernel, so that a captured
/// graph takes what is there when it runs: data[row], or data[0] for all rows if it is `shared`.
template <class T>
struct RowValue {
  T value{};
  const T* data = nullptr;
  bool shared = false;

  TILEWAVE_HOST_DEVICE constexpr bool of_each_row() const { return data != nullptr && !shared; }
};

/// One token a row: drawn from softmax(x / temperature) of what the filters leave.
///
/// Filters never part equal logits. In this order:
/// top_k keeps the k largest logits and all that equal the k-th; top_p then keeps the fewest of the largest whose
/// probabilities, of those that top_k left, add up to p, and their equals; min_p keeps what is at least min_p times as
/// likely as the likeliest. The likeliest token always stays.
///
/// Off are: top_k from columns on, 0 and below; top_p from 1 on, and NaN; min_p of 0 and below, and NaN. A temperature
/// below 1e-5 (or NaN) takes the largest logit, of equals the first, and no filter matters. NaN is never chosen and
/// counts for nothing; +inf leaves only its equals. Of a row with nothing but -inf and NaN the token is -1, with a log
/// probability of -inf. Weights are whole numbers of 2^-31 of the largest one, so that a log probability may be off by
/// columns * 2^-32 (3e-5 of 128256) where most of the vocabulary is a flat tail some 22 below the largest logit.
///
/// With a workspace, blocks of a chip without clusters share rows that are too few for it, in two launches.
///
/// Draws are Philox4x32-10 of key `seed` and counter {try, row, offset}: tries of a row are rejected by top_p; row is 0
/// where every row has a seed of its own, so that a request draws the same wherever it stands in the batch. Same
/// logits, parameters, seed and offset: the same token, in every room and by every entry.
struct SamplingProblem {
  SamplingSpec spec{};

  // tensors on the device
  const void* x = nullptr;         // [rows, columns] logits; columns contiguous
  std::int32_t* tokens = nullptr;  // [rows]
  float* logprobs = nullptr;       // optional [rows]: natural log of the token's probability, before any filter

  RowValue<float> temperature{1.0f}, top_p{1.0f}, min_p{0.0f};
  RowValue<std::int32_t> top_k{0};
  RowValue<std::uint64_t> seed{0}, offset{0};
  bool raw_logprobs = false;  // of the logits as they are; else at the temperature, where there is one

  std::int32_t rows = 0, columns = 0;  // columns: the vocabulary, at most max_vocabulary
  std::int64_t row_stride = 0;

  void* workspace = nullptr;  // optional, see sampling_workspace_size; 16-byte aligned
  std::size_t workspace_bytes = 0;
};

inline constexpr std::int32_t max_vocabulary = 1 << 18;

}  // namespace tilewave
