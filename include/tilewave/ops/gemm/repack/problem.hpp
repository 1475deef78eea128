// SPDX-License-Identifier: MIT
// Weights as checkpoints ship them, and where a repack puts them, in four bits, for a GEMM.
#pragma once

#include <cstdint>

#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave {

/// How a checkpoint has the weights B[N, K] of each layer (expert). Scales and zero points of gptq and awq are those of
/// `scale_k` values of K of a column n.
/// - mxfp4: as gpt-oss. Codes [N, K / 2] are bytes of two fp4, the first in the low half ([N, K / 32, 16] in the
///   checkpoint). Scales [N, K / 32] are e8m0.
/// - gptq: codes [K / 8, N] are words of eight k, the first in the lowest bits. Scales are [K / scale_k, N], and zero
///   points [K / scale_k, N / 8] words of eight n.
/// - awq: codes [K, N / 8] are words of eight n, in the order 0, 2, 4, 6, 1, 3, 5, 7. Scales are [K / scale_k, N], zero
///   points [K / scale_k, N / 8] words in the same order.
/// - bf16: weights that are not quantised yet, [N, K]. They become int4: `scale_k` values of a row have the scale that
///   brings the largest of their magnitudes to 7, rounded to out_scale, and 1 where all are 0.
enum class GemmShipped : int { mxfp4, gptq, awq, bf16 };

constexpr const char* name_of(GemmShipped s) {
  constexpr const char* names[] = {"mxfp4", "gptq", "awq", "bf16"};
  return names[static_cast<int>(s)];
}

/// Layers follow each other without gaps, in what is shipped and in what is written. All tensors are on the device.
struct GemmRepackProblem {
  GemmShipped shipped = GemmShipped::mxfp4;
  const void* codes = nullptr;   // 4-byte aligned; bf16: the weights
  const void* scales = nullptr;  // of `scale`; bf16: none
  const void* zeros = nullptr;   // gptq, awq: zero points; null where all codes have the zero point 8
  const void* bias = nullptr;    // optional: [layers][N] of `bias_type`
  /// gptq: the group of each k, if the checkpoint sorts K by activations (act-order). Such weights are refused: their
  /// K, and A's, have to be sorted by group first.
  const std::int32_t* group_index = nullptr;

  void* out_codes = nullptr;   // GemmProblem::b, 16-byte aligned
  void* out_scales = nullptr;  // GemmProblem::b_group_scale: [layers][K / scale_k, N] of `out_scale`
  void* out_zeros = nullptr;   // GemmProblem::b_zero: [layers][K / scale_k, N] i8, the zero point less 8
  void* out_bias = nullptr;    // [layers][N] of `bias_type`

  /// The order of out_codes, GemmSpec::weights. Fragments are of mxfp4 alone.
  GemmWeights weights = GemmWeights::preshuffled;
  std::int32_t layers = 1, n = 0, k = 0;
  int scale_k = 32;
  DType scale = DType::e8m0, out_scale = DType::e8m0;  // mxfp4: e8m0; else f16 or bf16, rounded where they differ
  DType bias_type = DType::bf16;
  int zero_offset = 0;  // gptq: what is added to a zero point as it is stored, which is 1 in checkpoints of version 1
  /// Rows of a layer are gate, up, gate, up, as gpt-oss has them. They are written as all gates, then all ups.
  bool interleaved = false;
};

}  // namespace tilewave
