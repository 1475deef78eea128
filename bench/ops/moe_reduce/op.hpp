// SPDX-License-Identifier: MIT
// Reductions of experts' results for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/moe_reduce.hpp"
#include "tilewave/reference/moe_reduce.hpp"

namespace tilewave::bench {

/// Rows are packed. With a table, rows of x are those of a permutation, as sorted tokens leave them; with a mask half of
/// the experts count, and what others left is NaN.
struct MoeReduceCase {
  ArchId arch = ArchId::gfx950;
  MoeReduceSpec spec{};
  std::int32_t columns = 0, rows = 0;  // rows: tokens, launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  std::int32_t topk = 1;
  bool weighted = false, table = false, masked = false, residual = false;
  std::uint64_t seed = 123;

  static constexpr std::int32_t experts = 64;

  DType out() const { return spec.x; }
  std::int64_t slots() const { return std::int64_t{rows} * topk; }
  std::int32_t expert(std::int64_t slot) const {
    return static_cast<std::int32_t>(random_below(random_bits({seed, 'e', std::uint64_t(slot)}), experts));
  }
  bool counts(std::int64_t slot) const { return !masked || expert(slot) % 2 == 0; }

  static constexpr NamePart name_parts[] = {{"moe_reduce", "kind", "moe_reduce"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"k", "topk"},
                                            {"weighted", "weighted"},
                                            {"table", "table"},
                                            {"masked", "masked"},
                                            {"res", "residual"}};
  static constexpr auto& name_types = row_name_types;
  static constexpr std::string_view name_mode = "x_dtype";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() { rows = config_rows; }
  std::string fault() const {
    if (topk < 1 || topk > moe_reduce_most_slots) return "topk is none of 1 to 16";
    if (slots() > std::numeric_limits<std::int32_t>::max()) return "more than 2^31 slots";
    return extent_fault(*this);
  }

  template <class Case, class Visit>  // a MoeReduceCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "moe_reduce");
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("topk", c.topk);
    visit("weighted", c.weighted);
    visit("table", c.table);
    visit("masked", c.masked);
    visit("residual", c.residual);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `moe_reduce/gfx950/bf16/c7168/r16384/k8/weighted1/table0/masked0/res0`: arch, type, columns, tokens, slots of a token,
/// and what there is.
inline std::string name_of(const MoeReduceCase& c) {
  const auto flag = [](const char* what, bool is) { return std::string(what) + (is ? "1" : "0"); };
  return "moe_reduce/" + std::string(name_of(c.arch)) + "/" + std::string(name_of(c.spec.x)) + "/" + extent_name(c) +
         "/k" + std::to_string(c.topk) + flag("/weighted", c.weighted) + flag("/table", c.table) +
         flag("/masked", c.masked) + flag("/res", c.residual);
}

struct MoeReduceTensors {
  TwinBuffer x, slots, weights, ids, mask, residual, out;
};

struct MoeReduceOp {
  using Case = MoeReduceCase;
  using Problem = MoeReduceProblem;
  using Entry = MoeReduceEntry;
  using Tensors = MoeReduceTensors;

  static std::span<const Entry* const> entries() { return all_moe_reduce_entries(); }
  static constexpr auto select = moe_reduce_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/moe_reduce/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    const auto table = [&](const TwinBuffer& b) { return static_cast<const std::int32_t*>(address(b)); };
    Problem p;
    p.spec = c.spec;
    p.x = address(t.x);
    if (c.table) p.slots = table(t.slots);
    if (c.weighted) p.weights = static_cast<const float*>(address(t.weights));
    if (c.masked) {
      p.topk_ids = table(t.ids);
      p.expert_mask = table(t.mask);
      p.experts = Case::experts;
    }
    if (c.residual) p.residual = address(t.residual);
    p.out = address(t.out);
    p.rows = c.rows;
    p.columns = c.columns;
    p.topk = c.topk;
    p.x_stride = c.table ? c.columns : std::int64_t{c.topk} * c.columns;
    p.x_rows = c.table ? static_cast<std::int32_t>(c.slots()) : 0;
    p.x_slot_stride = c.table ? 0 : c.columns;
    p.out_stride = c.columns;
    if (c.residual) p.residual_stride = c.columns;
    return p;
  }

  static Tensors fill(const Case& c, int threads) {
    const auto n = static_cast<std::int32_t>(c.slots());
    const auto words = [](std::int32_t count, const auto& value) {
      TwinBuffer buffer(std::size_t(count) * sizeof(std::int32_t));
      for (std::int32_t i = 0; i < count; ++i) {
        const std::int32_t word = value(i);
        std::memcpy(buffer.host() + std::size_t(i) * sizeof(word), &word, sizeof(word));
      }
      buffer.upload();
      return buffer;
    };
    // Slot i's row of x: token and place swapped, so that neighbours in a token are far apart in x.
    const auto row_of = [&](std::int64_t slot) { return c.table ? slot % c.topk * c.rows + slot / c.topk : slot; };
    const auto slot_of = [&](std::int64_t row) { return c.table ? row % c.rows * c.topk + row / c.rows : row; };
    Tensors t;
    t.x = filled(c.spec.x, n, c.columns, threads, [&](std::int64_t r, std::int64_t column) {
      return c.counts(slot_of(r)) ? drawn(c.seed, 'x', r, column) : std::numeric_limits<float>::quiet_NaN();
    });
    t.slots = words(n, [&](std::int64_t i) { return static_cast<std::int32_t>(row_of(i)); });
    t.ids = words(n, [&](std::int64_t i) { return c.expert(i); });
    t.mask = words(Case::experts, [](std::int32_t e) { return e % 2 == 0; });
    t.weights = filled(DType::f32, n, 1, 1, [&](std::int64_t i, std::int64_t) { return drawn(c.seed, 'w', i, 0); });
    if (c.residual) {
      t.residual = filled(c.spec.x, c.rows, c.columns, threads,
                          [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, 'r', r, column); });
    }
    t.out = poisoned(c.spec.x, std::int64_t{c.rows} * c.columns);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out}; }

  /// A slot that counts is read, multiplied and added; its weight, place and expert are 4 bytes each.
  static Work work_of(const Case& c) {
    std::int64_t counted = c.slots();
    if (c.masked) {
      counted = 0;
      for (std::int64_t i = 0; i < c.slots(); ++i) counted += c.counts(i);
    }
    const std::int64_t elements = std::int64_t{c.rows} * c.columns, written = elements * size_of(c.spec.x);
    return {.bytes = counted * c.columns * size_of(c.spec.x) + (c.residual ? 2 : 1) * written +
                     4 * c.slots() * (c.weighted + c.table + c.masked) + (c.masked ? 4 * Case::experts : 0),
            .written = written,
            .flops = 2 * counted * c.columns + (c.residual ? elements : 0)};
  }

  /// Half a step of the type, and what sums in f32 cost.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const reference::ReducedRow wanted = reference::moe_reduce_row(p, row);
    for (std::int32_t c = 0; c < p.columns; ++c) {
      const double got = reference::element(p.spec.x, p.out, std::int64_t{row} * p.columns + c);
      const double want = wanted.values[c];
      const double slack = half_step(p.spec.x, want) * 1.001 + 1e-6 * wanted.magnitudes[c];
      errors.out(std::abs(got - want) <= slack, row, c, got, want);
    }
  }
};

}  // namespace tilewave::bench
