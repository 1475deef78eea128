// SPDX-License-Identifier: MIT
// Embeddings for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/embedding.hpp"
#include "tilewave/reference/embedding.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<IndexType> = 2;

/// Rows are packed. Ids are uniform over the table and a sixteenth more, whose rows are zeros.
struct EmbeddingCase {
  ArchId arch = ArchId::gfx950;
  EmbeddingSpec spec{};
  std::int32_t columns = 0, rows = 0;  // rows: tokens, launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  std::int32_t config_vocab = 0;       // rows of the table, of the config
  IndexType id_type = IndexType::i32;
  bool scaled = false;
  std::uint64_t seed = 123;

  friend constexpr bool operator==(const EmbeddingCase&, const EmbeddingCase&) = default;

  DType out() const { return spec.x; }
  /// Rows of the table that is allocated: on the emulated device as few as nobody waits for.
  std::int32_t vocab() const { return cuts_configs() ? std::min(config_vocab, 512) : config_vocab; }
  std::int64_t id(std::int64_t row) const {
    return random_below(random_bits({seed, 'i', static_cast<std::uint64_t>(row)}), vocab() + vocab() / 16 + 1);
  }

  static constexpr NamePart name_parts[] = {
      {"embedding", "kind", "embedding"}, {"c", "columns"},          {"r", "config_rows"}, {"v", "config_vocab"},
      {"i32", "id_type", "i32"},          {"i64", "id_type", "i64"}, {"scaled", "scaled"}};
  static constexpr auto& name_types = row_name_types;
  static constexpr std::string_view name_mode = "x_dtype";
  static void imply(Words& words) {
    words.imply("config_rows", "rows");
    words.imply("config_vocab", "vocab");
  }
  void complete() { rows = config_rows; }
  std::string fault() const {
    if (config_vocab < 1) return "config_vocab is below 1 or missing";
    return extent_fault(*this);
  }

  template <class Case, class Visit>  // an EmbeddingCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "embedding");
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("id_type", c.id_type);
    visit("scaled", c.scaled);
    visit.chosen("vocab", c.vocab());
    visit("config_vocab", c.config_vocab);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `embedding/gfx950/bf16/c4096/r4096/v128256/i64/scaled0`: arch, type, columns, tokens, rows of the table, type of ids,
/// whether rows are scaled.
inline std::string name_of(const EmbeddingCase& c) {
  return "embedding/" + std::string(name_of(c.arch)) + "/" + std::string(name_of(c.spec.x)) + "/" + extent_name(c) +
         "/v" + std::to_string(c.vocab()) + (c.vocab() < c.config_vocab ? "of" + std::to_string(c.config_vocab) : "") +
         "/" + name_of(c.id_type) + "/scaled" + (c.scaled ? "1" : "0");
}

struct EmbeddingTensors {
  TwinBuffer table, ids, out;
};

struct EmbeddingOp {
  using Case = EmbeddingCase;
  using Problem = EmbeddingProblem;
  using Entry = EmbeddingEntry;
  using Tensors = EmbeddingTensors;

  static std::span<const Entry* const> entries() { return all_embedding_entries(); }
  static constexpr auto select = embedding_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/embedding/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.table = address(t.table);
    p.ids = address(t.ids);
    p.out = address(t.out);
    p.id_type = c.id_type;
    if (c.scaled) p.scale = 53.665631f;  // the root of the columns, as Gemma has it
    p.rows = c.rows;
    p.columns = c.columns;
    p.vocab_rows = c.vocab();
    p.table_stride = p.out_stride = c.columns;
    return p;
  }

  static Tensors fill(const Case& c, int threads) {
    Tensors t;
    t.table = filled(c.spec.x, c.vocab(), c.columns, threads,
                     [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, 't', r, column); });
    const std::size_t each = size_of(c.id_type);
    t.ids = TwinBuffer(static_cast<std::size_t>(c.rows) * each);
    for (std::int32_t r = 0; r < c.rows; ++r) {
      const std::int64_t id = c.id(r);
      std::memcpy(t.ids.host() + r * each, &id, each);  // little endian, as all devices here
    }
    t.ids.upload();
    t.out = poisoned(c.spec.x, std::int64_t{c.rows} * c.columns);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out}; }

  /// Rows that the table has are read, all are written.
  static Work work_of(const Case& c) {
    std::int64_t known = 0;
    for (std::int32_t r = 0; r < c.rows; ++r) known += c.id(r) < c.vocab();
    const std::int64_t elements = std::int64_t{c.rows} * c.columns, written = elements * size_of(c.spec.x);
    return {.bytes = known * c.columns * size_of(c.spec.x) + written + std::int64_t{c.rows} * size_of(c.id_type),
            .written = written,
            .flops = c.scaled ? elements : 0};
  }

  /// As the table has it, or half a step of the type of what is scaled.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    for (std::int32_t c = 0; c < p.columns; ++c) {
      const double got = reference::element(p.spec.x, p.out, std::int64_t{row} * p.columns + c);
      const double want = reference::embedded(p, row, c);
      const double slack = p.scale == 1.0f ? 0 : half_step(p.spec.x, want) * 1.001;
      errors.out(std::abs(got - want) <= slack, row, c, got, want);
    }
  }
};

}  // namespace tilewave::bench
