// SPDX-License-Identifier: MIT
// One call of a GEMM: raw pointers, extents, int64 strides in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave {

/// Rows of A and B are whole 16 bytes: they and their strides are aligned to that, and what lies between K and there is
/// read, the last row's too, but does not matter; where the layout has [K, M] or [K, N], these are the rows, and M or N
/// is K's part. The other dimension is contiguous. No tensor may overlap the output or
/// the workspace, but residual may be out itself, with the same strides; a stride of 0 is one that was forgotten. Rows
/// and columns beyond M and N are neither read nor written.
struct GemmProblem {
  GemmSpec spec{};

  const void* a = nullptr;  // [batch][M, K]; contiguous groups: [M, K] of all groups; masked: [groups][M, K]
  const void* b = nullptr;  // [batch or groups][N, K], or preshuffled
  void* out = nullptr;      // [batch][M, N], contiguous [M, N], masked [groups][M, N]; gated: N / 2 columns

  const float* a_scale =
      nullptr;  // tensor [1]; row, and group with fp8 [batch or groups][M]; block [..][M, ceil(K / 128)] by its strides
  const float* b_scale = nullptr;  // tensor [1]; row [batch or groups][N]; block [..][ceil(N / 128), ceil(K / 128)]
  const void* b_group_scale = nullptr;  // group [batch or groups][K / group, N] of spec.group_scale(), 8-byte aligned
  // mx: [batch or groups] e8m0 codes as shuffled_scale has them, rows padded to 32 and groups of 32 k to 8, what is
  // padding may be anything; 16-byte aligned.
  const std::uint8_t *a_mx_scale = nullptr, *b_mx_scale = nullptr;
  const void* bias = nullptr;      // optional [batch or groups][N], of out's type; bf16 where that is quantised
  const void* residual = nullptr;  // optional, as out; bf16 where that is quantised
  float* out_scale =
      nullptr;  // of a quantised out; per_tensor: [1], read; per_group: [..][M, ceil(columns / 128)], written

  // On the device, so not checked: what says more than M counts as M, what says less than nothing as nothing, and an
  // offset below the one before it as that one.
  const std::int32_t* group_offsets = nullptr;  // contiguous: [groups + 1], ascending from 0 to at most M
  const std::int32_t* group_rows = nullptr;     // masked: [groups], each in [0, M]

  float alpha = 1.0f;
  // Of a gated spec.
  bool interleaved = false;  // rows of B (their scales, bias): gate, up, gate, up; else all gates, then all ups
  float swiglu_alpha = 1.702f, swiglu_limit = 7.0f;  // of swigluoai; the limit may be infinite

  std::int32_t m = 0, n = 0, k = 0;
  std::int32_t batch = 1;                // products of one shape, strides apart; 1 with groups
  std::int32_t groups = 0;               // 0 without groups
  std::int32_t expected_group_rows = 0;  // masked: a guess for the choice of an entry; 0: all there is room for

  // From a row (with [K, M] or [K, N] from one k) to the next, and from a batch or group to the next, in elements: one
  // of fp4 is two values, one of fp6 is four, in three bytes.
  std::int64_t a_stride = 0, b_stride = 0, out_stride = 0, residual_stride = 0;  // b_stride: 0 when preshuffled
  std::int64_t a_batch_stride = 0, b_batch_stride = 0, out_batch_stride = 0, residual_batch_stride = 0;
  std::int64_t bias_batch_stride = 0;
  // Of block scales: from a row (A) or 128 columns (B) to the next, and from 128 k to the next; A's may be [K / 128,
  // M].
  std::int64_t a_scale_stride = 0, a_scale_k_stride = 0, b_scale_stride = 0;
  std::int64_t b_scale_k_stride = 0;  // of scales of groups, too: from one group to the next, a multiple of 4
  std::int64_t a_scale_batch_stride = 0, b_scale_batch_stride = 0;  // of row, block, group and mx scales
  std::int64_t out_scale_stride = 0, out_scale_batch_stride = 0;    // per_group: from a row to the next, and of out's

  bool batch_invariant = false;  // a row's bits do not depend on M: K is never split, tiles are chosen by N and K alone

  void* workspace = nullptr;  // see gemm_workspace_size; 16-byte aligned
  std::size_t workspace_bytes = 0;

  /// The problem of tensors without gaps, with every stride filled in, also those from a batch or group to the next:
  /// only `batch` or `groups` is left to set for more than one product. Block scales lie as [M, ceil(K / 128)] and
  /// [ceil(N / 128), ceil(K / 128)], those of int4 weights as [K / group, N], scales of out as [M, ceil(columns /
  /// 128)]. Scales and tables that the spec asks for are the caller's to set; with_bias and with_residual add those.
  /// The contiguous dimension of A and B is whole 16 bytes, or gemm_check refuses the strides.
  static constexpr GemmProblem packed(const GemmSpec& spec, const void* a, const void* b, void* out, std::int32_t m,
                                      std::int32_t n, std::int32_t k);
  /// The same with a bias [batch or groups][N], or a residual of out's shape, both without gaps.
  constexpr GemmProblem with_bias(const void* values) const;
  constexpr GemmProblem with_residual(const void* values) const;
};

/// Elements of sixteen rows of preshuffled weights, as strides count them.
constexpr std::int64_t gemm_strip_elements(const GemmProblem& p) {
  return std::int64_t{p.k} * 16 / packing_of(p.spec.b);
}
/// Columns of out.
constexpr std::int32_t gemm_out_columns(const GemmProblem& p) { return p.spec.gated ? p.n / 2 : p.n; }
constexpr GemmProblem GemmProblem::packed(const GemmSpec& spec, const void* a, const void* b, void* out, std::int32_t m,
                                          std::int32_t n, std::int32_t k) {
  GemmProblem p;
  p.spec = spec;
  p.a = a, p.b = b, p.out = out;
  p.m = m, p.n = n, p.k = k;
  const std::int64_t wide_m = m, wide_n = n, columns = gemm_out_columns(p);
  const std::int64_t k_blocks = ceil_div(k, gemm_scale_block), n_blocks = ceil_div(n, gemm_scale_block);
  const bool preshuffled = spec.weights == GemmWeights::preshuffled;
  p.a_stride = (transposed_a(spec.layout) ? m : k) / packing_of(spec.a);
  p.b_stride = preshuffled ? 0 : (transposed_b(spec.layout) ? n : k) / packing_of(spec.b);
  p.out_stride = columns;
  p.a_batch_stride = wide_m * k / packing_of(spec.a);
  p.b_batch_stride = wide_n * k / packing_of(spec.b);
  p.out_batch_stride = wide_m * columns;
  switch (spec.scale) {
    case Scaling::none:
    case Scaling::per_tensor:
    case Scaling::per_token:        // operands take neither this one
    case Scaling::per_head: break;  // nor this one
    case Scaling::per_row: p.a_scale_batch_stride = m, p.b_scale_batch_stride = n; break;
    case Scaling::per_block:
      p.a_scale_stride = k_blocks, p.a_scale_k_stride = 1, p.a_scale_batch_stride = wide_m * k_blocks;
      p.b_scale_stride = k_blocks, p.b_scale_k_stride = 1, p.b_scale_batch_stride = n_blocks * k_blocks;
      break;
    case Scaling::per_group:
      p.a_scale_batch_stride = is_fp8(spec.a) ? m : 0;
      p.b_scale_k_stride = n, p.b_scale_batch_stride = spec.scale_k > 0 ? wide_n * (k / spec.scale_k) : 0;
      break;
    case Scaling::mx: {
      const std::int64_t k_groups = align_up(ceil_div(k, 32), 8);
      p.a_scale_batch_stride = align_up(wide_m, std::int64_t{32}) * k_groups;
      p.b_scale_batch_stride = align_up(wide_n, std::int64_t{32}) * k_groups;
      break;
    }
  }
  if (spec.out_scale == Scaling::per_group) {
    p.out_scale_stride = ceil_div<std::int64_t>(columns, 128);
    p.out_scale_batch_stride = wide_m * p.out_scale_stride;
  }
  return p;
}

constexpr GemmProblem GemmProblem::with_bias(const void* values) const {
  GemmProblem p = *this;
  p.bias = values, p.bias_batch_stride = n;
  return p;
}
constexpr GemmProblem GemmProblem::with_residual(const void* values) const {
  GemmProblem p = *this;
  p.residual = values, p.residual_stride = gemm_out_columns(p);
  p.residual_batch_stride = std::int64_t{m} * p.residual_stride;
  return p;
}

/// Products of a call, each with its B; and how many matrices A, out and residual are.
constexpr std::int32_t gemm_layers(const GemmProblem& p) {
  return p.spec.groups == GemmGroups::one ? p.batch : p.groups;
}
constexpr std::int32_t gemm_a_layers(const GemmProblem& p) {
  return p.spec.groups == GemmGroups::contiguous ? 1 : gemm_layers(p);
}

}  // namespace tilewave
