// SPDX-License-Identifier: MIT
#include "bindings.hpp"

namespace tilewave_torch {

using namespace tilewave;

namespace {

Tensor as(const Tensor& x) { return at::empty(x.sizes(), x.options()); }
/// Codes in e4m3fn, which gfx950 and sm90 have.
Tensor codes_as(const Tensor& x) { return at::empty(x.sizes(), x.options().dtype(at::kFloat8_e4m3fn)); }
/// f32 scales of rows.
Tensor row_scales(const Tensor& x) {
  std::vector<std::int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = 1;
  return at::empty(sizes, x.options().dtype(at::kFloat));
}

Tensor vec_add(const Tensor& a, const Tensor& b) {
  check_packed(a, "a");
  check_packed(b, "b");
  check_like(b, a, "b");
  check_type(b, a.scalar_type(), "b");
  TORCH_CHECK_VALUE(a.sizes() == b.sizes(), "a and b differ in shape");
  Tensor out = as(a);
  if (a.is_meta() || a.numel() == 0) return out;
  queue("vec_add", VecAddProblem{{dtype_of(a, "a")}, data_of(a), data_of(b), data_of(out), a.numel()}, a);
  return out;
}

/// A norm of rows of x with a weight [columns], all of one type.
NormProblem norm_of(NormKind kind, const Tensor& x, const Tensor& weight, const OptionalTensor& bias, double eps) {
  check_dims(weight, 1, "weight");
  check_packed(weight, "weight");
  check_extent(weight, 0, x.size(-1), "weight");
  check_like(weight, x, "weight");
  const Rows rows = rows_of(x, "x");
  NormProblem p{.spec = {.kind = kind, .x = dtype_of(x, "x"), .weight = dtype_of(weight, "weight")}};
  p.spec.out = p.spec.x;
  if (x.is_meta()) return p;
  p.x = data_of(x), p.weight = data_of(weight), p.eps = static_cast<float>(eps);
  p.rows = rows.rows, p.columns = rows.columns, p.x_strides = rows.strides, p.out_strides = {.outer = rows.columns};
  if (bias) {
    check_packed(*bias, "bias");
    check_type(*bias, weight.scalar_type(), "bias");
    check_like(*bias, x, "bias");
    TORCH_CHECK_VALUE(bias->sizes() == weight.sizes(), "bias and weight differ in shape");
    p.bias = data_of(bias);
  }
  return p;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  NormProblem p = norm_of(NormKind::rms, x, weight, {}, eps);
  Tensor out = as(x);
  if (x.is_meta() || x.numel() == 0) return out;
  p.out = data_of(out);
  queue("rms_norm", p, x);
  return out;
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const OptionalTensor& bias, double eps) {
  NormProblem p = norm_of(NormKind::layer, x, weight, bias, eps);
  Tensor out = as(x);
  if (x.is_meta() || x.numel() == 0) return out;
  p.out = data_of(out);
  queue("layer_norm", p, x);
  return out;
}

/// The norm of x + residual, and that sum.
std::tuple<Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
  NormProblem p = norm_of(NormKind::rms, x, weight, {}, eps);
  TORCH_CHECK_VALUE(residual.sizes() == x.sizes(), "residual and x differ in shape");
  check_type(residual, x.scalar_type(), "residual");
  check_like(residual, x, "residual");
  const Rows rows = rows_of(residual, "residual");
  Tensor out = as(x), sum = as(x);
  if (x.is_meta() || x.numel() == 0) return {out, sum};
  p.out = data_of(out), p.residual = data_of(residual), p.residual_out = data_of(sum);
  p.residual_strides = rows.strides, p.residual_out_strides = {.outer = rows.columns};
  queue("add_rms_norm", p, x);
  return {out, sum};
}

/// The norm in fp8 and the scale of each row.
std::tuple<Tensor, Tensor> rms_norm_fp8(const Tensor& x, const Tensor& weight, double eps) {
  NormProblem p = norm_of(NormKind::rms, x, weight, {}, eps);
  Tensor out = codes_as(x), scale = row_scales(x);
  if (x.is_meta() || x.numel() == 0) return {out, scale};
  p.spec.out = dtype_of(out, "out"), p.spec.scale = Scaling::per_token;
  p.out = data_of(out), p.scale = data_of(scale);
  queue("rms_norm_fp8", p, x);
  return {out, scale};
}

/// Softmax over the last dimension of x * scale, of a row's first lengths[row] columns where there are lengths.
Tensor softmax_of(SoftmaxKind kind, const char* name, const Tensor& x, const OptionalTensor& lengths, double scale) {
  const Rows rows = rows_of(x, "x");
  Tensor out = as(x);
  if (lengths) {
    check_type(*lengths, at::kInt, "lengths");
    check_packed(*lengths, "lengths");
    check_like(*lengths, x, "lengths");
    TORCH_CHECK_VALUE(lengths->numel() == rows.rows, "lengths has not one number for each row");
  }
  if (x.is_meta() || x.numel() == 0) return out;
  SoftmaxProblem p{.spec = {kind, dtype_of(x, "x")}, .x = data_of(x), .out = data_of(out)};
  p.lengths = data_of<const std::int32_t>(lengths), p.scale = static_cast<float>(scale);
  p.rows = rows.rows, p.columns = rows.columns, p.x_strides = rows.strides, p.out_strides = {.outer = rows.columns};
  queue(name, p, x);
  return out;
}
Tensor softmax(const Tensor& x, const OptionalTensor& lengths, double scale) {
  return softmax_of(SoftmaxKind::softmax, "softmax", x, lengths, scale);
}
Tensor log_softmax(const Tensor& x, const OptionalTensor& lengths, double scale) {
  return softmax_of(SoftmaxKind::log_softmax, "log_softmax", x, lengths, scale);
}

/// x in fp8 with scales `per_token` [.., 1], `per_group` of 128 columns [.., groups], or one found for the tensor, `per_tensor`.
std::tuple<Tensor, Tensor> quant(const Tensor& x, c10::string_view mode) {
  const Rows rows = rows_of(x, "x");
  const bool groups = mode == "per_group", tensor = mode == "per_tensor";
  TORCH_CHECK_VALUE(groups || tensor || mode == "per_token", "mode is none of per_token, per_group, per_tensor");
  Tensor out = codes_as(x), scale = row_scales(x);
  const std::int64_t count = ceil_div(rows.columns, scale_group);
  if (tensor) scale = at::empty({1}, scale.options());
  if (groups) {
    std::vector<std::int64_t> sizes(x.sizes().begin(), x.sizes().end());
    sizes.back() = count;
    scale = at::empty(sizes, scale.options());
  }
  if (x.is_meta() || x.numel() == 0) return {out, scale};
  QuantProblem p{.spec = {dtype_of(x, "x"), dtype_of(out, "out"), Scaling::per_token}};
  if (groups) p.spec.scale = Scaling::per_group, p.scale_stride = count;
  if (tensor) p.spec.scale = Scaling::per_tensor, p.find_scale = true;
  p.x = data_of(x), p.out = data_of(out), p.scale = data_of(scale);
  p.rows = rows.rows, p.columns = rows.columns, p.x_strides = rows.strides, p.out_strides = {.outer = rows.columns};
  const Tensor workspace = workspace_on(x, quant_workspace_size(p));  // a tensor's scale is planned with it
  p.workspace = data_of(workspace), p.workspace_bytes = workspace.numel();
  queue("quant", p, x);
  return {out, scale};
}

/// Codes times the scale of each row, in bf16.
Tensor dequant(const Tensor& x, const Tensor& scale) {
  const Rows rows = rows_of(x, "x");
  check_type(scale, at::kFloat, "scale");
  check_packed(scale, "scale");
  check_like(scale, x, "scale");
  TORCH_CHECK_VALUE(scale.numel() == rows.rows, "scale has not one number for each row");
  Tensor out = at::empty(x.sizes(), x.options().dtype(at::kBFloat16));
  if (x.is_meta() || x.numel() == 0) return out;
  QuantProblem p{.spec = {dtype_of(x, "x"), DType::bf16, Scaling::per_token}};
  p.x = data_of(x), p.out = data_of(out), p.scale = data_of(scale);
  p.rows = rows.rows, p.columns = rows.columns, p.x_strides = rows.strides, p.out_strides = {.outer = rows.columns};
  queue("dequant", p, x);
  return out;
}

/// silu(gate) * up of rows whose first half are gates.
Tensor silu_mul(const Tensor& x) {
  const Rows rows = rows_of(x, "x");
  TORCH_CHECK_VALUE(rows.columns % 2 == 0, "x.size(-1) is odd");
  std::vector<std::int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() /= 2;
  Tensor out = at::empty(sizes, x.options());
  if (x.is_meta() || x.numel() == 0) return out;
  ActivationProblem p{.spec = {}, .x = data_of(x), .out = data_of(out)};
  p.spec.x = p.spec.out = dtype_of(x, "x");
  p.rows = rows.rows, p.columns = rows.columns / 2, p.x_strides = rows.strides, p.out_strides = {.outer = p.columns};
  queue("silu_mul", p, x);
  return out;
}

void implement(torch::Library& m) {
  m.impl("vec_add", &vec_add);
  m.impl("rms_norm", &rms_norm);
  m.impl("layer_norm", &layer_norm);
  m.impl("add_rms_norm", &add_rms_norm);
  m.impl("rms_norm_fp8", &rms_norm_fp8);
  m.impl("softmax", &softmax);
  m.impl("log_softmax", &log_softmax);
  m.impl("quant", &quant);
  m.impl("dequant", &dequant);
  m.impl("silu_mul", &silu_mul);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tilewave, m) {
  m.def("vec_add(Tensor a, Tensor b) -> Tensor");
  m.def("rms_norm(Tensor x, Tensor weight, float eps=1e-5) -> Tensor");
  m.def("layer_norm(Tensor x, Tensor weight, Tensor? bias=None, float eps=1e-5) -> Tensor");
  m.def("add_rms_norm(Tensor x, Tensor residual, Tensor weight, float eps=1e-5) -> (Tensor, Tensor)");
  m.def("rms_norm_fp8(Tensor x, Tensor weight, float eps=1e-5) -> (Tensor, Tensor)");
  m.def("softmax(Tensor x, Tensor? lengths=None, float scale=1.0) -> Tensor");
  m.def("log_softmax(Tensor x, Tensor? lengths=None, float scale=1.0) -> Tensor");
  m.def("quant(Tensor x, str mode='per_token') -> (Tensor, Tensor)");
  m.def("dequant(Tensor x, Tensor scale) -> Tensor");
  m.def("silu_mul(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(tilewave, CUDA, m) { implement(m); }
TORCH_LIBRARY_IMPL(tilewave, Meta, m) { implement(m); }

}  // namespace tilewave_torch
