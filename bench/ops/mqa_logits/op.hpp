// SPDX-License-Identifier: MIT
// Logits of an indexer, for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/mqa_logits.hpp"
#include "tilewave/reference/mqa_logits.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<MqaKeys> = 2;

/// Paged: a row is a sequence with `queries` of its own. It has up to `columns` keys, half to all of them, in pages of
/// 64 with the scales behind the keys. fp8 keys have one scale each. fp4 keys, which are paged, have one for 32
/// dimensions. Ranges: a row is a query, which sees the keys of all queries up to its own.
struct MqaLogitsCase {
  ArchId arch = ArchId::gfx950;
  MqaLogitsSpec spec{};
  std::int32_t queries = 1;            // of a sequence
  std::int32_t columns = 0, rows = 0;  // rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  std::uint64_t seed = 123;

  static constexpr std::int32_t block_size = 64;

  DType out() const { return DType::f32; }
  bool paged() const { return spec.keys == MqaKeys::paged; }
  bool fp4() const { return spec.type == DType::fp4_e2m1; }
  std::int32_t head_bytes() const { return bytes_of(spec.type, spec.head_size); }
  /// Scores behind the logits of a row, which is what emulating and verifying a row costs.
  std::int64_t row_elements() const { return std::int64_t{columns} * (paged() ? queries : 1) * spec.heads; }
  std::int32_t length(std::int32_t sequence) const {
    const std::uint64_t bits = random_bits({seed, 'l', static_cast<std::uint64_t>(sequence)});
    return std::max(queries, static_cast<std::int32_t>(columns / 2 + random_below(bits, columns / 2 + 1)));
  }
  /// One past the last key that a query sees.
  std::int32_t end(std::int32_t row) const { return columns - rows + row + 1; }
  std::int32_t table_columns() const { return ceil_div(columns, block_size); }

  static constexpr NamePart name_parts[] = {{"paged", "kind", "paged"}, {"ranges", "kind", "ranges"},
                                            {"c", "columns"},           {"r", "config_rows"},
                                            {"q", "queries"},           {"h", "heads"}};
  static constexpr std::string_view name_types[] = {"x_dtype"};
  static constexpr std::string_view name_mode = "kind";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() {
    rows = config_rows;
    if (!paged()) queries = rows;
    if (!fp4()) spec.type = facts_of(arch).fp8;
  }
  std::string fault() const {
    if (fp4() && (!paged() || !facts_of(arch).mx)) return "fp4 keys are paged, and for gfx950";
    if (!paged() && config_rows > columns) return "more queries than keys";
    if (queries < 1 || queries > columns) return "queries is not 1 to columns";
    if (spec.heads != 32 && spec.heads != 64) return "heads must be 32 or 64";
    if (paged() && std::int64_t{rows} * table_columns() > std::numeric_limits<std::int32_t>::max())
      return "2^31 pages or more";
    return extent_fault(*this);
  }

  template <class Case, class Visit>  // an MqaLogitsCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit("kind", c.spec.keys);
    visit("arch", c.arch);
    visit("x_dtype", c.spec.type);
    visit("heads", c.spec.heads);
    visit("queries", c.queries);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `paged/gfx950/fp8/c8192/r64/q1/h64`: keys, arch, type, most keys, sequences or queries, queries of a sequence,
/// heads.
inline std::string name_of(const MqaLogitsCase& c) {
  return std::string(name_of(c.spec.keys)) + "/" + std::string(name_of(c.arch)) + "/" + short_name(c.spec.type) + "/" +
         extent_name(c) + "/q" + std::to_string(c.queries) + "/h" + std::to_string(c.spec.heads);
}

/// The columns of a policy. Without a policy all are 0.
template <class Visit>
void each_column(const MqaLogitsPolicy* policy, Visit& visit) {
  const MqaLogitsPolicy p = policy != nullptr ? *policy : MqaLogitsPolicy{0, 0, 0, 0};
  visit("block_queries", p.queries);
  visit("teams", p.teams);
  visit("stages", p.stages);
  visit("waves_per_simd", p.waves_per_simd);
  visit("arranged", p.arranged);
  visit("bulk", p.bulk);
}

struct MqaLogitsTensors {
  TwinBuffer q, q_scale, weights, k, tables, starts, ends, out;  // k with its scales; ends: lengths of sequences
};

struct MqaLogitsOp {
  using Case = MqaLogitsCase;
  using Problem = MqaLogitsProblem;
  using Entry = MqaLogitsEntry;
  using Tensors = MqaLogitsTensors;

  static std::span<const Entry* const> entries() { return all_mqa_logits_entries(); }
  static constexpr auto select = mqa_logits_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/mqa_logits/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  static std::int64_t all_queries(const Case& c) { return std::int64_t{c.rows} * (c.paged() ? c.queries : 1); }
  static std::int32_t pages(const Case& c) { return c.paged() ? c.rows * c.table_columns() : 1; }
  static std::int32_t page_keys(const Case& c) { return c.paged() ? Case::block_size : c.columns; }
  static std::int64_t page_bytes(const Case& c) {
    return align_up<std::int64_t>(std::int64_t{page_keys(c)} * (c.head_bytes() + 4), 16);
  }

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    const auto words = [&](const TwinBuffer& buffer) { return static_cast<const std::int32_t*>(address(buffer)); };
    Problem p;
    p.spec = c.spec;
    p.q = address(t.q);
    p.weights = static_cast<const float*>(address(t.weights));
    p.k = address(t.k);
    p.k_scale = static_cast<const std::byte*>(p.k) + std::int64_t{page_keys(c)} * c.head_bytes();
    p.logits = static_cast<float*>(address(t.out));
    if (c.paged()) {
      p.block_tables = words(t.tables);
      p.context_lengths = words(t.ends);
      p.pages = pages(c);
      p.block_size = Case::block_size;
      p.table_columns = c.table_columns();
      p.table_stride = p.table_columns;
    } else {
      p.starts = words(t.starts);
      p.ends = words(t.ends);
    }
    p.sequences = c.paged() ? c.rows : 1;
    p.queries = c.paged() ? c.queries : c.rows;
    p.columns = c.columns;
    p.q_stride = std::int64_t{c.spec.heads} * c.head_bytes();
    p.q_head_stride = p.k_stride = c.head_bytes();
    p.weights_stride = c.spec.heads;
    p.k_page_stride = page_bytes(c);
    p.k_scale_page_stride = c.fp4() ? p.k_page_stride : p.k_page_stride / 4;
    if (c.fp4()) {
      p.q_scale = address(t.q_scale);
      p.q_scale_stride = c.spec.heads * c.spec.head_size / 32;
      p.k_stride = 16;
      p.k_unit_stride = 16 * Case::block_size;
    }
    p.logits_stride = c.columns;
    return p;
  }

  static Tensors fill(const Case& c, int threads) {
    const auto queries = static_cast<std::int32_t>(all_queries(c));
    Tensors t;
    const auto draw = [&](std::byte* bytes, std::int64_t count, char name, std::int64_t i, bool scales) {
      for (std::int64_t b = 0; b < count; ++b) {
        const std::uint64_t bits = random_bits({c.seed, std::uint64_t(name), std::uint64_t(i), std::uint64_t(b)});
        bytes[b] = static_cast<std::byte>(scales ? 120 + bits % 8 : bits);
      }
    };
    if (c.fp4()) {
      const std::int64_t codes = std::int64_t{c.spec.heads} * c.head_bytes(), scales = codes / 16;
      t.q = TwinBuffer(static_cast<std::size_t>(queries * codes));
      t.q_scale = TwinBuffer(static_cast<std::size_t>(queries * scales));
      for (std::int32_t i = 0; i < queries && fills(t.q.bytes()); ++i) {
        draw(t.q.host() + i * codes, codes, 'q', i, false);
        draw(t.q_scale.host() + i * scales, scales, 'Q', i, true);
      }
      t.q.upload();
      t.q_scale.upload();
    } else {
      t.q = filled(c.spec.type, queries, c.spec.heads * c.spec.head_size, threads,
                   [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, 'q', r, column); });
    }
    t.weights = filled(DType::f32, queries, c.spec.heads, threads,
                       [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, 'w', r, column); });
    t.k = TwinBuffer(static_cast<std::size_t>(pages(c) * page_bytes(c)));
    const std::int32_t keys = page_keys(c), size = c.spec.head_size;
    if (fills(t.k.bytes()) && c.fp4()) {
      reference::parallel_for(pages(c), threads, [&](std::int64_t page) {
        std::byte* const bytes = t.k.host() + page * page_bytes(c);
        const std::int64_t codes = std::int64_t{keys} * c.head_bytes();
        draw(bytes, codes, 'k', page, false);
        draw(bytes + codes, codes / 16, 's', page, true);
      });
    } else if (fills(t.k.bytes())) {
      reference::parallel_for(std::int64_t{pages(c)} * keys, threads, [&](std::int64_t key) {
        std::byte* const page = t.k.host() + key / keys * page_bytes(c);
        for (int d = 0; d < size; ++d)
          set_element(c.spec.type, page, key % keys * size + d, drawn(c.seed, 'k', key, d));
        set_element(DType::f32, page + std::int64_t{keys} * size, key % keys, 1 + drawn(c.seed, 's', key, 0) / 2);
      });
    }
    t.k.upload();
    const auto words = [](std::int64_t count, const auto& value) {
      TwinBuffer buffer(static_cast<std::size_t>(count) * 4);
      for (std::int64_t i = 0; i < count; ++i)
        reinterpret_cast<std::int32_t*>(buffer.host())[i] = value(static_cast<std::int32_t>(i));
      buffer.upload();
      return buffer;
    };
    if (c.paged()) {  // pages in a drawn order: a step that shares no factor with any number of them
      t.tables = words(pages(c),
                       [&](std::int32_t i) { return static_cast<std::int32_t>(std::int64_t{i} * 1000003 % pages(c)); });
      t.ends = words(c.rows, [&](std::int32_t i) { return c.length(i); });
    } else {
      t.starts = words(c.rows, [](std::int32_t) { return 0; });
      t.ends = words(c.rows, [&](std::int32_t i) { return c.end(i); });
    }
    t.out = poisoned(DType::f32, std::int64_t{queries} * c.columns);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out}; }

  /// Bytes: once each, the keys that are seen with their scales and what leads to them, the queries, and all logits.
  /// Operations of a key and a head: a product of head_size, a comparison, a product and a sum.
  static Work work_of(const Case& c) {
    std::int64_t keys = 0, pairs = 0;
    for (std::int32_t i = 0; i < c.rows; ++i) {
      if (!c.paged()) {
        pairs += c.end(i);
        continue;
      }
      keys += c.length(i);
      for (std::int32_t n = 0; n < c.queries; ++n) pairs += c.length(i) - c.queries + n + 1;
    }
    if (!c.paged()) keys = c.columns;
    const std::int64_t written = all_queries(c) * c.columns * 4;
    std::int64_t tables = 8LL * c.rows;
    if (c.paged()) {
      tables = 4LL * c.rows;
      for (std::int32_t i = 0; i < c.rows; ++i) tables += 4LL * ceil_div(c.length(i), Case::block_size);
    }
    const std::int64_t head = c.head_bytes() + 4 + (c.fp4() ? 4 : 0);  // with its weight
    return {.bytes = keys * (c.head_bytes() + 4) + all_queries(c) * c.spec.heads * head + tables + written,
            .written = written,
            .flops = pairs * c.spec.heads * (2 * c.spec.head_size + 3)};
  }

  /// sm90 keeps about 14 bits of sums of fp8 products.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const std::int32_t of_row = p.spec.keys == MqaKeys::paged ? p.queries : 1;
    for (std::int32_t n = 0; n < of_row; ++n) {
      const std::int64_t query = std::int64_t{row} * of_row + n;
      const reference::MqaLogitsRow wanted = reference::mqa_logits_row(p, query);
      for (std::int32_t t = 0; t < p.columns; ++t) {
        const double got = p.logits[query * p.logits_stride + t], want = wanted.logits[t];
        const bool good = got == want || std::abs(got - want) <= 0x1p-12 * wanted.magnitudes[t];
        errors.out(good, query, t, got, want);
      }
    }
  }
};

}  // namespace tilewave::bench
