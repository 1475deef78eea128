// SPDX-License-Identifier: MIT
// Configs of flash attention: what a row of bench_flash_attention is, and how it is cut for the emulated device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "bench/harness/rows/rows.hpp"
#include "tilewave/ops/flash_attention/problem.hpp"

namespace tilewave::bench {

/// The scores of one launch on the emulated device, unless three queries have more.
inline constexpr std::int64_t emulated_scores = std::int64_t{1} << 19;

/// Extents of a call. q and kv are the queries and keys of its longest sequence.
struct FlashAttentionExtents {
  std::int32_t batch, q_heads, kv_heads, q, kv;
};

/// A row of the output is a query of one head. Queries are the last tokens of their sequence. Sequences of a ragged
/// config have 1/batch, 2/batch, ... of q_length queries, in another order, and all have equally many keys more. A mixed
/// config has chunks of q_length queries, and behind them `decode_rows` sequences with one query each and as many keys
/// before it as a chunk has.
struct FlashAttentionCase {
  ArchId arch = ArchId::gfx950;
  FlashAttentionSpec spec{};
  std::int32_t batch = 1, q_heads = 0, kv_heads = 0;
  std::int32_t q_length = 0, kv_length = 0;  // of the longest sequence
  std::int32_t block_size = 0;               // tokens of a page; 0: K and V are contiguous
  std::int32_t window = 0;                   // keys that a query sees, up to its own position; 0: no window
  bool causal = false, ragged = false, lse = false;
  std::int32_t decode_rows = 0;  // of the batch
  std::int32_t rows = 0;         // launched
  std::int32_t config_rows = 0;  // of the config, see launched_rows
  std::uint64_t seed = 123;

  static constexpr std::int32_t most = 1 << 16;         // sequences, heads and tokens of a page
  static constexpr std::int32_t most_tokens = 1 << 24;  // of a sequence

  DType out() const { return spec.out; }
  /// Returns whether sequences lie side by side without gaps, as those of unlike lengths do.
  bool packed() const { return ragged || decode_rows > 0; }

  FlashAttentionExtents whole() const { return {batch, q_heads, kv_heads, q_length, kv_length}; }
  /// Extents on the emulated device: up to three sequences and two kv heads, keys that go past a window and a tile, and
  /// as many of the last queries as make `emulated_scores`.
  FlashAttentionExtents cut() const {
    const std::int32_t ratio = q_heads / max_of(kv_heads, 1), heads = min_of(kv_heads, 2);
    FlashAttentionExtents e{min_of(batch, packed() ? 3 : 2), ratio * heads, heads, q_length, kv_length};
    e.kv = min_of(kv_length, window > 0 ? window + 64 : 320);
    const std::int64_t scores = std::int64_t{e.kv} * max_of(e.q_heads, 1) * max_of(e.batch, 1);
    const std::int64_t queries = max_of<std::int64_t>(3, emulated_scores / max_of<std::int64_t>(scores, 1));
    e.q = static_cast<std::int32_t>(min_of<std::int64_t>(min_of(q_length, e.kv), queries));
    return e;
  }
  FlashAttentionExtents launched() const { return rows < config_rows ? cut() : whole(); }

  std::int32_t queries(const FlashAttentionExtents& e, std::int64_t sequence) const {
    if (decode_rows > 0) return sequence < max_of(e.batch - decode_rows, 1) ? e.q : 1;
    if (!ragged) return e.q;
    const std::int64_t place = sequence * 1000003 % e.batch;  // a prime above any batch: each place occurs once
    return static_cast<std::int32_t>(ceil_div<std::int64_t>(e.q * (place + 1), e.batch));
  }
  std::int32_t keys(const FlashAttentionExtents& e, std::int64_t sequence) const {
    return packed() ? queries(e, sequence) + e.kv - e.q : e.kv;
  }
  /// Query tokens of all sequences. A batch that is refused counts as one sequence that is too long.
  std::int64_t q_tokens(const FlashAttentionExtents& e) const {
    if (!packed()) return std::int64_t{e.batch} * e.q;
    if (e.batch > most) return std::numeric_limits<std::int32_t>::max();
    std::int64_t tokens = 0;
    for (std::int32_t s = 0; s < e.batch; ++s) tokens += queries(e, s);
    return tokens;
  }
  std::int64_t kv_tokens(const FlashAttentionExtents& e) const {
    return packed() ? q_tokens(e) + std::int64_t{e.batch} * (e.kv - e.q) : std::int64_t{e.batch} * e.kv;
  }
  std::int32_t rows_of(const FlashAttentionExtents& e) const {
    return saturated(std::int64_t{saturated(q_tokens(e))} * e.q_heads);
  }
  std::int32_t table_columns(const FlashAttentionExtents& e) const { return ceil_div(e.kv, max_of(block_size, 1)); }

  std::int32_t launched_rows() const { return cuts_configs() ? min_of(rows_of(cut()), config_rows) : config_rows; }
  /// Elements of K and V behind a row, in units of 64: what verifying it costs.
  std::int64_t row_elements() const {
    return max_of<std::int64_t>(1, std::int64_t{launched().kv} * (spec.head_size + spec.value_size) / 64);
  }

  static constexpr NamePart name_parts[] = {{"prefill", "kind", "prefill"},
                                            {"c", "kv_length"},
                                            {"r", "config_rows"},
                                            {"q", "q_length"},
                                            {"b", "batch"},
                                            {"hq", "q_heads"},
                                            {"hkv", "kv_heads"},
                                            {"d", "head_size"},
                                            {"dv", "value_size"},
                                            {"bs", "block_size"},
                                            {"causal", "causal"},
                                            {"w", "window"},
                                            {"ragged", "ragged"},
                                            {"decode", "decode_rows"},
                                            {"lse", "lse"}};
  static constexpr std::string_view name_types[] = {"q_dtype", "kv_dtype", "out_dtype"};
  static constexpr std::string_view name_mode = "quant_mode";
  static void imply(Words& words) {
    words.imply("kv_dtype", "q_dtype");
    words.imply("value_size", "head_size");
    words.imply("kv_length", "q_length");
    words.imply("kv_heads", "q_heads");
    if (const auto q = words.values.find("q_dtype"); q != words.values.end() && !q->second.starts_with("fp8"))
      words.imply("out_dtype", "q_dtype");
  }
  void complete() {
    spec.storage = block_size > 0 ? KvStorage::paged : KvStorage::contiguous;
    if (is_fp8(spec.kv) && spec.quant == Scaling::none) spec.quant = Scaling::per_tensor;
    rows = config_rows = rows_of(whole());
  }
  std::string fault() const {
    if (batch < 1 || batch > most) return "batch is not 1 to 65536";
    if (kv_heads < 1 || q_heads > most || q_heads < 1 || q_heads % kv_heads != 0)
      return "q_heads is not a multiple of kv_heads up to 65536, or missing";
    if (q_length < 1 || q_length > most_tokens) return "q_length is not 1 to 2^24";
    if (kv_length < 1 || kv_length > most_tokens) return "kv_length is not 1 to 2^24";
    if (q_length > kv_length && (causal || window > 0 || packed())) return "more queries than keys";
    if (decode_rows < 0 || decode_rows >= batch) return "decode_rows is not below batch";
    if (decode_rows > 0 && ragged) return "ragged and decode_rows exclude each other";
    if (spec.head_size < 1 || spec.head_size > 1024 || spec.value_size < 1 || spec.value_size > 1024)
      return "head_size or value_size is not 1 to 1024";
    if (block_size > most) return "block_size is above 65536";
    constexpr std::int32_t full = std::numeric_limits<std::int32_t>::max();
    if (rows_of(whole()) == full || std::int64_t{batch} * kv_length > full / 2) return "2^31 rows or 2^30 keys or more";
    return "";
  }

  template <class Case, class Visit>  // a FlashAttentionCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "prefill");
    visit("arch", c.arch);
    visit("q_dtype", c.spec.q);
    visit("kv_dtype", c.spec.kv);
    visit("quant_mode", c.spec.quant);
    visit("out_dtype", c.spec.out);
    visit("head_size", c.spec.head_size);
    visit("value_size", c.spec.value_size);
    visit("batch", c.batch);
    visit("q_heads", c.q_heads);
    visit("kv_heads", c.kv_heads);
    visit("q_length", c.q_length);
    visit("kv_length", c.kv_length);
    visit("block_size", c.block_size);
    visit("causal", c.causal);
    visit("window", c.window);
    visit("ragged", c.ragged);
    visit("decode_rows", c.decode_rows);
    visit("lse", c.lse);
    visit.chosen("columns", c.launched().kv);
    visit.chosen("rows", c.rows);
    visit.derived("config_rows", c.rows_of(c.whole()));
    visit("seed", c.seed);
  }
};

/// `prefill/gfx950/bf16/c4096/r524288/b4/hq32/hkv32/q4096/d128/dv128/bf16.none/bf16/bs0/causal1/w0/ragged0/lse0`: arch,
/// type of q, keys and rows, sequences, heads, queries, sizes of heads, types of K and V and of out, tokens of a page,
/// masks. Mixed configs have /decode120 as well.
inline std::string name_of(const FlashAttentionCase& c) {
  const FlashAttentionSpec& s = c.spec;
  return "prefill/" + std::string(name_of(c.arch)) + "/" + short_name(s.q) +
         part_name("c", c.launched().kv, c.kv_length) + part_name("r", c.rows, c.config_rows) +
         part_name("b", c.batch) + part_name("hq", c.q_heads) + part_name("hkv", c.kv_heads) +
         part_name("q", c.q_length) + part_name("d", s.head_size) + part_name("dv", s.value_size) + "/" +
         short_name(s.kv) + "." + std::string(name_of(s.quant)) + "/" + short_name(s.out) +
         part_name("bs", c.block_size) + part_name("causal", c.causal) + part_name("w", c.window) +
         part_name("ragged", c.ragged) + (c.decode_rows > 0 ? part_name("decode", c.decode_rows) : "") +
         part_name("lse", c.lse);
}

}  // namespace tilewave::bench
