// SPDX-License-Identifier: MIT
// One call of a GEMM: raw pointers, extents, and 64-bit strides in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave {

struct KvCacheWriteProblem;

/// Rows of A and B are whole 16 bytes: their addresses and strides are multiples of that. The bytes between K and the
/// end of the last 16 are read, also in the last row, but their values do not matter. Where the layout has [K, M] or
/// [K, N], a row is one k, and M or N takes the part of K. The other dimension is contiguous. No tensor may overlap the
/// output or the workspace, but residual may be out itself, with the same strides. A stride of 0 counts as forgotten,
/// but for that of an A which is shared.
/// Rows beyond M and columns beyond N are neither read nor written. In the shapes below, layers are batches or groups.
struct GemmProblem {
  GemmSpec spec{};

  const void* a = nullptr;  // [batch][M, K]; contiguous groups: [M, K] of all groups; masked: [groups][M, K]
  const void* b = nullptr;  // [layers][N, K], or preshuffled
  void* out = nullptr;      // [batch][M, N], contiguous [M, N], masked [groups][M, N]; gated: N / 2 columns

  /// per_tensor: [1]. per_row, and per_group with fp8: [layers][M]. per_block: [layers][M, ceil(K / 128)] by its
  /// strides.
  const float* a_scale = nullptr;
  /// per_tensor: [1]. per_row: [layers][N]. per_block: [layers][ceil(N / 128), ceil(K / 128)] by its strides.
  const float* b_scale = nullptr;
  const void* b_group_scale = nullptr;  // per_group: [layers][K / scale_k, N] of spec.group_scale(), 8-byte aligned
  const std::int8_t* b_zero = nullptr;  // zero_points: as b_group_scale, -8 to 8, each the checkpoint's less 8
  /// mx: [layers] e8m0 codes in the order of shuffled_scale, 16-byte aligned. Rows are padded to 32 and scales
  /// of a row to 8; the padding may hold anything.
  const std::uint8_t *a_mx_scale = nullptr, *b_mx_scale = nullptr;
  const void* bias = nullptr;      // optional: [layers][N], of out's type, or bf16 where out is quantised
  const void* residual = nullptr;  // optional: as out, of out's type, or bf16 where out is quantised
  /// Quantised outputs alone. per_tensor: [1], read. per_group: [layers][M, ceil(columns / 128)], written.
  float* out_scale = nullptr;

  // The tables are on the device, so they are not checked. A value above M counts as M and a negative one as 0. An
  // offset below the one before it counts as that one.
  const std::int32_t* group_offsets = nullptr;  // contiguous: [groups + 1], ascending from 0 to at most M
  const std::int32_t* group_rows = nullptr;     // masked: [groups], each in [0, M]; [1] of all where they share A

  /// Specs that gather or scatter: [M], slot << 24 | token of each row of the groups, as moe_sort's sorted_ids.
  /// Gathered: row r of the groups is row `token` of A, which has `tokens` rows; a token beyond them counts as the
  /// last. Scattered: it becomes row token * topk + slot of out, which has tokens * topk rows. A row whose token or
  /// slot is beyond them is not written, and of two rows with one id either may stay.
  const std::int32_t* row_ids = nullptr;
  /// Optional with row_ids: [M]. Gathered: multiplies the row of A, that is its sums before the bias. Otherwise it
  /// multiplies what is written.
  const float* row_weights = nullptr;
  std::int32_t tokens = 0;  // with row_ids
  std::int32_t topk = 0;    // scattered: slots of a token, 1 to 255

  float alpha = 1.0f;
  /// Gated specs alone. Rows of B, with their scales and bias, are gate, up, gate, up. Otherwise all gates come first.
  bool interleaved = false;
  float swiglu_alpha = 1.702f, swiglu_limit = 7.0f;  // for swigluoai; the limit may be infinite

  std::int32_t m = 0, n = 0, k = 0;
  std::int32_t batch = 1;                // products of one shape, a stride apart; 1 with groups
  bool shared_a = false;                 // batches or masked groups have one A, [M, K], with an a_batch_stride of 0;
                                         // groups then have as many rows
  std::int32_t groups = 0;               // 0 without groups
  std::int32_t expected_group_rows = 0;  // masked: a guess of the usual rows, for the choice of an entry; 0: M

  // Strides are in elements, from a row to the next and from a layer to the next. A row of [K, M] or [K, N] is one k.
  // An element of fp4 is two values, and one of fp6 is four values in three bytes. Preshuffled weights have a b_stride
  // of 0.
  std::int64_t a_stride = 0, b_stride = 0, out_stride = 0, residual_stride = 0;
  std::int64_t a_batch_stride = 0, b_batch_stride = 0, out_batch_stride = 0, residual_batch_stride = 0;
  std::int64_t bias_batch_stride = 0;
  // Block scales: from a row of A, or 128 columns of B, to the next, and from 128 k to the next. A's scales may also
  // lie as [K / 128, M].
  std::int64_t a_scale_stride = 0, a_scale_k_stride = 0, b_scale_stride = 0;
  std::int64_t b_scale_k_stride = 0;  // also for int4 weights: from scale_k values of K to the next, a multiple of 4
  std::int64_t a_scale_batch_stride = 0, b_scale_batch_stride = 0;  // scales of rows, blocks, int4 weights and MX
  std::int64_t out_scale_stride = 0, out_scale_batch_stride = 0;  // per_group: from a row and from a layer to the next

  /// Rows of A count as divided by their root mean square: row r of the products is multiplied by 1 / sqrt(mean of
  /// its squares + norm_eps), before bias and activation. The norm's weights are the caller's to multiply into B. This
  /// saves the launch that would normalise few rows. It takes bf16 or f16 without scales and groups, in layout nt, and
  /// entries of sm90 with tiles of at most 16 rows serve it. It pays for up to four, with a_squares for up to 64.
  bool rms_norm = false;
  float norm_eps = 0.0f;  // with rms_norm, at least 0
  /// Optional with rms_norm: [M, K / 64], sums of the squares of 64 neighbours of a row of A, 16-byte aligned. They
  /// spare the reading of rows, so tiles of 64 rows serve it, too.
  const float* a_squares = nullptr;
  /// Optional: [M, N / 64], written: the same of the rows of out, as they are rounded. It takes what rms_norm takes,
  /// one batch, no gates, an out of 16 bits, and an N that is a multiple of 64.
  float* out_squares = nullptr;
  /// Optional: the write into a paged cache that would be the next call, of q, k and v as the columns of out. The
  /// product does it, and the call goes. It rotates pairs of neighbours: where a model rotates halves, rows of B lie
  /// in pairs, dimension i of a head beside dimension i + head_size / 2. The k and v of out stay as they were. It takes
  /// what out_squares takes, without residual, and entries of sm90 that write squares serve it.
  const KvCacheWriteProblem* cache_write = nullptr;
  /// A promise: the kernel right before this call on its stream does not write B or its scales, as it does not where B
  /// are a model's weights. Then B's first boxes are fetched while that kernel ends (sm90).
  bool b_ready = false;
  /// A row's bits do not depend on M: K is never shared by blocks, and tiles are chosen by N and K alone.
  bool batch_invariant = false;

  void* workspace = nullptr;  // plan.workspace_bytes(problem) bytes, aligned to 16
  std::size_t workspace_bytes = 0;

  /// Returns the problem of tensors without gaps, with every stride filled in, also those between batches or groups.
  /// For more than one product only `batch` or `groups` is left to set. Block scales lie as [M, ceil(K / 128)] and
  /// [ceil(N / 128), ceil(K / 128)], those of int4 weights as [K / scale_k, N], and scales of out as [M, ceil(columns /
  /// 128)]. The caller sets the scales and tables that the spec asks for, and adds the tensors of with_bias and
  /// with_residual. The contiguous dimension of A and B is whole 16 bytes, or gemm_check refuses the strides.
  static constexpr GemmProblem packed(const GemmSpec& spec, const void* a, const void* b, void* out, std::int32_t m,
                                      std::int32_t n, std::int32_t k);
  /// Returns the same problem with a bias [layers][N], or a residual of out's shape, both without gaps.
  constexpr GemmProblem with_bias(const void* values) const;
  constexpr GemmProblem with_residual(const void* values) const;
};

/// Returns the elements of a strip of sixteen rows of preshuffled weights, as strides count them.
constexpr std::int64_t gemm_strip_elements(const GemmProblem& p) {
  return std::int64_t{p.k} * 16 / packing_of(p.spec.b);
}
/// Returns the columns of out.
constexpr std::int32_t gemm_out_columns(const GemmProblem& p) { return p.spec.gated ? p.n / 2 : p.n; }
constexpr GemmProblem GemmProblem::packed(const GemmSpec& spec, const void* a, const void* b, void* out, std::int32_t m,
                                          std::int32_t n, std::int32_t k) {
  GemmProblem p;
  p.spec = spec;
  p.a = a, p.b = b, p.out = out;
  p.m = m, p.n = n, p.k = k;
  const std::int64_t wide_m = m, wide_n = n, columns = gemm_out_columns(p);
  const std::int64_t k_blocks = ceil_div(k, gemm_scale_block), n_blocks = ceil_div(n, gemm_scale_block);
  const bool preshuffled = spec.in_strips();
  p.a_stride = (transposed_a(spec.layout) ? m : k) / packing_of(spec.a);
  p.b_stride = preshuffled ? 0 : (transposed_b(spec.layout) ? n : k) / packing_of(spec.b);
  p.out_stride = columns;
  p.a_batch_stride = wide_m * k / packing_of(spec.a);
  p.b_batch_stride = wide_n * k / packing_of(spec.b);
  p.out_batch_stride = wide_m * columns;
  switch (spec.scale) {
    case Scaling::none:
    case Scaling::per_tensor:
    case Scaling::per_token:        // Operands do not take per_token,
    case Scaling::per_head: break;  // nor per_head.
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
      const std::int64_t row_scales = align_up(ceil_div(k, 32), 8);
      p.a_scale_batch_stride = align_up(wide_m, std::int64_t{32}) * row_scales;
      p.b_scale_batch_stride = align_up(wide_n, std::int64_t{32}) * row_scales;
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

/// Returns the rows of A, and of out, in each of their layers.
constexpr std::int32_t gemm_a_rows(const GemmProblem& p) { return p.spec.gathered ? p.tokens : p.m; }
constexpr std::int32_t gemm_out_rows(const GemmProblem& p) { return p.spec.scattered ? p.tokens * p.topk : p.m; }
/// Returns the products of a call, each with a B of its own: batches or groups.
constexpr std::int32_t gemm_layers(const GemmProblem& p) {
  return p.spec.groups == GemmGroups::one ? p.batch : p.groups;
}
/// Returns the matrices that A, out and residual are. Contiguous groups have one in common.
constexpr std::int32_t gemm_a_layers(const GemmProblem& p) {
  return p.spec.groups == GemmGroups::contiguous ? 1 : gemm_layers(p);
}

}  // namespace tilewave
