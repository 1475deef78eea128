// SPDX-License-Identifier: MIT
// Activations for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/activation.hpp"
#include "tilewave/reference/activation.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<ActivationKind> = 7;
template <>
inline constexpr int enumerators_of<Gating> = 3;

/// Rows are packed, gates and ups in one tensor.
struct ActivationCase {
  ArchId arch = ArchId::gfx950;
  ActivationSpec spec{};
  std::int32_t columns = 0, rows = 0;  // columns: of out; rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  MxRounding mx_rounding = MxRounding::up;
  std::uint64_t seed = 123;

  friend constexpr bool operator==(const ActivationCase&, const ActivationCase&) = default;

  DType out() const { return spec.out; }
  std::int32_t width() const { return spec.gated() ? 2 * columns : columns; }
  std::int64_t scales() const { return scale_count(spec.scale, rows, columns); }
  bool given() const { return spec.scale == Scaling::per_tensor; }

  static constexpr NamePart name_parts[] = {{"none", "kind", "none"},
                                            {"relu", "kind", "relu"},
                                            {"silu", "kind", "silu"},
                                            {"gelu", "kind", "gelu"},
                                            {"gelu_tanh", "kind", "gelu_tanh"},
                                            {"relu2", "kind", "relu2"},
                                            {"swigluoai", "kind", "swigluoai"},
                                            {"plain", "gating", "plain"},
                                            {"halves", "gating", "halves"},
                                            {"interleaved", "gating", "interleaved"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"floor", "mx_rounding", "floor"},
                                            {"nearest", "mx_rounding", "nearest"}};
  static constexpr auto& name_types = row_name_types;
  static constexpr std::string_view name_mode = "scale_mode";
  static void imply(Words& words) {
    words.imply("config_rows", "rows");
    words.imply("out_dtype", "x_dtype");
  }
  void complete() { rows = config_rows; }
  std::string fault() const { return extent_fault(*this); }

  template <class Case, class Visit>  // an ActivationCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit("kind", c.spec.kind);
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("gating", c.spec.gating);
    visit("out_dtype", c.spec.out);
    visit("scale_mode", c.spec.scale);
    visit("mx_rounding", c.mx_rounding);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `silu/gfx950/bf16/c14336/r4096/halves/fp8.per_token`: function, arch, type of x, columns of out, rows, gating, type of
/// out and its scales.
inline std::string name_of(const ActivationCase& c) {
  return std::string(name_of(c.spec.kind)) + "/" + std::string(name_of(c.arch)) + "/" + std::string(name_of(c.spec.x)) +
         "/" + extent_name(c) + "/" + name_of(c.spec.gating) + "/" + short_name(c.spec.out) +
         (c.spec.scale == Scaling::none ? "" : std::string(".") + name_of(c.spec.scale)) + rounding_name(c.mx_rounding);
}

struct ActivationTensors {
  TwinBuffer x, out, scale;
};

struct ActivationOp {
  using Case = ActivationCase;
  using Problem = ActivationProblem;
  using Entry = ActivationEntry;
  using Tensors = ActivationTensors;

  static constexpr float amplitude = 5;  // of x

  static std::span<const Entry* const> entries() { return all_activation_entries(); }
  static constexpr auto select = activation_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/activation/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.x = address(t.x);
    p.out = address(t.out);
    if (c.spec.scale != Scaling::none) p.scale = address(t.scale);
    p.rows = c.rows;
    p.columns = c.columns;
    p.x_strides = {c.width(), 0};
    p.out_strides = {c.columns / packing_of(c.spec.out), 0};
    p.scale_stride = scale_groups(c.spec.scale, c.columns);
    p.mx_rounding = c.mx_rounding;
    return p;
  }

  static Tensors fill(const Case& c, int threads) {
    Tensors t;
    t.x = filled(c.spec.x, c.rows, c.width(), threads,
                 [&](std::int64_t r, std::int64_t column) { return amplitude * drawn(c.seed, 'x', r, column); });
    t.out = poisoned(c.spec.out, std::int64_t{c.rows} * c.columns);
    // A given scale saturates a few values.
    t.scale = c.given() ? filled(DType::f32, 1, 1, 1, [](auto, auto) { return 0.03f; })
                        : poisoned(scale_type(c.spec.scale), c.scales());
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out, &t.scale}; }

  /// A value: four of an exponential and its quotient, of gelu 16; a product with the up; scaling, and the largest.
  static Work work_of(const Case& c) {
    using enum ActivationKind;
    const std::int64_t elements = std::int64_t{c.rows} * c.columns;
    const ActivationKind kind = c.spec.kind;
    const int function = kind == none ? 0 : kind == relu ? 1 : kind == relu2 ? 2 : kind == gelu ? 16 : 8;
    const int scaling = c.spec.scale == Scaling::none ? 0 : c.given() ? 1 : 2;
    const std::int64_t written =
        bytes_of_values(c.spec.out, elements) + (c.given() ? 0 : size_of(scale_type(c.spec.scale)) * c.scales());
    return {.bytes = std::int64_t{c.rows} * c.width() * size_of(c.spec.x) + written + (c.given() ? 4 : 0),
            .written = written,
            .flops = elements * (function + c.spec.gated() + scaling)};
  }

  /// Half a step of the output's type, of i8, which is truncated, a whole one; and what the function costs in f32.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const ActivationSpec& s = p.spec;
    const reference::ActivationRow wanted = reference::activation_row(p, row);
    const std::int64_t start = std::int64_t{row} * p.columns;
    const std::int32_t step = scale_step(s.scale, p.columns);
    for (std::int32_t first = 0; first < p.columns; first += step) {
      const std::int32_t end = std::min(first + step, p.columns);
      double unit = 1;
      if (s.scale == Scaling::mx) {
        unit = mx_unit(p, row, first, wanted.values, 1e-5, errors);
      } else if (s.scale != Scaling::none) {
        unit = static_cast<const float*>(
            p.scale)[s.scale == Scaling::per_tensor  ? 0
                     : s.scale == Scaling::per_token ? row
                                                     : row * p.scale_stride + first / scale_group];
        const double right = reference::scale_of(reference::amax(wanted.values, first, end), s.out);
        errors.expect(s.scale == Scaling::per_tensor || std::abs(unit - right) <= 1e-5 * right, "scale", row, first,
                      unit, right);
      }
      const double largest = s.scale == Scaling::none ? std::numeric_limits<double>::infinity() : largest_code(s.out);
      for (std::int32_t c = first; c < end; ++c) {
        const double got = reference::element(s.out, p.out, start + c) * unit;
        const double want = std::clamp(wanted.values[c], -largest * unit, largest * unit), code = want / unit;
        const double rounding = s.out == DType::i8 ? 1 : half_step(s.out, code) * 1.001;
        errors.out(std::abs(got - want) <= rounding * unit + wanted.errors[c] * std::abs(want), row, c, got, want);
      }
    }
  }
};

}  // namespace tilewave::bench
