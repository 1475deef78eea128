// SPDX-License-Identifier: MIT
#include "bindings.hpp"

namespace tilewave_torch {

using namespace tilewave;

namespace {

/// What the scales of fp8 operands say by their shapes: one number each, one for each row, or one for each block of 128.
Scaling scaling_of(const Tensor& a, const OptionalTensor& a_scale, const OptionalTensor& b_scale) {
  TORCH_CHECK_VALUE(a_scale.has_value() == b_scale.has_value(), "a_scale and b_scale come together");
  if (!a_scale) return Scaling::none;
  check_type(*a_scale, at::kFloat, "a_scale");
  check_type(*b_scale, at::kFloat, "b_scale");
  check_like(*a_scale, a, "a_scale");
  check_like(*b_scale, a, "b_scale");
  if (b_scale->numel() == 1) return Scaling::per_tensor;
  return a_scale->dim() >= 2 && a_scale->size(-1) > 1 ? Scaling::per_block : Scaling::per_row;
}

/// Operands, scales and out of a [.., M, K] and b [.., N, K].
GemmProblem problem_of(GemmSpec spec, const Tensor& a, const Tensor& b, const OptionalTensor& a_scale,
                       const OptionalTensor& b_scale, const Tensor& out) {
  spec.a = dtype_of(a, "a"), spec.b = dtype_of(b, "b"), spec.out = dtype_of(out, "out");
  spec.scale = scaling_of(a, a_scale, b_scale);
  GemmProblem p;
  p.spec = spec;
  p.a = data_of(a), p.b = data_of(b), p.out = data_of(out);
  p.m = extent(a.size(-2), "a.size(-2)"), p.n = extent(b.size(-2), "b.size(-2)"),
  p.k = extent(a.size(-1), "a.size(-1)");
  p.a_stride = a.stride(-2), p.b_stride = b.stride(-2), p.out_stride = out.stride(-2);
  p.a_batch_stride = a.dim() == 3 ? a.stride(0) : p.m * p.a_stride;
  p.b_batch_stride = b.dim() == 3 ? b.stride(0) : p.n * p.b_stride;
  p.out_batch_stride = out.dim() == 3 ? out.stride(0) : p.m * p.out_stride;
  if (spec.scale == Scaling::none) return p;
  p.a_scale = data_of<const float>(a_scale), p.b_scale = data_of<const float>(b_scale);
  if (spec.scale == Scaling::per_row) {
    p.a_scale_batch_stride = p.m, p.b_scale_batch_stride = p.n;
    check_packed(*a_scale, "a_scale");
    check_packed(*b_scale, "b_scale");
    TORCH_CHECK_VALUE(a_scale->numel() == a.numel() / p.k, "a_scale has not one number for each row of a");
    TORCH_CHECK_VALUE(b_scale->numel() == b.numel() / p.k, "b_scale has not one number for each row of b");
  } else if (spec.scale == Scaling::per_block) {
    const std::int64_t blocks = ceil_div<std::int64_t>(p.k, gemm_scale_block);
    check_extent(*a_scale, -2, p.m, "a_scale");
    check_extent(*a_scale, -1, blocks, "a_scale");
    check_extent(*b_scale, -2, ceil_div(p.n, gemm_scale_block), "b_scale");
    check_extent(*b_scale, -1, blocks, "b_scale");
    p.a_scale_stride = a_scale->stride(-2), p.a_scale_k_stride = a_scale->stride(-1);
    p.b_scale_stride = b_scale->stride(-2), p.b_scale_k_stride = b_scale->stride(-1);
    p.a_scale_batch_stride = a_scale->dim() == 3 ? a_scale->stride(0) : p.m * blocks;
    p.b_scale_batch_stride = b_scale->dim() == 3 ? b_scale->stride(0) : b_scale->numel();
  }
  return p;
}

void check_operands(const Tensor& a, const Tensor& b, std::int64_t a_dims, std::int64_t b_dims) {
  check_dims(a, a_dims, "a");
  check_dims(b, b_dims, "b");
  check_last(a, "a");
  check_last(b, "b");
  check_like(b, a, "b");
  check_extent(b, -1, a.size(-1), "b");
}

/// out[M, N] = a[M, K] b[N, K]^T, times scales, plus a bias [N].
Tensor gemm(const Tensor& a, const Tensor& b, const OptionalTensor& a_scale, const OptionalTensor& b_scale,
            const OptionalTensor& bias, bool fast_sums) {
  check_operands(a, b, 2, 2);
  Tensor out = at::empty({a.size(0), b.size(0)}, a.options().dtype(at::kBFloat16));
  if (a.is_meta() || out.numel() == 0) return out;
  GemmProblem p = problem_of({.sums = fast_sums ? GemmSums::fast : GemmSums::promoted}, a, b, a_scale, b_scale, out);
  if (bias) {
    check_type(*bias, at::kBFloat16, "bias");
    check_dims(*bias, 1, "bias");
    check_extent(*bias, 0, b.size(0), "bias");
    check_like(*bias, a, "bias");
    p = p.with_bias(data_of(bias));
  }
  queue("gemm", p, a);
  return out;
}

/// Rows offsets[g] to offsets[g + 1] of a [M, K] times b[g] of [G, N, K].
Tensor gemm_grouped(const Tensor& a, const Tensor& b, const Tensor& offsets, const OptionalTensor& a_scale,
                    const OptionalTensor& b_scale) {
  check_operands(a, b, 2, 3);
  check_type(offsets, at::kInt, "offsets");
  check_like(offsets, a, "offsets");
  TORCH_CHECK_VALUE(offsets.numel() == b.size(0) + 1, "offsets has not one number more than b has groups");
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kBFloat16));
  if (a.is_meta() || out.numel() == 0) return out;
  GemmProblem p = problem_of({.groups = GemmGroups::contiguous}, a, b, a_scale, b_scale, out);
  p.groups = extent(b.size(0), "b.size(0)"), p.group_offsets = data_of<const std::int32_t>(offsets);
  queue("gemm_grouped", p, a);
  return out;
}

/// The first rows[g] rows of a[g], of [G, M, K], times b[g] of [G, N, K]. Other rows of out are not written.
Tensor gemm_masked(const Tensor& a, const Tensor& b, const Tensor& rows, std::int64_t expected_rows,
                   const OptionalTensor& a_scale, const OptionalTensor& b_scale) {
  check_operands(a, b, 3, 3);
  check_type(rows, at::kInt, "rows");
  check_like(rows, a, "rows");
  check_extent(b, 0, a.size(0), "b");
  TORCH_CHECK_VALUE(rows.numel() == b.size(0), "rows has not one number for each group of b");
  Tensor out = at::empty({a.size(0), a.size(1), b.size(1)}, a.options().dtype(at::kBFloat16));
  if (a.is_meta() || out.numel() == 0) return out;
  GemmProblem p = problem_of({.groups = GemmGroups::masked}, a, b, a_scale, b_scale, out);
  p.groups = extent(b.size(0), "b.size(0)"), p.group_rows = data_of<const std::int32_t>(rows);
  p.expected_group_rows = extent(expected_rows, "expected_rows");
  queue("gemm_masked", p, a);
  return out;
}

/// a[M, K] in bf16 times int4 weights [N, K], preshuffled bytes [N * K / 2], with scales [K / 128, N] in bf16.
Tensor gemm_int4(const Tensor& a, const Tensor& weights, const Tensor& scale) {
  check_dims(a, 2, "a");
  check_last(a, "a");
  check_dims(scale, 2, "scale");
  check_packed(scale, "scale");
  check_packed(weights, "weights");
  check_type(a, at::kBFloat16, "a");
  check_type(weights, at::kByte, "weights");
  check_type(scale, at::kBFloat16, "scale");
  check_like(weights, a, "weights");
  check_like(scale, a, "scale");
  const std::int64_t n = scale.size(1), k = a.size(1);
  check_extent(scale, 0, k / 128, "scale");
  TORCH_CHECK_VALUE(weights.numel() == n * k / 2, "weights has not N * K / 2 bytes");
  Tensor out = at::empty({a.size(0), n}, a.options());
  if (a.is_meta() || out.numel() == 0) return out;
  constexpr GemmSpec spec{
      .b = DType::i4, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 128};
  GemmProblem p = GemmProblem::packed(spec, data_of(a), data_of(weights), data_of(out), extent(a.size(0), "a.size(0)"),
                                      extent(n, "N"), extent(k, "K"));
  p.a_stride = a.stride(0), p.b_group_scale = data_of(scale);
  queue("gemm_int4", p, a);
  return out;
}

void implement(torch::Library& m) {
  m.impl("gemm", &gemm);
  m.impl("gemm_grouped", &gemm_grouped);
  m.impl("gemm_masked", &gemm_masked);
  m.impl("gemm_int4", &gemm_int4);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tilewave, m) {
  m.def(
      "gemm(Tensor a, Tensor b, Tensor? a_scale=None, Tensor? b_scale=None, Tensor? bias=None, bool fast_sums=False) -> "
      "Tensor");
  m.def("gemm_grouped(Tensor a, Tensor b, Tensor offsets, Tensor? a_scale=None, Tensor? b_scale=None) -> Tensor");
  m.def(
      "gemm_masked(Tensor a, Tensor b, Tensor rows, int expected_rows=0, Tensor? a_scale=None, Tensor? b_scale=None) -> "
      "Tensor");
  m.def("gemm_int4(Tensor a, Tensor weights, Tensor scale) -> Tensor");
}
TORCH_LIBRARY_IMPL(tilewave, CUDA, m) { implement(m); }
TORCH_LIBRARY_IMPL(tilewave, Meta, m) { implement(m); }

}  // namespace tilewave_torch
