// SPDX-License-Identifier: MIT
// Writes into a latent cache, for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/latent_cache_write.hpp"
#include "tilewave/reference/latent_cache_write.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<LatentLayout> = 3;
template <>
inline constexpr int enumerators_of<RopePairs> = 2;

/// A row is a token with its heads of q. Slots are spread over the pages, like those of sequences in decode.
struct LatentCacheWriteCase {
  ArchId arch = ArchId::gfx950;
  LatentCacheWriteSpec spec{};
  std::int32_t q_heads = 0, block_size = 64;
  std::int32_t rows = 0;         // tokens; launched
  std::int32_t config_rows = 0;  // of the config, see launched_rows
  std::uint64_t seed = 123;

  static constexpr std::int32_t table_rows = 8192;

  DType out() const { return spec.kv; }
  std::int32_t columns() const { return spec.head_size + q_heads * latent_rope_size; }
  std::int32_t launched_rows() const {
    return cuts_configs() ? min_of<std::int32_t>(config_rows, max_of<std::int64_t>(2, emulated_elements / columns()))
                          : config_rows;
  }
  std::int64_t row_elements() const { return columns(); }
  std::int32_t pages() const { return ceil_div(max_of(rows, 64), block_size) + 1; }
  std::int32_t position(std::int64_t token) const {
    return static_cast<std::int32_t>((token * 7919 + static_cast<std::int64_t>(seed % table_rows)) % table_rows);
  }
  /// 7919 is a prime, and larger than any factor of the number of slots.
  std::int64_t slot(std::int64_t token) const {
    const std::int64_t all = std::int64_t{pages()} * block_size;
    return all % 7919 == 0 ? token : token * 7919 % all;
  }

  static constexpr NamePart name_parts[] = {{"latent_cache", "kind", "latent_cache"},
                                            {"c", "head_size"},
                                            {"r", "config_rows"},
                                            {"hq", "q_heads"},
                                            {"bs", "block_size"},
                                            {"halves", "pairs", "halves"},
                                            {"neighbours", "pairs", "neighbours"}};
  static constexpr std::string_view name_types[] = {"kv_dtype", "table_dtype"};
  static constexpr std::string_view name_mode = "layout";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() { rows = config_rows; }
  std::string fault() const {
    if (q_heads < 0 || q_heads > 1024) return "q_heads is not 0 to 1024";
    if (block_size < 1 || block_size > 1 << 16) return "block_size is not 1 to 65536";
    if (config_rows < 1 || config_rows > 1 << 20) return "rows is not 1 to 2^20";
    return "";
  }

  template <class Case, class Visit>  // a LatentCacheWriteCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "latent_cache");
    visit("arch", c.arch);
    visit("kv_dtype", c.spec.kv);
    visit("layout", c.spec.layout);
    visit("table_dtype", c.spec.table);
    visit("pairs", c.spec.pairs);
    visit("head_size", c.spec.head_size);
    visit("q_heads", c.q_heads);
    visit("block_size", c.block_size);
    visit.derived("columns", c.columns());
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `latent_cache/gfx950/bf16.plain/c576/r64/hq128/bs64/neighbours/f32`: arch, type and layout of the cache, width of its
/// rows, tokens, heads of q, tokens of a page, pairs, type of the tables.
inline std::string name_of(const LatentCacheWriteCase& c) {
  const LatentCacheWriteSpec& s = c.spec;
  return "latent_cache/" + std::string(name_of(c.arch)) + "/" + short_name(s.kv) + "." + name_of(s.layout) +
         part_name("c", s.head_size) + part_name("r", c.rows, c.config_rows) + part_name("hq", c.q_heads) +
         part_name("bs", c.block_size) + "/" + name_of(s.pairs) + "/" + std::string(name_of(s.table));
}

struct LatentCacheWriteTensors {
  TwinBuffer latent, rope, q, out, q_out, scale, cos, sin, slots, positions;  // out: the cache
};

struct LatentCacheWriteOp {
  using Case = LatentCacheWriteCase;
  using Problem = LatentCacheWriteProblem;
  using Entry = LatentCacheWriteEntry;
  using Tensors = LatentCacheWriteTensors;

  static std::span<const Entry* const> entries() { return all_latent_cache_write_entries(); }
  static constexpr auto select = latent_cache_write_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/latent_cache_write/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.latent = address(t.latent);
    p.rope = address(t.rope);
    p.kv = address(t.out);
    if (is_fp8(c.spec.kv) && c.spec.layout == LatentLayout::plain)
      p.kv_scale = static_cast<const float*>(address(t.scale));
    p.slots = address(t.slots);
    p.slot_type = IndexType::i32;
    if (c.q_heads > 0) p.q = address(t.q), p.q_out = address(t.q_out);
    p.cos = address(t.cos), p.sin = address(t.sin), p.positions = address(t.positions);
    p.tokens = c.rows, p.q_heads = c.q_heads;
    p.table_rows = c.table_rows;
    p.block_size = c.block_size, p.num_pages = c.pages();
    return Problem::dense(p);
  }

  static Tensors fill(const Case& c, int threads) {
    const auto uniform = [&](std::int32_t rows, std::int32_t columns, char name) {
      return filled(DType::bf16, rows, columns, threads,
                    [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, name, r, column); });
    };
    const auto words = [](std::int64_t count, const auto& value) {
      TwinBuffer buffer(static_cast<std::size_t>(count) * 4, "i32");
      for (std::int64_t i = 0; i < count; ++i)
        reinterpret_cast<std::int32_t*>(buffer.host())[i] = static_cast<std::int32_t>(value(i));
      buffer.upload();
      return buffer;
    };
    const reference::RopeAngles angles = reference::rope_angles(latent_rope_size, 10000);
    const RopeSpec rope{.x = DType::bf16, .table = c.spec.table};
    const auto table = [&](bool cosines) {
      return filled(c.spec.table, c.table_rows, latent_rope_size / 2, threads,
                    [&](std::int64_t r, std::int64_t column) {
                      const auto at = static_cast<int>(column);
                      return static_cast<float>(cosines ? reference::rope_cos(rope, angles, r, at)
                                                        : reference::rope_sin(rope, angles, r, at));
                    });
    };
    const LatentRow row = c.spec.row();
    Tensors t;
    t.latent = uniform(c.rows, c.spec.head_size - latent_rope_size, 'l');
    t.rope = uniform(c.rows, latent_rope_size, 'r');
    t.q = uniform(c.rows * c.q_heads, latent_rope_size, 'q');
    t.out = poisoned(row.kv, c.pages() * row.page_bytes(c.block_size) / size_of(row.kv));
    t.q_out = poisoned(DType::bf16, std::int64_t{c.rows} * c.q_heads * latent_rope_size);
    t.scale = filled(DType::f32, 1, 1, 1, [](std::int64_t, std::int64_t) { return 0.0078125f; });
    t.cos = table(true), t.sin = table(false);
    t.slots = words(c.rows, [&](std::int64_t i) { return c.slot(i); });
    t.positions = words(c.rows, [&](std::int64_t i) { return c.position(i); });
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out, &t.q_out}; }

  /// What a token reads and writes: its dimensions, its heads of q, its row, its slot and position, and its angles.
  static Work work_of(const Case& c) {
    const LatentRow row = c.spec.row();
    const std::int64_t rotated = std::int64_t{1} + c.q_heads;
    const std::int64_t written = row.read_bytes() + std::int64_t{c.q_heads} * latent_rope_size * 2;
    const std::int64_t read = c.columns() * 2 + 8 + latent_rope_size * size_of(c.spec.table);
    return {.bytes = c.rows * (read + written),
            .written = c.rows * written,
            .flops = c.rows * (rotated * 3 * latent_rope_size + 2 * row.codes())};
  }

  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const std::vector<double> want = reference::latent_written(p, row);
    const std::vector<double> got = reference::latent_read_back(p, reference::index_at(p.slots, p.slot_type, row));
    for (int d = 0; d < p.spec.head_size; ++d) {
      const double bound = reference::latent_rounding(p, want, d) + 1e-6 * std::abs(want[d]) + 1e-7;
      errors.out(std::abs(got[d] - want[d]) <= bound, row, d, got[d], want[d]);
    }
    for (std::int32_t h = 0; h < p.q_heads; ++h) {
      const std::int64_t at = row * p.q_strides.token + h * p.q_strides.head;
      const std::vector<double> rotated = reference::latent_rotated(p, p.q, at, row);
      for (int d = 0; d < latent_rope_size; ++d) {
        const double q = reference::element(DType::bf16, p.q_out, at + d);
        errors.expect(std::abs(q - rotated[d]) <= 0x1.01p-8 * std::abs(rotated[d]) + 1e-6, "q_out", row, d, q,
                      rotated[d]);
      }
    }
  }
};

}  // namespace tilewave::bench
