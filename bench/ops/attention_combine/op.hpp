// SPDX-License-Identifier: MIT
// Combine of partial attention results, for the harness of row operations: its configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/attention_combine.hpp"
#include "tilewave/reference/attention_combine.hpp"

namespace tilewave::bench {

/// x is [rows, partials, columns] without gaps, as split decode writes it. A row is one query of one head.
struct AttentionCombineCase {
  ArchId arch = ArchId::gfx950;
  AttentionCombineSpec spec{};
  std::int32_t columns = 0, rows = 0;  // columns: head_size; rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  std::int32_t partials = 1;
  std::uint64_t seed = 123;

  DType out() const { return spec.out; }

  static constexpr NamePart name_parts[] = {
      {"combine", "kind", "combine"}, {"c", "columns"}, {"r", "config_rows"}, {"p", "partials"}};
  static constexpr auto& name_types = row_name_types;
  static constexpr std::string_view name_mode = "x_dtype";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() { rows = config_rows; }
  std::string fault() const {
    if (partials < 1) return "partials is below 1";
    if (std::int64_t{rows} * partials > std::numeric_limits<std::int32_t>::max()) return "more than 2^31 partial rows";
    return extent_fault(*this);
  }

  template <class Case, class Visit>  // an AttentionCombineCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "combine");
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("out_dtype", c.spec.out);
    visit("partials", c.partials);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `combine/gfx950/f32/c128/r2048/p16/bf16`: arch, type, head_size, rows, partials, type of out.
inline std::string name_of(const AttentionCombineCase& c) {
  return "combine/" + std::string(name_of(c.arch)) + "/" + std::string(name_of(c.spec.x)) + "/" + extent_name(c) +
         "/p" + std::to_string(c.partials) + "/" + std::string(name_of(c.spec.out));
}

struct AttentionCombineTensors {
  TwinBuffer x, x_lse, out, lse;
};

struct AttentionCombineOp {
  using Case = AttentionCombineCase;
  using Problem = AttentionCombineProblem;
  using Entry = AttentionCombineEntry;
  using Tensors = AttentionCombineTensors;

  static std::span<const Entry* const> entries() { return all_attention_combine_entries(); }
  static constexpr auto select = attention_combine_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/attention_combine/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.x = address(t.x);
    p.x_lse = static_cast<const float*>(address(t.x_lse));
    p.out = address(t.out);
    p.lse = static_cast<float*>(address(t.lse));
    p.partials = c.partials;
    p.rows = c.rows;
    p.heads = 1;
    p.head_size = c.columns;
    p.x_strides = {c.columns, std::int64_t{c.partials} * c.columns, 0};
    p.x_lse_strides = {1, c.partials, 0};
    p.out_strides = {c.columns, 0};
    p.lse_strides = {1, 0};
    return p;
  }

  // lse is in (-2, 2). Every eighth partial has no weight and holds NaN.
  static Tensors fill(const Case& c, int threads) {
    const auto none = [&](std::int64_t r) {
      return c.partials > 1 && random_bits({c.seed, 'n', std::uint64_t(r)}) % 8 == 0;
    };
    const std::int32_t all = c.rows * c.partials;
    Tensors t;
    t.x = filled(c.spec.x, all, c.columns, threads, [&](std::int64_t r, std::int64_t column) {
      return none(r) ? std::numeric_limits<float>::quiet_NaN() : drawn(c.seed, 'x', r, column);
    });
    t.x_lse = filled(DType::f32, all, 1, threads, [&](std::int64_t r, std::int64_t) {
      return none(r) ? -std::numeric_limits<float>::infinity() : 2 * drawn(c.seed, 'l', r, 0);
    });
    t.out = poisoned(c.spec.out, std::int64_t{c.rows} * c.columns);
    t.lse = poisoned(DType::f32, c.rows);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out, &t.lse}; }

  static Work work_of(const Case& c) {
    const std::int64_t elements = std::int64_t{c.rows} * c.columns, lse = std::int64_t{4} * c.rows;
    const std::int64_t written = elements * size_of(c.spec.out) + lse;
    return {.bytes = c.partials * (elements * size_of(c.spec.x) + lse) + written,
            .written = written,
            .flops = 2 * elements * c.partials};
  }

  /// Half a step of the output's type, plus the error of weights and sums in f32.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    constexpr double f32_error = 2e-6;
    const reference::CombinedRow wanted = reference::combined_row(p, row, 0);
    for (std::int32_t c = 0; c < p.head_size; ++c) {
      const double got = reference::element(p.spec.out, p.out, std::int64_t{row} * p.head_size + c);
      const double want = wanted.values[c];
      errors.out(std::abs(got - want) <= half_step(p.spec.out, want) * 1.001 + f32_error, row, c, got, want);
    }
    const double lse = p.lse[row];
    errors.expect(lse == wanted.lse || std::abs(lse - wanted.lse) <= f32_error * (1 + std::abs(wanted.lse)), "lse", row,
                  0, lse, wanted.lse);
  }
};

}  // namespace tilewave::bench
