// SPDX-License-Identifier: MIT
// Quantisation with mx scales: every entry against the reference to the bit, both layouts of scales, ties, zeros, what is
// not finite, what is refused.
#include <functional>

#include "entries/quant.hpp"
#include "test/ops/mx_rows.hpp"
#include "tilewave/ops/quant/registry.hpp"

namespace tilewave::test::mx {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
using Value = std::function<float(int row, int column)>;

float random_value(int row, int column) { return mx_value('x', row, column); }

std::string run(const QuantEntry& e, std::int32_t rows, std::int32_t columns, ScaleLayout layout, MxRounding rounding,
                const Value& value, bool smooth = false) {
  const DType type = e.spec.x;
  Tensor x(type, rows, columns, 1, {columns + 16, 0}), factors(type, columns);
  MxOutput out(e.spec.out, rows, columns, layout, rounding);
  x.set(rows, columns, value);
  factors.set(1, columns, [](int, int c) { return 1.0f + 0.25f * drawn('s', 0, c); });
  QuantProblem p;
  p.spec = e.spec;
  p.x = x.device();
  if (smooth) p.smooth = factors.device();
  out.describe(p);
  p.rows = rows;
  p.columns = columns;
  p.x_strides = {columns + 16, 0};
  const Status status = e.launch(p, {});
  if (!policy_takes(e.policy, type, columns, true)) return status.ok() ? "took rows that it does not take" : "";
  if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
  bench::check_hip(hipDeviceSynchronize(), "running the kernel");
  p.x = x.host();
  p.smooth = smooth ? factors.host() : nullptr;
  return out.error([&](int r) { return reference::quant_row(p, r); }, smooth ? 2e-7 : 0);
}

template <class F>
void each_mx_entry(const F& f) {
  for (const QuantEntry* e : all_quant_entries()) {
    if (e->spec.scale != Scaling::mx) continue;
    const std::string error = f(*e);
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ": " << error);
    CHECK(error == "");
  }
}

TEST_CASE("mx codes and scales of boundary columns, in rows and shuffled") {
  each_mx_entry([](const QuantEntry& e) {
    int turn = 0;
    for (const std::int32_t columns : mx_columns(e.policy, e.spec.x)) {
      const ScaleLayout layout = turn % 2 == 0 ? ScaleLayout::rows : ScaleLayout::shuffled;
      const std::string error =
          run(e, turn % 3 + e.policy.rows, columns, layout, mx_roundings[turn % 3], random_value, turn == 3);
      if (error != "") return std::to_string(columns) + " columns: " + error;
      ++turn;
    }
    return run(e, 70, 320, ScaleLayout::shuffled, MxRounding::up, random_value);  // three tiles of rows
  });
}

TEST_CASE("mx codes of zeros, ties, tiny and huge values, NaN and infinities") {
  const Value values[] = {
      [](int r, int) { return r == 1 ? -0.0f : 0.0f; },
      // Largest magnitudes at the sides of where scales change, of all formats and roundings, in turn; the others are
      // ties among their codes.
      [](int r, int c) {
        const float sides[] = {6.0f, 6.03125f, 7.5f, 7.53125f, 448.0f, 450.0f, 28.0f, 28.125f};
        const float side = std::ldexp(sides[c / 32 % 8], r * 4 - 8);
        return c % 32 == 5 ? -side : side * static_cast<float>(c % 32) / 32.0f;
      },
      [](int r, int c) {
        const float sides[] = {3.0f, 2.984375f, 4.0f, 3.984375f, 1.3125f, 1.3046875f, 448.0f, 672.0f};
        const float side = std::ldexp(sides[c / 32 % 8], r * 4 - 8);
        return c % 32 == 5 ? -side : side * static_cast<float>(c % 32) / 32.0f;
      },
      [](int r, int c) { return std::ldexp(c % 2 ? 1.0f : -1.75f, -133 + (c / 32 + r) % 16); },
      [](int r, int c) { return std::ldexp(c % 3 ? 1.0f : -1.5f, 120 + (c / 32 + r) % 8); },
      [](int r, int c) {
        return c == 40 + r ? nan : c == 100 ? inf : c == 170 ? -inf : random_value(r, c);
      },
  };
  each_mx_entry([&](const QuantEntry& e) {
    for (const Value& value : values)
      for (const MxRounding rounding : mx_roundings) {
        const std::string error = run(e, 3, 256, ScaleLayout::rows, rounding, value);
        if (error != "") return "values " + std::to_string(&value - values) + " " + name_of(rounding) + ": " + error;
      }
    return std::string();
  });
}

TEST_CASE("every bf16 below 6, of e3m2 24, under an mx scale of 1") {
  each_mx_entry([](const QuantEntry& e) {
    if (e.policy.lanes != 256 || !e.policy.held || is_fp8(e.spec.out)) return std::string();
    const float most = e.spec.out == DType::fp6_e3m2 ? 24.0f : 6.0f;
    const Value value = [most](int r, int c) {
      const float x = bf16_to_f32(static_cast<std::uint16_t>(r * 1024 + c));
      return c % 32 == 0 ? most - 1 : std::abs(x) < most ? x : 0.0f;
    };
    return run(e, 64, 1024, ScaleLayout::shuffled, MxRounding::up, value);
  });
}

TEST_CASE("what is no problem with mx scales is refused by name, and by other architectures") {
  constexpr std::int32_t rows = 3, columns = 256;
  for (const QuantEntry* e : all_quant_entries()) {
    if (e->spec.scale != Scaling::mx || e->policy.lanes != 256) continue;
    Tensor x(e->spec.x, rows, columns, 1, {columns, 0});
    MxOutput out(e->spec.out, rows, columns, ScaleLayout::shuffled);
    QuantProblem p;
    p.spec = e->spec;
    p.x = x.device();
    out.describe(p);
    p.rows = rows;
    p.columns = columns;
    p.x_strides = {columns, 0};
    check_refused<QuantEntry, QuantProblem>(*e, p, mx_wrongs<QuantProblem>, quant_check, quant_select,
                                            all_quant_entries());
    check_mx_elsewhere(p, quant_check);
    p.spec = {p.spec.out, DType::bf16, Scaling::mx};
    CHECK_FALSE(quant_check(p, facts_of(e->arch)).ok());
    p.spec = {DType::bf16, facts_of(e->arch).fp8, Scaling::per_token};
    p.scale_layout = ScaleLayout::rows;
    p.mx_rounding = MxRounding::floor;
    CHECK(std::string(quant_check(p, facts_of(e->arch)).reason) == "mx_rounding is of mx scales");
    p.mx_rounding = MxRounding::up;
    p.scale_layout = ScaleLayout::shuffled;
    CHECK(quant_check(p, facts_of(e->arch)).code == StatusCode::bad_value);  // shuffled
  }
}

}  // namespace
}  // namespace tilewave::test::mx
