// SPDX-License-Identifier: MIT
// GEMM as plain loops in double precision. It is the oracle of tests and benchmarks, and shares no code with the
// kernels.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tilewave/ops/gemm/fragments.hpp"
#include "tilewave/ops/gemm/problem.hpp"
#include "tilewave/reference/activation.hpp"
#include "tilewave/reference/rows.hpp"
#include "tilewave/reference/sums.hpp"

namespace tilewave::reference {

/// An element of out, and how far a kernel may be from it.
struct GemmValue {
  double value = 0;      // before it is rounded to out's type
  double magnitude = 0;  // the sum of absolute values, without the activation; errors of the sum are relative to it
  double lost = 0;       // the most that a truncating matrix unit (GemmUnit) may take from it
};

/// A matrix unit that truncates. It aligns the products of `step` k and the sum so far with the largest of them. Of
/// that it keeps `bits` bits below the leading one, and cuts off the rest of all, towards zero. Of the new sum it keeps
/// `sum_bits`. After `chain` k the unit's sum is added up in f32; 0 means that it stays in the unit over all of K. A
/// `step` of 0 means that sums are those of f32.
struct GemmUnit {
  int step = 0, bits = 0, sum_bits = 0, chain = 0;
};
/// Returns the unit of a chip for a spec. test/arch/room_truncation_test.cpp compares sm90's with silicon. The emulated
/// device truncates sums of fp8 alone.
inline GemmUnit gemm_unit(ArchId arch, bool emulated, const GemmSpec& s) {
  if (facts_of(arch).f32_sums || s.a == DType::i8 || (emulated && !is_fp8(s.a))) return {};
  const bool promoted = s.scale == Scaling::per_block || (s.has_sums_to_choose() && s.sums == GemmSums::promoted);
  // Scales of MXFP4 under bf16 are in the weights, and those of int4 under 16 bits may be.
  const bool by_scales = s.four_bit() && !(s.mxfp4() && s.a == DType::bf16) && !(s.b == DType::i4 && !is_fp8(s.a));
  const int chain = by_scales ? s.scale_k : promoted ? gemm_scale_block : 0;
  return is_fp8(s.a) ? GemmUnit{32, 13, 13, chain} : GemmUnit{16, 25, 23, chain};
}

/// A bound on what a GemmUnit takes from a sum, without knowing its order. What it cuts off a product has the product's
/// sign, and is half a unit in the last place on average. What it cuts off the sum so far and off the new sum may all
/// have one sign. Four standard deviations bound the rest.
class GemmLoss {
 public:
  explicit GemmLoss(const GemmUnit& unit) : unit_(unit) {}

  /// Begins a chain, whose sum is multiplied by `scale`.
  void begin(double scale) {
    sum_ = 0;
    scale_ = scale;
  }
  /// Adds the products of one step, each multiplied by `factor`.
  void add(const double* products, std::int32_t count, double factor) {
    const FourDoubles factors = FourDoubles::all(factor);
    FourDoubles next, largest;
    for_four(
        count,
        [&](std::int32_t k) {
          const FourDoubles product = FourDoubles::at(products + k) * factors;
          raise_to_magnitude(largest.low, product.low), raise_to_magnitude(largest.high, product.high);
          next += product;
        },
        [&](std::int32_t k) {
          const double product = products[k] * factor;
          largest.low[0] = std::max(largest.low[0], std::abs(product));
          next.low[0] += product;
        });
    const double most = std::max({std::abs(sum_), largest.low[0], largest.low[1], largest.high[0], largest.high[1]});
    if (most == 0) return;
    const double sum = sum_ + next.sum();
    const double unit = unit_at(most, unit_.bits);
    const double next_unit = sum == 0 ? unit : std::max(unit, unit_at(std::abs(sum), unit_.sum_bits));
    FourDoubles whole, kept, signs;  // A value below a unit is lost as a whole. A CPU does not foresee which are.
    const auto judge = [unit](const TwoDoubles& product, TwoDoubles& wholes, TwoDoubles& counts, TwoDoubles& ones) {
      const TwoWords bits = reinterpret_cast<TwoWords>(product), keeps = magnitude(product) >= TwoDoubles{unit, unit};
      const TwoWords one = reinterpret_cast<TwoWords>(TwoDoubles{1, 1}) & keeps, sign{INT64_MIN, INT64_MIN};
      wholes += reinterpret_cast<TwoDoubles>(bits & ~keeps);
      counts += reinterpret_cast<TwoDoubles>(one);
      ones += reinterpret_cast<TwoDoubles>(one | (bits & sign));
    };
    for_four(
        count,
        [&](std::int32_t k) {
          const FourDoubles product = FourDoubles::at(products + k) * factors;
          judge(product.low, whole.low, kept.low, signs.low);
          judge(product.high, whole.high, kept.high, signs.high);
        },
        [&](std::int32_t k) {
          const double product = products[k] * factor;
          const bool keeps_bits = std::abs(product) >= unit;
          whole.low[0] += keeps_bits ? 0 : product;
          kept.low[0] += keeps_bits;
          signs.low[0] += std::copysign(keeps_bits ? 1.0 : 0.0, product);
        });
    products_ += (whole.sum() + signs.sum() * unit / 2) * scale_;
    sums_ += (unit + next_unit) / 2 * std::abs(scale_);
    spread_ += ((kept.sum() + 1) * unit * unit + next_unit * next_unit) * (scale_ * scale_ / 12);
    sum_ = sum;
  }
  /// Returns the bound.
  double lost() const { return std::abs(products_) + sums_ + 4 * std::sqrt(spread_); }

 private:
  /// Returns the last of `bits` bits below the leading one. Products of a GPU's types are normal numbers in double,
  /// whose leading bit is the exponent. std::ilogb would take longer than the step's sum.
  static double unit_at(double magnitude, int bits) {
    constexpr std::uint64_t exponent = 0x7ffull << 52;
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(magnitude) & exponent) /
           static_cast<double>(std::uint64_t{1} << bits);
  }

  const GemmUnit& unit_;
  double sum_ = 0, scale_ = 1;
  double products_ = 0, sums_ = 0, spread_ = 0;
};

/// Returns where value (row, k) of a preshuffled B[N, K] lies, in values.
inline std::int64_t preshuffled_index(std::int64_t row, std::int64_t k, std::int64_t columns, DType type) {
  const std::int64_t unit = 16 / size_of(type) * packing_of(type);
  return (row / 16 * (columns / unit) + k / unit) * 16 * unit + row % 16 * unit + k % unit;
}

/// Returns value (row, k) of preshuffled weights B[N, K] of four bits, i4 or fp4, with scales of groups.
inline double four_bit_value(DType type, const void* weights, std::int64_t row, std::int64_t k, std::int64_t columns) {
  const std::int64_t at = (row / 16 * (columns / 16) + k / 16) * 256 + row % 16 * 16 + k % 16;
  const std::int64_t word = at / 8, in_word = at % 8;
  const std::uint8_t byte = static_cast<const std::uint8_t*>(weights)[4 * word + in_word % 4];
  const int code = in_word < 4 ? byte & 15 : byte >> 4;
  if (type == DType::fp4_e2m1) return fp4_to_f32(static_cast<std::uint8_t>(code));
  return code < 8 ? code : code - 16;
}

/// Returns value (row, k) of MXFP4 weights that lie as fragments.
inline double fragment_value(const void* weights, std::int64_t row, std::int64_t k, std::int64_t columns) {
  const GemmFragment at = gemm_fragment(row, k, columns);
  std::uint32_t word;
  std::memcpy(&word, static_cast<const std::uint8_t*>(weights) + 4 * at.word, sizeof(word));
  return fp4_to_f32(static_cast<std::uint8_t>(at.code_of(word)));
}

/// The elements of out of a problem whose tensors and tables are on the host, or of some of its columns. The
/// constructor decodes the operands once.
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
    a_.reserve(std::size_t(a_layers) * gemm_a_rows(p) * p.k);
    for (std::int32_t layer = 0; layer < a_layers; ++layer) {
      for (std::int32_t row = 0; row < gemm_a_rows(p); ++row) {
        if (!transposed_a(s.layout)) {
          push_row(s.a, p.a, layer * p.a_batch_stride + row * p.a_stride, p.k, a_);
          continue;
        }
        for (std::int32_t k = 0; k < p.k; ++k)
          a_.push_back(element(s.a, p.a, layer * p.a_batch_stride + k * p.a_stride + row));
      }
    }
    for (std::int32_t layer = 0; layer < layers_; ++layer) {
      b_at_.push_back(std::ssize(b_));
      if (first_row(layer) >= end_row(layer)) continue;  // of hundreds of experts a test may choose a few
      b_.reserve(b_.size() + std::size_t(columns_) * halves_ * p.k);
      for (std::int32_t i = 0; i < columns_ * halves_; ++i) {
        const std::int64_t row = row_of_b(first_column + i / halves_, i % halves_);
        if (!s.four_bit() && s.weights == GemmWeights::row_major && !transposed_b(s.layout)) {
          push_row(s.b, p.b, layer * p.b_batch_stride + row * p.b_stride, p.k, b_);
          continue;
        }
        for (std::int32_t k = 0; k < p.k; ++k) {
          if (s.four_bit()) {
            const auto* const layer_weights = static_cast<const std::uint8_t*>(p.b) + layer * p.b_batch_stride;
            const std::int64_t group = layer * p.b_scale_batch_stride + k / s.scale_k * p.b_scale_k_stride + row;
            double weight = s.weights == GemmWeights::fragments ? fragment_value(layer_weights, row, k, p.k)
                                                                : four_bit_value(s.b, layer_weights, row, k, p.k) -
                                                                      (s.zero_points ? p.b_zero[group] : 0);
            if (s.rounds_weights()) {
              weight *= element(s.group_scale(), p.b_group_scale, group);
              weight = bf16_to_f32(f32_to_bf16(static_cast<float>(weight)));
            }
            b_.push_back(weight);
            continue;
          }
          const std::int64_t layer_offset = layer * p.b_batch_stride;
          b_.push_back(s.weights == GemmWeights::preshuffled
                           ? value(s.b, p.b, layer_offset, preshuffled_index(row, k, p.k, s.b))
                           : element(s.b, p.b, layer_offset + k * p.b_stride + row));
        }
      }
    }
  }

  /// Returns the number of batches or groups.
  std::int32_t layers() const { return layers_; }
  /// A layer has rows first_row to end_row of A and out: of its own matrix, or of the one that contiguous groups share.
  std::int32_t first_row(std::int32_t layer) const { return contiguous() ? p_.group_offsets[layer] : 0; }
  std::int32_t end_row(std::int32_t layer) const {
    if (contiguous()) return p_.group_offsets[layer + 1];
    return p_.spec.groups == GemmGroups::masked ? p_.group_rows[layer] : p_.m;
  }
  /// Returns the matrix of A, out and residual in which a layer's rows lie.
  std::int32_t a_layer(std::int32_t layer) const { return contiguous() ? 0 : layer; }

  /// Returns an element of out.
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
    if (s.scattered && !s.gathered && p_.row_weights != nullptr) {
      const double weight = p_.row_weights[row];
      v = {v.value * weight, v.magnitude * std::abs(weight), v.lost * std::abs(weight)};
    }
    if (p_.residual == nullptr) return v;
    const double residual =
        element(s.extra(), p_.residual, a_layer(layer) * p_.residual_batch_stride + row * p_.residual_stride + column);
    return {v.value + residual, v.magnitude + std::abs(residual), v.lost};
  }

  /// Returns the row of A of a row of the groups, and the row of out, or -1 for none.
  std::int32_t row_of_a(std::int32_t row) const {
    return p_.spec.gathered ? std::min(p_.row_ids[row] & 0xffffff, p_.tokens - 1) : row;
  }
  std::int32_t row_of_out(std::int32_t row) const {
    if (!p_.spec.scattered) return row;
    const std::uint32_t id = static_cast<std::uint32_t>(p_.row_ids[row]);
    const std::int32_t token = id & 0xffffff, slot = id >> 24;
    return token < p_.tokens && slot < p_.topk ? token * p_.topk + slot : -1;
  }

 private:
  bool contiguous() const { return p_.spec.groups == GemmGroups::contiguous; }

  /// Returns value k behind element `at`. An element may hold several values.
  static double value(DType type, const void* data, std::int64_t at, std::int64_t k) {
    return element(type, data, at * packing_of(type) + k);
  }
  /// Appends the k values behind element `at`.
  static void push_row(DType type, const void* data, std::int64_t at, std::int32_t k, std::vector<double>& values) {
    values.resize(values.size() + k);
    elements(type, data, at * packing_of(type), k, values.data() + values.size() - k);
  }
  /// Returns the row of B of a column of out: of its only sum, or of its gate (half 0) or its up (half 1).
  std::int32_t row_of_b(std::int32_t column, int half) const {
    if (!p_.spec.gated) return column;
    return p_.interleaved ? 2 * column + half : column + half * (p_.n / 2);
  }
  /// Returns a sum with its scales and bias.
  GemmValue sum_of(std::int32_t layer, std::int32_t group_row, std::int32_t out_column, int half) const {
    const GemmSpec& s = p_.spec;
    const std::int32_t row = row_of_a(group_row);
    const std::int32_t column = row_of_b(out_column, half);
    const double* const a = a_.data() + (std::int64_t{a_layer(layer)} * gemm_a_rows(p_) + row) * p_.k;
    const double* const b =
        b_.data() + b_at_[layer] + (std::int64_t{out_column - first_column_} * halves_ + half) * p_.k;
    const float* const a_scale = p_.a_scale + a_layer(layer) * p_.a_scale_batch_stride;
    const float* const b_scale = p_.b_scale + layer * p_.b_scale_batch_stride;
    GemmValue sum;
    GemmLoss loss(unit_);
    const std::int32_t scale_k = s.four_bit() ? s.scale_k : s.mx() ? mx_group : gemm_scale_block;
    std::vector<double> products(unit_.step > 0 ? scale_k : 0);
    for (std::int32_t from = 0; from < p_.k; from += scale_k) {
      const std::int32_t block = from / scale_k, end = std::min(from + scale_k, p_.k);
      double scale = 1;
      if (s.scale == Scaling::per_block) {
        scale = double{a_scale[row * p_.a_scale_stride + block * p_.a_scale_k_stride]} *
                b_scale[column / gemm_scale_block * p_.b_scale_stride + block * p_.b_scale_k_stride];
      }
      if (s.mx()) {
        const auto mx_scale = [&](const std::uint8_t* codes, std::int64_t layer_stride, std::int64_t in,
                                  std::int32_t r) {
          return group_scale(codes + in * layer_stride, Scaling::mx, ScaleLayout::shuffled, 0, p_.k, r, from);
        };
        scale = mx_scale(p_.a_mx_scale, p_.a_scale_batch_stride, a_layer(layer), row) *
                mx_scale(p_.b_mx_scale, p_.b_scale_batch_stride, layer, column);
      }
      if (s.scale == Scaling::per_group && !s.rounds_weights()) {
        scale = element(s.group_scale(), p_.b_group_scale,
                        layer * p_.b_scale_batch_stride + block * p_.b_scale_k_stride + column);
      }
      FourDoubles block_sum, magnitudes;
      for_four(
          end - from,
          [&](std::int32_t k) {
            const FourDoubles product = FourDoubles::at(a + from + k) * FourDoubles::at(b + from + k);
            if (unit_.step > 0) product.to(products.data() + k);
            block_sum += product;
            magnitudes += magnitude(product);
          },
          [&](std::int32_t k) {
            const double product = a[from + k] * b[from + k];
            if (unit_.step > 0) products[k] = product;
            block_sum.low[0] += product;
            magnitudes.low[0] += std::abs(product);
          });
      if (unit_.step > 0) {
        const bool scaled_weights = s.four_bit() && unit_.chain == 0;
        if (unit_.chain > 0 || from == 0) loss.begin(scaled_weights ? 1 : scale);
        for (std::int32_t k = 0; k < end - from; k += unit_.step)
          loss.add(products.data() + k, std::min(unit_.step, end - from - k), scaled_weights ? scale : 1);
      }
      sum.value += block_sum.sum() * scale;
      sum.magnitude += magnitudes.sum() * std::abs(scale);
    }
    double factor = p_.alpha;
    if (p_.rms_norm) {
      double squares = 0;
      for (std::int32_t k = 0; k < p_.k; ++k) squares += a[k] * a[k];
      factor /= std::sqrt(squares / p_.k + p_.norm_eps);
    }
    if (s.scale == Scaling::per_tensor) factor *= double{*p_.a_scale} * *p_.b_scale;
    if (s.scale == Scaling::per_group && is_fp8(s.a)) factor *= a_scale[row];
    if (s.scale == Scaling::per_row) factor *= double{a_scale[row]} * b_scale[column];
    if (s.gathered && p_.row_weights != nullptr) factor *= p_.row_weights[group_row];
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
  std::vector<std::int64_t> b_at_;  // where a layer's B begins
};

}  // namespace tilewave::reference
