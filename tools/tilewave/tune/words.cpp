// SPDX-License-Identifier: MIT
#include "tools/tilewave/tune/words.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

std::string tried_word(const Csv& csv, std::size_t row, const char* column) {
  const std::string& text = csv.rows[row][csv.need(column)];
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!plain || (text[0] >= '0' && text[0] <= '9')) refuse(csv.where(row) + ": " + column + " is no word");
  return text;
}

std::int64_t tried_count(const Csv& csv, std::size_t row, const char* column) {
  const auto value = integer(csv.rows[row][csv.need(column)]);
  if (!value || *value < 0 || *value > 1 << 30) refuse(csv.where(row) + ": " + column + " is no count");
  return *value;
}

namespace {

/// A file from before there was a choice has no column of it: sm90's sums of fp8 stayed in the matrix unit then.
std::string sums_word(const Csv& csv, std::size_t row) {
  if (csv.find("sums")) return tried_word(csv, row, "sums");
  const std::string scale = tried_word(csv, row, "scale");
  const bool unscaled = scale == "none" || scale == "tensor" || scale == "row";
  const bool fp8 = tried_word(csv, row, "a_dtype").starts_with("fp8");
  return fp8 && unscaled && tried_word(csv, row, "arch") == "sm90" ? "fast" : "promoted";
}

/// A file from before there was pingpong has no column of it.
bool is_pingpong(const Csv& csv, std::size_t row) {
  return csv.find("pingpong") && tried_count(csv, row, "pingpong") != 0;
}

/// A file from before values could leave late has no column of it.
std::string late_text(const Csv& csv, std::size_t row) {
  return csv.find("late") && tried_count(csv, row, "late") != 0 ? ", .late = true" : "";
}

/// A file from before clusters shared A has no column of them.
std::string cluster_columns_text(const Csv& csv, std::size_t row) {
  const bool shared = csv.find("cluster_columns") && tried_count(csv, row, "cluster_columns") > 1;
  return shared ? fmt::format(", .cluster_columns = {}", tried_count(csv, row, "cluster_columns")) : "";
}

/// A file from before there were zero points has no column of them.
bool has_zero_points(const Csv& csv, std::size_t row) {
  return csv.find("zero_points") && tried_count(csv, row, "zero_points") != 0;
}

}  // namespace

std::string gemm_spec_text(const Csv& csv, std::size_t row) {
  const auto name = [&](const char* column) { return tried_word(csv, row, column); };
  return fmt::format(
      "{{.a = DType::{}, .b = DType::{}, .out = DType::{}, .scale = Scaling::{}, .layout = GemmLayout::{}, "
      ".weights = GemmWeights::{}, .groups = GemmGroups::{}, .activation = ActivationKind::{}, "
      ".gated = {}, .out_scale = Scaling::{}, .scale_k = {}, .sums = GemmSums::{}{}}}",
      name("a_dtype"), name("b_dtype"), name("out_dtype"), name("scale"), name("layout"), name("weights"),
      name("group_kind"), name("activation"), tried_count(csv, row, "gated") != 0, name("out_scale"),
      tried_count(csv, row, "group"), sums_word(csv, row), has_zero_points(csv, row) ? ", .zero_points = true" : "");
}

std::string gemm_policy_text(const Csv& csv, std::size_t row) {
  const auto number = [&](const char* column) { return tried_count(csv, row, column); };
  const std::string path = tried_word(csv, row, "path");
  return fmt::format(
      "{{.rows = {}, .columns = {}, .depth_bytes = {}, .stages = {}, .waves_rows = {}, .waves_columns = {}, "
      ".path = GemmPath::{}, .swapped = {}, .cluster = {}{}, .splits = {}, .waves_per_simd = {}, .waves_k = {}, "
      ".stream = {}, .pingpong = {}{}}}",
      number("tile_rows"), number("tile_columns"), number("depth"), number("stages"), number("waves_rows"),
      number("waves_columns"), path == "wreg" ? "weights_in_registers" : path, number("swapped") != 0,
      number("cluster"), cluster_columns_text(csv, row), number("most_splits"), number("waves_per_simd"),
      number("waves_k"), number("stream") != 0, is_pingpong(csv, row), late_text(csv, row));
}

std::string paged_attention_spec_text(const Csv& csv, std::size_t row) {
  const auto name = [&](const char* column) { return tried_word(csv, row, column); };
  return fmt::format(
      "{{.q = DType::{0}, .kv = DType::{1}, .out = DType::{0}, .quant = Scaling::{2}, .head_size = {3}, .values = "
      "ValueLayout::{4}, .any_block_size = {5}, .native = {6}}}",
      name("q_dtype"), name("kv_dtype"), name("quant_mode"), tried_count(csv, row, "head_size"),
      name("k_layout") == "units" ? "dim_major" : "token_major", tried_count(csv, row, "any_block_size") != 0,
      tried_count(csv, row, "native") != 0);
}

std::string paged_attention_policy_text(const Csv& csv, std::size_t row) {
  const auto number = [&](const char* column) { return tried_count(csv, row, column); };
  return fmt::format(
      "{{.row_tiles = {}, .waves = {{{}, {}}}, .prefetch = {{{}, {}, {}, {}}}, .q_shared = {}, .schedule = "
      "PagedAttentionSchedule::{}, .waves_per_simd = {}}}",
      number("row_tiles"), number("wave_rows"), number("wave_tokens"), number("slices"), number("stages"),
      number("stage_tokens"), number("fetch_waves"), number("q_shared") != 0,
      number("balanced") != 0 ? "balanced" : "even", number("waves_per_simd"));
}

}  // namespace tilewave::tool
