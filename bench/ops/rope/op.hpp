// SPDX-License-Identifier: MIT
// Rotary position embeddings for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/rope.hpp"
#include "tilewave/reference/rope.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<RopePairs> = 2;

/// A row is a token: the heads of q and k, slices of a fused qkv tensor, turned by plain angles into a packed output.
struct RopeCase {
  ArchId arch = ArchId::gfx950;
  RopeSpec spec{};
  std::int32_t q_heads = 0, k_heads = 0, head_size = 0, rotary = 0;
  std::int32_t rows = 0;         // tokens; launched
  std::int32_t config_rows = 0;  // of the config, see launched_rows
  std::int32_t columns = 0;      // of q and k of a token
  std::uint64_t seed = 123;

  static constexpr std::int32_t table_rows = 8192;

  DType out() const { return spec.x; }
  std::int32_t rotated_columns() const { return saturated((std::int64_t{q_heads} + k_heads) * head_size); }
  std::int32_t fused_columns() const { return saturated((std::int64_t{q_heads} + 2LL * k_heads) * head_size); }
  std::int32_t table_columns() const { return spec.full_table ? rotary : rotary / 2; }
  /// No row of the tables serves two of up to table_rows tokens.
  std::int32_t position(std::int64_t token) const {
    return static_cast<std::int32_t>((token * 7919 + static_cast<std::int64_t>(seed % table_rows)) % table_rows);
  }

  static constexpr NamePart name_parts[] = {{"halves", "kind", "halves"},
                                            {"neighbours", "kind", "neighbours"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"hq", "q_heads"},
                                            {"hk", "k_heads"},
                                            {"d", "head_size"},
                                            {"rot", "rotary"},
                                            {"full", "full_table"}};
  static constexpr std::string_view name_types[] = {"x_dtype", "table_dtype"};
  static constexpr std::string_view name_mode = "x_dtype";
  static void imply(Words& words) {
    words.imply("config_rows", "rows");
    words.imply("rotary", "head_size");
  }
  void complete() {
    rows = config_rows;
    columns = rotated_columns();
  }
  std::string fault() const {
    constexpr std::int32_t most = 1 << 16;
    if (q_heads > most || k_heads > most) return "more than 65536 heads";
    if (head_size < 2 || head_size > 512 || head_size % 2 != 0) return "head_size is not even and 2 to 512, or missing";
    if (rotary < 2 || rotary > head_size || rotary % 2 != 0) return "rotary is not even and 2 to head_size";
    return extent_fault(*this);
  }

  template <class Case, class Visit>  // a RopeCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit("kind", c.spec.pairs);
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("table_dtype", c.spec.table);
    visit("full_table", c.spec.full_table);
    visit("q_heads", c.q_heads);
    visit("k_heads", c.k_heads);
    visit("head_size", c.head_size);
    visit("rotary", c.rotary);
    visit.derived("columns", c.rotated_columns());
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `halves/gfx950/bf16/c5120/r4096/hq32/hk8/d128/rot128/f32/full0`: pairs, arch, type, columns, tokens, heads of q and k,
/// their size, what turns of it, type and width of the tables.
inline std::string name_of(const RopeCase& c) {
  return std::string(name_of(c.spec.pairs)) + "/" + std::string(name_of(c.arch)) + "/" +
         std::string(name_of(c.spec.x)) + "/" + extent_name(c) + "/hq" + std::to_string(c.q_heads) + "/hk" +
         std::to_string(c.k_heads) + "/d" + std::to_string(c.head_size) + "/rot" + std::to_string(c.rotary) + "/" +
         std::string(name_of(c.spec.table)) + "/full" + std::to_string(c.spec.full_table);
}

struct RopeTensors {
  TwinBuffer x, out, cos, sin, positions;
};

struct RopeOp {
  using Case = RopeCase;
  using Problem = RopeProblem;
  using Entry = RopeEntry;
  using Tensors = RopeTensors;

  static std::span<const Entry* const> entries() { return all_rope_entries(); }
  static constexpr auto select = rope_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/rope/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.q = address(t.x);
    p.q_out = address(t.out);
    const std::int64_t k_first = std::int64_t{c.q_heads} * c.head_size * size_of(c.spec.x);
    p.k = static_cast<const std::byte*>(p.q) + k_first;
    p.k_out = static_cast<std::byte*>(p.q_out) + k_first;
    p.cos = address(t.cos);
    p.sin = address(t.sin);
    p.positions = address(t.positions);
    p.tokens = c.rows;
    p.q_heads = c.q_heads;
    p.k_heads = c.k_heads;
    p.head_size = c.head_size;
    p.rotary = c.rotary;
    p.table_rows = Case::table_rows;
    p.table_stride = c.table_columns();
    p.q_strides = p.k_strides = {c.fused_columns(), c.head_size};
    p.q_out_strides = p.k_out_strides = {c.columns, c.head_size};
    return p;
  }

  static Tensors fill(const Case& c, int threads) {
    const reference::RopeAngles angles = reference::rope_angles(c.rotary, 500000);
    Tensors t;
    t.x = filled(c.spec.x, c.rows, c.fused_columns(), threads,
                 [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, 'x', r, column); });
    const auto table = [&](const auto& value) {
      return filled(c.spec.table, Case::table_rows, c.table_columns(), threads,
                    [&](std::int64_t r, std::int64_t column) {
                      return static_cast<float>(value(c.spec, angles, r, static_cast<int>(column)));
                    });
    };
    t.cos = table(reference::rope_cos);
    t.sin = table(reference::rope_sin);
    t.positions = TwinBuffer(c.rows * sizeof(std::int32_t));
    for (std::int32_t i = 0; i < c.rows; ++i) {
      const std::int32_t position = c.position(i);
      std::memcpy(t.positions.host() + i * sizeof(position), &position, sizeof(position));
    }
    t.positions.upload();
    t.out = poisoned(c.spec.x, std::int64_t{c.rows} * c.columns);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out}; }

  /// Of a token: q and k in and out, its rows of the tables, its position. A pair: four products, two sums.
  static Work work_of(const Case& c) {
    const std::int64_t written = std::int64_t{c.rows} * c.columns * size_of(c.spec.x);
    const std::int64_t of_token = 2 * c.table_columns() * size_of(c.spec.table) + 4;
    return {.bytes = 2 * written + c.rows * of_token,
            .written = written,
            .flops = std::int64_t{c.rows} * (c.q_heads + c.k_heads) * c.rotary * 3};
  }

  /// Half a step of the type, and what products and sum in f32 cost.
  static void verify_row(const Problem& p, std::int32_t token, RowErrors& errors) {
    constexpr double f32_error = 5e-7;
    std::int32_t column = 0;
    for (std::int32_t h = 0; h < p.q_heads + p.k_heads; ++h) {
      const std::vector<double> wanted = reference::rope_head(p, token, h);
      for (std::int32_t d = 0; d < p.head_size; ++d, ++column) {
        const double got = reference::element(p.spec.x, p.q_out, token * p.q_out_strides.token + column);
        const double slack = half_step(p.spec.x, wanted[d]) * 1.001 + f32_error;
        errors.out(std::abs(got - wanted[d]) <= slack, token, column, got, wanted[d]);
      }
    }
  }
};

}  // namespace tilewave::bench
