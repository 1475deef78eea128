// SPDX-License-Identifier: MIT
// Rows of the benchmarks of row operations: how many are run and verified, their tensors, and the results of comparing
// one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bench/harness/config_parser.hpp"
#include "bench/harness/device.hpp"
#include "bench/harness/element.hpp"
#include "bench/harness/measurement.hpp"
#include "bench/harness/random.hpp"
#include "tilewave/reference/parallel.hpp"
#include "tilewave/reference/rows.hpp"
#include "tilewave/tile/row_output.hpp"

namespace tilewave::bench {

/// The elements of one launch on the emulated device, which takes minutes for the gigabytes that a GPU moves in a
/// blink. They are 32 rows of 8192 columns, more than any policy's block has at that width.
inline constexpr std::int64_t emulated_elements = std::int64_t{1} << 18;
/// Up to this many elements are compared with the reference; beyond, only a sample of rows is.
inline constexpr std::int64_t verified_elements = std::int64_t{1} << 22;

/// Returns the rows of a config that are launched: all of them, but on the emulated device as many as fit
/// emulated_elements, and at least three.
inline std::int32_t launched_rows(std::int32_t rows, std::int64_t columns) {
  if (!cuts_configs()) return rows;
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(rows, std::max<std::int64_t>(3, emulated_elements / columns)));
}
/// Returns an extent that follows from others, clamped to the type. A config with more is refused, but only after its
/// columns were read.
inline std::int32_t saturated(std::int64_t extent) {
  return static_cast<std::int32_t>(std::min<std::int64_t>(extent, std::numeric_limits<std::int32_t>::max()));
}

/// Returns the size of a row in that count: its columns, or the number that the config gives.
template <class Case>
std::int64_t row_elements(const Case& c) {
  if constexpr (requires { c.row_elements(); }) {
    return c.row_elements();
  } else {
    return c.columns;
  }
}

/// Returns the rows to verify: all, or as many as fit verified_elements (at least three), spread evenly from first to
/// last.
inline std::vector<std::int32_t> verified_rows(std::int32_t rows, std::int64_t columns) {
  const std::int64_t most = std::max<std::int64_t>(3, verified_elements / columns);
  std::vector<std::int32_t> some(static_cast<std::size_t>(std::min<std::int64_t>(rows, most)));
  const auto last = static_cast<std::int64_t>(some.size()) - 1;
  for (std::int64_t i = 0; i <= last; ++i) some[i] = static_cast<std::int32_t>(last == 0 ? 0 : i * (rows - 1) / last);
  return some;
}

/// Returns a part of a row's name: what a number is, and its value, as `/hq32`.
inline std::string part_name(std::string_view what, std::int64_t value) {
  return "/" + std::string(what) + std::to_string(value);
}
/// Returns the same for what is launched of a config that may have more, as `/c160of8192`.
inline std::string part_name(std::string_view what, std::int64_t launched, std::int64_t whole) {
  return part_name(what, launched) + (launched < whole ? "of" + std::to_string(whole) : "");
}
/// Returns `c8192/r32768`, or `c8192/r16of32768` where fewer rows are launched than the config has.
template <class Case>
std::string extent_name(const Case& c) {
  return "c" + std::to_string(c.columns) + part_name("r", c.rows, c.config_rows);
}

/// The names that all row operations' --config share; `rows` may stand for config_rows.
inline constexpr std::string_view row_name_types[] = {"x_dtype", "out_dtype"};
template <class Case>
std::string extent_fault(const Case& c) {
  if (c.columns < 1) return "columns is below 1 or missing";
  if (c.config_rows < 1) return "config_rows is below 1 or missing";
  if (std::int64_t{c.columns} * c.config_rows > std::int64_t{1} << 38) return "more than 2^38 elements";
  if constexpr (requires { c.spec.scale; }) {
    if (c.spec.scale == Scaling::mx && c.columns % mx_group != 0) return "columns with mx scales are a multiple of 32";
  }
  if constexpr (requires { c.mx_rounding; }) {
    if (c.spec.scale != Scaling::mx && c.mx_rounding != MxRounding::up) return "mx_rounding is of mx scales";
  }
  return "";
}

template <>
inline constexpr int enumerators_of<MxRounding> = 3;

/// Returns `/floor` or `/nearest` for the name of a row whose mx scales are not the default ones.
inline std::string rounding_name(MxRounding r) { return r == MxRounding::up ? "" : std::string("/") + name_of(r); }

/// Returns a type as the names of rows give it: `fp8` is the architecture's own flavour.
inline std::string short_name(DType type) { return is_fp8(type) ? "fp8" : std::string(name_of(type)); }

/// scale_groups counts groups of columns with a scale of their own; scale_count counts the scales of a whole tensor.
inline std::int32_t scale_groups(Scaling mode, std::int32_t columns) { return ceil_div(columns, group_of(mode)); }
inline std::int64_t scale_count(Scaling mode, std::int32_t rows, std::int32_t columns) {
  switch (mode) {
    case Scaling::none: return 0;
    case Scaling::per_tensor: return 1;
    case Scaling::per_token: return rows;
    case Scaling::per_row:
    case Scaling::per_head:
    case Scaling::per_block:  // row operations have none of these three
    case Scaling::per_group:
    case Scaling::mx: break;
  }
  return std::int64_t{rows} * scale_groups(mode, columns);
}
/// Returns the columns of a row that share one scale.
inline std::int32_t scale_step(Scaling mode, std::int32_t columns) {
  return mode == Scaling::per_group || mode == Scaling::mx ? group_of(mode) : columns;
}
/// Returns a type with the size of a scale.
inline DType scale_type(Scaling mode) { return mode == Scaling::mx ? DType::i8 : DType::f32; }
/// Returns the bytes of `values` values of a type.
inline std::int64_t bytes_of_values(DType type, std::int64_t values) {
  return values * size_of(type) / packing_of(type);
}

/// Makes a packed tensor [rows, columns] of a row type on host and device. Element (r, c) is the one nearest to
/// value(r, c).
template <class Value>
TwinBuffer filled(DType type, std::int32_t rows, std::int32_t columns, int threads, const Value& value) {
  TwinBuffer buffer(static_cast<std::size_t>(rows) * columns * size_of(type), name_of(type));
  if (!fills(buffer.bytes())) return buffer;
  reference::parallel_for(rows, threads, [&](std::int64_t r) {
    for (std::int32_t c = 0; c < columns; ++c) set_element(type, buffer.host(), r * columns + c, value(r, c));
  });
  buffer.upload();
  return buffer;
}
/// Makes a tensor for results. It is poisoned, so that an element that is not written shows.
inline TwinBuffer poisoned(DType type, std::int64_t elements, std::string_view element) {
  TwinBuffer buffer(static_cast<std::size_t>(bytes_of_values(type, elements)), element);
  if (buffer.bytes() > 0 && fills(buffer.bytes())) std::memset(buffer.host(), poison_byte(type), buffer.bytes());
  buffer.upload();
  return buffer;
}
inline TwinBuffer poisoned(DType type, std::int64_t elements) {
  return poisoned(type, elements, is_fp6(type) ? "bytes" : name_of(type));
}
/// Makes poisoned words. They are not -1, which is a valid answer.
inline TwinBuffer poisoned_words(std::int64_t elements) {
  TwinBuffer buffer(static_cast<std::size_t>(4 * elements), "i32");
  if (buffer.bytes() > 0 && fills(buffer.bytes())) std::memset(buffer.host(), 0xcd, buffer.bytes());
  buffer.upload();
  return buffer;
}

/// Returns element (r, c) of the tensor `name`, uniform in (-1, 1).
inline float drawn(std::uint64_t seed, char name, std::int64_t r, std::int64_t c) {
  return random_of_row(seed, name, r, c);
}

/// The result of comparing a row.
struct RowErrors {
  std::int64_t bad = 0;
  double max_abs = 0, difference = 0, norm = 0;  // difference and norm are sums of squares over `out`
  std::string reason;                            // the first deviation that was found

  void expect(bool good, const char* what, std::int64_t row, std::int64_t column, double got, double wanted) {
    if (good || bad++ > 0) return;
    reason = std::string(what) + " is " + std::to_string(got) + " instead of " + std::to_string(wanted) + " at row " +
             std::to_string(row) + ", column " + std::to_string(column);
  }
  /// Compares a dequantised element of `out`. If both are infinite and equal, it is no error and counts for nothing.
  void out(bool good, std::int64_t row, std::int64_t column, double got, double wanted) {
    expect(good, "out", row, column, got, wanted);
    if (got == wanted && std::isinf(wanted)) return;
    const double error = std::isnan(got - wanted) ? std::numeric_limits<double>::infinity() : std::abs(got - wanted);
    max_abs = std::max(max_abs, error);
    difference += error * error;
    norm += wanted * wanted;
  }
  double relative() const { return difference == 0 ? 0 : std::sqrt(difference / norm); }
};

/// Returns the mx scale of a row's column. At the first column of its group it also checks that the scale fits the
/// values, each of which may be off by `slack` of itself. Scales lie in rows.
template <class Problem>
double mx_unit(const Problem& p, std::int32_t row, std::int32_t column, const std::vector<double>& values, double slack,
               RowErrors& errors) {
  const double unit =
      reference::group_scale(p.scale, Scaling::mx, ScaleLayout::rows, p.scale_stride, p.columns, row, column);
  if (column % mx_group == 0) {
    const double largest = reference::amax(values, column, column + mx_group);
    const double low = reference::mx_scale_of(largest * (1 - slack), p.spec.out, p.mx_rounding);
    const double high = reference::mx_scale_of(largest * (1 + slack), p.spec.out, p.mx_rounding);
    errors.expect(unit == low || unit == high, "scale", row, column, unit, low);
  }
  return unit;
}

/// Turns the results of comparing rows into the verdict of a measurement, and logs the first deviation.
inline void conclude(const std::vector<RowErrors>& found, const Meter& meter, Measurement& m) {
  m.ok = true;
  m.max_abs_err = m.max_rel_err = 0;
  std::int64_t bad = 0;
  const RowErrors* first = nullptr;
  for (const RowErrors& errors : found) {
    m.max_abs_err = std::max(m.max_abs_err, errors.max_abs);
    m.max_rel_err = std::max(m.max_rel_err, errors.relative());
    bad += errors.bad;
    if (errors.bad > 0 && first == nullptr) first = &errors;
  }
  if (first == nullptr) return;
  m.ok = false;
  meter.log(std::to_string(bad) + " values outside the tolerance; the first: " + first->reason);
}

}  // namespace tilewave::bench
