// SPDX-License-Identifier: MIT
#include "tools/tilewave/roofline/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/columns.hpp"

namespace tilewave::tool {

namespace {

double bytes_of_type(const std::string& type) {
  static const std::map<std::string, double> types{{"f32", 4}, {"bf16", 2}, {"f16", 2}, {"fp8", 1}, {"i8", 1}};
  const auto found = types.find(type);
  if (found == types.end()) refuse(fmt::format("'{}' is no type: f32, bf16, f16, fp8 or i8", printable(type)));
  return found->second;
}

/// The words of a shape, each of which has to be used.
class Shape {
 public:
  Shape(std::string_view op, std::string_view text) : op_(op) {
    if (trim(text).empty()) return;
    for (const std::string& item : split(text, ',')) {
      const std::size_t equals = item.find('=');
      if (equals == std::string::npos) refuse(fmt::format("--shape: '{}' is not key=value", printable(item)));
      if (!words_.emplace(item.substr(0, equals), item.substr(equals + 1)).second)
        refuse(fmt::format("--shape: {} comes twice", printable(item)));
    }
  }
  double count(const std::string& key, double otherwise = 0) {
    const std::string word = take(key);
    if (word.empty() && otherwise > 0) return otherwise;
    const auto value = integer(word);
    if (word.empty()) refuse(fmt::format("--shape: {} needs {}=", op_, key));
    if (!value || *value < 1 || *value > (std::int64_t{1} << 40))
      refuse(fmt::format("--shape: {}={} is no count", key, printable(word)));
    return static_cast<double>(*value);
  }
  double type(const std::string& key, const char* otherwise) {
    const std::string word = take(key);
    return bytes_of_type(word.empty() ? otherwise : word);
  }
  std::string word(const std::string& key, const char* otherwise) {
    const std::string word = take(key);
    return word.empty() ? otherwise : word;
  }
  void done() const {
    if (!words_.empty()) refuse(fmt::format("--shape: {} has no '{}'", op_, printable(words_.begin()->first)));
  }

 private:
  std::string take(const std::string& key) {
    const auto found = words_.find(key);
    if (found == words_.end()) return "";
    const std::string value = found->second;
    words_.erase(found);
    return value;
  }
  std::string op_;
  std::map<std::string, std::string> words_;
};

Work attention(Shape& s) {
  const double batch = s.count("batch"), context = s.count("context"), hq = s.count("q_heads"),
               hkv = s.count("kv_heads"), d = s.count("head_size", 128), mtp = s.count("mtp", 1),
               page = s.count("block_size", 64), kv = s.type("kv", "bf16");
  const std::string quant = s.word("quant", kv == 1 ? "per_tensor" : "none");
  if (quant != "none" && quant != "per_tensor" && quant != "per_token")
    refuse("--shape: quant is none, per_tensor or per_token");
  if (mtp > context) refuse("--shape: mtp is larger than context");
  const double scales = quant == "per_token" ? 2 * batch * context * hkv * 4 : quant == "per_tensor" ? 8 : 0;
  const double visible =
      mtp * context - mtp * (mtp - 1) / 2;  // causal: the last query sees all, the one before one less
  return {4 * d * hq * batch * visible,
          2 * batch * context * hkv * d * kv + scales + 2 * batch * mtp * hq * d * 2 + batch * mtp * hq * 4 +
              batch * std::ceil(context / page) * 4 + batch * 4,
          "K and V once with scales, Q and out (bf16), lse, block table, lengths"};
}

Work gemm(Shape& s) {
  const double m = s.count("m"), n = s.count("n"), k = s.count("k"), batch = s.count("batch", 1);
  const double a = s.type("a", "bf16"), b = s.type("b", "bf16"), out = s.type("out", "bf16");
  return {2 * m * n * k * batch, batch * (m * k * a + n * k * b + m * n * out), "A, B and out once"};
}

Work rows(Shape& s, double flops, const char* how) {
  const double r = s.count("rows"), c = s.count("columns"), x = s.type("x", "bf16"), out = s.type("out", "bf16");
  return {flops * r * c, r * c * (x + out), how};
}

std::string where(const Chip& chip, const Spec& spec) { return fmt::format("{}:{}", chip.file, spec.line); }

}  // namespace

const std::vector<std::string>& known_ops() {
  static const std::vector<std::string> ops{"paged_attention", "gemm", "norm", "softmax", "quant", "vec_add"};
  return ops;
}

Work work_of(std::string_view op, std::string_view text) {
  Shape shape(op, text);
  Work work;
  if (op == "paged_attention") {
    work = attention(shape);
  } else if (op == "gemm") {
    work = gemm(shape);
  } else if (op == "norm") {
    work = rows(shape, 4, "x and out once; weights are nothing beside them");
  } else if (op == "softmax") {
    work = rows(shape, 6, "x and out once");
  } else if (op == "quant") {
    work = rows(shape, 2, "x and out once; scales are nothing beside them");
  } else if (op == "vec_add") {
    const double n = shape.count("elements"), size = shape.type("x", "f32");
    work = {n, 3 * n * size, "two inputs and out once"};
  } else {
    refuse(fmt::format("no op '{}': one of {}", printable(op), join(known_ops(), ", ")));
  }
  shape.done();
  return work;
}

double Roof::floor_us(const Work& work) const {
  return 1e6 * std::max(work.flops / flops_per_s, work.bytes / bytes_per_s);
}

Roof roof_of(const Chip& chip, std::string_view peak) {
  Roof roof;
  roof.chip = chip.name;
  roof.peak_key = fmt::format("{}_flops", peak);
  roof.flops_per_s = chip.need(roof.peak_key, "TFLOP/s") * 1e12;
  roof.flops_source = where(chip, chip.find(roof.peak_key));
  roof.measured = chip.find("read_ceiling").value.has_value();
  const char* key = roof.measured ? "read_ceiling" : "hbm_bandwidth";
  roof.bytes_per_s = chip.need(key, "TB/s") * 1e12;
  roof.bytes_source = where(chip, chip.find(key));
  if (!(roof.flops_per_s > 0) || !(roof.bytes_per_s > 0))
    refuse(fmt::format("{} has a roof of 0 for {}", chip.name, roof.peak_key));
  return roof;
}

std::vector<Point> points_of(const Csv& csv, const std::vector<std::string>& by, std::size_t& untimed) {
  const std::size_t flops = csv.need("flops"), bytes = csv.need("bytes_ideal"), us = csv.need("us");
  const auto name = csv.find("name");
  std::vector<std::size_t> columns;
  for (const std::string& c : by.empty() ? class_columns() : by) {
    if (const auto at = by.empty() ? csv.find(c) : csv.need(c)) columns.push_back(*at);
  }
  std::vector<Point> points;
  untimed = 0;
  for (std::size_t r = 0; r < csv.rows.size(); ++r) {
    Point p;
    p.us = csv.need_number(r, us), p.work.flops = csv.need_number(r, flops), p.work.bytes = csv.need_number(r, bytes);
    if (!std::isfinite(p.us) || p.us <= 0) {
      ++untimed;
      continue;
    }
    if (!(p.work.flops > 0) || !(p.work.bytes > 0) || !std::isfinite(p.work.flops) || !std::isfinite(p.work.bytes)) {
      refuse(csv.where(r) + ": a timed row without flops and bytes_ideal has no place in a roofline");
    }
    p.name = name ? csv.rows[r][*name] : csv.where(r);
    for (const std::size_t c : columns)
      p.group += fmt::format("{}{}={}", p.group.empty() ? "" : " ", csv.columns[c], csv.rows[r][c]);
    points.push_back(p);
  }
  if (points.empty()) refuse(csv.source + " has no timed row");
  return points;
}

}  // namespace tilewave::tool
