// SPDX-License-Identifier: MIT
// Writes into a paged KV cache, for the harness of row operations: their configs, tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "entries/kv_cache_write.hpp"
#include "tilewave/reference/kv_cache_write.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<RopePairs> = 2;

/// A row is a token, with the heads of a fused qkv tensor. Slots are spread over the pages, like those of sequences in
/// decode.
struct KvCacheWriteCase {
  ArchId arch = ArchId::gfx950;
  KvCacheWriteSpec spec{};
  bool dim_major = false;  // K in units of 16 bytes and V plain; else NHD caches
  std::int32_t q_heads = 0, kv_heads = 0, head_size = 0, block_size = 16;
  std::int32_t rows = 0;         // tokens; launched
  std::int32_t config_rows = 0;  // of the config, see launched_rows
  std::int32_t columns = 0;      // of qkv
  std::int32_t latent = 0;       // of latent heads, which have no V: the last dimensions, which are rotated; else 0
  std::uint64_t seed = 123;

  static constexpr std::int32_t table_rows = 8192;

  DType out() const { return spec.kv; }
  std::int32_t queries() const { return spec.fused ? q_heads : 0; }
  std::int32_t cached() const { return (latent > 0 ? 1 : 2) * kv_heads; }  // heads
  std::int32_t fused_columns() const { return saturated((std::int64_t{queries()} + cached()) * head_size); }
  std::int32_t rotary() const { return latent > 0 ? latent : head_size; }
  /// Scales of a head, if they are found by the write.
  std::int32_t groups() const { return spec.group > 0 ? head_size / spec.group : 1; }
  DType scale_type() const { return spec.e8m0 ? DType::i8 : DType::f32; }  // as far as its size goes
  std::int32_t pages() const { return ceil_div(max_of(rows, 64), block_size) + 1; }
  std::int32_t position(std::int64_t token) const {
    return static_cast<std::int32_t>((token * 7919 + static_cast<std::int64_t>(seed % table_rows)) % table_rows);
  }
  /// 7919 is a prime, and larger than any factor of the number of slots.
  std::int64_t slot(std::int64_t token) const {
    const std::int64_t all = std::int64_t{pages()} * block_size;
    return all % 7919 == 0 ? token : token * 7919 % all;
  }

  static constexpr NamePart name_parts[] = {{"cache", "kind", "cache"},
                                            {"rope_cache", "kind", "rope_cache"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"hq", "q_heads"},
                                            {"hkv", "kv_heads"},
                                            {"d", "head_size"},
                                            {"bs", "block_size"},
                                            {"norm", "norm"},
                                            {"latent", "latent"},
                                            {"g", "group"},
                                            {"powers", "e8m0"},
                                            {"token_major", "v_layout", "token_major"},
                                            {"dim_major", "v_layout", "dim_major"},
                                            {"halves", "pairs", "halves"},
                                            {"neighbours", "pairs", "neighbours"}};
  static constexpr std::string_view name_types[] = {"x_dtype", "kv_dtype", "q_dtype", "table_dtype"};
  static constexpr std::string_view name_mode = "quant_mode";
  static void imply(Words& words) { words.imply("config_rows", "rows"); }
  void complete() {
    rows = config_rows;
    columns = fused_columns();
  }
  std::string fault() const {
    if (q_heads > 1 << 16 || kv_heads > 1 << 16 || kv_heads < 1) return "heads are not 1 to 65536, or missing";
    if (head_size < 16 || head_size > 512 || head_size % 16 != 0) return "head_size is not a multiple of 16 to 512";
    if (block_size < 1 || block_size > 1 << 16) return "block_size is not 1 to 65536";
    if (latent < 0 || latent > head_size || (latent > 0 && !spec.fused)) return "latent is for fused heads of its size";
    return extent_fault(*this);
  }

  template <class Case, class Visit>  // a KvCacheWriteCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.words("kind", c.spec.fused, "cache", "rope_cache");
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("kv_dtype", c.spec.kv);
    visit("quant_mode", c.spec.quant);
    visit("q_dtype", c.spec.q_out);
    visit("table_dtype", c.spec.table);
    visit("pairs", c.spec.pairs);
    visit("norm", c.spec.norm);
    visit.words("v_layout", c.dim_major, "token_major", "dim_major");
    visit("q_heads", c.q_heads);
    visit("kv_heads", c.kv_heads);
    visit("head_size", c.head_size);
    visit("block_size", c.block_size);
    visit("latent", c.latent);
    visit("group", c.spec.group);
    visit("e8m0", c.spec.e8m0);
    visit.derived("columns", c.fused_columns());
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit("seed", c.seed);
  }
};

/// `rope_cache/gfx950/bf16/c6144/r4096/hq32/hkv8/d128/bs16/fp8.per_head/token_major/norm1/halves/bf16/f32`: kind, arch,
/// type, columns of qkv, tokens, heads and their size, tokens of a page, the caches; of fused ones norm, pairs, types
/// of q_out and of the tables.
inline std::string name_of(const KvCacheWriteCase& c) {
  const KvCacheWriteSpec& s = c.spec;
  std::string name = std::string(s.fused ? "rope_cache/" : "cache/") + std::string(name_of(c.arch)) + "/" +
                     std::string(name_of(s.x)) + "/" + extent_name(c) + part_name("hq", c.q_heads) +
                     part_name("hkv", c.kv_heads) + part_name("d", c.head_size) + part_name("bs", c.block_size) + "/" +
                     short_name(s.kv) + "." + std::string(name_of(s.quant)) +
                     (c.dim_major ? "/dim_major" : "/token_major");
  return s.fused ? name + part_name("norm", s.norm) + "/" + name_of(s.pairs) + "/" + short_name(s.q_out) + "/" +
                       std::string(name_of(s.table)) + (c.latent > 0 ? part_name("latent", c.latent) : "") +
                       (s.group > 0 ? part_name("g", s.group) + part_name("powers", s.e8m0) : "")
                 : name;
}

struct KvCacheWriteTensors {
  TwinBuffer qkv, q_out, out, v_cache, k_scale, v_scale, q_scale, weights, cos, sin, slots, positions;  // out: k_cache
};

struct KvCacheWriteOp {
  using Case = KvCacheWriteCase;
  using Problem = KvCacheWriteProblem;
  using Entry = KvCacheWriteEntry;
  using Tensors = KvCacheWriteTensors;

  static std::span<const Entry* const> entries() { return all_kv_cache_write_entries(); }
  static constexpr auto select = kv_cache_write_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/kv_cache_write/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.tokens = c.rows;
    p.q_heads = c.queries();
    p.kv_heads = c.kv_heads;
    p.head_size = c.head_size;
    p.block_size = c.block_size;
    p.num_pages = c.pages();
    const auto* qkv = static_cast<const std::byte*>(address(t.qkv));
    const std::int64_t head = std::int64_t{c.head_size} * size_of(c.spec.x);
    p.k = qkv + p.q_heads * head;
    if (c.latent == 0) p.v = qkv + (p.q_heads + p.kv_heads) * head;
    p.k_strides = {c.columns, c.head_size};
    if (c.latent == 0) p.v_strides = p.k_strides;
    p.k_cache = address(t.out);
    if (c.latent == 0) p.v_cache = address(t.v_cache);
    p.slots = address(t.slots);
    const PagedAttentionSpec cache{.kv = c.spec.kv, .head_size = c.head_size};
    p.values = c.dim_major ? ValueLayout::dim_major : ValueLayout::token_major;
    p.k_cache_strides = c.dim_major ? packed_key_strides(cache, c.kv_heads, c.block_size)
                                    : nhd_key_strides(cache, c.kv_heads, c.block_size);
    if (c.latent == 0) {
      p.v_cache_strides = c.dim_major ? packed_value_strides(cache, c.kv_heads, c.block_size, false)
                                      : nhd_value_strides(cache, c.kv_heads, c.block_size);
    }
    if (c.spec.quant != Scaling::none) {
      const bool per_token = c.spec.quant == Scaling::per_token;
      p.k_scale = address(t.k_scale);
      if (c.latent == 0) p.v_scale = static_cast<float*>(address(t.v_scale));
      p.scale_page_stride = per_token ? std::int64_t{c.kv_heads} * c.block_size : 0;
      p.scale_head_stride = per_token ? c.block_size : 1;
    }
    if (!c.spec.fused) return p;
    p.q = qkv;
    p.q_out = address(t.q_out);
    p.q_strides = p.k_strides;
    p.q_out_strides = {std::int64_t{c.q_heads} * c.head_size, c.head_size};
    p.cos = address(t.cos);
    p.sin = address(t.sin);
    p.positions = address(t.positions);
    p.rotary = c.rotary();
    p.rotary_first = c.latent > 0 ? c.head_size - c.latent : 0;
    p.table_rows = Case::table_rows;
    p.table_stride = c.rotary() / 2;
    if (is_fp8(c.spec.q_out)) p.q_scale = address(t.q_scale);
    if (c.spec.norm) p.q_norm = p.k_norm = address(t.weights);
    return p;
  }

  static Tensors fill(const Case& c, int threads) {
    const KvCacheWriteSpec& s = c.spec;
    Tensors t;
    t.qkv = filled(s.x, c.rows, c.columns, threads,
                   [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, 'x', r, column); });
    const std::int64_t cached = std::int64_t{c.pages()} * c.block_size * c.kv_heads;
    t.out = poisoned(s.kv, cached * c.head_size);
    if (c.latent == 0) t.v_cache = poisoned(s.kv, cached * c.head_size);
    const auto scales = [&] {
      if (s.quant == Scaling::per_token) return poisoned(c.scale_type(), cached * c.groups());
      const int count = s.quant == Scaling::none ? 0 : s.quant == Scaling::per_head ? c.kv_heads : 1;
      return filled(DType::f32, 1, count, 1, [](std::int64_t, std::int64_t h) { return 0.02f + 0.001f * (h % 8); });
    };
    t.k_scale = scales();
    if (c.latent == 0) t.v_scale = scales();
    const auto indices = [&](auto zero, const auto& index) {
      TwinBuffer buffer(c.rows * sizeof(zero));
      for (std::int32_t i = 0; i < c.rows; ++i) {
        const auto value = static_cast<decltype(zero)>(index(i));
        std::memcpy(buffer.host() + i * sizeof(value), &value, sizeof(value));
      }
      buffer.upload();
      return buffer;
    };
    t.slots = indices(std::int64_t{}, [&](std::int32_t i) { return c.slot(i); });
    if (!s.fused) return t;
    t.positions = indices(std::int32_t{}, [&](std::int32_t i) { return c.position(i); });
    t.q_out = poisoned(s.q_out, std::int64_t{c.rows} * c.q_heads * c.head_size);
    t.q_scale = s.group > 0 ? poisoned(c.scale_type(), std::int64_t{c.rows} * c.q_heads * c.groups())
                            : filled(DType::f32, 1, 1, 1, [](std::int64_t, std::int64_t) { return 0.02f; });
    t.weights = filled(s.x, 1, c.head_size, 1,
                       [&](std::int64_t r, std::int64_t d) { return 1 + drawn(c.seed, 'w', r, d) / 2; });
    const reference::RopeAngles angles = reference::rope_angles(c.rotary(), 500000);
    const auto table = [&](const auto& value) {
      return filled(s.table, Case::table_rows, c.rotary() / 2, threads, [&](std::int64_t r, std::int64_t column) {
        return static_cast<float>(value(s.rope(), angles, r, static_cast<int>(column)));
      });
    };
    t.cos = table(reference::rope_cos);
    t.sin = table(reference::rope_sin);
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) {
    return {&t.q_out, &t.out, &t.v_cache, &t.k_scale, &t.v_scale, &t.q_scale};
  }

  /// Bytes of a token: its heads are read, q and the cached heads written, and scales if they are found; its slot; in
  /// fused specs its position and rows of the tables. Operations: 3 for an element that is rotated, 4 for one that is
  /// normalised, and for a code 1, or 2 if its scale is found.
  static Work work_of(const Case& c) {
    const KvCacheWriteSpec& s = c.spec;
    const std::int64_t q = std::int64_t{c.queries()} * c.head_size, cached = std::int64_t{c.cached()} * c.head_size;
    const bool found = s.quant == Scaling::per_token;
    const std::int64_t scales = found ? (c.cached() + (s.group > 0 ? c.queries() : 0)) * c.groups() : 0;
    const std::int64_t written = q * size_of(s.q_out) + cached * size_of(s.kv) + scales * size_of(c.scale_type());
    const std::int64_t read = c.columns * size_of(s.x) + 8 + (s.fused ? 4 + c.rotary() * size_of(s.table) : 0);
    const std::int64_t heads = s.fused ? q + std::int64_t{c.kv_heads} * c.head_size : 0;
    const std::int64_t rotated = heads / c.head_size * c.rotary();
    const std::int64_t codes = is_fp8(s.kv) ? cached + (s.group > 0 ? q : 0) : 0;
    return {.bytes = c.rows * (read + written),
            .written = c.rows * written,
            .flops = c.rows * (3 * rotated + (s.norm ? 4 * heads : 0) + (found ? 2 : 1) * codes)};
  }

  /// Half a step of the type, plus the error of the f32 arithmetic.
  static void verify_row(const Problem& p, std::int32_t token, RowErrors& errors) {
    using reference::HeadOf;
    const std::int64_t slot = reference::slot_of(p, token);
    std::int32_t column = 0;
    const auto compare = [&](HeadOf what, int heads, DType type, const void* data, const auto& index,
                             const auto& scale) {
      for (std::int32_t h = 0; h < heads; ++h) {
        const std::vector<double> wanted = reference::written_head(p, what, token, h);
        double factor = 1;
        for (std::int32_t d = 0; d < p.head_size; ++d, ++column) {
          if (d % (p.spec.group > 0 ? p.spec.group : p.head_size) == 0) factor = scale(h, d, wanted);
          const double got = reference::element(type, data, index(h, d)) * factor;
          const double slack = half_step(type, wanted[d] / factor) * factor * 1.001 + 4e-6 * (1 + std::abs(wanted[d]));
          errors.out(std::abs(got - wanted[d]) <= slack, token, column, got, wanted[d]);
        }
      }
    };
    // Of a group, whose head's scales are the block-th.
    const auto grouped = [&](HeadOf what, const void* scales, std::int64_t block, std::int32_t h, std::int32_t d) {
      const int group = d / p.spec.group;
      const std::vector<double> unrotated = reference::unrotated_head(p, what, token, h);
      const double factor = reference::group_scale(p, scales, block * (p.head_size / p.spec.group) + group);
      const double low = reference::expected_group_scale(p, unrotated, group, 1 - 4e-6);
      const double high = reference::expected_group_scale(p, unrotated, group, 1 + 4e-6);
      errors.expect(factor >= low && factor <= high, "scale", token, h, factor, low);
      return factor;
    };
    const auto cached = [&](HeadOf what, const void* scales) {
      return [&, what, scales](std::int32_t h, std::int32_t d, const std::vector<double>& wanted) {
        if (p.spec.quant == Scaling::none) return 1.0;
        const std::int64_t at = reference::scale_index(p, slot, h);
        if (p.spec.group > 0) return grouped(what, scales, at, h, d);
        const double factor = static_cast<const float*>(scales)[at];
        if (p.spec.quant == Scaling::per_token) {
          const double right = reference::scale_of(reference::amax(wanted, 0, p.head_size), p.spec.kv);
          errors.expect(std::abs(factor - right) <= 1e-5 * right, "scale", token, h, factor, right);
        }
        return factor;
      };
    };
    compare(
        HeadOf::k, p.kv_heads, p.spec.kv, p.k_cache, [&](int h, int d) { return reference::key_index(p, slot, h, d); },
        cached(HeadOf::k, p.k_scale));
    compare(
        HeadOf::v, p.v != nullptr ? p.kv_heads : 0, p.spec.kv, p.v_cache,
        [&](int h, int d) { return reference::value_index(p, slot, h, d); }, cached(HeadOf::v, p.v_scale));
    compare(
        HeadOf::q, p.q_heads, p.spec.q_out, p.q_out,
        [&](int h, int d) { return token * p.q_out_strides.token + h * p.q_out_strides.head + d; },
        [&](std::int32_t h, std::int32_t d, const std::vector<double>&) {
          if (p.spec.group > 0) return grouped(HeadOf::q, p.q_scale, std::int64_t{token} * p.q_heads + h, h, d);
          return p.q_scale != nullptr ? double{*static_cast<const float*>(p.q_scale)} : 1.0;
        });
  }
};

}  // namespace tilewave::bench
