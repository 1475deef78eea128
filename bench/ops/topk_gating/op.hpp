// SPDX-License-Identifier: MIT
// Choices of experts for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/topk_gating.hpp"
#include "tilewave/reference/topk_gating.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<GatingScore> = 2;
template <>
inline constexpr int enumerators_of<GroupScore> = 2;

/// A row is a token, its columns are experts.
struct TopkGatingCase {
  ArchId arch = ArchId::gfx950;
  TopkGatingSpec spec{};
  std::int32_t columns = 0, rows = 0;  // rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  std::int32_t topk = 1;
  GatingScore score = GatingScore::softmax;
  bool renormalise = true, bias = false;
  std::int32_t groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::best;
  std::uint64_t seed = 123;

  DType out() const { return DType::f32; }  // weights

  static constexpr NamePart name_parts[] = {{"topk_gating", "kind", "topk_gating"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"k", "topk"},
                                            {"softmax", "score", "softmax"},
                                            {"sigmoid", "score", "sigmoid"},
                                            {"renorm", "renormalise"},
                                            {"bias", "bias"},
                                            {"g", "groups"},
                                            {"kept", "kept_groups"},
                                            {"best", "group_score", "best"},
                                            {"two_best", "group_score", "two_best"}};
  static constexpr std::string_view name_types[] = {"x_dtype"};
  static constexpr std::string_view name_mode = "x_dtype";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() { rows = config_rows; }
  std::string fault() const {
    TopkGatingProblem p;  // what is wrong with its extents the library says
    p.experts = columns;
    p.topk = topk;
    p.groups = groups;
    p.kept_groups = kept_groups;
    p.group_score = group_score;
    const Status status = topk_gating_check(p, facts_of(arch));
    return status.ok() ? extent_fault(*this) : status.reason;
  }

  template <class Case, class Visit>  // a TopkGatingCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "topk_gating");
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("topk", c.topk);
    visit("score", c.score);
    visit("renormalise", c.renormalise);
    visit("bias", c.bias);
    visit("groups", c.groups);
    visit("kept_groups", c.kept_groups);
    visit("group_score", c.group_score);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `topk_gating/gfx950/bf16/c256/r16384/k8/sigmoid/renorm1/bias1/g8/kept4/two_best`: arch, type, experts, tokens, choices.
inline std::string name_of(const TopkGatingCase& c) {
  return "topk_gating/" + std::string(name_of(c.arch)) + "/" + std::string(name_of(c.spec.x)) + "/" + extent_name(c) +
         "/k" + std::to_string(c.topk) + "/" + name_of(c.score) + "/renorm" + std::to_string(int{c.renormalise}) +
         "/bias" + std::to_string(int{c.bias}) + "/g" + std::to_string(c.groups) + "/kept" +
         std::to_string(c.kept_groups) + "/" + name_of(c.group_score);
}

/// Columns of a policy; of none, all are 0.
template <class Visit>
void each_column(const TopkGatingPolicy* policy, Visit& visit) {
  each_column(static_cast<const RowPolicy*>(policy), visit);
  visit("keep", policy != nullptr ? policy->keep : 0);
}

struct TopkGatingTensors {
  TwinBuffer logits, bias, out, indices, pairs;  // out: weights
};

struct TopkGatingOp {
  using Case = TopkGatingCase;
  using Problem = TopkGatingProblem;
  using Entry = TopkGatingEntry;
  using Tensors = TopkGatingTensors;

  static std::span<const Entry* const> entries() { return all_topk_gating_entries(); }
  static constexpr auto select = topk_gating_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/topk_gating/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.logits = address(t.logits);
    if (c.bias) p.bias = static_cast<const float*>(address(t.bias));
    p.weights = static_cast<float*>(address(t.out));
    p.indices = static_cast<std::int32_t*>(address(t.indices));
    p.token_expert_indices = static_cast<std::int32_t*>(address(t.pairs));
    p.score = c.score;
    p.renormalise = c.renormalise;
    p.tokens = c.rows;
    p.experts = c.columns;
    p.topk = c.topk;
    p.groups = c.groups;
    p.kept_groups = c.kept_groups;
    p.group_score = c.group_score;
    p.logits_stride = c.columns;
    p.weights_stride = p.indices_stride = p.token_expert_stride = c.topk;
    return p;
  }

  /// Logits as the reference's test has them, in (-2, 2).
  static Tensors fill(const Case& c, int threads) {
    Tensors t;
    t.logits = filled(c.spec.x, c.rows, c.columns, threads,
                      [&](std::int64_t r, std::int64_t column) { return 2 * drawn(c.seed, 'x', r, column); });
    t.bias = filled(DType::f32, 1, c.columns, threads,
                    [&](std::int64_t, std::int64_t column) { return drawn(c.seed, 'b', 0, column); });
    const std::int64_t choices = std::int64_t{c.rows} * c.topk;
    t.out = poisoned(DType::f32, choices);
    t.indices = poisoned_words(choices);
    t.pairs = poisoned_words(choices);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out, &t.indices, &t.pairs}; }

  /// A logit: one comparison, the least that finds the best.
  static Work work_of(const Case& c) {
    const std::int64_t logits = std::int64_t{c.rows} * c.columns, written = std::int64_t{12} * c.rows * c.topk;
    const std::int64_t bias = c.bias ? std::int64_t{4} * c.columns : 0;
    return {.bytes = logits * size_of(c.spec.x) + bias + written, .written = written, .flops = logits};
  }

  /// Scores of f32 may be in another order where those of double are next to each other.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    constexpr double f32_error = 2e-6;
    const reference::GatedToken wanted = reference::gated_token(p, row);
    for (std::int32_t slot = 0; slot < p.topk; ++slot) {
      const std::int64_t at = std::int64_t{row} * p.topk + slot;
      const double got = p.weights[at], want = wanted.weights[slot];
      errors.out(std::abs(got - want) <= f32_error, row, slot, got, want);
      const std::int32_t index = p.indices[at], best = wanted.chosen[slot];
      const bool there = index >= 0 && index < p.experts;
      const bool good = there && std::abs(wanted.choice[index] - wanted.choice[best]) <= f32_error;
      errors.expect(good, "index", row, slot, index, best);
      const std::int32_t pair = p.token_expert_indices[at];
      errors.expect(pair == slot * p.tokens + row, "token_expert_index", row, slot, pair, slot * p.tokens + row);
    }
  }
};

}  // namespace tilewave::bench
