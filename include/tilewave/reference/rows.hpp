// SPDX-License-Identifier: MIT
// Row operations as plain loops in double. They are the oracle of tests and benchmarks, and independent of the kernels'
// code.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tilewave/ops/norm/problem.hpp"
#include "tilewave/ops/quant/problem.hpp"
#include "tilewave/ops/softmax/problem.hpp"

namespace tilewave::reference {

/// Returns value `index` of an array of type `type`.
inline double element(DType type, const void* data, std::int64_t index) {
  switch (type) {
    case DType::f32: return static_cast<const float*>(data)[index];
    case DType::f16: return f16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
    case DType::bf16: return bf16_to_f32(static_cast<const std::uint16_t*>(data)[index]);
    case DType::i8: return static_cast<const std::int8_t*>(data)[index];
    case DType::e8m0: return e8m0_to_f32(static_cast<const std::uint8_t*>(data)[index]);
    case DType::fp4_e2m1: {
      const int code = static_cast<const std::uint8_t*>(data)[index / 2] >> index % 2 * 4;
      constexpr double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      return (code & 8 ? -1 : 1) * magnitudes[code & 7];
    }
    case DType::fp6_e2m3:
    case DType::fp6_e3m2: {  // the code may lie anywhere in a row of bits
      const auto* const bytes = static_cast<const std::uint8_t*>(data);
      int code = 0;
      for (int bit = 0; bit < 6; ++bit) code |= (bytes[(6 * index + bit) / 8] >> (6 * index + bit) % 8 & 1) << bit;
      const int digits = type == DType::fp6_e2m3 ? 3 : 2, exponent = (code & 31) >> digits;
      const double fraction = std::ldexp(code & ((1 << digits) - 1), -digits) + (exponent > 0 ? 1 : 0);
      const double magnitude = std::ldexp(fraction, (exponent > 0 ? exponent : 1) - (type == DType::fp6_e2m3 ? 1 : 3));
      return code & 32 ? -magnitude : magnitude;
    }
    default: return fp8_to_f32(type, static_cast<const std::uint8_t*>(data)[index]);
  }
}
/// Decodes `count` elements from `index` on. Those of fp8 are looked up.
inline void elements(DType type, const void* data, std::int64_t index, std::int32_t count, double* values) {
  if (type == DType::bf16) {
    const std::uint16_t* const from = static_cast<const std::uint16_t*>(data) + index;
    for (std::int32_t i = 0; i < count; ++i) values[i] = bf16_to_f32(from[i]);
  } else if (is_fp8(type)) {
    const auto all = [](DType of) {
      std::array<double, 256> decoded{};
      for (int code = 0; code < 256; ++code) decoded[code] = fp8_to_f32(of, static_cast<std::uint8_t>(code));
      return decoded;
    };
    static const std::array<double, 256> fn = all(DType::fp8_e4m3fn), fnuz = all(DType::fp8_e4m3fnuz);
    const std::array<double, 256>& decoded = type == DType::fp8_e4m3fn ? fn : fnuz;
    const std::uint8_t* const from = static_cast<const std::uint8_t*>(data) + index;
    for (std::int32_t i = 0; i < count; ++i) values[i] = decoded[from[i]];
  } else {
    for (std::int32_t i = 0; i < count; ++i) values[i] = element(type, data, index + i);
  }
}
/// Returns a value rounded to a row type, to nearest even.
inline double rounded(DType type, double value) {
  const auto f = static_cast<float>(value);
  return type == DType::bf16 ? bf16_to_f32(f32_to_bf16(f)) : type == DType::f16 ? f16_to_f32(f32_to_f16(f)) : f;
}
inline std::int64_t row_offset(std::int32_t row, std::int32_t inner_rows, const RowStrides& s) {
  return row / inner_rows * s.outer + row % inner_rows * s.inner;
}

struct NormRow {
  std::vector<double> values;  // values before the output's rounding or quantisation
  std::vector<double> sum;     // x + residual in x's type, where there is a residual
  double mean = 0, rstd = 0;
};

/// Returns one row of a problem whose tensors are on the host.
inline NormRow norm_row(const NormProblem& p, std::int32_t row) {
  const NormSpec& s = p.spec;
  NormRow r;
  std::vector<double> x(p.columns);
  for (std::int32_t c = 0; c < p.columns; ++c) {
    x[c] = element(s.x, p.x, row_offset(row, p.inner_rows, p.x_strides) + c);
    if (p.residual == nullptr) continue;
    const double other = element(s.x, p.residual, row_offset(row, p.inner_rows, p.residual_strides) + c);
    x[c] = rounded(s.x, static_cast<float>(x[c]) + static_cast<float>(other));
  }
  if (p.residual != nullptr) r.sum = x;
  if (s.kind == NormKind::layer) {
    for (const double v : x) r.mean += v;
    r.mean /= p.columns;
  }
  double squares = 0;
  for (const double v : x) squares += (v - r.mean) * (v - r.mean);
  const bool finite = squares <= std::numeric_limits<float>::max();  // the row is NaN where the sum leaves f32
  r.rstd = finite ? 1 / std::sqrt(squares / p.columns + p.eps) : std::numeric_limits<double>::quiet_NaN();
  r.values.resize(p.columns);
  for (std::int32_t c = 0; c < p.columns; ++c) {
    double n = (x[c] - r.mean) * r.rstd * element(s.weight, p.weight, c);
    if (p.bias != nullptr) n += element(s.weight, p.bias, c);
    if (s.scale != Scaling::none && p.smooth != nullptr) n *= element(s.x, p.smooth, c);
    r.values[c] = n;
  }
  return r;
}

struct SoftmaxRow {
  std::vector<double> values;
  double lse = 0;
};

/// Returns one row of a problem whose tensors are on the host.
inline SoftmaxRow softmax_row(const SoftmaxProblem& p, std::int32_t row) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::int64_t visible = p.columns;
  if (p.lengths != nullptr) visible = std::clamp<std::int64_t>(p.lengths[row / p.rows_per_length], 0, p.columns);
  if (p.causal_rows > 0) visible = std::max<std::int64_t>(0, visible - (p.causal_rows - 1 - row % p.causal_rows));
  std::vector<double> x(visible);
  double largest = -infinity, sum = 0;
  for (std::int64_t c = 0; c < visible; ++c) {
    x[c] = element(p.spec.x, p.x, row_offset(row, p.inner_rows, p.x_strides) + c) * p.scale;
    if (!(x[c] <= largest)) largest = x[c];  // a NaN stays
  }
  const bool log = p.spec.kind == SoftmaxKind::log_softmax;
  SoftmaxRow r{std::vector<double>(p.columns, log ? -infinity : 0.0), -infinity};
  if (largest == -infinity) return r;
  for (const double v : x) sum += std::exp(v - largest);
  r.lse = largest + std::log(sum);
  for (std::int64_t c = 0; c < visible; ++c) {  // not by lse, which may be too large to resolve log(sum)
    r.values[c] = log ? x[c] - largest - std::log(sum) : std::exp(x[c] - largest) / sum;
  }
  return r;
}

/// scale_index returns the index of an element's scale, and scale_of the scale for values with this largest magnitude.
inline std::int64_t scale_index(const QuantProblem& p, std::int32_t row, std::int32_t column) {
  return p.spec.scale == Scaling::per_tensor  ? 0
         : p.spec.scale == Scaling::per_token ? row
                                              : row * p.scale_stride + column / 128 * p.scale_group_stride;
}
inline double scale_of(double amax, DType codes) {
  const double largest = codes == DType::i8 ? 127 : codes == DType::fp8_e4m3fnuz ? 240 : 448;
  return amax < 0x1p-117 ? 1 : amax / largest;
}
/// Returns the mx scale of 32 values, by the definitions of MxRounding.
inline double mx_scale_of(double amax, DType codes, MxRounding rounding) {
  if (!(amax < std::numeric_limits<double>::infinity())) return std::numeric_limits<double>::quiet_NaN();
  if (amax == 0) return 0x1p-127;
  const bool e4m3 = is_fp8(codes), e3m2 = codes == DType::fp6_e3m2;
  const double largest = e4m3 ? 448 : e3m2 ? 28 : codes == DType::fp6_e2m3 ? 7.5 : 6;
  double scale = 0;
  if (rounding == MxRounding::nearest) {
    const double quotient = amax / (e4m3 ? 448 : e3m2 ? 16 : 4);
    scale = std::ldexp(1.0, std::ilogb(quotient));
    if (quotient >= 1.5 * scale) scale *= 2;
  } else {
    scale = std::ldexp(1.0, std::ilogb(amax) - std::ilogb(largest));
    if (rounding == MxRounding::up && amax > largest * scale) scale *= 2;
  }
  return std::max(scale, 0x1p-127);
}
/// Returns the scale of a row's column, for scalings with several scales a row. Scales lie as RowOutputArgs says.
inline double group_scale(const void* scales, Scaling mode, ScaleLayout layout, std::int64_t stride,
                          std::int32_t columns, std::int64_t row, std::int32_t column) {
  if (mode != Scaling::mx) return static_cast<const float*>(scales)[row * stride + column / 128];
  std::int64_t at = row * stride + column / 32;
  if (layout == ScaleLayout::shuffled) {
    // The layout is [rows / 32, groups / 8, 4: group % 4, 16: row % 16, 2: group / 4 % 2, 2: row / 16 % 2].
    const std::int64_t group = column / 32, eights = (columns + 255) / 256;
    at = row / 32 * eights + group / 8;
    at = (at * 4 + group % 4) * 16 + row % 16;
    at = (at * 2 + group / 4 % 2) * 2 + row / 16 % 2;
  }
  const int code = static_cast<const std::uint8_t*>(scales)[at];
  return code == 0xff ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, code - 127);
}

/// Returns one row of a problem whose tensors, the scales of codes included, are on the host: the values that are
/// quantised (x smooth), or the dequantised values before they are rounded.
inline std::vector<double> quant_row(const QuantProblem& p, std::int32_t row) {
  std::vector<double> values(p.columns);
  for (std::int32_t c = 0; c < p.columns; ++c) {
    values[c] = element(p.spec.x, p.x, row_offset(row, p.inner_rows, p.x_strides) + c);
    if (p.smooth != nullptr) values[c] *= element(p.spec.x, p.smooth, c);
    if (p.spec.kind() == QuantKind::dequantise) values[c] *= static_cast<const float*>(p.scale)[scale_index(p, row, c)];
  }
  return values;
}
/// Returns the largest magnitude of columns [first, end). A NaN does not count.
inline double amax(const std::vector<double>& values, std::int32_t first, std::int32_t end) {
  double largest = 0;
  for (std::int32_t c = first; c < end; ++c) {
    if (std::abs(values[c]) > largest) largest = std::abs(values[c]);
  }
  return largest;
}

}  // namespace tilewave::reference
