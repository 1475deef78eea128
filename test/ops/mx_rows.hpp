// SPDX-License-Identifier: MIT
// An output with mx scales for the tests of row operations: its tensors, and what it must hold.
#pragma once

#include "test/core/fp8_table.hpp"
#include "test/core/mx_table.hpp"
#include "test/ops/rows.hpp"

namespace tilewave::test {

class MxOutput {
 public:
  /// Rows of codes have gaps between them, and so have scales that lie in rows.
  MxOutput(DType type, std::int32_t rows, std::int32_t columns, ScaleLayout layout,
           MxRounding rounding = MxRounding::up)
      : type_(type),
        rows_(rows),
        columns_(columns),
        layout_(layout),
        rounding_(rounding),
        stride_(columns / packing_of(type) + 16),
        out_(type, rows, columns, 1, {align_up<std::int64_t>(stride_, 16), 0}),
        scales_(layout == ScaleLayout::rows ? static_cast<std::size_t>(rows - 1) * scale_stride() + groups()
                                            : static_cast<std::size_t>(align_up(rows, 32)) * align_up(groups(), 8)) {
    scales_.fill(unwritten);
  }

  template <class Problem>
  void describe(Problem& p) const {
    p.out = out_.device();
    p.out_strides = {align_up<std::int64_t>(stride_, 16), 0};
    p.scale = scales_.data();
    p.scale_layout = layout_;
    p.mx_rounding = rounding_;
    p.scale_stride = layout_ == ScaleLayout::rows ? scale_stride() : 0;
  }

  /// Returns the fault after the kernel ran, if `values(row)` are quantised and each may be off by `slack` of itself.
  template <class Values>
  std::string error(const Values& values, double slack) {
    out_.download();
    std::vector<std::uint8_t> scales(scales_.bytes());
    bench::check_hip(hipMemcpy(scales.data(), scales_.data(), scales.size(), hipMemcpyDeviceToHost), "copying back");
    if (!out_.gaps_kept(rows_, columns_)) return "wrote between rows";
    std::int64_t written = 0;
    for (const std::uint8_t scale : scales) written += scale != unwritten;
    if (written != std::int64_t{rows_} * groups()) return "wrote " + std::to_string(written) + " scales";
    for (std::int32_t r = 0; r < rows_; ++r) {
      const std::vector<double> row = values(r);
      for (std::int32_t first = 0; first < columns_; first += mx_group) {
        const double scale =
            reference::group_scale(scales.data(), Scaling::mx, layout_, scale_stride(), columns_, r, first);
        const std::string error = group_error(r, first, row, scale, slack);
        if (error != "") return error;
      }
    }
    return "";
  }

 private:
  static constexpr int unwritten = 0xfe;  // 2^127, which no test here has
  std::int32_t groups() const { return columns_ / mx_group; }
  std::int64_t scale_stride() const { return groups() + 3; }

  std::string group_error(std::int32_t r, std::int32_t first, const std::vector<double>& row, double scale,
                          double slack) const {
    double largest = 0;
    for (std::int32_t c = first; c < first + mx_group; ++c) {
      largest = std::isfinite(row[c]) ? std::max(largest, std::abs(row[c])) : std::numeric_limits<double>::infinity();
      if (std::isinf(largest)) break;
    }
    if (std::isinf(largest)) return std::isnan(scale) ? "" : wrong("scale", r, first, scale, largest);
    const auto right = [&](double amax) { return reference::mx_scale_of(amax, type_, rounding_); };
    if (scale != right(largest * (1 - slack)) && scale != right(largest * (1 + slack))) {
      return wrong("scale", r, first, scale, right(largest));
    }
    for (std::int32_t c = first; c < first + mx_group; ++c) {
      const double got = out_.at(r, c), quotient = row[c] / scale;
      if (got != code_value(quotient * (1 - slack)) && got != code_value(quotient * (1 + slack))) {
        return wrong("code", r, c, got, quotient);
      }
    }
    return "";
  }
  double code_value(double quotient) const {
    if (type_ == DType::fp4_e2m1) return fp4_by_definition(nearest_fp4(quotient));
    if (is_fp6(type_)) return fp6_by_definition(type_, nearest_fp6(type_, quotient));
    return by_definition(type_, nearest_code(type_, static_cast<float>(quotient)));
  }
  static std::string wrong(const char* what, int row, int column, double got, double wanted) {
    return std::string(what) + " row " + std::to_string(row) + " column " + std::to_string(column) + ": " +
           std::to_string(got) + ", not " + std::to_string(wanted);
  }

  DType type_;
  std::int32_t rows_, columns_;
  ScaleLayout layout_;
  MxRounding rounding_;
  std::int64_t stride_;
  Tensor out_;
  bench::DeviceBuffer scales_;
};

/// Columns around what a policy holds, all with whole groups.
inline std::vector<std::int32_t> mx_columns(const RowPolicy& p, DType x) {
  const auto most = static_cast<std::int32_t>(std::min<std::int64_t>(p.columns(x), 8192));
  std::vector<std::int32_t> all{32, 288, most - 32, most};
  if (!p.held) all.push_back(2 * most + 96);
  return all;
}

inline constexpr MxRounding mx_roundings[] = {MxRounding::up, MxRounding::floor, MxRounding::nearest};

/// A group of a row differs in magnitude from its neighbours.
inline float mx_value(char name, int row, int column) {
  return std::ldexp(drawn(name, row, column), (5 * row + column / mx_group * 3) % 13 - 6);
}

/// Checks the refusals of an mx output; the good problem has shuffled scales.
template <class P>
inline const Wrong<P> mx_wrongs[] = {
    {"columns 33", StatusCode::bad_extent, [](P& p) { p.columns = 33; }},
    {"out off by a byte", StatusCode::misaligned, [](P& p) { p.out = moved(p.out, 1); }},
    {"rows of x off by an element", StatusCode::misaligned, [](P& p) { p.x_strides.outer += 1; }},
    {"layout 2", StatusCode::bad_value, [](P& p) { p.scale_layout = static_cast<ScaleLayout>(2); }},
    {"rounding 3", StatusCode::bad_value, [](P& p) { p.mx_rounding = static_cast<MxRounding>(3); }},
    {"a stride of shuffled scales", StatusCode::bad_stride, [](P& p) { p.scale_stride = 2; }},
    {"scales of a row in one place", StatusCode::bad_stride,
     [](P& p) {
       p.scale_layout = ScaleLayout::rows;
       p.scale_stride = 0;
     }},
    {"fp4 with another scale", StatusCode::unsupported_scaling,
     [](P& p) {
       p.spec.out = DType::fp4_e2m1;
       p.spec.scale = Scaling::per_group;
     }},
    {"fp6 with another scale", StatusCode::unsupported_scaling,
     [](P& p) {
       p.spec.out = DType::fp6_e3m2;
       p.spec.scale = Scaling::per_group;
     }},
    {"i8", StatusCode::unsupported_dtype, [](P& p) { p.spec.out = DType::i8; }},
    {"pads of scales inside x", StatusCode::bad_value,
     [](P& p) { p.scale = moved(const_cast<void*>(p.x), -align_up(p.columns / 32, 8) * 32 + 1); }},
};

/// The same problem is refused by the other architectures, with the reason.
template <class P>
void check_mx_elsewhere(P p, Status (*check)(const P&, const ArchFacts&)) {
  for (const ArchId arch : {ArchId::gfx942, ArchId::sm90}) {
    p.spec.out = facts_of(arch).fp8;
    const Status status = check(p, facts_of(arch));
    CHECK(name_of(status.code) == "unsupported_scaling");
    CHECK(std::string(status.reason) == "mx scales are for gfx950 only");
  }
}

}  // namespace tilewave::test
