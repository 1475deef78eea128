// SPDX-License-Identifier: MIT
// Normalisations for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/norm.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<NormKind> = 2;

/// Rows are packed. layer has a bias, rms has none; a residual is added to x and the sum written.
struct NormCase {
  ArchId arch = ArchId::gfx950;
  NormSpec spec{};
  std::int32_t columns = 0, rows = 0;  // rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  bool residual = false;
  MxRounding mx_rounding = MxRounding::up;
  std::uint64_t seed = 123;

  friend constexpr bool operator==(const NormCase&, const NormCase&) = default;

  DType out() const { return spec.out; }
  std::int64_t scales() const { return scale_count(spec.scale, rows, columns); }

  static constexpr NamePart name_parts[] = {{"rmsnorm", "kind", "rmsnorm"},
                                            {"layernorm", "kind", "layernorm"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"res", "residual"},
                                            {"floor", "mx_rounding", "floor"},
                                            {"nearest", "mx_rounding", "nearest"}};
  static constexpr auto& name_types = row_name_types;
  static constexpr std::string_view name_mode = "scale_mode";
  static void imply(Words& words) {
    words.imply("config_rows", "rows");
    words.imply("weight_dtype", "x_dtype");
    if (!words.values.contains("scale_mode")) words.imply("out_dtype", "x_dtype");
  }
  void complete() { rows = config_rows; }
  std::string fault() const { return extent_fault(*this); }

  template <class Case, class Visit>  // a NormCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit("kind", c.spec.kind);
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("weight_dtype", c.spec.weight);
    visit("out_dtype", c.spec.out);
    visit("scale_mode", c.spec.scale);
    visit("mx_rounding", c.mx_rounding);
    visit("residual", c.residual);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `rmsnorm/gfx950/bf16/c8192/r32768/fp8.per_token/res0`: kind, arch, type of x, columns, rows, output, residual.
inline std::string name_of(const NormCase& c) {
  const std::string mode = c.spec.scale == Scaling::none ? "" : std::string(".") + name_of(c.spec.scale);
  return std::string(name_of(c.spec.kind)) + "/" + std::string(name_of(c.arch)) + "/" + std::string(name_of(c.spec.x)) +
         "/" + extent_name(c) + "/" + short_name(c.spec.out) + mode + "/res" + (c.residual ? "1" : "0") +
         rounding_name(c.mx_rounding);
}

struct NormTensors {
  TwinBuffer x, weight, bias, residual, residual_out, out, scale;
};

struct NormOp {
  using Case = NormCase;
  using Problem = NormProblem;
  using Entry = NormEntry;
  using Tensors = NormTensors;

  static std::span<const Entry* const> entries() { return all_norm_entries(); }
  static constexpr auto select = norm_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/norm/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.x = address(t.x);
    p.weight = address(t.weight);
    if (c.spec.kind == NormKind::layer) p.bias = address(t.bias);
    if (c.residual) {
      p.residual = address(t.residual);
      p.residual_out = address(t.residual_out);
      p.residual_strides = p.residual_out_strides = {c.columns, 0};
    }
    p.out = address(t.out);
    if (c.spec.scale != Scaling::none) p.scale = address(t.scale);
    p.rows = c.rows;
    p.columns = c.columns;
    p.x_strides = {c.columns, 0};
    p.out_strides = {c.columns / packing_of(c.spec.out), 0};
    p.scale_stride = scale_groups(c.spec.scale, c.columns);
    p.mx_rounding = c.mx_rounding;
    return p;
  }

  // Rows differ in magnitude, so that a factor of another row shows, and their mean is not 0.
  static Tensors fill(const Case& c, int threads) {
    Tensors t;
    const auto magnitude = [](std::int64_t r) { return std::ldexp(1.0f, static_cast<int>(r % 5) - 2); };
    t.x = filled(c.spec.x, c.rows, c.columns, threads, [&](std::int64_t r, std::int64_t column) {
      return magnitude(r) * (0.5f + 2 * drawn(c.seed, 'x', r, column));
    });
    t.weight = filled(c.spec.weight, 1, c.columns, 1,
                      [&](std::int64_t, std::int64_t column) { return 1 + 0.5f * drawn(c.seed, 'w', 0, column); });
    if (c.spec.kind == NormKind::layer) {
      t.bias = filled(c.spec.weight, 1, c.columns, 1,
                      [&](std::int64_t, std::int64_t column) { return drawn(c.seed, 'b', 0, column); });
    }
    if (c.residual) {
      t.residual = filled(c.spec.x, c.rows, c.columns, threads, [&](std::int64_t r, std::int64_t column) {
        return magnitude(r) * drawn(c.seed, 'r', r, column);
      });
      t.residual_out = poisoned(c.spec.x, std::int64_t{c.rows} * c.columns);
    }
    t.out = poisoned(c.spec.out, std::int64_t{c.rows} * c.columns);
    if (c.spec.scale == Scaling::per_tensor) {
      // Saturates the few values beyond 3.5, as a static scale does.
      t.scale =
          filled(DType::f32, 1, 1, 1, [&](std::int64_t, std::int64_t) { return 3.5f / largest_code(c.spec.out); });
    } else {
      t.scale = poisoned(scale_type(c.spec.scale), c.scales());
    }
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out, &t.residual_out, &t.scale}; }

  /// An element: rms 4 (square, add, two products), layer 8 (the mean: 1, the variance: 3, the output: 4); residual 1,
  /// a scale 1 and, where it is found, 1 for the largest magnitude.
  static Work work_of(const Case& c) {
    const std::int64_t elements = std::int64_t{c.rows} * c.columns, x = size_of(c.spec.x);
    const bool layer = c.spec.kind == NormKind::layer;
    const int scaling = c.spec.scale == Scaling::none ? 0 : c.spec.scale == Scaling::per_tensor ? 1 : 2;
    const std::int64_t scales = size_of(scale_type(c.spec.scale)) * c.scales();
    const std::int64_t out = bytes_of_values(c.spec.out, elements);
    return {.bytes = elements * x * (c.residual ? 3 : 1) + out +
                     std::int64_t{c.columns} * size_of(c.spec.weight) * (layer ? 2 : 1) + scales,
            .written = elements * (c.residual ? x : 0) + out + (c.spec.scale == Scaling::per_tensor ? 0 : scales),
            .flops = elements * ((layer ? 8 : 4) + (c.residual ? 1 : 0) + scaling)};
  }

  /// A value may be off by half a step of its type, plus 1e-5 of itself and 1e-5 absolutely for the f32 arithmetic (rows
  /// are normalised, their largest addends around 4); i8 truncates: a code may be one too low.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const NormSpec& s = p.spec;
    const reference::NormRow wanted = reference::norm_row(p, row);
    const double f32_error = 1e-5, largest = largest_code(s.out);
    const std::int64_t start = std::int64_t{row} * p.columns;
    const std::int32_t step = scale_step(s.scale, p.columns);
    for (std::int32_t first = 0; first < p.columns; first += step) {
      const std::int32_t end = std::min(first + step, p.columns);
      double unit = 1;
      if (s.scale == Scaling::per_tensor) {
        unit = static_cast<const float*>(p.scale)[0];
      } else if (s.scale == Scaling::mx) {
        unit = mx_unit(p, row, first, wanted.values, f32_error, errors);
      } else if (s.scale != Scaling::none) {
        unit = static_cast<const float*>(
            p.scale)[s.scale == Scaling::per_token ? row : row * p.scale_stride + first / scale_group];
        double amax = 0;
        for (std::int32_t c = first; c < end; ++c) amax = std::max(amax, std::abs(wanted.values[c]));
        const double wanted_unit = amax == 0 ? 1 : amax / largest;
        errors.expect(std::abs(unit - wanted_unit) <= f32_error * (wanted_unit + 1 / largest), "scale", row, first,
                      unit, wanted_unit);
      }
      for (std::int32_t c = first; c < end; ++c) {
        const double got = reference::element(s.out, p.out, start + c);
        const double code =
            s.scale == Scaling::none ? wanted.values[c] : std::clamp(wanted.values[c] / unit, -largest, largest);
        const double slack = f32_error / unit + f32_error * std::abs(code);
        const double error = std::abs(got - code);
        const bool good = s.out == DType::i8 ? std::abs(got) <= std::abs(code) + slack && error < 1 + slack
                                             : error <= half_step(s.out, code) * 1.001 + slack;
        errors.out(good, row, c, got * unit, code * unit);
        if (p.residual != nullptr) {
          const double sum = reference::element(s.x, p.residual_out, start + c);
          errors.expect(sum == wanted.sum[c], "residual_out", row, c, sum, wanted.sum[c]);
        }
      }
    }
  }
};

}  // namespace tilewave::bench
