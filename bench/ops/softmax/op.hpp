// SPDX-License-Identifier: MIT
// Softmaxes for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/softmax.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<SoftmaxKind> = 2;

/// Rows are packed. With `queries` > 0, every `queries` neighbouring rows are the causal queries of one sequence, whose
/// length is uniform in [0, columns].
struct SoftmaxCase {
  ArchId arch = ArchId::gfx950;
  SoftmaxSpec spec{};
  std::int32_t columns = 0, rows = 0;  // rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  std::int32_t queries = 0;
  std::uint64_t seed = 123;

  DType out() const { return spec.x; }
  std::int32_t sequences() const { return queries > 0 ? ceil_div(rows, queries) : 0; }
  std::int32_t length(std::int64_t sequence) const {
    const std::uint64_t bits = random_bits({seed, 'l', static_cast<std::uint64_t>(sequence)});
    return static_cast<std::int32_t>(random_below(bits, std::int64_t{columns} + 1));
  }
  std::int32_t visible(std::int64_t row) const {
    if (queries == 0) return columns;
    return std::max(0, length(row / queries) - (queries - 1 - static_cast<std::int32_t>(row % queries)));
  }

  static constexpr NamePart name_parts[] = {{"softmax", "kind", "softmax"},
                                            {"log_softmax", "kind", "log_softmax"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"causal", "causal"}};
  static constexpr auto& name_types = row_name_types;
  static constexpr std::string_view name_mode = "x_dtype";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() { rows = config_rows; }
  std::string fault() const { return extent_fault(*this); }

  template <class Case, class Visit>  // a SoftmaxCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit("kind", c.spec.kind);
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("causal", c.queries);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `softmax/gfx950/bf16/c8192/r32768/causal0`: kind, arch, type, columns, rows, queries of a sequence or 0.
inline std::string name_of(const SoftmaxCase& c) {
  return std::string(name_of(c.spec.kind)) + "/" + std::string(name_of(c.arch)) + "/" + std::string(name_of(c.spec.x)) +
         "/" + extent_name(c) + "/causal" + std::to_string(c.queries);
}

struct SoftmaxTensors {
  TwinBuffer x, out, lengths;
};

struct SoftmaxOp {
  using Case = SoftmaxCase;
  using Problem = SoftmaxProblem;
  using Entry = SoftmaxEntry;
  using Tensors = SoftmaxTensors;

  static constexpr float amplitude = 2;  // of x

  static std::span<const Entry* const> entries() { return all_softmax_entries(); }
  static constexpr auto select = softmax_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/softmax/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.x = address(t.x);
    p.out = address(t.out);
    p.rows = c.rows;
    p.columns = c.columns;
    if (c.queries > 0) {
      p.lengths = static_cast<const std::int32_t*>(address(t.lengths));
      p.rows_per_length = p.causal_rows = c.queries;
    }
    p.x_strides = p.out_strides = {c.columns, 0};
    return p;
  }

  // What a row does not see is NaN: reading it shows.
  static Tensors fill(const Case& c, int threads) {
    Tensors t;
    t.x = filled(c.spec.x, c.rows, c.columns, threads, [&](std::int64_t r, std::int64_t column) {
      return column < c.visible(r) ? amplitude * drawn(c.seed, 'x', r, column)
                                   : std::numeric_limits<float>::quiet_NaN();
    });
    t.out = poisoned(c.spec.x, std::int64_t{c.rows} * c.columns);
    t.lengths = TwinBuffer(c.sequences() * sizeof(std::int32_t));
    for (std::int32_t i = 0; i < c.sequences(); ++i) {
      const std::int32_t length = c.length(i);
      std::memcpy(t.lengths.host() + i * sizeof(length), &length, sizeof(length));
    }
    t.lengths.upload();
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out}; }

  /// An element that a row sees: 6 (scale, maximum, difference, exponential, sum, and the product with 1 / sum or the
  /// difference to the logarithm). What it does not see is not read, but written.
  static Work work_of(const Case& c) {
    const std::int64_t elements = std::int64_t{c.rows} * c.columns;
    std::int64_t visible = elements;
    if (c.queries > 0) {
      visible = 0;
      for (std::int32_t r = 0; r < c.rows; ++r) visible += c.visible(r);
    }
    return {.bytes = (visible + elements) * size_of(c.spec.x) + 4 * c.sequences(),
            .written = elements * size_of(c.spec.x),
            .flops = 6 * visible};
  }

  /// A value may be off by half a step of its type, plus what the f32 arithmetic costs: exp2 of an argument z is off by
  /// about |z| 2^-24 relative, a log softmax by that absolutely.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const reference::SoftmaxRow wanted = reference::softmax_row(p, row);
    constexpr double f32_error = 4e-7 * (2 + 4 * amplitude);
    const bool log = p.spec.kind == SoftmaxKind::log_softmax;
    for (std::int32_t c = 0; c < p.columns; ++c) {
      const double got = reference::element(p.spec.x, p.out, std::int64_t{row} * p.columns + c),
                   want = wanted.values[c];
      const double slack = f32_error * (log ? 1 + std::abs(want) : want);
      const bool good = std::isinf(want) || want == 0
                            ? got == want
                            : std::abs(got - want) <= half_step(p.spec.x, want) * 1.001 + slack;
      errors.out(good, row, c, got, want);
    }
  }
};

}  // namespace tilewave::bench
