// SPDX-License-Identifier: MIT
// Quantisations and dequantisations for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/quant.hpp"

namespace tilewave::bench {

/// Rows are packed.
struct QuantCase {
  ArchId arch = ArchId::gfx950;
  QuantSpec spec{};
  std::int32_t columns = 0, rows = 0;  // rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  bool given = false;                  // scales are an input: always where codes are dequantised
  MxRounding mx_rounding = MxRounding::up;
  std::uint64_t seed = 123;

  friend constexpr bool operator==(const QuantCase&, const QuantCase&) = default;

  DType out() const { return spec.out; }
  bool finds_scale_of_tensor() const { return spec.scale == Scaling::per_tensor && !given; }
  std::int64_t scales() const { return scale_count(spec.scale, rows, columns); }

  static constexpr NamePart name_parts[] = {{"quant", "kind", "quant"},
                                            {"dequant", "kind", "dequant"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"given", "given"},
                                            {"floor", "mx_rounding", "floor"},
                                            {"nearest", "mx_rounding", "nearest"}};
  static constexpr auto& name_types = row_name_types;
  static constexpr std::string_view name_mode = "scale_mode";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() { rows = config_rows; }
  std::string fault() const {
    if (spec.kind() == QuantKind::dequantise && !given) return "codes come with their scales: given is 1";
    if (given && spec.kind() == QuantKind::quantise && spec.scale != Scaling::per_tensor) {
      return "only the scale of a tensor can be given";
    }
    return extent_fault(*this);
  }

  template <class Case, class Visit>  // a QuantCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", c.spec.kind());
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("out_dtype", c.spec.out);
    visit("scale_mode", c.spec.scale);
    visit("mx_rounding", c.mx_rounding);
    visit("given", c.given);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `quant/gfx950/bf16/c8192/r32768/fp8.per_token/given0`: kind, arch, type of x, columns, rows, type of out and scale
/// mode, whether scales are given.
inline std::string name_of(const QuantCase& c) {
  return std::string(name_of(c.spec.kind())) + "/" + std::string(name_of(c.arch)) + "/" + short_name(c.spec.x) + "/" +
         extent_name(c) + "/" + short_name(c.spec.out) + "." + name_of(c.spec.scale) + "/given" +
         (c.given ? "1" : "0") + rounding_name(c.mx_rounding);
}

struct QuantTensors {
  TwinBuffer x, out, scale, workspace;
};

struct QuantOp {
  using Case = QuantCase;
  using Problem = QuantProblem;
  using Entry = QuantEntry;
  using Tensors = QuantTensors;

  static constexpr float amplitude = 5;  // of values; one element of a tensor whose scale is found is exactly that

  static std::span<const Entry* const> entries() { return all_quant_entries(); }
  static constexpr auto select = quant_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/quant/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.x = address(t.x);
    p.out = address(t.out);
    p.scale = address(t.scale);
    p.find_scale = c.finds_scale_of_tensor();
    if (p.find_scale) {
      p.workspace = address(t.workspace);
      p.workspace_bytes = quant_workspace_size(p);
    }
    p.rows = c.rows;
    p.columns = c.columns;
    p.x_strides = {c.columns, 0};
    p.out_strides = {c.columns / packing_of(c.spec.out), 0};
    p.scale_stride = scale_groups(c.spec.scale, c.columns);
    p.mx_rounding = c.mx_rounding;
    return p;
  }

  // What has its own scale has its own magnitude, so that the scale of another row or group shows.
  static Tensors fill(const Case& c, int threads) {
    Tensors t;
    const bool dequantises = c.spec.kind() == QuantKind::dequantise;
    const auto magnitude = [&](std::int64_t r, std::int64_t column) {
      const std::int64_t place = r + column / scale_step(c.spec.scale, c.columns);
      return c.spec.scale == Scaling::per_tensor ? amplitude : std::ldexp(amplitude, static_cast<int>(place % 5) - 4);
    };
    t.x = filled(c.spec.x, c.rows, c.columns, threads, [&](std::int64_t r, std::int64_t column) {
      const float u = drawn(c.seed, 'x', r, column);
      if (dequantises) return u * largest_code(c.spec.x);
      const bool peak = c.finds_scale_of_tensor() && r == c.rows / 2 && column == c.columns / 3;
      return peak ? -amplitude : u * magnitude(r, column);
    });
    t.out = poisoned(c.spec.out, std::int64_t{c.rows} * c.columns);
    if (dequantises) {
      t.scale = filled(DType::f32, 1, static_cast<std::int32_t>(c.scales()), 1,
                       [&](std::int64_t, std::int64_t i) { return 0.02f + 0.01f * drawn(c.seed, 's', 0, i); });
    } else if (c.given) {  // saturates the fifth that lies beyond 4
      t.scale = filled(DType::f32, 1, 1, 1, [&](std::int64_t, std::int64_t) { return 4 / largest_code(c.spec.out); });
    } else {
      t.scale = poisoned(scale_type(c.spec.scale), c.scales());
    }
    if (c.finds_scale_of_tensor()) t.workspace = poisoned(DType::f32, quant_partials);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out, &t.scale}; }

  /// An element: a product, and the largest magnitude where it is found. A tensor whose scale is found is read twice.
  static Work work_of(const Case& c) {
    const std::int64_t elements = std::int64_t{c.rows} * c.columns;
    const int reads = c.finds_scale_of_tensor() ? 2 : 1;
    const std::int64_t codes = bytes_of_values(c.spec.out, elements);
    const std::int64_t scales = size_of(scale_type(c.spec.scale)) * c.scales();
    return {.bytes = elements * reads * size_of(c.spec.x) + codes + scales,
            .written = codes + (c.given ? 0 : scales),
            .flops = elements * (c.given ? 1 : 2)};
  }

  /// A code may be off by half a step of its type, i8, which is truncated, by less than one; a value by half a step;
  /// plus a few roundings of f32.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const QuantSpec& s = p.spec;
    const std::vector<double> values = reference::quant_row(p, row);
    const std::int64_t start = std::int64_t{row} * p.columns;
    if (s.kind() == QuantKind::dequantise) {
      for (std::int32_t c = 0; c < p.columns; ++c) {
        const double got = reference::element(s.out, p.out, start + c);
        const double slack = half_step(s.out, values[c]) * 1.001 + 1e-7 * std::abs(values[c]);
        errors.out(std::abs(got - values[c]) <= slack, row, c, got, values[c]);
      }
      return;
    }
    const double largest = largest_code(s.out);
    const std::int32_t step = scale_step(s.scale, p.columns);
    for (std::int32_t first = 0; first < p.columns; first += step) {
      const std::int32_t end = std::min(first + step, p.columns);
      const double unit = s.scale == Scaling::mx
                              ? mx_unit(p, row, first, values, 0, errors)
                              : static_cast<const float*>(p.scale)[reference::scale_index(p, row, first)];
      if (s.scale != Scaling::mx && (s.scale != Scaling::per_tensor || p.find_scale)) {
        const double amax = s.scale == Scaling::per_tensor ? amplitude : reference::amax(values, first, end);
        const double wanted = reference::scale_of(amax, s.out);
        errors.expect(std::abs(unit - wanted) <= 2e-7 * wanted, "scale", row, first, unit, wanted);
      }
      for (std::int32_t c = first; c < end; ++c) {
        const double got = reference::element(s.out, p.out, start + c);
        const double code = std::clamp(values[c] / unit, -largest, largest);
        const double slack = 4e-7 * std::abs(code), error = std::abs(got - code);
        const bool good = s.out == DType::i8 ? std::abs(got) <= std::abs(code) + slack && error < 1 + slack
                                             : error <= half_step(s.out, code) * 1.001 + slack;
        errors.out(good, row, c, got * unit, code * unit);
      }
    }
  }
};

}  // namespace tilewave::bench
