// SPDX-License-Identifier: MIT
// A layer of experts in double precision, step by step: what lies between the products is rounded as a kernel rounds
// it. It is the oracle of tests and benchmarks, and shares no code with the kernels.
#pragma once

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "tilewave/ops/moe/problem.hpp"
#include "tilewave/reference/gemm.hpp"
#include "tilewave/reference/topk_gating.hpp"

namespace tilewave::reference {

/// An element of out, and how far a kernel may be from it.
struct MoeValue {
  double value = 0, magnitude = 0;  // magnitude: the sum of absolute values to which errors are relative
  /// What may come on top: what matrix units cut off, and codes of h that a kernel may round the other way.
  double unsure = 0;
};

/// Rows of a product's operand, with their scales. `spread`: how far an element may be from what a kernel has, whose
/// values before rounding are off by errors of their sums. It is 0 for most: a code changes only where a value lies
/// next to the middle between two.
struct MoeOperand {
  std::vector<std::uint8_t> bytes;
  std::vector<float> scales;
  std::vector<std::uint8_t> mx_scales;  // in the order of shuffled_scale
  std::vector<double> spread;
};

/// A value of h before it is rounded, and by how much a kernel's may differ.
struct MoeSum {
  double value = 0, error = 0;
};

/// Returns how many columns share a scale; the factor of their values, and its inverse, the scale.
inline std::int32_t moe_scale_group(Scaling scaling, std::int32_t columns) {
  return scaling == Scaling::per_group ? 128 : scaling == Scaling::mx ? mx_group : std::max(columns, 1);
}
inline float moe_factor(DType type, Scaling scaling, float largest) {
  if (scaling != Scaling::mx) return quant_factor(type, largest);
  return mx_factor(mx_scale(type, mx_carry(type, MxRounding::up), largest));
}
inline double moe_scale(DType type, Scaling scaling, float largest) {
  if (scaling != Scaling::mx) return quant_scale(type, largest);
  return std::ldexp(1.0, mx_scale(type, mx_carry(type, MxRounding::up), largest) - 127);
}

/// Returns rows of values as the rows of an operand. `given`: the scale of Scaling::per_tensor.
template <class ValueOf>
MoeOperand moe_operand(DType type, Scaling scaling, std::int32_t rows, std::int32_t columns, const float* given,
                       const ValueOf& value) {
  MoeOperand o;
  o.bytes.resize(static_cast<std::size_t>(rows) * columns * size_of(type));
  const std::int32_t group = moe_scale_group(scaling, columns), eights = ceil_div(columns, 8 * mx_group);
  if (scaling == Scaling::mx) o.mx_scales.resize(static_cast<std::size_t>(align_up(rows, 32)) * eights * 8);
  const auto put = [&](std::int64_t at, float v) {
    const std::uint32_t bits = type == DType::bf16  ? f32_to_bf16(v)
                               : type == DType::f16 ? f32_to_f16(v)
                                                    : f32_to_fp8(type, v);
    std::memcpy(&o.bytes[at * size_of(type)], &bits, size_of(type));
  };
  for (std::int32_t r = 0; r < rows; ++r) {
    for (std::int32_t first = 0; first < columns; first += group) {
      const std::int32_t end = std::min(first + group, columns);
      float factor = 1, largest = 0;
      if (scaling == Scaling::per_tensor) {
        factor = 1 / *given;
      } else if (scaling != Scaling::none) {
        for (std::int32_t c = first; c < end; ++c)
          largest = std::max(largest, std::abs(static_cast<float>(value(r, c))));
        factor = moe_factor(type, scaling, largest);
        if (scaling == Scaling::mx) {
          o.mx_scales[shuffled_scale(r, first / mx_group, eights)] =
              mx_scale(type, mx_carry(type, MxRounding::up), largest);
        } else {
          o.scales.push_back(quant_scale(type, largest));
        }
      }
      for (std::int32_t c = first; c < end; ++c)
        put(std::int64_t{r} * columns + c, static_cast<float>(value(r, c)) * factor);
    }
  }
  return o;
}

/// Sets the spread of an operand in fp8: how far elements are from those of values and largest magnitudes that errors
/// move to either side. `sum_of` gives sums, `before` what a launch rounds them to before they are quantised.
template <class SumOf, class Before>
void set_moe_spread(DType type, Scaling scaling, std::int32_t rows, std::int32_t columns, const float* given,
                    const SumOf& sum_of, const Before& before, MoeOperand& o) {
  const std::int32_t group = moe_scale_group(scaling, columns);
  o.spread.assign(static_cast<std::size_t>(rows) * columns, 0.0);
  for (std::int32_t r = 0; r < rows; ++r) {
    for (std::int32_t first = 0; first < columns; first += group) {
      const std::int32_t end = std::min(first + group, columns);
      float largest[2] = {0, 0};
      for (std::int32_t c = first; c < end; ++c) {
        const MoeSum sum = sum_of(r, c);
        for (const int side : {-1, 1}) {
          const double value = std::max(std::abs(sum.value) + side * sum.error, 0.0);
          largest[side > 0] = std::max(largest[side > 0], before(value));
        }
      }
      for (std::int32_t c = first; c < end; ++c) {
        const MoeSum sum = sum_of(r, c);
        double least = 0, most = 0;
        for (int i = 0; i < 4; ++i) {
          const float value = before(sum.value + (i % 2 == 0 ? -sum.error : sum.error));
          const bool tensor = scaling == Scaling::per_tensor;
          const float factor = tensor ? 1 / *given : moe_factor(type, scaling, largest[i / 2]);
          const double scale = tensor ? *given : moe_scale(type, scaling, largest[i / 2]);
          const double decoded = scale * fp8_to_f32(type, static_cast<std::uint8_t>(f32_to_fp8(type, value * factor)));
          least = i == 0 ? decoded : std::min(least, decoded), most = i == 0 ? decoded : std::max(most, decoded);
        }
        o.spread[std::int64_t{r} * columns + c] = most - least;
      }
    }
  }
}

/// All of out of a problem whose tensors are on the host.
class Moe {
 public:
  /// A choice whose expert is local.
  struct Choice {
    std::int32_t expert, token, slot;
    double weight;
  };

  /// `unit`: the matrix unit of the products' operands, see gemm_unit.
  explicit Moe(const MoeProblem& p, const GemmUnit& unit = {}) : p_(p), unit_(unit) {
    if (p.spec.masked()) {
      multiply_masked();
    } else {
      choose();
      multiply();
    }
  }

  /// Returns an element of out. `row`: a token; masked: a place of all experts' places.
  MoeValue at(std::int32_t row, std::int32_t column) const { return out_[std::int64_t{row} * p_.hidden + column]; }
  /// Returns the local choices by expert, then by token, then by slot.
  const std::vector<Choice>& choices() const { return choices_; }

 private:
  void choose() {
    for (std::int32_t token = 0; token < p_.tokens; ++token) {
      GatedToken chosen;
      if (p_.spec.routing == MoeRouting::logits) {
        TopkGatingProblem g;
        g.spec = {p_.spec.logits};
        g.logits = p_.logits, g.bias = p_.gating_bias, g.logits_stride = p_.logits_stride;
        g.score = p_.score, g.renormalise = p_.renormalise, g.scale = p_.weight_scale;
        g.tokens = p_.tokens, g.experts = p_.experts, g.topk = p_.topk;
        g.groups = p_.expert_groups, g.kept_groups = p_.kept_groups, g.group_score = p_.group_score;
        chosen = gated_token(g, token);
      } else {
        for (std::int32_t slot = 0; slot < p_.topk; ++slot) {
          chosen.chosen.push_back(p_.topk_ids[token * p_.ids_stride + slot]);
          chosen.weights.push_back(p_.topk_weights[token * p_.weights_stride + slot]);
        }
      }
      for (std::int32_t slot = 0; slot < p_.topk; ++slot) {
        const std::int32_t id = chosen.chosen[slot];
        if (id < 0 || id >= p_.experts) continue;
        const std::int32_t expert = p_.expert_map != nullptr ? p_.expert_map[id] : id - p_.first_expert;
        if (expert >= 0 && expert < p_.local_experts) choices_.push_back({expert, token, slot, chosen.weights[slot]});
      }
      if (p_.spec.shared) choices_.push_back({p_.local_experts, token, p_.topk, p_.shared_weight});
    }
    std::stable_sort(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) {
      return std::tie(a.expert, a.token, a.slot) < std::tie(b.expert, b.token, b.slot);
    });
  }

  static GemmProblem product(const MoeProblem& p, const GemmSpec& spec, const MoeWeights& w, std::int32_t rows,
                             std::int32_t n, std::int32_t k) {
    GemmProblem g = GemmProblem::packed(spec, nullptr, w.data, nullptr, rows, n, k);
    g.b_scale = w.scale, g.bias = w.bias;
    if (p.spec.mx()) {
      g.b_mx_scale = static_cast<const std::uint8_t*>(w.group_scale);
    } else {
      g.b_group_scale = w.group_scale, g.b_zero = w.group_zero;
    }
    g.b_stride = w.stride, g.b_batch_stride = w.expert_stride;
    g.b_scale_stride = w.scale_stride, g.b_scale_k_stride = w.scale_k_stride;
    g.b_scale_batch_stride = w.scale_expert_stride, g.bias_batch_stride = w.bias_expert_stride;
    g.groups = p.resident();
    return g;
  }
  GemmProblem first_product(std::int32_t rows) const {
    GemmProblem g = product(p_, moe_first_spec(p_.spec), p_.w1, rows, 2 * p_.intermediate, p_.hidden);
    g.interleaved = p_.interleaved, g.swiglu_alpha = p_.swiglu_alpha, g.swiglu_limit = p_.swiglu_limit;
    return g;
  }
  /// Returns how far a kernel's sum over k values may be from `v` (docs/reference/numerics.md).
  static double error_of(const GemmValue& v, std::int32_t k) {
    return 1.2 * (4 * std::sqrt(double(k)) + 4) * 0x1p-24 * v.magnitude + v.lost;
  }
  /// Returns h, whose value_of(row, column) are results of the first product, as the second product's operand.
  template <class ValueOf>
  MoeOperand operand_h(std::int32_t rows, const ValueOf& value_of) const {
    const MoeSpec& s = p_.spec;
    std::vector<MoeSum> sums;
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int32_t c = 0; c < p_.intermediate; ++c) {
        const GemmValue v = value_of(r, c);
        sums.push_back({v.value, error_of(v, p_.hidden) + 0x1p-20 * std::abs(v.value)});  // of the activation, too
      }
    }
    const auto sum_of = [&](std::int32_t r, std::int32_t c) { return sums[std::int64_t{r} * p_.intermediate + c]; };
    const auto before = [&](double v) {
      const auto f = static_cast<float>(v);
      if (!s.quantises_h()) return f;
      return (is_fp8(s.x) ? s.out : s.x) == DType::bf16 ? bf16_to_f32(f32_to_bf16(f)) : f16_to_f32(f32_to_f16(f));
    };
    const bool codes = s.quantised() || s.mx();
    const Scaling scaling = codes ? moe_quant_scaling(s) : Scaling::none;
    const DType type = s.operand();
    MoeOperand h = moe_operand(type, scaling, rows, p_.intermediate, p_.h_scale,
                               [&](std::int32_t r, std::int32_t c) { return before(sum_of(r, c).value); });
    if (codes) set_moe_spread(type, scaling, rows, p_.intermediate, p_.h_scale, sum_of, before, h);
    return h;
  }
  /// A column of a row of h that has a spread.
  struct Spread {
    std::int32_t column;
    double most;
  };
  std::vector<Spread> spreads_of(const MoeOperand& h, std::int32_t row) const {
    std::vector<Spread> spreads;
    for (std::int32_t c = 0; c < p_.intermediate && !h.spread.empty(); ++c)
      if (const double most = h.spread[std::int64_t{row} * p_.intermediate + c]; most != 0)
        spreads.push_back({c, most});
    return spreads;
  }
  /// Returns what the spreads of a row of h make of an element of its expert's result.
  double spread_of(const std::vector<Spread>& spreads, std::int32_t expert, std::int32_t column) const {
    double sum = 0;
    const MoeWeights& w = p_.w2;
    for (const auto& [c, spread] : spreads) {
      if (p_.spec.mx()) {
        const DType type = p_.spec.weights;
        const std::int64_t base = expert * w.expert_stride * packing_of(type);
        const double weight = element(type, w.data, base + preshuffled_index(column, c, p_.intermediate, type));
        const auto* const scales = static_cast<const std::uint8_t*>(w.group_scale) + expert * w.scale_expert_stride;
        sum += spread * std::abs(weight) *
               group_scale(scales, Scaling::mx, ScaleLayout::shuffled, 0, p_.intermediate, column, c);
        continue;
      }
      const Scaling scaling = p_.spec.scale;
      const std::int64_t at =
          scaling == Scaling::per_tensor ? 0
          : scaling == Scaling::per_row
              ? expert * w.scale_expert_stride + column
              : expert * w.scale_expert_stride + column / 128 * w.scale_stride + c / 128 * w.scale_k_stride;
      const std::int64_t in_expert =
          p_.spec.preshuffled ? preshuffled_index(column, c, p_.intermediate, p_.spec.weights) : column * w.stride + c;
      const double weight = element(p_.spec.weights, w.data, expert * w.expert_stride + in_expert);
      sum += spread * std::abs(weight * w.scale[at]);
    }
    return sum;
  }
  static void set_operand(GemmProblem& g, const MoeOperand& o, const float* given) {
    g.a = o.bytes.data();
    if (g.spec.mx()) {
      g.a_mx_scale = o.mx_scales.data();
      return;
    }
    g.a_scale = g.spec.scale == Scaling::per_tensor ? given : o.scales.empty() ? nullptr : o.scales.data();
  }
  double rounded(double v) const {
    const auto f = static_cast<float>(v);
    return p_.spec.out == DType::bf16 ? bf16_to_f32(f32_to_bf16(f)) : f16_to_f32(f32_to_f16(f));
  }

  void multiply() {
    const auto rows = static_cast<std::int32_t>(choices_.size());
    std::vector<std::int32_t> offsets(p_.resident() + 1), ids;
    std::vector<float> weights;
    for (const Choice& c : choices_) {
      ids.push_back(c.slot << 24 | c.token);
      weights.push_back(static_cast<float>(c.weight));
      for (std::int32_t e = c.expert + 1; e <= p_.resident(); ++e) ++offsets[e];
    }
    const MoeSpec& s = p_.spec;
    GemmProblem first = first_product(rows);
    first.group_offsets = offsets.data(), first.row_ids = ids.data(), first.tokens = p_.tokens;
    const bool weighs_input = s.weight == MoeWeight::input;
    if (weighs_input) first.row_weights = weights.data();
    MoeOperand x;
    if (s.quantises_x()) {
      x = moe_operand(s.operand(), moe_quant_scaling(s), p_.tokens, p_.hidden, p_.x_scale,
                      [&](std::int32_t r, std::int32_t c) { return element(s.x, p_.x, r * p_.x_stride + c); });
      set_operand(first, x, p_.x_scale);
    } else {
      first.a = p_.x, first.a_stride = p_.x_stride, first.a_scale = p_.x_scale;
      first.a_scale_stride = p_.x_scale_stride, first.a_scale_k_stride = p_.x_scale_k_stride;
      first.a_mx_scale = p_.x_mx_scale;
    }
    const Gemm gates(first, unit_);
    const auto expert_of = [&](std::int32_t row) { return choices_[row].expert; };
    const MoeOperand h = operand_h(rows, [&](std::int32_t r, std::int32_t c) { return gates.at(expert_of(r), r, c); });
    GemmProblem second = product(p_, moe_second_spec(s), p_.w2, rows, p_.hidden, p_.intermediate);
    second.group_offsets = offsets.data();
    set_operand(second, h, p_.h_scale);
    const Gemm results(second, unit_);
    out_.resize(static_cast<std::size_t>(p_.tokens) * p_.hidden);
    for (std::int32_t row = 0; row < rows; ++row) {
      const double weight = weighs_input ? 1.0 : choices_[row].weight;
      const std::vector<Spread> spreads = spreads_of(h, row);
      for (std::int32_t column = 0; column < p_.hidden; ++column) {
        const GemmValue v = results.at(expert_of(row), row, column);
        MoeValue& sum = out_[std::int64_t{choices_[row].token} * p_.hidden + column];
        sum.value += weight * rounded(v.value);
        sum.magnitude += std::abs(weight) * v.magnitude;
        sum.unsure += std::abs(weight) * (v.lost + spread_of(spreads, expert_of(row), column));
      }
    }
    for (std::int64_t i = 0; p_.residual != nullptr && i < std::int64_t{p_.tokens} * p_.hidden; ++i) {
      const double v = element(s.out, p_.residual, i / p_.hidden * p_.residual_stride + i % p_.hidden);
      out_[i].value += v, out_[i].magnitude += std::abs(v);
    }
  }

  void multiply_masked() {
    const std::int32_t rows = p_.capacity * p_.resident();
    std::vector<std::int32_t> counts;
    for (std::int32_t e = 0; e < p_.resident(); ++e) counts.push_back(std::clamp(p_.expert_rows[e], 0, p_.capacity));
    GemmProblem first = first_product(p_.capacity);
    first.group_rows = counts.data();
    first.a = p_.x, first.a_stride = p_.x_stride, first.a_batch_stride = p_.x_expert_stride;
    first.a_scale = p_.x_scale, first.a_scale_stride = p_.x_scale_stride, first.a_scale_k_stride = p_.x_scale_k_stride;
    first.a_scale_batch_stride = p_.x_scale_expert_stride, first.a_mx_scale = p_.x_mx_scale;
    const Gemm gates(first, unit_);
    const auto exists = [&](std::int32_t r) { return r % p_.capacity < counts[r / p_.capacity]; };
    const MoeOperand h = operand_h(rows, [&](std::int32_t r, std::int32_t c) {
      return exists(r) ? gates.at(r / p_.capacity, r % p_.capacity, c) : GemmValue{};
    });
    GemmProblem second = product(p_, moe_second_spec(p_.spec), p_.w2, p_.capacity, p_.hidden, p_.intermediate);
    second.group_rows = counts.data();
    set_operand(second, h, p_.h_scale);
    const Gemm results(second, unit_);
    out_.resize(static_cast<std::size_t>(rows) * p_.hidden);
    for (std::int32_t r = 0; r < rows; ++r) {
      if (!exists(r)) continue;
      const std::vector<Spread> spreads = spreads_of(h, r);
      for (std::int32_t column = 0; column < p_.hidden; ++column) {
        const GemmValue v = results.at(r / p_.capacity, r % p_.capacity, column);
        out_[std::int64_t{r} * p_.hidden + column] = {v.value, v.magnitude,
                                                      v.lost + spread_of(spreads, r / p_.capacity, column)};
      }
    }
  }

  const MoeProblem& p_;
  GemmUnit unit_;
  std::vector<Choice> choices_;
  std::vector<MoeValue> out_;
};

}  // namespace tilewave::reference
