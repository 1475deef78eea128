// SPDX-License-Identifier: MIT
// Configs of layers of experts: which model, which routing, which stage.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "tilewave/ops/moe/registry.hpp"

namespace tilewave::bench {

/// How tokens spread over experts: equally, at random, with odds 1 / (1 + number of the expert), or all to the same.
enum class MoeLoad : int { balanced, random, zipf, one };
constexpr const char* name_of(MoeLoad l) {
  constexpr const char* names[] = {"balanced", "random", "zipf", "one"};
  return names[static_cast<int>(l)];
}
/// What a row times: the whole layer, or one of its launches.
enum class MoeStage : int { layer, gating, sort, quant_x, first, second, sum };
constexpr const char* name_of(MoeStage s) {
  constexpr const char* names[] = {"layer", "gating", "sort", "quant_x", "first", "second", "sum"};
  return names[static_cast<int>(s)];
}
template <>
inline constexpr int enumerators_of<MoeLoad> = 4;
template <>
inline constexpr int enumerators_of<MoeStage> = 7;
template <>
inline constexpr int enumerators_of<MoeWeight> = 2;

/// A row is a token, its columns are hidden.
struct MoeCase {
  ArchId arch = ArchId::gfx950;
  MoeSpec spec{};
  std::int32_t columns = 0, rows = 0;  // rows: launched
  std::int32_t config_rows = 0;        // of the config, see launched_rows
  std::int32_t intermediate = 0, experts = 0, topk = 0;
  MoeLoad load = MoeLoad::random;
  MoeStage stage = MoeStage::layer;
  std::uint64_t seed = 123;

  DType out() const { return spec.out; }
  /// What emulating and verifying a token costs.
  std::int64_t row_elements() const { return std::int64_t{columns} * intermediate * topk; }
  std::int32_t launched_rows() const { return cuts_configs() ? std::min(config_rows, 64) : config_rows; }

  /// Returns the experts of all tokens, [rows][topk]. Those of a token differ.
  std::vector<std::int32_t> choices() const {
    std::vector<std::int32_t> all(static_cast<std::size_t>(rows) * topk);
    std::vector<double> sums(experts);  // of odds
    for (std::int32_t e = 0; e < experts; ++e) sums[e] = (e > 0 ? sums[e - 1] : 0.0) + 1.0 / (1 + e);
    for (std::int32_t t = 0; t < rows; ++t) {
      std::int32_t* const ids = all.data() + std::int64_t{t} * topk;
      for (std::int32_t slot = 0; slot < topk; ++slot) {
        std::uint64_t turn = 0;
        do {  // again where the token has the expert
          const std::uint64_t bits =
              random_bits({seed, 'e', std::uint64_t(t), std::uint64_t(slot), std::uint64_t(turn++)});
          if (load == MoeLoad::balanced) {
            ids[slot] = static_cast<std::int32_t>((std::int64_t{t} * topk + slot) % experts);
          } else if (load == MoeLoad::one) {
            ids[slot] = slot;
          } else if (load == MoeLoad::random) {
            ids[slot] = static_cast<std::int32_t>(random_below(bits, experts));
          } else {
            const double at = sums.back() * (static_cast<double>(bits >> 11) * 0x1p-53);
            const auto found = std::upper_bound(sums.begin(), sums.end(), at) - sums.begin();
            ids[slot] = std::min(static_cast<std::int32_t>(found), experts - 1);
          }
        } while (std::find(ids, ids + slot, ids[slot]) != ids + slot);
      }
    }
    return all;
  }
  /// Returns how many experts have a token.
  std::int32_t experts_hit() const {
    if (rows < 1 || topk < 1 || experts < topk) return 0;
    std::vector<bool> hit(experts);
    for (const std::int32_t e : choices()) hit[e] = true;
    return static_cast<std::int32_t>(std::count(hit.begin(), hit.end(), true));
  }

  static constexpr NamePart name_parts[] = {{"moe", "kind", "moe"},
                                            {"c", "columns"},
                                            {"r", "config_rows"},
                                            {"i", "intermediate"},
                                            {"e", "experts"},
                                            {"k", "topk"},
                                            {"input", "weight", "input"},
                                            {"balanced", "load", "balanced"},
                                            {"random", "load", "random"},
                                            {"zipf", "load", "zipf"},
                                            {"one", "load", "one"},
                                            {"layer", "stage", "layer"},
                                            {"gating", "stage", "gating"},
                                            {"sort", "stage", "sort"},
                                            {"quant_x", "stage", "quant_x"},
                                            {"first", "stage", "first"},
                                            {"second", "stage", "second"},
                                            {"sum", "stage", "sum"},
                                            {"rows", "", "rows"},  // policies, which are no part of a config
                                            {"slots", "", "slots"},
                                            {"rows.copied", "", "rows.copied"},
                                            {"rows.together", "", "rows.together"},
                                            {"rows.beside_x", "", "rows.beside_x"},
                                            {"rows.f32_h", "", "rows.f32_h"},
                                            {"rows.beside_x.f32_h", "", "rows.beside_x.f32_h"}};
  static constexpr std::string_view name_types[] = {"x_dtype", "weight_dtype"};
  static constexpr std::string_view name_mode = "what follows weight_dtype";  // in a name, parted by points
  static void imply(Words& words) {
    words.imply("config_rows", "rows");
    const auto mode = words.values.extract(std::string(name_mode));
    if (mode.empty()) return;
    const std::string& text = mode.mapped();
    for (std::size_t at = 0, end; at <= text.size(); at = end + 1) {
      end = std::min(text.find('.', at), text.size());
      const std::string word = text.substr(at, end - at);
      const bool flag = word == "zeros" || word == "preshuffled";
      const bool scale_k = word.starts_with("group") && word.size() > 5;  // such as group128
      if (scale_k) words.values.emplace("group", word.substr(5));
      const char* column = word == "zeros" ? "zero_points" : flag ? "preshuffled" : "scale";
      if (!words.values.emplace(column, flag ? "1" : scale_k ? "group" : word).second)
        words.refuse("says " + std::string(column) + " twice");
    }
  }
  /// fp4 is MXFP4 as gpt-oss has it, on sm90 in fragments.
  void complete() {
    rows = config_rows;
    spec.out = spec.x;
    if (spec.weights != DType::fp4_e2m1) return;
    spec.scale_k = 32, spec.activation = ActivationKind::swigluoai;
    spec.fragments = facts_of(arch).matrix == Matrix::mma;
  }
  std::string fault() const {
    if (const Status s = moe_check_spec(spec, facts_of(arch)); !s.ok()) return s.reason;
    if (intermediate < 1 || experts < 1 || topk < 1) return "intermediate, experts or topk is below 1 or missing";
    if (topk > experts) return "more choices than experts";
    if (spec.four_bit() && (columns % spec.scale_k != 0 || intermediate % spec.scale_k != 0))
      return "columns or intermediate is no multiple of group";
    if (stage == MoeStage::quant_x && !spec.quantises_x()) return "this layer quantises no x";
    if (std::int64_t{experts} * intermediate * columns > std::int64_t{1} << 36) return "more than 2^36 weights";
    return extent_fault(*this);
  }

  template <class Case, class Visit>  // a MoeCase, const or not
  static void each_column(Case& c, Visit& visit) {
    visit.derived("kind", "moe");
    visit("arch", c.arch);
    visit("x_dtype", c.spec.x);
    visit("weight_dtype", c.spec.weights);
    visit("scale", c.spec.scale);
    visit("group", c.spec.scale_k);
    visit("zero_points", c.spec.zero_points);
    visit("preshuffled", c.spec.preshuffled);
    visit("intermediate", c.intermediate);
    visit("experts", c.experts);
    visit("topk", c.topk);
    visit("weight", c.spec.weight);
    visit("load", c.load);
    visit("stage", c.stage);
    visit("columns", c.columns);
    visit.chosen("rows", c.rows);
    visit("config_rows", c.config_rows);
    visit.chosen("experts_hit", c.experts_hit());
    visit("seed", c.seed);
  }
};

/// `moe/sm90/bf16/fp8.block/c7168/r128/i2048/e256/k8/random/layer`: arch, types of x and weights, hidden, tokens,
/// intermediate, experts, choices, load, stage. Int4 is `i4.group32`, with zero points `i4.group128.zeros`, and weights in
/// strips are `bf16.preshuffled` and `fp8.block.preshuffled`. `/input` stands behind the choices whose weights apply to
/// the input.
inline std::string name_of(const MoeCase& c) {
  const MoeSpec& s = c.spec;
  std::string weights = short_name(s.weights);
  if (s.scale != Scaling::none) weights += "." + std::string(scale_word(s.scale));
  if (s.weights == DType::i4) weights += std::to_string(s.scale_k) + (s.zero_points ? ".zeros" : "");
  if (s.preshuffled) weights += ".preshuffled";
  return "moe/" + std::string(name_of(c.arch)) + "/" + short_name(s.x) + "/" + weights + "/" + extent_name(c) + "/i" +
         std::to_string(c.intermediate) + "/e" + std::to_string(c.experts) + "/k" + std::to_string(c.topk) +
         (c.spec.weight == MoeWeight::input ? "/input" : "") + "/" + name_of(c.load) + "/" + name_of(c.stage);
}

/// The column of a policy; without one it is `none`.
template <class Visit>
void each_column(const MoePolicy* policy, Visit& visit) {
  visit("results", policy != nullptr ? name_of(*policy) : "none");
}

}  // namespace tilewave::bench
