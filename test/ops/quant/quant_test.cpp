// SPDX-License-Identifier: MIT
// The tests compare every entry with the reference in double: boundary columns, strides, every scale, ties, saturation,
// what is not
// finite.
#include "entries/quant.hpp"

#include <functional>

#include "test/core/fp8_table.hpp"
#include "test/ops/rows.hpp"
#include "test/turns.hpp"
#include "tilewave/ops/quant/registry.hpp"

namespace tilewave::test::quant_tests {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

/// The value of x at a row and a column, for codes with this largest one.
using Value = std::function<float(int row, int column, float largest)>;

struct Shape {
  std::int32_t rows = 3, columns = 256, inner_rows = 1;
  int gap = 0;            // elements between two rows
  bool far = false;       // see far_strides
  bool smooth = false;    // where values are quantised
  bool find = false;      // the scale of the tensor
  bool uneven = false;    // the groups of a row differ in magnitude
  Value value = {};       // instead of random ones; dequantised are random codes
  float given = 0.0078f;  // scale of the tensor, where it is not found
  double slack = 4e-7;    // of a value over its scale, three roundings of f32; 0 where none rounds
};

RowStrides strides_of(const Shape& s) {
  if (s.far) return far_strides(s.inner_rows);
  const std::int64_t inner = s.columns + s.gap;
  return s.inner_rows == 1 ? RowStrides{inner, 0} : RowStrides{inner * s.inner_rows + s.gap, inner};
}

/// The value of the code for a quotient, by the formats' definitions.
double code_value(DType type, double quotient) {
  if (type == DType::i8) return std::isnan(quotient) ? 0 : std::trunc(std::clamp(quotient, -127.0, 127.0));
  if (std::isnan(quotient)) return nan;
  return by_definition(type, nearest_code(type, static_cast<float>(quotient)));
}
bool same(double got, double wanted) { return got == wanted || (std::isnan(got) && std::isnan(wanted)); }

class Call {
 public:
  Call(const QuantSpec& spec, const Shape& s)
      : spec_(spec),
        s_(s),
        quantises_(spec.kind() == QuantKind::quantise),
        found_(quantises_ && spec.scale == Scaling::per_tensor && s.find),
        groups_((s.columns + scale_group - 1) / scale_group),
        x_(spec.x, s.rows, s.columns, s.inner_rows, strides_of(s)),
        out_(spec.out, s.rows, s.columns, s.inner_rows, strides_of(s)),
        smooth_(spec.x, s.columns),
        scale_(DType::f32, scale_rows(), scale_columns(), 1, {scale_columns() + 3, 0}),
        workspace_(found_ ? quant_partials * sizeof(float) : 0) {
    const float largest = largest_code(quantises_ ? spec.out : spec.x);
    x_.set(s.rows, s.columns, [&](int r, int c) {
      if (s.value) return s.value(r, c, largest);
      if (quantises_) return std::ldexp(drawn('x', r, c), r % 5 - 2 + (s.uneven ? c / scale_group % 4 : 0));
      const std::uint64_t bits = bench::random_bits({std::uint64_t(r), std::uint64_t(c)});
      return spec.x == DType::i8 ? static_cast<float>(static_cast<std::int8_t>(bits)) : fp8_to_f32(spec.x, bits & 0xff);
    });
    smooth_.set(1, s.columns, [](int, int c) { return 1.0f + 0.25f * drawn('s', 0, c); });
    if (!quantises_) {
      scale_.set(scale_rows(), scale_columns(), [](int r, int c) { return 0.02f + 0.009f * drawn('c', r, c); });
    } else if (given()) {
      scale_.set(1, 1, [&](int, int) { return s.given; });
    }
    workspace_.fill(0x7f);  // 3.4e38: larger than what any wave finds
  }

  /// Launches the entry, or the one that is selected if null, and compares all it wrote with the reference.
  std::string run(const ArchFacts& facts, const QuantEntry* entry) {
    const QuantProblem p = problem();
    if (entry == nullptr) {
      const Status status = quant_select(p, all_quant_entries(), facts, entry);
      if (!status.ok()) return std::string("not selected: ") + status.reason;
    } else if (!policy_takes(entry->policy, spec_.x, s_.columns, quant_aligned(p))) {
      return entry->launch(p, {}).code == StatusCode::no_matching_entry ? "" : "took rows that it does not take";
    }
    const Status status = entry->launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernels");
    out_.download();
    scale_.download();
    if (!out_.gaps_kept(s_.rows, s_.columns)) return "wrote between rows";
    if (!scale_.gaps_kept(scale_rows(), scale_columns())) return "wrote between scales";
    return compare();
  }

 private:
  bool given() const { return spec_.scale == Scaling::per_tensor && !found_; }
  bool per_group() const { return spec_.scale == Scaling::per_group; }
  /// Every other number of rows has scales of groups as [groups, rows].
  bool by_groups() const { return s_.rows % 2 != 0; }
  std::int32_t scale_rows() const { return !per_group() ? 1 : by_groups() ? groups_ : s_.rows; }
  std::int32_t scale_columns() const {
    if (per_group()) return by_groups() ? s_.rows : groups_;
    return spec_.scale == Scaling::per_token ? s_.rows : 1;
  }
  double scale(int row, int column) const {
    const int group = column / scale_group;
    return per_group()                         ? by_groups() ? scale_.at(group, row) : scale_.at(row, group)
                                   : spec_.scale == Scaling::per_token ? scale_.at(0, row)
                                               : scale_.at(0, 0);
  }

  QuantProblem problem() const {
    QuantProblem p;
    p.spec = spec_;
    p.x = x_.device();
    if (s_.smooth && quantises_) p.smooth = smooth_.device();
    p.out = out_.device();
    p.scale = static_cast<float*>(scale_.device());
    p.find_scale = found_;
    p.workspace = workspace_.data();
    p.workspace_bytes = workspace_.bytes();
    p.rows = s_.rows;
    p.columns = s_.columns;
    p.inner_rows = s_.inner_rows;
    p.x_strides = p.out_strides = strides_of(s_);
    p.scale_stride = scale_columns() + 3;
    if (per_group() && by_groups()) std::swap(p.scale_stride, p.scale_group_stride);
    return p;
  }

  std::string compare() const {
    QuantProblem p = problem();
    p.x = x_.host();
    p.x_strides = x_.host_strides();
    if (p.smooth != nullptr) p.smooth = smooth_.host();
    p.scale = static_cast<float*>(const_cast<void*>(scale_.host()));
    std::vector<std::vector<double>> rows(s_.rows);
    std::vector<double> of_row(s_.rows);
    double tensor = 0;
    for (int r = 0; r < s_.rows; ++r) {
      rows[r] = reference::quant_row(p, r);
      of_row[r] = reference::amax(rows[r], 0, s_.columns);
      tensor = std::fmax(tensor, of_row[r]);
    }
    for (int r = 0; r < s_.rows; ++r)
      for (int c = 0; c < s_.columns; ++c) {
        if (quantises_ && c % scale_group == 0) {
          const double amax = spec_.scale == Scaling::per_tensor  ? tensor
                              : spec_.scale == Scaling::per_token ? of_row[r]
                                                                  : reference::amax(rows[r], c, group_end(c));
          const double wanted = given() ? s_.given : reference::scale_of(amax, spec_.out), got = scale(r, c);
          if (!same(got, wanted) && !(std::abs(got - wanted) <= 2e-7 * wanted))
            return wrong("scale", r, c, got, wanted);
        }
        const double value = rows[r][c], got = out_.at(r, c);
        if (quantises_ ? code_right(got, value / scale(r, c)) : value_right(got, value)) continue;
        return quantises_ ? wrong("code", r, c, got, code_value(spec_.out, value / scale(r, c)))
                          : wrong("value", r, c, got, value);
      }
    return "";
  }
  int group_end(int column) const { return std::min(column + scale_group, s_.columns); }
  bool code_right(double got, double quotient) const {
    for (const double factor : {1 - s_.slack, 1 + s_.slack}) {
      if (same(got, code_value(spec_.out, quotient * factor))) return true;
    }
    return false;
  }
  bool value_right(double got, double value) const {
    if (std::isnan(value)) return std::isnan(got);
    return std::abs(got - value) <= half_step(spec_.out, value) * 1.001 + 1e-7 * std::abs(value);
  }
  static std::string wrong(const char* what, int row, int column, double got, double wanted) {
    return std::string(what) + " row " + std::to_string(row) + " column " + std::to_string(column) + ": " +
           std::to_string(got) + ", not " + std::to_string(wanted);
  }

  QuantSpec spec_;
  Shape s_;
  bool quantises_, found_;
  std::int32_t groups_;
  Tensor x_, out_, smooth_, scale_;
  bench::DeviceBuffer workspace_;
};

std::string run(const QuantEntry& e, const Shape& s) { return Call(e.spec, s).run(facts_of(e.arch), &e); }

template <class F>
void each_of(std::span<const QuantEntry* const> entries, const F& f) {
  for (const QuantEntry* e : entries) {
    if (e->spec.scale == Scaling::mx) continue;  // see quant_mx_test.cpp
    const std::string error = f(*e);
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ": " << error);
    CHECK(error == "");
  }
}
template <class F>
void every_quant_entry(const F& f) {
  each_of(all_quant_entries(), f);
}
template <class F>
void each_quant_entry(const F& f) {  // whose turn it is
  each_of(in_turn(all_quant_entries()), f);
}

TEST_CASE("every quant entry computes the reference on boundary columns") {
  every_quant_entry([](const QuantEntry& e) {
    const int unit = 16 / size_of(e.spec.x),
              most = static_cast<int>(std::min<std::int64_t>(e.policy.columns(e.spec.x), 8192));
    std::vector<std::int32_t> all{unit, most - unit, most, 144};
    if (!e.policy.held) all.insert(all.end(), {2 * most, 2 * most + 3 * unit});
    if (!e.policy.wide(e.spec.x)) all.insert(all.end(), {1, 2, 7, 127, 129, most - 1, most + 1, 997});
    int turn = 0;
    for (const std::int32_t columns : all) {
      if (columns < 1) continue;
      const Shape s{.rows = turn % 3 + e.policy.rows,
                    .columns = columns,
                    .smooth = turn % 2 == 1,
                    .find = turn % 3 != 1,
                    .uneven = turn % 4 >= 2};
      ++turn;
      const std::string error = run(e, s);
      if (error != "") return std::to_string(columns) + " columns: " + error;
    }
    return std::string();
  });
}

TEST_CASE("quantised rows may have gaps, and inner rows their own stride") {
  each_quant_entry([](const QuantEntry& e) {
    const int gap = !e.policy.wide(e.spec.x) ? 3 : 16;
    return run(e, {.rows = 7, .columns = 256, .gap = gap, .smooth = true, .find = true}) +
           run(e, {.rows = 8, .columns = 256, .inner_rows = 3, .gap = gap, .find = true});
  });
}

TEST_CASE("quantised rows may start beyond 2^31 and 2^32 elements") {
  if (!has_memory(std::size_t{64} << 30)) return;
  each_quant_entry([](const QuantEntry& e) {
    if (e.policy.lanes != 256) return std::string();
    return run(e, {.rows = 4, .columns = 256, .far = true, .find = true}) +
           run(e, {.rows = 4, .columns = 256, .inner_rows = 2, .far = true, .find = true});
  });
}

TEST_CASE("rows longer than what any policy holds, aligned and not") {
  for (const ArchId arch : all_archs)
    for (const QuantSpec& spec : quant_specs(arch)) {
      bool built = false;
      if (spec.scale == Scaling::mx) continue;
      for (const QuantEntry* e : all_quant_entries()) built = built || (e->arch == arch && e->spec == spec);
      if (!built) continue;
      for (const int columns : {65536 + 64, 65536 + 63}) {
        INFO(name_of(arch) << " " << name_of(spec) << " " << columns << " columns");
        CHECK(Call(spec, {.rows = 1, .columns = columns, .find = true}).run(facts_of(arch), nullptr) == "");
      }
    }
}

TEST_CASE("codes of zeros, tiny values, outliers, NaN and infinities") {
  const Value values[] = {
      [](int r, int, float) { return r == 1 ? -0.0f : 0.0f; },
      [](int r, int c, float) {  // the second row's scale would be no normal f32, the third's is
        return c % 3 == 0 ? 0.0f : c % 3 == 1 ? -1e-37f : r == 1 ? 3e-36f : r == 2 ? 1e-35f : 3e-38f;
      },
      [](int r, int c, float) { return c == 200 - r ? 30000.0f : 0.0625f * static_cast<float>(c % 7 - 3); },
      [](int r, int c, float) { return c == 5 + r ? nan : static_cast<float>(c - 100); },
      [](int r, int c, float) { return r == 1 ? nan : static_cast<float>(c - 100); },
      [](int r, int c, float) { return r == 1 && c % 130 == 7 ? (c < 128 ? inf : -inf) : static_cast<float>(c - 100); },
      [](int r, int c, float) { return c == 9    ? inf
                                       : c == 10 ? nan
                                                 : static_cast<float>(r - 1); },
  };
  each_quant_entry([&](const QuantEntry& e) {
    if (e.spec.kind() == QuantKind::dequantise) return std::string();
    for (const Value& value : values)
      for (const bool find : {true, false}) {
        const std::string error = run(e, {.find = find, .value = value, .given = 0.3f});
        if (error != "") return "values " + std::to_string(&value - values) + ": " + error;
      }
    return std::string();
  });
}

// Powers of two times sixteenths: ties of fp8, halves of i8. The first of each group is the largest code, which makes
// every scale exactly 1.
float tie(int row, int column, float largest) {
  if (column % scale_group == 0) return largest;
  const int i = row * 254 + column, sixteenths = i % 16 + 16, exponent = i / 16 % 18 - 9;
  return std::fmin(std::ldexp(static_cast<float>(sixteenths), exponent - 4), largest) * (i % 3 == 0 ? -1.0f : 1.0f);
}

TEST_CASE("ties go to the even fp8 code, and to the i8 code nearer to zero") {
  each_quant_entry([](const QuantEntry& e) {
    if (e.spec.kind() == QuantKind::dequantise) return std::string();
    Shape s{.rows = 4, .find = true, .value = tie, .given = 1, .slack = 0};
    const std::string error = run(e, s);
    s.find = false;
    return error + run(e, s);
  });
}

TEST_CASE("every bf16 and every f16 under a given scale of 1, those beyond the largest code included") {
  each_quant_entry([&](const QuantEntry& e) {
    const DType x = e.spec.x;
    if (e.spec.output().scale != Scaling::per_tensor || e.policy.lanes != 256) return std::string();
    const Value value = [x](int r, int c, float) {
      const auto code = static_cast<std::uint16_t>(r * 1024 + c);
      return x == DType::bf16 ? bf16_to_f32(code) : f16_to_f32(code);
    };
    return run(e, {.rows = 64, .columns = 1024, .value = value, .given = 1, .slack = 0});
  });
}

TEST_CASE("the scale of a tensor is found in all rows of a tall one") {
  each_quant_entry([](const QuantEntry& e) {
    if (e.spec.output().scale != Scaling::per_tensor || e.spec.x != DType::bf16 || e.policy.lanes < 64) {
      return std::string();
    }
    // More rows than the blocks that find it take at once; the largest is in the very last.
    const int waves = e.policy.block_threads() / facts_of(e.arch).wave_lanes;
    const int rows = quant_partials / waves * e.policy.rows + 3;
    const Value value = [rows](int r, int c, float) { return r == rows - 1 ? -9.0f : 0.25f * static_cast<float>(c); };
    return run(e, {.rows = rows, .columns = 8, .find = true, .value = value});
  });
}

}  // namespace
}  // namespace tilewave::test::quant_tests
