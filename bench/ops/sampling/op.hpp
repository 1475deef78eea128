// SPDX-License-Identifier: MIT
// Sampling for the harness of row operations: its configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/sampling.hpp"
#include "tilewave/reference/sampling.hpp"

namespace tilewave::bench {

/// Rows are packed. Parameters are the same of all rows, in percent where they are no counts.
struct SamplingCase {
  ArchId arch = ArchId::gfx950;
  SamplingSpec spec{};
  std::int32_t columns = 0, rows = 0;  // rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  std::int32_t temperature = 100, top_k = 0, top_p = 100, min_p = 0;
  std::uint64_t seed = 123;

  static constexpr DType out() { return DType::f32; }

  static constexpr NamePart name_parts[] = {{"sampling", "kind", "sampling"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"t", "temperature_pct"},
                                            {"k", "top_k"},
                                            {"p", "top_p_pct"},
                                            {"m", "min_p_pct"}};
  static constexpr auto& name_types = row_name_types;
  static constexpr std::string_view name_mode = "x_dtype";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() { rows = config_rows; }
  std::string fault() const { return extent_fault(*this); }

  template <class Case, class Visit>  // a SamplingCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "sampling");
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("temperature_pct", c.temperature);
    visit("top_k", c.top_k);
    visit("top_p_pct", c.top_p);
    visit("min_p_pct", c.min_p);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `sampling/gfx950/bf16/c128256/r64/t100/k50/p90/m0`: arch, type, columns, rows; temperature, top_k, top_p, min_p.
inline std::string name_of(const SamplingCase& c) {
  return "sampling/" + std::string(name_of(c.arch)) + "/" + std::string(name_of(c.spec.x)) + "/" + extent_name(c) +
         "/t" + std::to_string(c.temperature) + "/k" + std::to_string(c.top_k) + "/p" + std::to_string(c.top_p) + "/m" +
         std::to_string(c.min_p);
}

struct SamplingTensors {
  TwinBuffer x, tokens, out, workspace;  // out: log probabilities
};

struct SamplingOp {
  using Case = SamplingCase;
  using Problem = SamplingProblem;
  using Entry = SamplingEntry;
  using Tensors = SamplingTensors;

  static std::span<const Entry* const> entries() { return all_sampling_entries(); }
  static constexpr auto select = sampling_select;
  static constexpr bool indexes_by_results = true;      // what parts weigh says which of them is looked through
  static std::vector<Case> default_sweep(ArchId arch);  // bench/ops/sampling/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.x = address(t.x);
    p.tokens = static_cast<std::int32_t*>(address(t.tokens));
    p.logprobs = static_cast<float*>(address(t.out));
    p.temperature.value = static_cast<float>(c.temperature) / 100;
    p.top_p.value = static_cast<float>(c.top_p) / 100;
    p.min_p.value = static_cast<float>(c.min_p) / 100;
    p.top_k.value = c.top_k;
    p.seed.value = c.seed;
    p.rows = c.rows;
    p.columns = c.columns;
    p.row_stride = c.columns;
    p.workspace_bytes = sampling_workspace_size(p, facts_of(c.arch));
    if (p.workspace_bytes > 0) p.workspace = address(t.workspace);
    return p;
  }

  // Sums of four uniform numbers: near enough to the bell of a model's logits, 2.3 wide.
  static Tensors fill(const Case& c, int threads) {
    Tensors t;
    t.x = filled(c.spec.x, c.rows, c.columns, threads, [&](std::int64_t r, std::int64_t column) {
      float sum = 0;
      for (int i = 0; i < 4; ++i) sum += drawn(c.seed, static_cast<char>('a' + i), r, column);
      return 2 * sum;
    });
    t.tokens = poisoned_words(c.rows);
    t.out = poisoned(DType::f32, c.rows);
    SamplingProblem p;
    p.spec = c.spec;
    p.rows = c.rows;
    p.columns = c.columns;
    t.workspace = poisoned_words(sampling_workspace_size(p, facts_of(c.arch)) / 4);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.tokens, &t.out}; }

  /// An element: 4, its difference to the largest, scaled, its exponential, and the sum.
  static Work work_of(const Case& c) {
    const std::int64_t elements = std::int64_t{c.rows} * c.columns, written = std::int64_t{8} * c.rows;
    return {.bytes = elements * size_of(c.spec.x) + written, .written = written, .flops = 4 * elements};
  }

  /// A token that the filters leave, and its log probability.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const reference::SampledRow wanted = reference::sampled_row(p, row, 1e-6);
    const std::int32_t token = p.tokens[row];
    const bool left = token >= 0 && token < p.columns && wanted.probabilities[token] > 0;
    errors.expect(left, "token", row, 0, token, -1);
    const double got = p.logprobs[row], want = left ? wanted.logprobs[token] : 0;
    errors.out(std::abs(got - want) <= 2e-5 + 1e-6 * std::abs(want), row, 0, got, want);
  }
};

}  // namespace tilewave::bench
