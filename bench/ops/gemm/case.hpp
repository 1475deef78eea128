// SPDX-License-Identifier: MIT
// A config of bench_gemm: its extents, its groups, its name, and the bytes and operations that it needs at least.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "bench/harness/ceiling.hpp"
#include "bench/harness/random.hpp"
#include "bench/harness/rows/rows.hpp"
#include "bench/harness/shapes.hpp"
#include "bench/harness/work.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave::bench {

template <>
inline constexpr int enumerators_of<GemmLayout> = 4;
template <>
inline constexpr int enumerators_of<GemmWeights> = 3;
template <>
inline constexpr int enumerators_of<GemmGroups> = 3;
template <>
inline constexpr int enumerators_of<GemmSums> = 2;
template <>
inline constexpr int enumerators_of<ActivationKind> = 7;

/// A config, and the sizes that follow from it.
struct GemmCase {
  ArchId arch = ArchId::gfx950;
  GemmSpec spec{};
  std::int32_t m = 0, n = 0, k = 0;  // as launched; m: rows of all contiguous groups, or the room of a masked one
  std::int32_t batch = 1;
  std::int32_t groups = 0;      // 0 without groups
  std::int32_t group_rows = 0;  // of a group on average; a group has up to 30 % more or fewer
  bool bias = false;
  std::int32_t config_m = 0, config_n = 0, config_k = 0, config_batch = 0, config_groups = 0;
  std::int32_t config_group_rows = 0;  // config_*: the extents before launched() cut them down
  std::uint64_t seed = 123;

  bool grouped() const { return spec.groups != GemmGroups::one; }
  bool contiguous() const { return spec.groups == GemmGroups::contiguous; }
  bool preshuffled() const { return spec.in_strips(); }
  bool has(Scaling scale) const { return spec.scale == scale; }
  std::int32_t out_columns() const { return spec.gated ? n / 2 : n; }
  /// Returns how many scales the product finds for each row of out.
  std::int32_t out_scales() const {
    return spec.out_scale == Scaling::per_group ? ceil_div(out_columns(), scale_group) : 0;
  }
  /// Returns the products of the launch, each with its own B, or the matrices of A and out.
  std::int32_t layers() const { return grouped() ? groups : batch; }
  std::int32_t a_layers() const { return contiguous() ? 1 : layers(); }
  std::int32_t k_blocks() const { return ceil_div(k, gemm_scale_block); }
  /// Returns the bytes of a layer of weights.
  std::int64_t weight_bytes() const {
    return preshuffled() ? std::int64_t{n} * k * size_of(spec.b) / packing_of(spec.b)
                         : rows_of_b() * b_stride() * size_of(spec.b);
  }
  /// Return the rows of A and of B of a layer as they lie in memory, and the elements from one to the next.
  std::int64_t rows_of_a() const { return transposed_a(spec.layout) ? k : m; }
  std::int64_t rows_of_b() const { return transposed_b(spec.layout) ? k : n; }
  std::int64_t a_stride() const { return operand_stride(spec.a, transposed_a(spec.layout) ? m : k); }
  std::int64_t b_stride() const { return operand_stride(spec.b, transposed_b(spec.layout) ? n : k); }
  bool row_scales_of_a() const { return has(Scaling::per_row) || (spec.four_bit() && is_fp8(spec.a)); }
  /// Returns the elements from a row of so many values to the next. Rows start at multiples of 16 bytes.
  static std::int64_t operand_stride(DType type, std::int32_t columns) {
    const int values = packing_of(type);
    return align_up(columns, elements_of_unit(type) * values) / values;
  }
  /// Returns the bytes of the shuffled MX scales of a layer with so many rows.
  std::int64_t mx_scales(std::int64_t rows) const {
    return align_up<std::int64_t>(rows, 32) * align_up(k / mx_group, 8);
  }

  static constexpr NamePart name_parts[] = {{"gemm", "kind", "gemm"},
                                            {"m", "config_m"},
                                            {"n", "config_n"},
                                            {"k", "config_k"},
                                            {"batch", "config_batch"},
                                            {"bias", "bias", "1"},
                                            {"contiguous", "config_groups", {}, "config_group_rows", "group_kind"},
                                            {"masked", "config_groups", {}, "config_group_rows", "group_kind"}};
  static constexpr std::string_view name_types[] = {"a_dtype", "out_dtype"};
  static constexpr std::string_view name_mode = "what follows a_dtype";  // in a name, parted by points
  static void imply(Words& words);
  void complete() {
    m = config_m, n = config_n, k = config_k, batch = config_batch;
    groups = config_groups, group_rows = config_group_rows;
  }
  std::string fault() const;

  template <class Case, class Visit>  // Case is GemmCase, const or not.
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "gemm");
    visit("arch", c.arch);
    visit("a_dtype", c.spec.a);
    visit("b_dtype", c.spec.b);
    visit("out_dtype", c.spec.out);
    visit("scale", c.spec.scale);
    visit("group", c.spec.scale_k);
    visit("layout", c.spec.layout);
    visit("weights", c.spec.weights);
    visit("activation", c.spec.activation);
    visit("gated", c.spec.gated);
    visit("out_scale", c.spec.out_scale);
    visit("sums", c.spec.sums);
    visit("zero_points", c.spec.zero_points);
    visit("bias", c.bias);
    visit("group_kind", c.spec.groups);
    visit.chosen("group_rows", c.group_rows);
    visit.chosen("batch", c.batch);
    visit.chosen("m", c.m);
    visit.chosen("n", c.n);
    visit.chosen("k", c.k);
    visit.chosen("groups", c.groups);
    visit("config_m", c.config_m);
    visit("config_n", c.config_n);
    visit("config_k", c.config_k);
    visit("config_batch", c.config_batch);
    visit("config_groups", c.config_groups);
    visit("config_group_rows", c.config_group_rows);
    visit("seed", c.seed);
  }
};

inline void GemmCase::imply(Words& words) {
  for (const char* extent : {"m", "n", "k", "batch", "groups", "group_rows"})
    words.imply(std::string("config_") + extent, extent);
  words.values.emplace("config_batch", "1");
  words.imply("b_dtype", "a_dtype");
  const auto a = words.values.find("a_dtype");
  if (a != words.values.end() && !a->second.starts_with("fp") && a->second != "i8") words.imply("out_dtype", "a_dtype");
  const auto mode = words.values.extract(std::string(name_mode));
  if (mode.empty()) return;
  const std::string& text = mode.mapped();
  for (std::size_t at = 0, end; at <= text.size(); at = end + 1) {
    end = std::min(text.find('.', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (word == name_of(DType::i4) || word == name_of(DType::fp4_e2m1)) {
      words.values["b_dtype"] = word;
      continue;
    }
    const bool scale_k = word.starts_with("group") && word.size() > 5;  // such as group128
    if (scale_k) words.values.emplace("scale", "group");
    const auto is_scale_word = [](const std::string& text) {
      for (int i = 0; i < enumerators_of<Scaling>; ++i)
        if (text == scale_word(static_cast<Scaling>(i))) return true;
      return false;
    };
    const auto names = [&](auto last) {
      for (int i = 0; i < enumerators_of<decltype(last)>; ++i)
        if (word == name_of(static_cast<decltype(last)>(i))) return true;
      return false;
    };
    const char* column = names(GemmLayout{})    ? "layout"
                         : names(GemmWeights{}) ? "weights"
                         : is_scale_word(word)  ? "scale"
                         : word == "gated"      ? "gated"
                         : word == "zeros"      ? "zero_points"
                         : scale_k              ? "group"
                         : names(Scaling{})     ? "out_scale"
                         : names(GemmSums{})    ? "sums"
                                                : "activation";
    if (!words.values.emplace(column, word == "gated" || word == "zeros" ? "1"
                                      : scale_k                          ? word.substr(5)
                                                                         : word)
             .second)
      words.refuse("says " + std::string(column) + " twice");
  }
}

/// Returns why there is no such product, or nothing. The library says whether an entry serves it.
inline std::string GemmCase::fault() const {
  if (m < 1 || n < 1 || k < 1) return "config_m, config_n or config_k is below 1 or missing";
  if (batch < 1) return "config_batch is below 1";
  if (spec.out == DType::i8 && spec.out_scale == Scaling::none) return "an out of i8 has no scale";
  if (spec.sums != GemmSums::promoted && !spec.has_sums_to_choose() && !spec.rounds_weights())
    return "fast sums are of fp8 operands with scaling none, per_tensor or per_row, or by weights of i4";
  if (spec.b != spec.a && !spec.four_bit() && !spec.mx()) return "b_dtype differs from a_dtype";
  if (spec.mx() && k % mx_group != 0) return "config_k with mx scales is no multiple of 32";
  if (spec.four_bit() && (spec.scale_k < 1 || k % spec.scale_k != 0)) return "config_k is no multiple of group";
  if (spec.gated && n % 2 != 0) return "config_n of gates and ups is odd";
  if (!grouped() && (groups != 0 || group_rows != 0)) return "groups without a group_kind";
  if (grouped() && (groups < 1 || group_rows < 1)) return "config_groups or config_group_rows is below 1 or missing";
  if (grouped() && (bias || batch > 1)) return "groups have neither a batch nor a bias";
  if (grouped() && std::int64_t{contiguous() ? groups : 1} * group_rows > m)
    return "groups have more rows than config_m";
  const double largest = static_cast<double>(std::max(m, n)) * std::max(n, k) * layers();
  return largest > double(std::int64_t{1} << 38) ? "more than 2^38 elements" : "";
}

/// Returns the table of group_offsets or group_rows. Contiguous groups fill all rows; masked ones leave room.
inline std::vector<std::int32_t> group_table(const GemmCase& c) {
  std::vector<std::int32_t> table;
  const auto deviation = [&](std::int32_t group, double spread) {  // rows, within `spread` of the average
    return static_cast<std::int32_t>(c.group_rows * spread * drawn(c.seed, 'g', group, 0));
  };
  if (c.contiguous()) {
    for (std::int32_t g = 0; g < c.groups; ++g) table.push_back(g == 0 ? 0 : g * c.group_rows + deviation(g, 0.15));
    table.push_back(c.m);
  } else if (c.grouped()) {
    for (std::int32_t g = 0; g < c.groups; ++g) table.push_back(std::min(c.m, c.group_rows + deviation(g, 0.3)));
  }
  return table;
}

/// Returns the config that is launched. The emulated device takes minutes for what a GPU does at once, so it runs a few
/// tiles, with the same remainders at their ends.
inline GemmCase launched(GemmCase c) {
  c.config_m = c.m, c.config_n = c.n, c.config_k = c.k;
  c.config_batch = c.batch, c.config_groups = c.groups, c.config_group_rows = c.group_rows;
  if (!cuts_configs()) return c;
  const auto cut = [](std::int32_t& extent, std::int32_t most) {
    if (extent >= most + 128) extent = most + extent % 128;
  };
  cut(c.n, 512);
  cut(c.k, 768);
  c.batch = std::min(c.batch, 3);
  if (!c.grouped()) {
    cut(c.m, 272);
    return c;
  }
  c.groups = std::min(c.groups, 3);
  c.group_rows = std::min(c.group_rows, 40);
  c.m = c.contiguous() ? c.groups * c.group_rows : std::min(c.m, 64);
  return c;
}

/// Returns a name such as `gemm/sm90/fp8.row/bf16/m16/n4096/k4096`: types of operands with their scales, the type of
/// out, and extents. Other types are `bf16.i4.group128.preshuffled` or `fp8.fp4_e2m1.mx`. `m144of4096` is an extent
/// that was cut down. `/batch8`, `/masked32x192` (groups x rows) and `/bias` may follow.
inline std::string name_of(const GemmCase& c) {
  const auto extent = [](const char* what, std::int32_t launched, std::int32_t config) {
    return what + std::to_string(launched) + (launched != config ? "of" + std::to_string(config) : "");
  };
  std::string name = "gemm/" + std::string(name_of(c.arch)) + "/" + short_name(c.spec.a);
  if (c.spec.b != c.spec.a) name += std::string(".") + std::string(name_of(c.spec.b));
  if (c.spec.scale != Scaling::none) name += "." + std::string(scale_word(c.spec.scale));
  if (c.spec.scale_k > 0) name += std::to_string(c.spec.scale_k);
  if (c.spec.layout != GemmLayout::nt) name += std::string(".") + name_of(c.spec.layout);
  if (c.preshuffled()) name += std::string(".") + name_of(c.spec.weights);
  if (c.spec.activation != ActivationKind::none) name += std::string(".") + name_of(c.spec.activation);
  if (c.spec.gated) name += ".gated";
  if (c.spec.out_scale != Scaling::none) name += std::string(".") + name_of(c.spec.out_scale);
  if (c.spec.sums != GemmSums::promoted) name += std::string(".") + name_of(c.spec.sums);
  if (c.spec.zero_points) name += ".zeros";
  name += "/" + short_name(c.spec.out) + "/" + extent("m", c.m, c.config_m) + "/" + extent("n", c.n, c.config_n) + "/" +
          extent("k", c.k, c.config_k);
  if (c.config_batch > 1) name += "/" + extent("batch", c.batch, c.config_batch);
  if (c.grouped())
    name += "/" + extent(name_of(c.spec.groups), c.groups, c.config_groups) +
            extent("x", c.group_rows, c.config_group_rows);
  return name + (c.bias ? "/bias" : "");
}

/// Returns the least work: A's rows that count, B of the layers that have rows, their scales, the table, bias and out,
/// once each, and two operations for each product.
inline Work work_of(const GemmCase& c) {
  std::int64_t rows = std::int64_t{c.layers()} * c.m, layers = c.layers();
  if (c.grouped()) {
    const std::vector<std::int32_t> table = group_table(c);
    rows = layers = 0;
    for (std::int32_t g = 0; g < c.groups; ++g) {
      const std::int32_t own_rows = c.contiguous() ? table[g + 1] - table[g] : table[g];
      rows += own_rows;
      layers += own_rows > 0;
    }
  }
  const std::int64_t columns = layers * c.n,
                     written = rows * (c.out_columns() * size_of(c.spec.out) + 4 * c.out_scales());
  std::int64_t scales = 0;
  if (c.has(Scaling::per_tensor)) scales = 2;
  if (c.has(Scaling::per_row)) scales = rows + columns;
  if (c.has(Scaling::per_block)) scales = (rows + layers * ceil_div(c.n, gemm_scale_block)) * c.k_blocks();
  if (c.has(Scaling::per_group) && c.row_scales_of_a()) scales = rows;
  if (c.spec.out_scale == Scaling::per_tensor) ++scales;
  const std::int64_t group_bytes =  // of scales of groups and zero points
      c.has(Scaling::per_group)
          ? columns * (c.k / c.spec.scale_k) * (size_of(c.spec.group_scale()) + c.spec.zero_points)
          : 0;
  const std::int64_t mx_scales = c.spec.mx() ? (rows + columns) * (c.k / mx_group) : 0;
  const std::int64_t table = c.grouped() ? c.groups + c.contiguous() : 0;
  const auto value_bytes = [&](DType type, std::int64_t count) {
    return count * c.k * size_of(type) / packing_of(type);
  };
  return {.bytes = value_bytes(c.spec.a, rows) + value_bytes(c.spec.b, columns) + 4 * (scales + table) + mx_scales +
                   group_bytes + (c.bias ? columns * size_of(c.spec.extra()) : 0) + written,
          .written = written,
          .flops = 2 * rows * c.n * c.k,
          .flops_per_second = matrix_flops(device_of(c.arch).facts, c.spec.a)};
}

}  // namespace tilewave::bench
