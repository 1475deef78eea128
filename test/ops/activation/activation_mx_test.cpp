// SPDX-License-Identifier: MIT
// Activations with mx scales: every entry against the reference, both layouts of scales, zeros, infinities, what is
// refused.
#include "entries/activation.hpp"
#include "test/ops/mx_rows.hpp"
#include "tilewave/ops/activation/registry.hpp"
#include "tilewave/reference/activation.hpp"

namespace tilewave::test {
namespace {

/// Zeros, and ups that are infinite, among others.
float value_at(int row, int column) {
  return row == 1 && column < 64    ? 0.0f
         : row == 2 && column == 71 ? std::numeric_limits<float>::infinity()
                                    : 0.5f + mx_value('x', row, column);
}

std::string run(const ActivationEntry& e, std::int32_t rows, std::int32_t columns, ScaleLayout layout,
                MxRounding rounding) {
  const std::int32_t width = e.spec.gated() ? 2 * columns : columns;
  Tensor x(e.spec.x, rows, width, 1, {width + 8, 0});
  MxOutput out(e.spec.out, rows, columns, layout, rounding);
  x.set(rows, width, value_at);
  ActivationProblem p;
  p.spec = e.spec;
  p.x = x.device();
  out.describe(p);
  p.rows = rows;
  p.columns = columns;
  p.x_strides = {width + 8, 0};
  const Status status = e.launch(p, {});
  if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
  bench::check_hip(hipDeviceSynchronize(), "running the kernel");
  p.x = x.host();
  return out.error([&](int r) { return reference::activation_row(p, r).values; }, 1e-5);
}

TEST_CASE("activations to mx codes and scales on boundary columns, in rows and shuffled") {
  for (const ActivationEntry* e : all_activation_entries()) {
    if (e->spec.scale != Scaling::mx) continue;
    int turn = 0;
    const std::int32_t tile = e->policy.block_columns(e->spec.x);
    for (const std::int32_t columns : {32, 288, tile - 32, tile, 2 * tile + 96}) {
      const ScaleLayout layout = turn % 2 == 0 ? ScaleLayout::rows : ScaleLayout::shuffled;
      INFO(name_of(e->spec) << "/" << name_of(e->policy) << ", " << columns << " columns");
      CHECK(run(*e, turn % 3 + e->policy.rows, columns, layout, mx_roundings[turn % 3]) == "");
      ++turn;
    }
  }
}

TEST_CASE("what is no activation with mx scales is refused by name, and by other architectures") {
  constexpr std::int32_t rows = 3, columns = 256;
  for (const ActivationEntry* e : all_activation_entries()) {
    if (e->spec.scale != Scaling::mx || e->policy.lanes != 256) continue;
    Tensor x(e->spec.x, rows, 2 * columns, 1, {2 * columns, 0});
    MxOutput out(e->spec.out, rows, columns, ScaleLayout::shuffled);
    ActivationProblem p;
    p.spec = e->spec;
    p.x = x.device();
    out.describe(p);
    p.rows = rows;
    p.columns = columns;
    p.x_strides = {2 * columns, 0};
    check_refused<ActivationEntry, ActivationProblem>(*e, p, mx_wrongs<ActivationProblem>, activation_check,
                                                      activation_select, all_activation_entries());
    check_mx_elsewhere(p, activation_check);
  }
}

}  // namespace
}  // namespace tilewave::test
