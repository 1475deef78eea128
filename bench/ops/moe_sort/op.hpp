// SPDX-License-Identifier: MIT
// Sorts of tokens by expert for the harness of row operations: their configs, tensors, work and what is right.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/moe_sort.hpp"
#include "tilewave/reference/moe_sort.hpp"

namespace tilewave::bench {

/// A row is a token, its columns are its choices, all of different experts.
struct MoeSortCase {
  ArchId arch = ArchId::gfx950;
  MoeSortSpec spec{};
  std::int32_t columns = 0, rows = 0;  // columns: topk; rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  std::int32_t experts = 0, unit = 32;
  std::int32_t local = 100;  // of a hundred experts; below 100 there is a mask
  std::uint64_t seed = 123;

  DType out() const { return DType::f32; }  // sorted weights
  bool is_local(std::int32_t expert) const {
    return random_below(random_bits({seed, 'm', static_cast<std::uint64_t>(expert)}), 100) < local;
  }

  static constexpr NamePart name_parts[] = {{"moe_sort", "kind", "moe_sort"},
                                            {"k", "columns"},
                                            {"r", "config_rows"},
                                            {"e", "experts"},
                                            {"u", "unit"},
                                            {"local", "local"}};
  static constexpr std::span<const std::string_view> name_types{};
  static constexpr std::string_view name_mode = "kind";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() { rows = config_rows; }
  std::string fault() const {
    MoeSortProblem p;  // what is wrong with its extents the library says
    p.tokens = config_rows;
    p.topk = columns;
    p.experts = experts;
    p.unit = unit;
    if (unit < 1) return "unit is below 1";  // the capacity is a multiple of it
    p.capacity =
        static_cast<std::int32_t>(std::min<std::int64_t>(1 << 30, std::max<std::int64_t>(0, moe_sort_capacity(p))));
    const Status status = detail::check_sort_extents(p);
    if (!status.ok()) return status.reason;
    return columns > experts ? "more choices than experts" : local > 100 ? "local is above 100" : extent_fault(*this);
  }

  template <class Case, class Visit>  // a MoeSortCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "moe_sort");
    visit("arch", c.arch);
    visit("experts", c.experts);
    visit("unit", c.unit);
    visit("local", c.local);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `moe_sort/gfx950/k8/r4096/e256/u32/local100`: arch, choices, tokens, experts, rows to which each is padded, percent.
inline std::string name_of(const MoeSortCase& c) {
  return "moe_sort/" + std::string(name_of(c.arch)) + "/k" + extent_name(c).substr(1) + "/e" +
         std::to_string(c.experts) + "/u" + std::to_string(c.unit) + "/local" + std::to_string(c.local);
}

/// Columns of a policy; of none, all are 0.
template <class Visit>
void each_column(const MoeSortPolicy* policy, Visit& visit) {
  const MoeSortPolicy p = policy != nullptr ? *policy : MoeSortPolicy{0, 0, 0, 0, 0, 0, 0, 0};
  visit("threads", p.threads);
  visit("batch", p.batch);
  visit("cluster", p.cluster);
  visit("most_blocks", p.most_blocks);
  visit("tiles_alone", p.tiles_alone);
  visit("many_threads", p.many_threads);
  visit("turns", p.lane_choices);
  visit("waves_per_simd", p.waves_per_simd);
}

struct MoeSortTensors {
  TwinBuffer ids, weights, mask, sorted_ids, expert_ids, post_pad, out, offsets, counts, rows, workspace;
};

struct MoeSortOp {
  using Case = MoeSortCase;
  using Problem = MoeSortProblem;
  using Entry = MoeSortEntry;
  using Tensors = MoeSortTensors;

  static std::span<const Entry* const> entries() { return all_moe_sort_entries(); }
  static constexpr auto select = moe_sort_select;
  static constexpr bool indexes_by_results = true;      // counts of the first launch are places in the second
  static std::vector<Case> default_sweep(ArchId arch);  // bench/ops/moe_sort/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  static Problem shape_of(const Case& c) {
    Problem p;
    p.tokens = c.rows;
    p.topk = c.columns;
    p.experts = c.experts;
    p.unit = c.unit;
    p.capacity = static_cast<std::int32_t>(moe_sort_capacity(p));
    p.ids_stride = p.weights_stride = p.rows_stride = c.columns;
    p.workspace_bytes = moe_sort_workspace_size(p, moe_sort_policies(c.arch, c.spec)[0]);
    return p;
  }
  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    const auto words = [&](const TwinBuffer& buffer) { return static_cast<std::int32_t*>(address(buffer)); };
    Problem p = shape_of(c);
    p.topk_ids = words(t.ids);
    p.topk_weights = static_cast<const float*>(address(t.weights));
    if (c.local < 100) p.expert_mask = words(t.mask);
    p.sorted_ids = words(t.sorted_ids);
    p.sorted_expert_ids = words(t.expert_ids);
    p.num_tokens_post_pad = words(t.post_pad);
    p.sorted_weights = static_cast<float*>(address(t.out));
    p.group_offsets = words(t.offsets);
    p.group_counts = words(t.counts);
    p.rows = words(t.rows);
    p.workspace = address(t.workspace);
    return p;
  }

  static Tensors fill(const Case& c, int threads) {
    const Problem p = shape_of(c);
    const auto words = [](std::int64_t count) { return poisoned_words(count); };
    Tensors t;
    t.ids = words(std::int64_t{c.rows} * c.columns);
    reference::parallel_for(c.rows, threads, [&](std::int64_t row) {
      const auto ids = reinterpret_cast<std::int32_t*>(t.ids.host()) + row * c.columns;
      for (std::int32_t slot = 0; slot < c.columns; ++slot) {
        std::uint64_t turn = 0;
        do {  // again where the token has the expert
          const std::uint64_t bits = random_bits({c.seed, 'e', std::uint64_t(row), std::uint64_t(slot), turn++});
          ids[slot] = static_cast<std::int32_t>(random_below(bits, c.experts));
        } while (std::find(ids, ids + slot, ids[slot]) != ids + slot);
      }
    });
    t.ids.upload();
    t.weights = filled(DType::f32, c.rows, c.columns, threads, [&](std::int64_t r, std::int64_t column) {
      return 0.5f + 0.25f * drawn(c.seed, 'w', r, column);
    });
    t.mask = words(c.experts);
    for (std::int32_t e = 0; e < c.experts; ++e) reinterpret_cast<std::int32_t*>(t.mask.host())[e] = c.is_local(e);
    t.mask.upload();
    t.sorted_ids = words(p.capacity);
    t.expert_ids = words(ceil_div(p.capacity, p.unit));
    t.post_pad = words(2);
    t.out = words(p.capacity);
    t.offsets = words(p.experts + 1);
    t.counts = words(p.experts);
    t.rows = words(std::int64_t{c.rows} * c.columns);
    t.workspace = words(p.workspace_bytes / 4);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) {
    return {&t.sorted_ids, &t.expert_ids, &t.post_pad, &t.out, &t.offsets, &t.counts, &t.rows};
  }

  /// Ids and weights once, every output once; a choice is counted and placed.
  static Work work_of(const Case& c) {
    const Problem p = shape_of(c);
    const std::int64_t choices = std::int64_t{c.rows} * c.columns;
    const std::int64_t written =
        8LL * p.capacity + 4LL * ceil_div(p.capacity, p.unit) + 4 * choices + 8LL * p.experts + 12;
    const std::int64_t mask = c.local < 100 ? 4LL * c.experts : 0;
    return {.bytes = 8 * choices + mask + written, .written = written, .flops = 2 * choices};
  }

  /// All of every output with the first row, each exactly.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    if (row > 0) return;
    const reference::SortedChoices wanted = reference::sorted_choices(p);
    for (std::int32_t i = 0; i < p.capacity; ++i) {
      errors.out(p.sorted_weights[i] == wanted.weights[i], i, 0, p.sorted_weights[i], wanted.weights[i]);
    }
    const auto same = [&](const char* what, const std::int32_t* got, const std::vector<std::int32_t>& want) {
      for (std::size_t i = 0; i < want.size(); ++i)
        errors.expect(got[i] == want[i], what, static_cast<std::int64_t>(i), 0, got[i], want[i]);
    };
    same("sorted_id", p.sorted_ids, wanted.ids);
    same("sorted_expert_id", p.sorted_expert_ids, wanted.expert_ids);
    same("num_tokens_post_pad", p.num_tokens_post_pad, wanted.post_pad);
    same("group_offset", p.group_offsets, wanted.offsets);
    same("group_count", p.group_counts, wanted.counts);
    same("row", p.rows, wanted.rows);
  }
};

}  // namespace tilewave::bench
