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
  static const std::map<std::string, double> types{{"f32", 4},  {"bf16", 2}, {"f16", 2}, {"fp8", 1}, {"i8", 1},
                                                   {"fp4", .5}, {"i4", .5},  {"i32", 4}, {"i64", 8}};
  const auto found = types.find(type);
  if (found == types.end())
    refuse(fmt::format("'{}' is no type: f32, bf16, f16, fp8, i8, fp4, i4, i32 or i64", printable(type)));
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
  /// 1 or 0.
  bool flag(const std::string& key, bool otherwise) {
    const std::string word = take(key);
    if (!word.empty() && word != "0" && word != "1")
      refuse(fmt::format("--shape: {}={} is neither 0 nor 1", key, printable(word)));
    return word.empty() ? otherwise : word == "1";
  }
  bool has(const std::string& key) const { return words_.contains(key); }
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

/// Each KV head has the same number of query heads.
void check_heads(double q_heads, double kv_heads) {
  if (std::fmod(q_heads, kv_heads) != 0) refuse("--shape: q_heads is no multiple of kv_heads");
}

Work attention(Shape& s) {
  const double batch = s.count("batch"), context = s.count("context"), hq = s.count("q_heads"),
               hkv = s.count("kv_heads"), d = s.count("head_size", 128), mtp = s.count("mtp", 1),
               page = s.count("block_size", 64), kv = s.type("kv", "bf16");
  const std::string quant = s.word("quant", kv == 1 ? "per_tensor" : "none");
  if (quant != "none" && quant != "per_tensor" && quant != "per_token")
    refuse("--shape: quant is none, per_tensor or per_token");
  check_heads(hq, hkv);
  if (mtp > context) refuse("--shape: mtp is larger than context");
  const double scales = quant == "per_token" ? 2 * batch * context * hkv * 4 : quant == "per_tensor" ? 8 : 0;
  const double visible =
      mtp * context - mtp * (mtp - 1) / 2;  // causal: the last query sees all, the one before one less
  return {4 * d * hq * batch * visible,
          2 * batch * context * hkv * d * kv + scales + 2 * batch * mtp * hq * d * 2 + batch * mtp * hq * 4 +
              batch * std::ceil(context / page) * 4 + batch * 4,
          "K and V once with scales, Q and out (bf16), lse, block table, lengths"};
}

Work flash_attention(Shape& s) {
  const double batch = s.count("batch"), queries = s.count("q_length"), hq = s.count("q_heads"),
               hkv = s.count("kv_heads"), keys = s.count("kv_length", queries), d = s.count("head_size", 128),
               dv = s.count("value_size", d), q = s.type("q", "bf16"), out = s.type("out", "bf16");
  const double kv = s.has("kv") ? s.type("kv", "") : q;
  check_heads(hq, hkv);
  if (queries > keys) refuse("--shape: q_length is larger than kv_length");
  const double hidden = s.flag("causal", true) ? queries * (queries - 1) / 2 : 0;  // the last query sees all keys
  const double scales = 4 * ((kv == 1 ? 2 : 0) + (q == 1 ? 1 : 0));
  return {2 * (d + dv) * batch * hq * (queries * keys - hidden),
          batch * (queries * hq * (d * q + dv * out) + keys * hkv * (d + dv) * kv) + scales,
          "Q, K, V and out once, scales of tensors"};
}

Work mla_decode(Shape& s) {
  const double batch = s.count("batch"), context = s.count("context"), heads = s.count("q_heads"),
               d = s.count("head_size", 576), mtp = s.count("mtp", 1), page = s.count("block_size", 64),
               q = s.type("q", "bf16"), value = 512;
  const double kv = s.has("kv") ? s.type("kv", "") : q;
  if (mtp > context) refuse("--shape: mtp is larger than context");
  const double rows = batch * mtp * heads, visible = mtp * context - mtp * (mtp - 1) / 2;
  const double scales = 4 * ((q == 1 ? 1 : 0) + (kv == 1 ? 1 : 0));
  return {2 * (d + value) * heads * batch * visible,
          rows * (d * q + value * 2) + batch * (context * d * kv + 4 * (1 + std::ceil(context / page))) + scales,
          "plain rows of the cache once, q, out, scales, block table, lengths"};
}

Work latent_cache_write(Shape& s) {
  const double r = s.count("rows"), d = s.count("head_size", 576), kv = s.type("kv", "bf16"),
               table = s.type("table", "f32"), heads = s.has("q_heads") ? s.count("q_heads") : 0, rotated = 64;
  return {r * ((1 + heads) * 3 * rotated + (kv == 1 ? 2 * d : 0)),
          r * (d * (2 + kv) + heads * rotated * 4 + 8 + rotated * table),
          "a plain row in and out, the turned part of q twice, slot and a row of both tables"};
}

Work moe(Shape& s) {
  const double r = s.count("rows"), c = s.count("columns"), intermediate = s.count("intermediate"),
               experts = s.count("experts"), choices = r * s.count("topk"), x = s.type("x", "bf16");
  const std::string type = s.word("weights", "bf16");
  const double weight = bytes_of_type(type) + (bytes_of_type(type) < 1 ? 1 / 32. : 0);
  if (choices > r * experts) refuse("--shape: topk is larger than experts");
  return {6 * c * intermediate * choices,
          r * (experts * 2 + 2 * c * x) + 3 * std::min(experts, choices) * c * intermediate * weight,
          "x, out, logits and once the weights of experts that have a token, where tokens choose one after the other"};
}

Work gemm(Shape& s) {
  const double m = s.count("m"), n = s.count("n"), k = s.count("k"), batch = s.count("batch", 1);
  const double a = s.type("a", "bf16"), b = s.type("b", "bf16"), out = s.type("out", "bf16");
  const double scales = s.has("group") ? n * std::ceil(k / s.count("group")) * 2 : 0;
  const double columns = s.flag("gated", false) ? n / 2 : n;
  return {2 * m * n * k * batch, batch * (m * k * a + n * k * b + scales + m * columns * out),
          "A, B with 2 bytes of scale for each group of k, and out once"};
}

Work rows(Shape& s, double flops, const char* how) {
  const double r = s.count("rows"), c = s.count("columns"), x = s.type("x", "bf16"), out = s.type("out", "bf16");
  return {flops * r * c, r * c * (x + out), how};
}

Work activation(Shape& s) {
  const double r = s.count("rows"), c = s.count("columns"), x = s.type("x", "bf16"), out = s.type("out", "bf16");
  const double inputs = s.flag("gated", true) ? 2 : 1;
  return {(7 + inputs) * r * c, r * c * (inputs * x + out), "x, an up as wide, and out once"};
}

Work attention_combine(Shape& s) {
  const double r = s.count("rows"), c = s.count("columns"), partials = s.count("partials");
  const double x = s.type("x", "f32"), out = s.type("out", "bf16");
  return {2 * r * c * partials, partials * r * (c * x + 4) + r * (c * out + 4),
          "partial results and out once, with lse"};
}

Work moe_reduce(Shape& s) {
  const double r = s.count("rows"), c = s.count("columns"), slots = r * s.count("topk"), x = s.type("x", "bf16");
  return {2 * slots * c, (slots + r) * c * x + 8 * slots, "results of experts, their weights and places, and out once"};
}

Work rope(Shape& s) {
  const double r = s.count("rows"), heads = s.count("q_heads") + s.count("kv_heads"), d = s.count("head_size", 128);
  const double rotary = s.count("rotary", d), x = s.type("x", "bf16"), table = s.type("table", "bf16");
  if (rotary > d) refuse("--shape: rotary is larger than head_size");
  return {3 * r * heads * rotary, 2 * r * heads * d * x + r * (rotary * table + 4),
          "q and k in and out, a row of both tables and a position for each token"};
}

Work topk_gating(Shape& s) {
  const double r = s.count("rows"), experts = s.count("experts"), topk = s.count("topk"), x = s.type("x", "bf16");
  if (topk > experts) refuse("--shape: topk is larger than experts");
  return {r * experts, r * experts * x + 12 * r * topk, "logits once; of a choice its weight, expert and place"};
}

Work sampling(Shape& s) {
  const double r = s.count("rows"), c = s.count("columns"), x = s.type("x", "f32");
  return {4 * r * c, r * c * x + 8 * r, "logits once, a token and its log probability for each row"};
}

Work mqa_logits(Shape& s) {
  const double batch = s.count("batch"), context = s.count("context"), heads = s.count("heads", 64),
               d = s.count("head_size", 128), mtp = s.count("mtp", 1), kv = s.type("kv", "fp8");
  if (mtp > context) refuse("--shape: mtp is larger than context");
  const double queries = batch * mtp, visible = mtp * context - mtp * (mtp - 1) / 2, of_head = d * kv + 4;
  constexpr double page = 64;
  return {batch * visible * heads * (2 * d + 3),
          batch * context * of_head + queries * heads * (of_head + (kv < 1 ? 4 : 0)) +
              4 * batch * (1 + std::ceil(context / page)) + queries * context * 4,
          "keys and queries with scales, weights, block table, lengths and logits once"};
}

Work embedding(Shape& s) {
  const double r = s.count("rows"), c = s.count("columns"), x = s.type("x", "bf16"), id = s.type("id", "i64");
  return {s.flag("scaled", false) ? r * c : 0, r * (2 * c * x + id), "a row of the table in and out, and its id"};
}

Work moe_sort(Shape& s) {
  const double choices = s.count("rows") * s.count("topk"), experts = s.count("experts"), unit = s.count("unit", 32);
  const double capacity = choices + experts * (unit - 1);
  return {2 * choices, 12 * choices + 8 * capacity + 4 * std::ceil(capacity / unit) + 8 * experts + 12,
          "ids and weights once, every output once: sorted ones with room for whole units, counts and places"};
}

Work kv_cache_write(Shape& s) {
  const double r = s.count("rows"), heads = s.count("kv_heads"), d = s.count("head_size", 128);
  const double x = s.type("x", "bf16"), kv = s.type("kv", "bf16"), cached = 2 * heads * d;
  if (!s.has("q_heads"))
    return {kv < 2 ? r * cached : 0, r * (cached * (x + kv) + 8), "k and v of a token in, its slot, and the cache out"};
  const double q = s.count("q_heads") * d, rotary = s.count("rotary", d), table = s.type("table", "bf16");
  if (rotary > d) refuse("--shape: rotary is larger than head_size");
  return {r * (3 * (q + heads * d) / d * rotary + (kv < 2 ? cached : 0)),
          r * ((q + cached) * x + q * x + cached * kv + 12 + rotary * table),
          "q, k and v of a token in, its slot, position and a row of both tables, q and the cache out"};
}

Work norm(Shape& s) { return rows(s, 4, "x and out once; weights are nothing beside them"); }
Work softmax(Shape& s) { return rows(s, 6, "x and out once"); }
Work quant(Shape& s) { return rows(s, 2, "x and out once; scales are nothing beside them"); }
Work vec_add(Shape& s) {
  const double n = s.count("elements"), size = s.type("x", "f32");
  return {n, 3 * n * size, "two inputs and out once"};
}

struct Op {
  const char *name, *shape;
  Work (*work)(Shape&);
};
constexpr Op op_table[] = {
    {"paged_attention", "batch,context,q_heads,kv_heads[,head_size,mtp,block_size,kv,quant]", attention},
    {"flash_attention", "batch,q_length,q_heads,kv_heads[,kv_length,head_size,value_size,causal,q,kv,out]",
     flash_attention},
    {"mla_decode", "batch,context,q_heads[,head_size,mtp,block_size,q,kv]", mla_decode},
    {"latent_cache_write", "rows[,q_heads,head_size,kv,table]", latent_cache_write},
    {"moe", "rows,columns,intermediate,experts,topk[,x,weights]", moe},
    {"gemm", "m,n,k[,batch,a,b,out,group,gated]", gemm},
    {"norm", "rows,columns[,x,out]", norm},
    {"softmax", "rows,columns[,x,out]", softmax},
    {"quant", "rows,columns[,x,out]", quant},
    {"activation", "rows,columns[,x,out,gated]", activation},
    {"rope", "rows,q_heads,kv_heads[,head_size,rotary,x,table]", rope},
    {"topk_gating", "rows,experts,topk[,x]", topk_gating},
    {"moe_reduce", "rows,columns,topk[,x]", moe_reduce},
    {"moe_sort", "rows,topk,experts[,unit]", moe_sort},
    {"embedding", "rows,columns[,x,id,scaled]", embedding},
    {"kv_cache_write", "rows,kv_heads[,head_size,x,kv][,q_heads,rotary,table]", kv_cache_write},
    {"sampling", "rows,columns[,x]", sampling},
    {"mqa_logits", "batch,context[,heads,head_size,mtp,kv]", mqa_logits},
    {"attention_combine", "rows,columns,partials[,x,out]", attention_combine},
    {"vec_add", "elements[,x]", vec_add}};

/// True if a picture can show the value: an axis has a line for each power of ten, and a ratio has to be a number.
bool has_place(double value) { return value >= 1e-30 && value <= 1e60; }

std::string where(const Chip& chip, const Spec& spec) { return fmt::format("{}:{}", chip.file, spec.line); }

}  // namespace

std::string known_ops(bool shapes) {
  std::vector<std::string> ops;
  for (const Op& op : op_table) ops.push_back(shapes ? fmt::format("  {:<20}{}", op.name, op.shape) : op.name);
  return join(ops, shapes ? "\n" : ", ");
}

Work work_of(std::string_view op, std::string_view text) {
  const auto* const found =
      std::find_if(std::begin(op_table), std::end(op_table), [&](const Op& o) { return o.name == op; });
  if (found == std::end(op_table)) refuse(fmt::format("no op '{}': one of {}", printable(op), known_ops(false)));
  Shape shape(op, text);
  Work work = found->work(shape);
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
  if (!has_place(roof.flops_per_s) || !has_place(roof.bytes_per_s))
    refuse(fmt::format("{} has a roof for {} that no axis reaches", chip.name, roof.peak_key));
  return roof;
}

namespace {

/// True if a chip's name is a word of a text: H20 is not one of "NVIDIA H200".
bool names_chip(const std::string& text, const std::string& name) {
  const std::string all = lower(text), word = lower(name);
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  for (std::size_t at = all.find(word); at != std::string::npos; at = all.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !letter(all[at - 1])) && (end == all.size() || !letter(all[end]))) return true;
  }
  return false;
}

}  // namespace

const Chip& chip_of_rows(const std::vector<Chip>& chips, const std::string& named, const Csv& rows,
                         const std::string& metric) {
  const Chip* of_rows = nullptr;
  const auto column = rows.find(is_modelled(metric) ? modelled_chip : std::string_view("device"));
  for (std::size_t r = 0; column && r < rows.rows.size(); ++r) {
    for (const Chip& chip : chips) {
      if (!names_chip(rows.rows[r][*column], chip.name)) continue;
      if (of_rows != nullptr && of_rows != &chip)
        throw Error(Exit::refused, fmt::format("{}: a row of {} among rows of {}: they have no roof in common",
                                               rows.where(r), chip.name, of_rows->name));
      of_rows = &chip;
    }
  }
  const Chip& chip = chip_of(chips, named);
  if (of_rows == nullptr || of_rows == &chip) return chip;
  if (lower(named) == lower(of_rows->arch)) return *of_rows;
  throw Error(Exit::refused,
              fmt::format("{} is of {}, whose roof is not that of {}", rows.source, of_rows->name, named));
}

std::vector<Point> points_of(const Csv& csv, const std::vector<std::string>& by, std::size_t& untimed,
                             const std::string& metric) {
  const std::size_t flops = csv.need("flops"), bytes = csv.need("bytes_ideal"), us = csv.need(metric);
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
    if (!(p.work.flops >= 0) || !(p.work.bytes > 0) || !std::isfinite(p.work.flops) || !std::isfinite(p.work.bytes)) {
      refuse(csv.where(r) + ": a timed row without flops and bytes_ideal has no place in a roofline");
    }
    if (!has_place(p.us) || !has_place(p.work.bytes) || (p.work.flops > 0 && !has_place(p.work.flops)))
      refuse(csv.where(r) + ": a time, flops or bytes_ideal that no axis reaches");
    p.name = name ? csv.rows[r][*name] : csv.where(r);
    if (is_modelled(metric)) p.cycles = cycles_of(csv, r);
    for (const std::size_t c : columns)
      p.group += fmt::format("{}{}={}", p.group.empty() ? "" : " ", csv.columns[c], csv.rows[r][c]);
    points.push_back(p);
  }
  if (points.empty())
    refuse(fmt::format("{} has no row with a time in {}{}", csv.source, metric,
                       metric == "us" && csv.find("model_us") ? "; --time=model_us takes modelled ones" : ""));
  return points;
}

}  // namespace tilewave::tool
