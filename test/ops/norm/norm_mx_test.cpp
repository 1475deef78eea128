// SPDX-License-Identifier: MIT
// Norms with mx scales: every entry against the reference, both layouts of scales, zeros, NaN, what is refused.
#include "entries/norm.hpp"
#include "test/ops/mx_rows.hpp"
#include "tilewave/ops/norm/registry.hpp"

namespace tilewave::test {
namespace {

/// A row of zeros among others, or one with a NaN.
float value_at(int row, int column) {
  return row == 1                   ? 0.0f
         : row == 4 && column == 17 ? std::numeric_limits<float>::quiet_NaN()
                                    : mx_value('x', row, column);
}

std::string run(const NormEntry& e, std::int32_t rows, std::int32_t columns, ScaleLayout layout, MxRounding rounding,
                bool residual) {
  const RowStrides strides{columns, 0}, of_other{columns + 16, 0}, of_sum{columns + 32, 0};
  Tensor x(e.spec.x, rows, columns, 1, strides), other(e.spec.x, rows, columns, 1, of_other);
  Tensor sum(e.spec.x, rows, columns, 1, of_sum);
  Tensor weight(e.spec.weight, columns), rstd(DType::f32, rows);
  MxOutput out(e.spec.out, rows, columns, layout, rounding);
  x.set(rows, columns, value_at);
  other.set(rows, columns, [](int r, int c) { return r == 1 ? 0.0f : drawn('r', r, c); });
  weight.set(1, columns, [](int, int c) { return mx_value('w', 0, c); });
  NormProblem p;
  p.spec = e.spec;
  p.x = x.device();
  p.weight = weight.device();
  if (residual) {
    p.residual = other.device(), p.residual_out = sum.device();
    p.residual_strides = of_other, p.residual_out_strides = of_sum;
  }
  p.rstd = static_cast<float*>(rstd.device());
  out.describe(p);
  p.rows = rows;
  p.columns = columns;
  p.x_strides = strides;
  const Status status = e.launch(p, {});
  if (!policy_takes(e.policy, e.spec.x, columns, true)) return status.ok() ? "took rows that it does not take" : "";
  if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
  bench::check_hip(hipDeviceSynchronize(), "running the kernel");
  p.x = x.host();
  p.weight = weight.host();
  if (residual) p.residual = other.host();
  return out.error([&](int r) { return reference::norm_row(p, r).values; }, 4e-6);
}

TEST_CASE("norms to mx codes and scales on boundary columns, in rows and shuffled") {
  for (const NormEntry* e : all_norm_entries()) {
    if (e->spec.scale != Scaling::mx) continue;
    int turn = 0;
    for (const std::int32_t columns : mx_columns(e->policy, e->spec.x)) {
      const ScaleLayout layout = turn % 2 == 0 ? ScaleLayout::shuffled : ScaleLayout::rows;
      INFO(name_of(e->spec) << "/" << name_of(e->policy) << ", " << columns << " columns");
      CHECK(run(*e, turn % 3 + e->policy.rows + 3, columns, layout, mx_roundings[turn % 3], turn % 2 == 1) == "");
      ++turn;
    }
  }
}

TEST_CASE("what is no norm with mx scales is refused by name, and by other architectures") {
  constexpr std::int32_t rows = 3, columns = 256;
  for (const NormEntry* e : all_norm_entries()) {
    if (e->spec.scale != Scaling::mx || e->policy.lanes != 256 || e->policy.held) continue;
    Tensor x(e->spec.x, rows, columns, 1, {columns, 0}), weight(e->spec.weight, columns);
    MxOutput out(e->spec.out, rows, columns, ScaleLayout::shuffled);
    NormProblem p;
    p.spec = e->spec;
    p.x = x.device();
    p.weight = weight.device();
    out.describe(p);
    p.rows = rows;
    p.columns = columns;
    p.x_strides = {columns, 0};
    check_refused<NormEntry, NormProblem>(*e, p, mx_wrongs<NormProblem>, norm_check, norm_select, all_norm_entries());
    check_mx_elsewhere(p, norm_check);
  }
}

}  // namespace
}  // namespace tilewave::test
