// SPDX-License-Identifier: MIT
// The tests compare every entry with the reference in double: boundary columns, strides, gatings, scales, clamps,
// tails, NaN and
// infinities, in place, far rows.
#include "entries/activation.hpp"

#include "test/core/fp8_table.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/ops/activation/registry.hpp"
#include "tilewave/reference/activation.hpp"

namespace tilewave::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

enum class Place { apart, on_gates, on_ups };

struct Shape {
  std::int32_t rows = 3, columns = 256, inner_rows = 1;
  int gap = 0;           // elements between two rows
  bool far = false;      // see far_strides
  bool own_ups = false;  // of halves: in a tensor of their own
  Place out = Place::apart;
  float given = 0.03f;                            // scale of the tensor
  float (*value)(int row, int column) = nullptr;  // of x, ups included, instead of random ones
};

constexpr int up_gap = 16;  // elements more between two rows of ups than of gates

/// The code for a quotient, by the formats' definitions.
double code_value(DType type, double quotient) {
  if (type == DType::i8) return std::isnan(quotient) ? 0 : std::trunc(std::clamp(quotient, -127.0, 127.0));
  if (std::isnan(quotient)) return nan;
  return by_definition(type, nearest_code(type, static_cast<float>(quotient)));
}
bool same(double got, double wanted) { return got == wanted || (std::isnan(got) && std::isnan(wanted)); }

class Call {
 public:
  Call(const ActivationSpec& spec, const Shape& s)
      : spec_(spec),
        s_(s),
        own_(spec.gating == Gating::halves && s.own_ups),
        width_(spec.gated() && !own_ ? 2 * s.columns : s.columns),
        groups_((s.columns + scale_group - 1) / scale_group),
        x_(spec.x, s.rows, width_, s.inner_rows, strides(width_)),
        up_(spec.x, s.rows, s.columns, s.inner_rows, strides(s.columns + up_gap)),
        out_(spec.out, s.rows, s.columns, s.inner_rows, strides(s.columns)),
        scale_(DType::f32, scale_rows(), scale_columns(), 1, {scale_columns() + 3, 0}) {
    const auto value = [&](char name, int r, int c) { return s.value ? s.value(r, c) : 2.5f * drawn(name, r, c); };
    x_.set(s.rows, width_, [&](int r, int c) { return value('x', r, c); });
    if (own_) up_.set(s.rows, s.columns, [&](int r, int c) { return value('u', r, c + s.columns); });
    if (spec.scale == Scaling::per_tensor) scale_.set(1, 1, [&](int, int) { return s.given; });
  }

  /// Launches the entry, or the one that is selected if null, and compares all it wrote with the reference.
  std::string run(const ArchFacts& facts, const ActivationEntry* entry) {
    const ActivationProblem p = problem();
    if (entry == nullptr) {
      const Status status = activation_select(p, all_activation_entries(), facts, entry);
      if (!status.ok()) return std::string("not selected: ") + status.reason;
    } else if (const Status takes = ActivationRegistry::takes(entry->policy, p, facts); !takes.ok()) {
      return entry->launch(p, {}).code == StatusCode::no_matching_entry ? "" : "took rows that it does not take";
    }
    std::vector<reference::ActivationRow> wanted;
    for (int r = 0; r < s_.rows; ++r) wanted.push_back(reference::activation_row(on_host(), r));
    const Status status = entry->launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    Tensor& out = s_.out == Place::apart ? out_ : s_.out == Place::on_gates ? x_ : up_;
    out.download();
    scale_.download();
    if (!out.gaps_kept(s_.rows, s_.out == Place::on_gates ? width_ : s_.columns)) return "wrote between rows";
    if (!scale_.gaps_kept(scale_rows(), scale_columns())) return "wrote between scales";
    for (int r = 0; r < s_.rows; ++r) {
      const std::string error =
          spec_.scale == Scaling::none ? value_error(out, r, wanted[r]) : code_error(r, wanted[r]);
      if (error != "") return error;
    }
    return "";
  }

 private:
  RowStrides strides(std::int32_t width) const {
    if (s_.far) return far_strides(s_.inner_rows);
    const std::int64_t inner = width + s_.gap;
    return s_.inner_rows == 1 ? RowStrides{inner, 0} : RowStrides{inner * s_.inner_rows + s_.gap, inner};
  }
  bool per_group() const { return spec_.scale == Scaling::per_group; }
  bool per_token() const { return spec_.scale == Scaling::per_token; }
  /// Every other number of rows has scales of groups as [groups, rows].
  bool by_groups() const { return s_.rows % 2 != 0; }
  std::int32_t scale_rows() const { return !per_group() ? 1 : by_groups() ? groups_ : s_.rows; }
  std::int32_t scale_columns() const {
    return per_group() ? by_groups() ? s_.rows : groups_ : per_token() ? s_.rows : 1;
  }

  ActivationProblem problem() const {
    ActivationProblem p;
    p.spec = spec_;
    p.x = x_.device();
    if (own_) p.up = up_.device(), p.up_strides = strides(s_.columns + up_gap);
    p.out = s_.out == Place::on_gates ? x_.device() : s_.out == Place::on_ups ? up_.device() : out_.device();
    if (spec_.scale != Scaling::none) p.scale = static_cast<float*>(scale_.device());
    p.rows = s_.rows;
    p.columns = s_.columns;
    p.inner_rows = s_.inner_rows;
    p.x_strides = strides(width_);
    p.out_strides = s_.out == Place::on_gates ? p.x_strides
                    : s_.out == Place::on_ups ? p.up_strides
                                              : strides(s_.columns);
    p.scale_stride = scale_columns() + 3;
    if (per_group() && by_groups()) std::swap(p.scale_stride, p.scale_group_stride);
    return p;
  }
  ActivationProblem on_host() const {
    ActivationProblem p = problem();
    p.x = x_.host();
    if (own_) p.up = up_.host(), p.up_strides = up_.host_strides();
    p.x_strides = x_.host_strides();
    return p;
  }

  std::string value_error(const Tensor& out, int r, const reference::ActivationRow& wanted) const {
    for (int c = 0; c < s_.columns; ++c) {
      const double exact = wanted.values[c], rounded = reference::rounded(spec_.out, exact), got = out.at(r, c);
      const bool beyond = std::isinf(rounded) || std::isnan(rounded);
      const double slack = half_step(spec_.out, exact) * 1.001 + wanted.errors[c] * std::abs(exact) + 1e-36;
      if (beyond ? !same(got, rounded) : !(std::abs(got - exact) <= slack)) return wrong("value", r, c, got, exact);
    }
    return "";
  }
  std::string code_error(int r, const reference::ActivationRow& wanted) const {
    const int step = per_group() ? scale_group : s_.columns;
    for (int first = 0; first < s_.columns; first += step) {
      const int end = std::min(first + step, s_.columns);
      const double amax = reference::amax(wanted.values, first, end), slack = 1e-5;
      const double unit = spec_.scale == Scaling::per_tensor ? s_.given
                          : per_token()                      ? scale_.at(0, r)
                          : by_groups()                      ? scale_.at(first / scale_group, r)
                                                             : scale_.at(r, first / scale_group);
      if (spec_.scale != Scaling::per_tensor) {
        const double right = reference::scale_of(amax, spec_.out);
        if (!same(unit, right) && !(std::abs(unit - right) <= slack * right))
          return wrong("scale", r, first, unit, right);
      }
      for (int c = first; c < end; ++c) {
        const double quotient = wanted.values[c] / unit, got = out_.at(r, c);
        const auto is = [&](double factor) { return same(got, code_value(spec_.out, quotient * factor)); };
        if (!is(1 - slack) && !is(1 + slack)) return wrong("code", r, c, got, quotient);
      }
    }
    return "";
  }
  static std::string wrong(const char* what, int row, int column, double got, double wanted) {
    return std::string(what) + " row " + std::to_string(row) + " column " + std::to_string(column) + ": " +
           std::to_string(got) + ", not " + std::to_string(wanted);
  }

  ActivationSpec spec_;
  Shape s_;
  bool own_;
  std::int32_t width_, groups_;
  Tensor x_, up_, out_, scale_;
};

std::string run(const ActivationEntry& e, const Shape& s) { return Call(e.spec, s).run(facts_of(e.arch), &e); }

template <class F>
void each_activation_entry(const F& f) {
  for (const ActivationEntry* e : all_activation_entries()) {
    if (e->spec.scale == Scaling::mx) continue;  // see activation_mx_test.cpp
    const std::string error = f(*e);
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ": " << error);
    CHECK(error == "");
  }
}

TEST_CASE("every activation entry computes the reference on boundary columns") {
  each_activation_entry([](const ActivationEntry& e) {
    const int unit = 16 / size_of(e.spec.x), tile = e.policy.block_columns(e.spec.x);
    const auto most = static_cast<int>(std::min<std::int64_t>(e.policy.columns(e.spec.x), 8192));
    std::vector<std::int32_t> all{unit, most - unit, most, 136};
    if (e.spec.tiled()) all.insert(all.end(), {tile + unit, 2 * tile + 3 * unit});
    if (!e.policy.held) all.insert(all.end(), {2 * tile, 2 * tile + 3 * unit});
    if (!e.policy.wide(e.spec.x)) all.insert(all.end(), {1, 127, 129, tile - 1, tile + 1, 997});
    int turn = 0;
    for (const std::int32_t columns : all) {
      const Shape s{.rows = turn % 3 + e.policy.rows, .columns = columns, .own_ups = turn % 2 == 1};
      ++turn;
      const std::string error = run(e, s);
      if (error != "") return std::to_string(columns) + " columns: " + error;
    }
    return std::string();
  });
}

TEST_CASE("activation rows may have gaps, and inner rows their own stride") {
  each_activation_entry([](const ActivationEntry& e) {
    const int gap = e.policy.wide(e.spec.x) ? 16 : 3;
    return run(e, {.rows = 7, .columns = 128, .gap = gap, .own_ups = true}) +
           run(e, {.rows = 8, .columns = 144, .inner_rows = 3, .gap = gap});
  });
}

TEST_CASE("activations with scales per token are right under every schedule") {
  each_activation_entry([](const ActivationEntry& e) {
    std::string error;
    if (e.spec.scale != Scaling::per_token) return error;
    each_schedule([&] { error += run(e, {.rows = e.policy.rows + 1, .columns = 136}); });
    return error;
  });
}

TEST_CASE("activation rows may start beyond 2^31 and 2^32 elements") {
  if (!has_memory(std::size_t{64} << 30)) return;
  each_activation_entry([](const ActivationEntry& e) {
    if (e.policy.lanes != 256 || e.policy.chunks == 4) return std::string();
    return run(e, {.rows = 4, .columns = 128, .far = true}) +
           run(e, {.rows = 4, .columns = 128, .inner_rows = 2, .far = true, .own_ups = true});
  });
}

TEST_CASE("a plain output may be the gates or the ups, a tile at a time") {
  each_activation_entry([](const ActivationEntry& e) {
    if (e.spec.scale != Scaling::none || e.spec.gating == Gating::interleaved) return std::string();
    const int columns = 2 * e.policy.block_columns(e.spec.x) + 16;
    std::string error = run(e, {.columns = columns, .out = Place::on_gates}) +
                        run(e, {.columns = columns, .gap = 16, .own_ups = true, .out = Place::on_gates});
    if (e.spec.gated()) error += run(e, {.columns = columns, .own_ups = true, .out = Place::on_ups});
    return error;
  });
}

TEST_CASE("activations of tails, clamps, what overflows, infinities and NaN") {
  constexpr float (*values[])(int, int) = {
      [](int r, int c) {
        return (c % 2 ? -1.0f : 1.0f) * std::ldexp(1.0f + 0.125f * static_cast<float>(c % 7), c % 24 - 12 + r);
      },
      [](int r, int c) { return c == 5 + r ? -1e4f
                                : c == 77  ? 6e4f
                                           : -0.25f * static_cast<float>(c % 64); },
      [](int r, int c) {
        return c == 9 + r ? nan : c % 50 == 20 ? inf : c % 50 == 21 ? -inf : 0.5f;
      },
      [](int, int) { return -0.0f; },
      [](int r, int c) { return static_cast<float>(c % 31 - 15) + 0.25f * static_cast<float>(r); },
  };
  each_activation_entry([&](const ActivationEntry& e) {
    for (std::size_t i = 0; i < std::size(values); ++i)
      for (const float given : {0.03f, 2.0f}) {
        if (given == 2.0f && e.spec.scale != Scaling::per_tensor) continue;
        const std::string error = run(e, {.given = given, .value = values[i]});
        if (error != "") return "values " + std::to_string(i) + ": " + error;
      }
    return std::string();
  });
}

TEST_CASE("swigluoai clamps where the problem says so") {
  for (const ActivationEntry* e : all_activation_entries()) {
    if (e->spec.kind != ActivationKind::swigluoai || e->spec.scale != Scaling::none) continue;
    Tensor x(e->spec.x, 64), out(e->spec.x, 32);
    x.set(1, 64, [](int, int c) { return c % 2 ? -40.0f : 30.0f; });  // gates 30, ups -40
    ActivationProblem p;
    p.spec = e->spec;
    p.x = x.device();
    p.out = out.device();
    p.rows = 1;
    p.columns = 32;
    for (const auto& [limit, wanted] : {std::pair{7.0f, 7.0f * -6.0f}, {inf, 30.0f * -39.0f}, {1.0f, 0.0f}}) {
      p.limit = limit;
      p.alpha = 30.0f;  // a sigmoid of 1
      REQUIRE(e->launch(p, {}).ok());
      out.download();
      INFO(name_of(e->arch) << " " << name_of(e->policy) << ", limit " << limit);
      CHECK(out.at(0, 17) == reference::rounded(e->spec.x, wanted));
    }
  }
}

TEST_CASE("activations of rows of any length and number find an entry") {
  for (const ArchId arch : all_archs)
    for (const ActivationSpec& spec : activation_specs(arch)) {
      bool built = false;
      if (spec.scale == Scaling::mx) continue;
      for (const ActivationEntry* e : all_activation_entries()) built = built || (e->arch == arch && e->spec == spec);
      if (!built) continue;
      for (const int columns : {65536 + 64, 65536 + 63}) {
        INFO(name_of(arch) << " " << name_of(spec) << " " << columns << " columns");
        CHECK(Call(spec, {.rows = 1, .columns = columns}).run(facts_of(arch), nullptr) == "");
      }
    }
}

}  // namespace
}  // namespace tilewave::test
