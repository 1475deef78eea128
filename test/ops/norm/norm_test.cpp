// SPDX-License-Identifier: MIT
// The tests compare every entry with the reference in double: boundary columns, strides, residual, bias, smooth scale,
// every output.
#include "entries/norm.hpp"

#include "test/ops/rows.hpp"
#include "test/turns.hpp"
#include "tilewave/ops/norm/registry.hpp"

#if !defined(NORM_ENTRIES)  // norm_wide's
#define NORM_ENTRIES all_norm_entries
#endif

namespace tilewave::test {
namespace {

struct Shape {
  std::int32_t rows = 3, columns = 256, inner_rows = 1;
  int gap = 0;       // elements between two rows
  bool far = false;  // see far_strides
  bool residual = false, bias = false, smooth = false, statistics = true;
  float amplitude = 1, offset = 0, eps = 1e-5f;
  // Tensors that are one: out with x or residual, residual_out with the other one or either of them.
  enum { apart, out_is_x, out_is_residual, sum_is_x, sum_is_residual, both, both_crosswise } place = apart;

  bool out_at_x() const { return place == out_is_x || place == both; }
  bool out_at_residual() const { return place == out_is_residual || place == both_crosswise; }
  bool sum_at_x() const { return place == sum_is_x || place == both_crosswise; }
  bool sum_at_residual() const { return place == sum_is_residual || place == both; }
};

/// `more`: elements between two rows beside the shape's own gap.
RowStrides strides_of(const Shape& s, int more = 0) {
  if (s.far) return far_strides(s.inner_rows);
  const std::int64_t inner = s.columns + s.gap + more;
  return s.inner_rows == 1 ? RowStrides{inner, 0} : RowStrides{inner * s.inner_rows + s.gap, inner};
}

/// Runs the entry, or the one that is selected if null, and compares all it wrote with the reference; what is wrong.
std::string run(const ArchFacts& facts, const NormSpec& spec, const NormEntry* entry, const Shape& s) {
  const RowStrides strides = strides_of(s);
  // Tensors that are none of the others have strides of their own.
  const int unit = elements_of_unit(spec.x);
  const RowStrides of_residual = s.out_at_residual() || s.sum_at_residual() ? strides : strides_of(s, unit);
  const RowStrides of_sum = s.sum_at_x() || s.sum_at_residual() ? strides : strides_of(s, 2 * unit);
  const auto rows_of = [&](DType type, const RowStrides& as) {
    return Tensor(type, s.rows, s.columns, s.inner_rows, as);
  };
  Tensor x = rows_of(spec.x, strides), residual = rows_of(spec.x, of_residual);
  Tensor sum = rows_of(spec.x, of_sum), out = rows_of(spec.out, strides);
  Tensor weight(spec.weight, s.columns), bias(spec.weight, s.columns), smooth(spec.x, s.columns);
  const std::int32_t groups = (s.columns + scale_group - 1) / scale_group;
  const std::int32_t scales = spec.scale == Scaling::per_token   ? s.rows
                              : spec.scale == Scaling::per_group ? s.rows * groups
                                                                 : 1;
  Tensor scale(DType::f32, scales), mean(DType::f32, s.rows), rstd(DType::f32, s.rows);
  x.set(s.rows, s.columns, [&](int r, int c) { return s.offset + s.amplitude * drawn('x', r, c); });
  residual.set(s.rows, s.columns, [&](int r, int c) { return s.amplitude * drawn('r', r, c); });
  weight.set(1, s.columns, [](int, int c) { return drawn('w', 0, c); });
  bias.set(1, s.columns, [](int, int c) { return drawn('b', 0, c); });
  smooth.set(1, s.columns, [](int, int c) { return 1.0f + 0.25f * drawn('s', 0, c); });
  const bool by_groups = spec.scale == Scaling::per_group && s.rows % 2 != 0;  // scales are [groups, rows]
  const float given_scale = 0.01f;
  if (spec.scale == Scaling::per_tensor) scale.set(1, 1, [&](int, int) { return given_scale; });

  const auto problem = [&](const auto& data) {  // data(tensor): its address on the device, or on the host
    NormProblem p;
    p.spec = spec;
    p.x = data(x);
    p.weight = data(weight);
    if (s.bias) p.bias = data(bias);
    if (s.residual) {
      p.residual = data(residual), p.residual_out = const_cast<void*>(data(sum));
      p.residual_strides = of_residual, p.residual_out_strides = of_sum;
    }
    if (s.smooth && spec.scale != Scaling::none) p.smooth = data(smooth);
    p.out = const_cast<void*>(data(out));
    if (spec.scale != Scaling::none) p.scale = static_cast<float*>(const_cast<void*>(data(scale)));
    if (s.statistics) {
      if (spec.kind == NormKind::layer) p.mean = static_cast<float*>(const_cast<void*>(data(mean)));
      p.rstd = static_cast<float*>(const_cast<void*>(data(rstd)));
    }
    p.eps = s.eps;
    p.rows = s.rows;
    p.columns = s.columns;
    p.inner_rows = s.inner_rows;
    p.x_strides = p.out_strides = strides;
    p.scale_stride = groups;
    if (by_groups) p.scale_stride = 1, p.scale_group_stride = s.rows;
    return p;
  };
  const Tensor& out_at = s.out_at_x() ? x : s.out_at_residual() ? residual : out;
  const Tensor& sum_at = s.sum_at_x() ? x : s.sum_at_residual() ? residual : sum;
  NormProblem on_device = problem([](const Tensor& t) -> const void* { return t.device(); });
  on_device.out = out_at.device();
  if (s.residual) on_device.residual_out = sum_at.device();
  NormProblem on_host = problem([](const Tensor& t) { return t.host(); });
  on_host.x_strides = x.host_strides(), on_host.residual_strides = residual.host_strides();
  if (entry == nullptr) {
    if (!norm_select(on_device, NORM_ENTRIES(), facts, entry).ok()) return "no entry selected";
  } else if (!policy_takes(entry->policy, spec.x, s.columns, norm_aligned(on_device))) {
    return entry->launch(on_device, {}).code == StatusCode::no_matching_entry ? "" : "took rows that it does not take";
  }
  const Status status = entry->launch(on_device, {});
  if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
  bench::check_hip(hipDeviceSynchronize(), "running the kernel");
  out.download(out_at);
  sum.download(sum_at);
  for (Tensor* t : {&scale, &mean, &rstd}) t->download();
  if (!out.gaps_kept(s.rows, s.columns) || !sum.gaps_kept(s.rows, s.residual ? s.columns : 0))
    return "wrote between rows";

  const auto wrong = [](const char* what, int row, int column, double got, double wanted) {
    return std::string(what) + " row " + std::to_string(row) + " column " + std::to_string(column) + ": " +
           std::to_string(got) + ", not " + std::to_string(wanted);
  };
  const auto near = [](double got, double wanted, double tolerance) {
    return std::isnan(wanted) ? std::isnan(got) : std::abs(got - wanted) <= tolerance;
  };
  for (int r = 0; r < s.rows; ++r) {
    const reference::NormRow wanted = reference::norm_row(on_host, r);
    if (s.statistics && !near(rstd.at(0, r), wanted.rstd, 4e-6 * wanted.rstd)) {
      return wrong("rstd", r, 0, rstd.at(0, r), wanted.rstd);
    }
    if (s.statistics && spec.kind == NormKind::layer &&
        !near(mean.at(0, r), wanted.mean, 1e-6 * (std::abs(wanted.mean) + s.amplitude))) {
      return wrong("mean", r, 0, mean.at(0, r), wanted.mean);
    }
    // f32 arithmetic: relative to the row's largest addend, since the mean and the bias may cancel.
    const double f32_error = 2e-6 * (4 + (s.offset == 0 ? 0 : wanted.rstd * std::abs(s.offset)));
    for (int first = 0; first < s.columns; first += spec.scale == Scaling::per_group ? scale_group : s.columns) {
      const int end = spec.scale == Scaling::per_group ? std::min(first + scale_group, s.columns) : s.columns;
      double amax = 0, unit = 1;
      for (int c = first; c < end; ++c) amax = std::max(amax, std::abs(wanted.values[c]));
      if (spec.scale != Scaling::none) {
        const int index = spec.scale == Scaling::per_tensor  ? 0
                          : spec.scale == Scaling::per_token ? r
                          : by_groups                        ? first / scale_group * s.rows + r
                                                             : r * groups + first / scale_group;
        unit = scale.at(0, index);
        const double wanted_unit = spec.scale == Scaling::per_tensor ? given_scale
                                   : amax == 0                       ? 1
                                                                     : amax / largest_code(spec.out);
        if (!near(unit, wanted_unit, 1e-5 * wanted_unit + f32_error / largest_code(spec.out))) {
          return wrong("scale", r, first, unit, wanted_unit);
        }
      }
      for (int c = first; c < end; ++c) {
        const double got = out.at(r, c);
        const double code =
            spec.scale == Scaling::none
                ? wanted.values[c]
                : std::clamp<double>(wanted.values[c] / unit, -largest_code(spec.out), largest_code(spec.out));
        const double slack = f32_error / unit + 1e-5 * std::abs(code);
        // i8 truncates: a code may be one too low, and one off where the value is next to a whole number.
        const bool nan_code = spec.out == DType::i8 && std::isnan(code);  // i8 has none
        const bool good = nan_code ? got == 0
                          : spec.out == DType::i8
                              ? std::abs(got) <= std::abs(code) + slack && std::abs(got) > std::abs(code) - 1 - slack
                              : near(got, code, half_step(spec.out, code) * 1.001 + slack);
        if (!good) return wrong("out", r, c, got, code);
        if (spec.kind == NormKind::layer && s.amplitude == 0 && !s.bias && got != 0) return wrong("out", r, c, got, 0);
        if (s.residual && sum.at(r, c) != wanted.sum[c])
          return wrong("residual_out", r, c, sum.at(r, c), wanted.sum[c]);
      }
    }
  }
  return "";
}

template <class F>
void each_of(std::span<const NormEntry* const> entries, const F& f) {
  for (const NormEntry* e : entries) {
    if (e->spec.scale == Scaling::mx) continue;  // see norm_mx_test.cpp
    const std::string error = f(*e);
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ": " << error);
    CHECK(error == "");
  }
}
template <class F>
void every_norm_entry(const F& f) {
  each_of(NORM_ENTRIES(), f);
}
template <class F>
void each_norm_entry(const F& f) {  // whose turn it is
  each_of(in_turn(NORM_ENTRIES()), f);
}

/// Columns around what the policy holds and what one access takes; aligned ones first.
std::vector<std::int32_t> columns_of(const NormEntry& e) {
  const int unit = 16 / size_of(e.spec.x),
            most = static_cast<int>(std::min<std::int64_t>(e.policy.columns(e.spec.x), 8192));
  std::vector<std::int32_t> all{unit, most - unit, most, 136};
  if (!e.policy.held) all.push_back(2 * most + 3 * unit);
  if (!e.policy.wide(e.spec.x)) {
    for (const int c : {1, 2, 7, 127, 129, most - 1, 997}) all.push_back(c);
  }
  return all;
}

TEST_CASE("every norm entry computes the reference on boundary columns") {
  every_norm_entry([](const NormEntry& e) {
    int turn = 0;
    for (const std::int32_t columns : columns_of(e)) {
      if (columns < 1) continue;
      Shape s{.rows = turn % 3 + e.policy.rows,
              .columns = columns,
              .residual = turn % 2 == 1,
              .bias = turn % 3 == 1,
              .smooth = turn % 4 >= 2};
      ++turn;
      const std::string error = run(facts_of(e.arch), e.spec, &e, s);
      if (error != "") return std::to_string(columns) + " columns: " + error;
    }
    return std::string();
  });
}

TEST_CASE("norm rows may have gaps, and inner rows their own stride") {
  each_norm_entry([](const NormEntry& e) {
    for (const int inner_rows : {1, 3}) {
      const Shape s{.rows = e.policy.rows > 1 ? 7 : 4,
                    .columns = 128,
                    .inner_rows = inner_rows,
                    .gap = !e.policy.wide(e.spec.x) ? 3 : 16,
                    .residual = true,
                    .statistics = false};
      const std::string error = run(facts_of(e.arch), e.spec, &e, s);
      if (error != "") return error;
    }
    return std::string();
  });
}

TEST_CASE("norm rows may start beyond 2^31 and 2^32 elements") {
  if (!has_memory(std::size_t{100} << 30)) return;
  each_norm_entry([](const NormEntry& e) {
    if (e.policy.lanes != 256) return std::string();
    std::string error;
    for (const int inner_rows : {1, 2}) {
      const Shape s{.rows = 4, .columns = 128, .inner_rows = inner_rows, .far = true, .residual = true};
      error += run(facts_of(e.arch), e.spec, &e, s);
    }
    return error;
  });
}

TEST_CASE("rows of zeros, of one value, with an offset and with outliers") {
  const NormEntry* last = nullptr;
  for (const NormEntry* e : NORM_ENTRIES()) {  // those of a spec are neighbours
    if (e->spec.scale == Scaling::mx) continue;
    if (last != nullptr && last->arch == e->arch && last->spec == e->spec) continue;
    last = e;
    for (const Shape& s : {Shape{.columns = 512, .amplitude = 0}, Shape{.columns = 640, .amplitude = 0, .offset = 3},
                           Shape{.columns = 1024, .offset = 50}, Shape{.columns = 264, .amplitude = 1000}}) {
      INFO(name_of(e->arch) << " " << name_of(e->spec) << " offset " << s.offset << " amplitude " << s.amplitude);
      CHECK(run(facts_of(e->arch), e->spec, nullptr, s) == "");
    }
  }
}

TEST_CASE("layernorm rows of one value are 0 to the bit, whatever the value and eps") {
  each_norm_entry([](const NormEntry& e) {
    if (e.spec.kind != NormKind::layer) return std::string();
    const std::vector<std::int32_t> all = columns_of(e);
    const auto error_of = [&](std::int32_t columns, float value) {
      const Shape s{.rows = 2, .columns = columns, .amplitude = 0, .offset = value, .eps = 1e-12f};
      const std::string error = run(facts_of(e.arch), e.spec, &e, s);
      return error == "" ? "" : std::to_string(columns) + " columns of " + std::to_string(value) + ": " + error;
    };
    constexpr float values[] = {1000.1f, 3.0f, -0.7f};
    int turn = static_cast<int>(e.spec.out);  // specs of a policy meet other pairs
    for (const std::int32_t columns : all) {
      if (columns < 1) continue;
      if (const std::string error = error_of(columns, values[turn++ % 3]); error != "") return error;
    }
    // Elements only; sums over long rows are rounded most.
    for (const float value : values) {
      if (e.policy.held) break;
      if (const std::string error = error_of(70001, value); error != "") return error;
    }
    return std::string();
  });
}

TEST_CASE("norm rows whose squares are beyond f32 are NaN, not 0") {
  each_norm_entry([](const NormEntry& e) {
    return run(facts_of(e.arch), e.spec, &e, {.columns = 256, .amplitude = 1e20f, .eps = 0});
  });
}

TEST_CASE("norms may be computed in place") {
  each_norm_entry([](const NormEntry& e) {
    const auto most = static_cast<int>(std::min<std::int64_t>(e.policy.columns(e.spec.x), 2048));
    std::string error;
    for (const auto place : {Shape::out_is_x, Shape::out_is_residual, Shape::sum_is_x, Shape::sum_is_residual,
                             Shape::both, Shape::both_crosswise}) {
      Shape s{
          .rows = 2, .columns = e.policy.held ? most : 2 * most, .residual = place != Shape::out_is_x, .place = place};
      const bool out_moves = s.out_at_x() || s.out_at_residual();
      if (out_moves && e.spec.scale != Scaling::none) continue;  // codes are narrower
      const std::string one = run(facts_of(e.arch), e.spec, &e, s);
      if (one != "") error += "place " + std::to_string(place) + ": " + one;
    }
    return error;
  });
}

}  // namespace
}  // namespace tilewave::test
