// SPDX-License-Identifier: MIT
// Configs of latent decode: what a row of bench_mla_decode is, and how it is cut for the emulated device.
#pragma once

#include <string>

#include "bench/harness/rows/rows.hpp"
#include "tilewave/ops/mla_decode/problem.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<LatentLayout> = 3;

/// A row of the output is a query token of one head. Sequences of a ragged config have 1/batch, 2/batch, ... of
/// context_length tokens, in another order.
struct MlaDecodeCase {
  ArchId arch = ArchId::gfx950;
  MlaDecodeSpec spec{};
  std::int32_t batch = 1, q_heads = 128, query_tokens = 1;
  std::int32_t context_length = 0;  // of the longest sequence
  std::int32_t block_size = 64;     // tokens of a page
  bool ragged = false, lse = false;
  std::int32_t split_tokens = 0;
  std::int32_t rows = 0;         // launched
  std::int32_t config_rows = 0;  // of the config, see launched_rows
  std::uint64_t seed = 123;

  static constexpr std::int32_t most = 1 << 16;         // sequences, and tokens of a page
  static constexpr std::int32_t most_tokens = 1 << 22;  // of a sequence

  DType out() const { return DType::bf16; }

  bool cut() const { return rows < config_rows; }
  /// On the emulated device up to two sequences of up to 160 tokens are launched.
  std::int32_t cut_batch() const { return min_of(batch, 2); }
  std::int32_t launched_batch() const { return cut() ? cut_batch() : batch; }
  std::int32_t launched_length() const { return cuts_configs() ? min_of(context_length, 160) : context_length; }
  std::int32_t length(std::int64_t sequence) const {
    if (!ragged) return launched_length();
    const std::int64_t n = launched_batch(), place = sequence * 1000003 % n;  // a prime above any batch
    return static_cast<std::int32_t>(ceil_div<std::int64_t>(launched_length() * (place + 1), n));
  }
  std::int32_t table_columns() const { return ceil_div(launched_length(), max_of(block_size, 1)); }
  std::int64_t pages() const { return std::int64_t{launched_batch()} * table_columns(); }
  std::int32_t rows_of(std::int32_t sequences) const {
    return saturated(std::int64_t{sequences} * query_tokens * q_heads);
  }
  std::int32_t launched_rows() const {
    return cuts_configs() ? min_of(rows_of(cut_batch()), config_rows) : config_rows;
  }
  /// Elements of the cache behind a row, in units of 64: what verifying it costs.
  std::int64_t row_elements() const {
    return max_of<std::int64_t>(1, std::int64_t{launched_length()} * (spec.head_size + latent_value_size) / 64);
  }

  static constexpr NamePart name_parts[] = {
      {"mla", "kind", "mla"}, {"c", "context_length"},   {"r", "config_rows"}, {"b", "batch"},
      {"hq", "q_heads"},      {"q", "query_tokens"},     {"d", "head_size"},   {"bs", "block_size"},
      {"ragged", "ragged"},   {"split", "split_tokens"}, {"lse", "lse"}};
  static constexpr std::string_view name_types[] = {"q_dtype", "kv_dtype"};
  static constexpr std::string_view name_mode = "layout";
  static void imply(Words& words) { words.imply("kv_dtype", "q_dtype"); }
  void complete() { rows = config_rows = rows_of(batch); }
  std::string fault() const {
    if (batch < 1 || batch > most) return "batch is not 1 to 65536";
    if (q_heads < 1 || q_heads > 1024) return "q_heads is not 1 to 1024";
    if (query_tokens < 1 || query_tokens > 64) return "query_tokens is not 1 to 64";
    if (context_length < 1 || context_length > most_tokens) return "context_length is not 1 to 2^22";
    if (block_size < 1 || block_size > most) return "block_size is not 1 to 65536";
    if (std::int64_t{batch} * context_length > (std::int64_t{1} << 30)) return "2^30 tokens or more";
    return "";
  }

  template <class Case, class Visit>  // an MlaDecodeCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "mla");
    visit("arch", c.arch);
    visit("q_dtype", c.spec.q);
    visit("kv_dtype", c.spec.kv);
    visit("layout", c.spec.layout);
    visit("head_size", c.spec.head_size);
    visit("batch", c.batch);
    visit("q_heads", c.q_heads);
    visit("query_tokens", c.query_tokens);
    visit("context_length", c.context_length);
    visit("block_size", c.block_size);
    visit("ragged", c.ragged);
    visit("split_tokens", c.split_tokens);
    visit("lse", c.lse);
    visit.chosen("columns", c.launched_length());
    visit.chosen("rows", c.rows);
    visit.derived("config_rows", c.rows_of(c.batch));
    visit("seed", c.seed);
  }
};

/// `mla/gfx950/bf16/c8192/r2048/b16/hq128/q1/d576/bf16.plain/bs64/ragged0/split0/lse0`: arch, type of q, tokens and
/// rows, sequences, heads, query tokens, width of a row, type and layout of the cache, tokens of a page.
inline std::string name_of(const MlaDecodeCase& c) {
  const MlaDecodeSpec& s = c.spec;
  return "mla/" + std::string(name_of(c.arch)) + "/" + short_name(s.q) +
         part_name("c", c.launched_length(), c.context_length) + part_name("r", c.rows, c.config_rows) +
         part_name("b", c.batch) + part_name("hq", c.q_heads) + part_name("q", c.query_tokens) +
         part_name("d", s.head_size) + "/" + short_name(s.kv) + "." + std::string(name_of(s.layout)) +
         part_name("bs", c.block_size) + part_name("ragged", c.ragged) + part_name("split", c.split_tokens) +
         part_name("lse", c.lse);
}

}  // namespace tilewave::bench
