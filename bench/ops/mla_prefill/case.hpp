// SPDX-License-Identifier: MIT
// Configs of latent prefill and of layers with latent heads: what a row of bench_mla is, and how it is cut for the
// emulated device.
#pragma once

#include <string>

#include "bench/harness/rows/rows.hpp"
#include "tilewave/ops/mla_prefill/problem.hpp"

namespace tilewave::bench {

/// What a row times.
/// - prefill: the whole op. gather, up, attend: one launch of a chunk of earlier tokens, or without any of the new ones.
///   merge: the merge of all chunks.
/// - absorb_query, absorb_value: the batched products beside decode.
/// - layer, decode_layer: a whole layer, of a prompt or of decode.
enum class MlaStage : int { prefill, gather, up, attend, merge, absorb_query, absorb_value, layer, decode_layer };
constexpr const char* name_of(MlaStage s) {
  constexpr const char* names[] = {"prefill",      "gather",       "up",    "attend",      "merge",
                                   "absorb_query", "absorb_value", "layer", "decode_layer"};
  return names[static_cast<int>(s)];
}
template <>
inline constexpr int enumerators_of<MlaStage> = 9;
/// The cache's layouts; groups_64 is no layout of prefill.
enum class MlaLayout : int { plain, groups_128 };
constexpr const char* name_of(MlaLayout l) { return l == MlaLayout::plain ? "plain" : "groups_128"; }
template <>
inline constexpr int enumerators_of<MlaLayout> = 2;

/// A row of the output is a new token. Every sequence has q_length new tokens behind context_length earlier ones.
struct MlaPrefillCase {
  ArchId arch = ArchId::gfx950;
  DType kv = DType::bf16;
  MlaLayout layout = MlaLayout::plain;
  std::int32_t batch = 1, q_heads = 128, q_length = 1, context_length = 0;
  std::int32_t chunk_tokens = 8192;  // earlier tokens of all sequences that are expanded at a time
  std::int32_t block_size = 64;      // tokens of a page
  MlaStage stage = MlaStage::prefill;
  std::int32_t rows = 0;         // launched
  std::int32_t config_rows = 0;  // of the config, see launched_rows
  std::uint64_t seed = 123;

  DType out() const { return DType::bf16; }
  MlaPrefillSpec spec() const { return {kv, static_cast<LatentLayout>(layout)}; }
  bool is_layer() const { return stage == MlaStage::layer || stage == MlaStage::decode_layer; }
  bool is_absorbed() const { return stage == MlaStage::absorb_query || stage == MlaStage::absorb_value; }

  /// On the emulated device two heads, and up to two sequences of up to 24 new and 70 earlier tokens, are launched.
  std::int32_t launched_heads() const { return cuts_configs() ? min_of(q_heads, 2) : q_heads; }
  std::int32_t launched_context() const { return cuts_configs() ? min_of(context_length, 70) : context_length; }
  std::int32_t launched_chunk() const { return cuts_configs() ? min_of(chunk_tokens, 64) : chunk_tokens; }
  std::int32_t launched_batch() const { return cuts_configs() ? min_of(batch, 2) : batch; }
  std::int32_t launched_queries() const { return cuts_configs() ? min_of(q_length, 24) : q_length; }
  std::int32_t launched_rows() const { return saturated(std::int64_t{launched_batch()} * launched_queries()); }
  std::int32_t hidden() const { return cuts_configs() ? 256 : 7168; }
  std::int32_t q_rank() const { return cuts_configs() ? 128 : 1536; }
  std::int32_t length() const { return launched_context() + launched_queries(); }
  std::int32_t table_columns() const { return ceil_div(length(), max_of(block_size, 1)); }
  std::int64_t pages() const { return std::int64_t{launched_batch()} * table_columns(); }
  /// What verifying a token costs, in units of 256 products.
  std::int64_t row_elements() const {
    const std::int64_t head = std::int64_t{length()} * 1088 / 256 + 512;
    return is_layer() ? (head + hidden()) * launched_heads() : 2 * head;
  }

  static constexpr NamePart name_parts[] = {{"mla_prefill", "kind", "mla_prefill"},
                                            {"c", "context_length"},
                                            {"r", "config_rows"},
                                            {"b", "batch"},
                                            {"hq", "q_heads"},
                                            {"q", "q_length"},
                                            {"chunk", "chunk_tokens"},
                                            {"bs", "block_size"},
                                            {"prefill", "stage", "prefill"},
                                            {"gather", "stage", "gather"},
                                            {"up", "stage", "up"},
                                            {"attend", "stage", "attend"},
                                            {"merge", "stage", "merge"},
                                            {"absorb_query", "stage", "absorb_query"},
                                            {"absorb_value", "stage", "absorb_value"},
                                            {"layer", "stage", "layer"},
                                            {"decode_layer", "stage", "decode_layer"}};
  static constexpr std::string_view name_types[] = {"kv_dtype"};
  static constexpr std::string_view name_mode = "layout";
  static void imply(Words&) {}
  void complete() { rows = config_rows = saturated(std::int64_t{batch} * q_length); }
  std::string fault() const {
    if (batch < 1 || batch > 1 << 16) return "batch is not 1 to 65536";
    if (q_heads < 1 || q_heads > 1024) return "q_heads is not 1 to 1024";
    if (q_length < 1 || q_length > 1 << 20) return "q_length is not 1 to 2^20";
    if (context_length < 0 || context_length > 1 << 22) return "context_length is not 0 to 2^22";
    if (chunk_tokens < 1 || chunk_tokens > 1 << 24) return "chunk_tokens is not 1 to 2^24";
    if (block_size < 1 || block_size > 1 << 16) return "block_size is not 1 to 65536";
    if (std::int64_t{batch} * (context_length + q_length) > 1 << 24) return "more than 2^24 tokens";
    if (stage == MlaStage::decode_layer && q_length > 8) return "decode has 1 to 8 new tokens of a sequence";
    if (stage == MlaStage::merge && context_length == 0) return "there is nothing to merge without earlier tokens";
    return "";
  }

  template <class Case, class Visit>  // an MlaPrefillCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "mla_prefill");
    visit("arch", c.arch);
    visit("kv_dtype", c.kv);
    visit("layout", c.layout);
    visit("batch", c.batch);
    visit("q_heads", c.q_heads);
    visit("q_length", c.q_length);
    visit("context_length", c.context_length);
    visit("chunk_tokens", c.chunk_tokens);
    visit("block_size", c.block_size);
    visit("stage", c.stage);
    visit.chosen("columns", c.launched_context());
    visit.chosen("rows", c.rows);
    visit.derived("config_rows", saturated(std::int64_t{c.batch} * c.q_length));
    visit("seed", c.seed);
  }
};

/// `mla_prefill/sm90/bf16.plain/c30720/r2048/b1/hq128/q2048/chunk8192/bs64/prefill`: type and layout of the cache,
/// earlier tokens of a sequence, new tokens of all, sequences, heads, new tokens of a sequence, tokens of a chunk and of
/// a page, what is timed.
inline std::string name_of(const MlaPrefillCase& c) {
  return "mla_prefill/" + std::string(name_of(c.arch)) + "/" + short_name(c.kv) + "." + name_of(c.layout) +
         part_name("c", c.launched_context(), c.context_length) + part_name("r", c.rows, c.config_rows) +
         part_name("b", c.batch) + part_name("hq", c.q_heads) + part_name("q", c.q_length) +
         part_name("chunk", c.chunk_tokens) + part_name("bs", c.block_size) + "/" + name_of(c.stage);
}

}  // namespace tilewave::bench
