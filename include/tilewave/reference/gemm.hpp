// SPDX-License-Identifier: MIT
// GEMM as plain loops in double: the oracle of tests and benchmarks, independent of the kernels' code.
#pragma once

#include <cmath>
#include <vector>

#include "tilewave/ops/gemm/problem.hpp"
#include "tilewave/reference/activation.hpp"
#include "tilewave/reference/rows.hpp"

namespace tilewave::reference {

struct GemmValue {
  double value = 0;      // before it is rounded to out's type
  double magnitude = 0;  // the same of absolute values, without the activation: what errors of the sum are relative to
  double lost = 0;       // what a matrix unit that cuts off (GemmUnit) may take from it
};

/// How a matrix unit that cuts off keeps a sum: it aligns the products of `step` k and the sum so far with the largest
/// of them, of which it keeps `bits` below the leading one, and cuts the rest off, towards zero; of a new sum it keeps
/// `of_sums`. A sum goes through the unit for `chain` k, then it is added up in f32; 0: for all. Without a step: sums
/// are those of f32.
struct GemmUnit {
  int step = 0, bits = 0, of_sums = 0, chain = 0;
};
/// sm90's: test/arch/room_truncation_test.cpp holds it against silicon. The emulated device has that of fp8.
inline GemmUnit gemm_unit(ArchId arch, bool emulated, const GemmSpec& s) {
  if (facts_of(arch).f32_sums || s.a == DType::i8 || (emulated && !is_fp8(s.a))) return {};
  const bool folded = s.scale == Scaling::per_block || (s.has_sums_to_choose() && s.sums == GemmSums::promoted);
  const int chain = s.int4() ? s.scale_k : folded ? gemm_scale_block : 0;
  return is_fp8(s.a) ? GemmUnit{32, 13, 13, chain} : GemmUnit{16, 25, 23, chain};
}

/// What a GemmUnit takes from sums, as far as can be told without its order: what it cuts off products has their sign,
/// and is half a unit on average; what it cuts off the sum so far, and off the new one, may all have one sign; and of
/// the rest four standard deviations.
class GemmLoss {
 public:
  explicit GemmLoss(const GemmUnit& unit) : unit_(unit) {}

  /// Before each chain, of which sums are scaled.
  void begin(double scale) {
    sum_ = 0;
    scale_ = scale;
  }
  /// The products of one step.
  void add(const double* a, const double* b, std::int32_t count) {
    double most = std::abs(sum_), next = sum_;
    for (std::int32_t k = 0; k < count; ++k) {
      most = std::max(most, std::abs(a[k] * b[k]));
      next += a[k] * b[k];
    }
    if (most == 0) return;
    const double unit = unit_at(most, unit_.bits);
    const double of_next = next == 0 ? unit : std::max(unit, unit_at(std::abs(next), unit_.of_sums));
    double cut = 0;
    for (std::int32_t k = 0; k < count; ++k) {
      const double product = a[k] * b[k], magnitude = std::abs(product);
      const double part = magnitude < unit ? magnitude : unit / 2;  // all of what is below a unit
      cut += product < 0 ? -part : part;
      if (magnitude >= unit) spread_ += unit * unit * (scale_ * scale_ / 12);
    }
    products_ += cut * scale_;
    sums_ += (unit + of_next) / 2 * std::abs(scale_);
    spread_ += (unit * unit + of_next * of_next) * (scale_ * scale_ / 12);
    sum_ = next;
  }
  double lost() const { return std::abs(products_) + sums_ + 4 * std::sqrt(spread_); }

 private:
  static double unit_at(double magnitude, int bits) { return std::ldexp(1.0, std::ilogb(magnitude) - bits); }

  const GemmUnit& unit_;
  double sum_ = 0, scale_ = 1;
  double products_ = 0, sums_ = 0, spread_ = 0;
};

/// Where value (row, k) of a preshuffled B[N, K] lies, in values.
inline std::int64_t preshuffled_index(std::int64_t row, std::int64_t k, std::int64_t columns, DType type) {
  const std::int64_t unit = 16 / size_of(type) * packing_of(type);
  return (row / 16 * (columns / unit) + k / unit) * 16 * unit + row % 16 * unit + k % unit;
}

/// The value of element (row, k) of preshuffled i4 weights B[N, K].
inline int packed_value(const void* weights, std::int64_t row, std::int64_t k, std::int64_t columns) {
  const std::int64_t at = (row / 16 * (columns / 16) + k / 16) * 256 + row % 16 * 16 + k % 16;
  const std::int64_t word = at / 8, in_word = at % 8;
  const std::uint8_t byte = static_cast<const std::uint8_t*>(weights)[4 * word + in_word % 4];
  const int code = in_word < 4 ? byte & 15 : byte >> 4;
  return code < 8 ? code : code - 16;
}

/// A problem whose tensors and tables are on the host, or some columns of its out. Operands are decoded once.
class Gemm {
 public:
  explicit Gemm(const GemmProblem& p, const GemmUnit& unit = {}) : Gemm(p, 0, gemm_out_columns(p), unit) {}
  Gemm(const GemmProblem& p, std::int32_t first_column, std::int32_t end_column, const GemmUnit& unit = {})
      : p_(p),
        unit_(unit),
        first_column_(first_column),
        columns_(end_column - first_column),
        halves_(p.spec.gated ? 2 : 1) {
    const GemmSpec& s = p.spec;
    const bool groups = s.groups != GemmGroups::one;
    layers_ = groups ? p.groups : p.batch;
    const std::int32_t a_layers = s.groups == GemmGroups::contiguous ? 1 : layers_;
    for (std::int32_t layer = 0; layer < a_layers; ++layer) {
      for (std::int32_t row = 0; row < p.m; ++row) {
        for (std::int32_t k = 0; k < p.k; ++k)
          a_.push_back(transposed_a(s.layout) ? element(s.a, p.a, layer * p.a_batch_stride + k * p.a_stride + row)
                                              : value(s.a, p.a, layer * p.a_batch_stride + row * p.a_stride, k));
      }
    }
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      for (std::int32_t i = 0; i < columns_ * halves_; ++i) {
        const std::int64_t row = row_of_b(first_column + i / halves_, i % halves_);
        for (std::int32_t k = 0; k < p.k; ++k) {
          if (s.int4()) {
            const auto* const layer_of_b = static_cast<const std::uint8_t*>(p.b) + layer * p.b_batch_stride;
            b_.push_back(packed_value(layer_of_b, row, k, p.k));
            continue;
          }
          const std::int64_t of_layer = layer * p.b_batch_stride;
          b_.push_back(s.weights == GemmWeights::preshuffled
                           ? value(s.b, p.b, of_layer, preshuffled_index(row, k, p.k, s.b))
                       : transposed_b(s.layout) ? element(s.b, p.b, of_layer + k * p.b_stride + row)
                                                : value(s.b, p.b, of_layer + row * p.b_stride, k));
        }
      }
    }
  }

  /// Batches or groups.
  std::int32_t layers() const { return layers_; }
  /// The rows of A and out that are a layer's: of its own matrix, or with contiguous groups of the one they share.
  std::int32_t first_row(std::int32_t layer) const { return contiguous() ? p_.group_offsets[layer] : 0; }
  std::int32_t end_row(std::int32_t layer) const {
    if (contiguous()) return p_.group_offsets[layer + 1];
    return p_.spec.groups == GemmGroups::masked ? p_.group_rows[layer] : p_.m;
  }
  /// Of whose rows A, out and residual are.
  std::int32_t a_layer(std::int32_t layer) const { return contiguous() ? 0 : layer; }

  /// An element of out.
  GemmValue at(std::int32_t layer, std::int32_t row, std::int32_t column) const {
    const GemmSpec& s = p_.spec;
    GemmValue v;
    if (s.gated) {
      const GemmValue gate = sum_of(layer, row, column, 0), up = sum_of(layer, row, column, 1);
      v.value = reference::gated(s.activation, gate.value, up.value, double{p_.swiglu_alpha}, double{p_.swiglu_limit});
      const double g = std::abs(gate.value), steep = s.activation == ActivationKind::relu2 ? 2 * g : 1.2;
      const double height = s.activation == ActivationKind::relu2 ? g * g : g;
      v.magnitude = gate.magnitude * steep * (std::abs(up.value) + 1) + height * up.magnitude;
      v.lost = gate.lost * steep * (std::abs(up.value) + 1) + (height + steep * gate.lost) * up.lost;
    } else {
      v = sum_of(layer, row, column, 0);
      v.value = activated(s.activation, v.value);
    }
    if (p_.residual == nullptr) return v;
    const double residual =
        element(s.extra(), p_.residual, a_layer(layer) * p_.residual_batch_stride + row * p_.residual_stride + column);
    return {v.value + residual, v.magnitude + std::abs(residual), v.lost};
  }

 private:
  bool contiguous() const { return p_.spec.groups == GemmGroups::contiguous; }

  /// Value k behind an element, in which there may be several.
  static double value(DType type, const void* data, std::int64_t at, std::int64_t k) {
    return element(type, data, at * packing_of(type) + k);
  }
  /// Of an element of out: of its only sum, of its gate (half 0) or its up.
  std::int32_t row_of_b(std::int32_t column, int half) const {
    if (!p_.spec.gated) return column;
    return p_.interleaved ? 2 * column + half : column + half * (p_.n / 2);
  }
  /// Scaled, with its bias.
  GemmValue sum_of(std::int32_t layer, std::int32_t row, std::int32_t of_column, int half) const {
    const GemmSpec& s = p_.spec;
    const std::int32_t column = row_of_b(of_column, half);
    const double* const a = a_.data() + (std::int64_t{a_layer(layer)} * p_.m + row) * p_.k;
    const double* const b =
        b_.data() + ((std::int64_t{layer} * columns_ + of_column - first_column_) * halves_ + half) * p_.k;
    const float* const a_scale = p_.a_scale + a_layer(layer) * p_.a_scale_batch_stride;
    const float* const b_scale = p_.b_scale + layer * p_.b_scale_batch_stride;
    GemmValue sum;
    GemmLoss loss(unit_);
    const std::int32_t of_scale = s.int4() ? s.scale_k : s.mx() ? mx_group : gemm_scale_block;
    for (std::int32_t from = 0; from < p_.k; from += of_scale) {
      const std::int32_t block = from / of_scale, end = std::min(from + of_scale, p_.k);
      double scale = 1;
      if (s.scale == Scaling::per_block) {
        scale = double{a_scale[row * p_.a_scale_stride + block * p_.a_scale_k_stride]} *
                b_scale[column / gemm_scale_block * p_.b_scale_stride + block * p_.b_scale_k_stride];
      }
      if (s.mx()) {
        const auto of = [&](const std::uint8_t* codes, std::int64_t layer_stride, std::int64_t in, std::int32_t r) {
          return group_scale(codes + in * layer_stride, Scaling::mx, ScaleLayout::shuffled, 0, p_.k, r, from);
        };
        scale = of(p_.a_mx_scale, p_.a_scale_batch_stride, a_layer(layer), row) *
                of(p_.b_mx_scale, p_.b_scale_batch_stride, layer, column);
      }
      if (s.scale == Scaling::per_group) {
        scale = element(s.group_scale(), p_.b_group_scale,
                        layer * p_.b_scale_batch_stride + block * p_.b_scale_k_stride + column);
      }
      double part = 0, magnitude = 0;
      for (std::int32_t k = from; k < end; ++k) {
        part += a[k] * b[k];
        magnitude += std::abs(a[k] * b[k]);
      }
      if (unit_.step > 0) {
        if (unit_.chain > 0 || from == 0) loss.begin(scale);
        for (std::int32_t k = from; k < end; k += unit_.step) loss.add(a + k, b + k, std::min(unit_.step, end - k));
      }
      sum.value += part * scale;
      sum.magnitude += magnitude * std::abs(scale);
    }
    double factor = p_.alpha;
    if (s.scale == Scaling::per_tensor) factor *= double{*p_.a_scale} * *p_.b_scale;
    if (s.scale == Scaling::per_group && is_fp8(s.a)) factor *= a_scale[row];
    if (s.scale == Scaling::per_row) factor *= double{a_scale[row]} * b_scale[column];
    sum.value *= factor;
    sum.magnitude *= std::abs(factor);
    sum.lost = loss.lost() * std::abs(factor);
    if (p_.bias == nullptr) return sum;
    const double bias = element(s.extra(), p_.bias, layer * p_.bias_batch_stride + column);
    return {sum.value + bias, sum.magnitude + std::abs(bias), sum.lost};
  }

  const GemmProblem& p_;
  GemmUnit unit_;
  std::int32_t first_column_, columns_;
  int halves_;
  std::int32_t layers_;
  std::vector<double> a_, b_;
};

}  // namespace tilewave::reference
