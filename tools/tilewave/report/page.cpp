// SPDX-License-Identifier: MIT
#include "tools/tilewave/report/page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/svg.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

/// The geometric mean of positive numbers; nothing if there is none.
class Mean {
 public:
  void add(double value) {
    if (std::isfinite(value) && value > 0) sum_ += std::log(value), ++count_;
  }
  std::optional<double> get() const { return count_ > 0 ? std::optional(std::exp(sum_ / count_)) : std::nullopt; }
  int count() const { return count_; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

using Cells = std::vector<std::string>;

/// Cells are HTML already. On a phone the table scrolls by itself, not the page.
std::string table(const Cells& head, const std::vector<Cells>& rows) {
  std::string out = "<div class=scroll><table><thead><tr>";
  for (const std::string& cell : head) out += "<th>" + cell + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const Cells& row : rows) {
    out += "<tr>";
    for (const std::string& cell : row) {
      const bool figure = cell.starts_with("<span") || (!cell.empty() && number(split(cell, ' ').front()).has_value());
      // Long text gets room; otherwise a phone shows it as a column of single words.
      out += (figure ? "<td class=n>" : cell.size() > 30 ? "<td class=t>" : "<td>") + cell + "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

/// The picture has its full size, and a phone scrolls it.
std::string picture(const std::string& svg) { return "<div class=scroll>" + svg + "</div>\n"; }

/// Green where it gains, red where it loses more than the noise.
std::string speedup_cell(double speedup, double noise, int digits, const std::string& behind = "") {
  const char* colour = speedup > 1 + noise ? "up" : speedup < 1 / (1 + noise) ? "down" : "same";
  return fmt::format("<span class={}>{:.{}f}{}</span>", colour, speedup, digits, behind);
}

/// The words that all names share, said once; `names` keep the others, or the last word where that is none.
std::string take_common(std::vector<std::string>& names) {
  std::vector<std::string> common;
  if (names.size() < 2) return "";
  for (const std::string& word : split(names[0], ' '))
    if (std::all_of(names.begin(), names.end(),
                    [&](const std::string& name) { return contains(split(name, ' '), word); }))
      common.push_back(word);
  for (std::string& name : names) {
    std::vector<std::string> own;
    for (const std::string& word : split(name, ' '))
      if (!contains(common, word)) own.push_back(word);
    if (!own.empty()) name = join(own, " ");
  }
  return common.empty() ? "" : fmt::format("<p>All: {}</p>\n", escaped(join(common, " ")));
}

/// The number of colours of lines; further lines are dashed.
constexpr std::size_t colours_before_dashes = 8;
std::string dashes(std::size_t line) { return line < colours_before_dashes ? "" : " stroke-dasharray='6 3'"; }
std::string legend(const std::map<std::string, std::size_t>& lines) {
  std::vector<std::string> names;
  std::vector<std::size_t> at;
  for (const auto& [name, line] : lines) names.push_back(name), at.push_back(line);
  const std::string common = take_common(names);
  std::string out = common + "<ul class=legend>";
  for (std::size_t i = 0; i < names.size(); ++i)
    out += fmt::format(
        "<li><svg class=key viewBox='0 0 28 10'><line x1='0' x2='28' y1='5' y2='5' stroke='{0}' stroke-width='3'{1}/>"
        "<circle cx='14' cy='5' r='4' fill='{0}'/></svg>{2}</li>",
        colour_of(at[i]), dashes(at[i]), escaped(names[i]));
  return out + "</ul>\n<p>Filled: kept, joined by lines; hollow: tried and not kept.</p>\n";
}

std::string shown(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string class_of(const Csv& csv, std::size_t row, const std::vector<std::size_t>& columns) {
  std::vector<std::string> words;
  for (const std::size_t c : columns) words.push_back(csv.columns[c] + "=" + csv.rows[row][c]);
  return words.empty() ? "all" : join(words, " ");
}

/// Time of each class over the rounds that measured it, and which line is which; kept rounds are filled.
std::string history(const State& state) {
  constexpr double width = 860, height = 320, left = 70, right = 20, top = 20, bottom = 40;
  double least = 1e300, most = 0;
  std::map<std::string, std::string> lines;
  for (const Round& r : state.rounds) {
    for (const auto& [name, us] : r.classes) {
      if (us > 0) least = std::min(least, us), most = std::max(most, us);
    }
  }
  if (!(most > 0)) return "";
  const double low = std::log(least * 0.95), high = std::log(most * 1.05),
               last = std::max<double>(2, static_cast<double>(state.rounds.size()));
  const auto x = [&](int round) { return left + (width - left - right) * (round - 1) / (last - 1); };
  const auto y = [&](double us) {
    return height - bottom - (height - top - bottom) * (std::log(us) - low) / (high - low);
  };
  std::string points,
      out = fmt::format(
          "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' role='img' aria-label='time by class over rounds'>\n",
          width, height);
  for (const double us : {least, std::sqrt(least * most), most})
    out += fmt::format(
        "<line x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}' stroke='#ddd'/><text x='{}' y='{:.1f}' text-anchor='end'>{:.4g} us</text>\n",
        left, width - right, y(us), y(us), left - 6, y(us) + 4, us);
  std::map<std::string, std::size_t> colours;
  for (const Round& r : state.rounds) {
    const bool kept = r.status == "keep" || r.status == "baseline";
    for (const auto& [name, us] : r.classes) {
      if (!(us > 0)) continue;
      const std::size_t colour = colours.try_emplace(name, colours.size()).first->second;
      if (kept) lines[name] += fmt::format("{:.1f},{:.1f} ", x(r.number), y(us));
      points += fmt::format(
          "<circle cx='{:.1f}' cy='{:.1f}' r='4' stroke='{}' fill='{}'><title>round {}, {}: {}, {:.3f} us</title></circle>\n",
          x(r.number), y(us), colour_of(colour), kept ? colour_of(colour) : "white", r.number, r.status, escaped(name),
          us);
    }
  }
  for (const auto& [name, path] : lines)
    out += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='2'{}/>\n", path,
                       colour_of(colours.at(name)), dashes(colours.at(name)));
  out += points;
  for (std::size_t i = 0; i < state.rounds.size(); i += 1 + state.rounds.size() / 20)
    out += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{}</text>\n", x(state.rounds[i].number),
                       height - 24, state.rounds[i].number);
  out += fmt::format("<text x='{}' y='{}' text-anchor='middle'>round</text></svg>\n", (left + width - right) / 2,
                     height - 8);
  return picture(out) + legend(colours);
}

}  // namespace

std::vector<ClassSummary> summarise(const Csv& csv, const std::vector<std::string>& by, const std::string& metric) {
  const std::size_t us = csv.need(metric), err = csv.need("err");
  std::vector<std::size_t> columns;
  for (const std::string& c : by.empty() ? class_columns() : by) {
    if (!by.empty()) csv.need(c);
    if (const auto at = csv.find(c)) columns.push_back(*at);
  }
  struct Means {
    Mean us, gbps, tflops, roof, clk, mhz;
  };
  std::vector<ClassSummary> classes;
  std::vector<Means> means;
  std::map<std::string, std::size_t> at;
  for (std::size_t r = 0; r < csv.rows.size(); ++r) {
    const std::string name = class_of(csv, r, columns);
    const auto [found, fresh] = at.try_emplace(name, classes.size());
    if (fresh) classes.emplace_back().name = name, means.emplace_back();
    ClassSummary& c = classes[found->second];
    Means& m = means[found->second];
    ++c.rows;
    c.wrong += !(csv.need_number(r, err) == 0);
    const double time = csv.need_number(r, us);
    c.untimed += !(std::isfinite(time) && time > 0);
    const auto add = [&](Mean& mean, const char* column) {
      if (const auto i = csv.find(column)) mean.add(csv.need_number(r, *i));
    };
    m.us.add(time);
    if (!is_modelled(metric)) {
      add(m.gbps, "gbps"), add(m.tflops, "tflops"), add(m.roof, "roof_pct");
      continue;
    }
    const Cycles cycles = cycles_of(csv, r);
    m.clk.add(cycles.clk), m.mhz.add(cycles.mhz);
    const auto over_time = [&](Mean& mean, const char* column, double times) {
      if (const auto i = csv.find(column)) mean.add(times * csv.need_number(r, *i) / time);
    };
    over_time(m.gbps, "bytes_ideal", 1e-3), over_time(m.tflops, "flops", 1e-6), over_time(m.roof, "roof_us", 100);
  }
  for (std::size_t i = 0; i < classes.size(); ++i) {
    classes[i].us = means[i].us.get(), classes[i].gbps = means[i].gbps.get();
    classes[i].tflops = means[i].tflops.get(), classes[i].roof_pct = means[i].roof.get();
    classes[i].clk = means[i].clk.get(), classes[i].mhz = means[i].mhz.get();
  }
  return classes;
}

std::string summary_html(const Csv& csv, const std::vector<std::string>& by, const Roof* roof,
                         const std::string& metric) {
  std::vector<Cells> rows;
  std::size_t timed = 0;
  const std::vector<ClassSummary> classes = summarise(csv, by, metric);
  std::vector<std::string> names;
  for (const ClassSummary& c : classes) names.push_back(c.name);
  const std::string common = take_common(names);
  const bool cycles =
      std::any_of(classes.begin(), classes.end(), [](const ClassSummary& c) { return c.clk.has_value(); });
  Cells head{"class", escaped(metric), "% of roof", "GB/s", "TFLOP/s", "wrong", "rows"};
  if (cycles) head.insert(head.begin() + 2, {"model_clk", "model_mhz"});
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const ClassSummary& c = classes[i];
    timed += c.rows - c.untimed;
    rows.push_back({escaped(names[i]), shown(c.us, 3), shown(c.roof_pct, 1), shown(c.gbps, 1), shown(c.tflops, 2),
                    c.wrong > 0 ? fmt::format("<b class=bad>{}</b>", c.wrong) : "0", std::to_string(c.rows)});
    if (cycles) rows.back().insert(rows.back().begin() + 2, {shown(c.clk, 0), shown(c.mhz, 0)});
  }
  std::string out =
      fmt::format("<h2>{}</h2>\n<p>{} rows, {} of them {}; geometric means by class.</p>\n", escaped(csv.source),
                  csv.rows.size(), timed, is_modelled(metric) ? "with modelled times, not measured" : "timed");
  out += common + table(head, rows);
  if (roof != nullptr && timed > 0) {
    std::size_t untimed = 0;
    out += picture(roofline_svg(*roof, points_of(csv, by, untimed, metric)));
  }
  return out;
}

std::string comparison_html(const std::string& base, const std::string& cand, const Comparison& c) {
  std::string out = fmt::format("<h2>{} over {}</h2>\n<p><b>{}</b>: {}</p>\n", escaped(cand), escaped(base),
                                word_of(c.verdict), escaped(c.reason));
  std::vector<const ClassResult*> slowest;  // first
  for (const ClassResult& r : c.classes) slowest.push_back(&r);
  std::stable_sort(slowest.begin(), slowest.end(), [](const auto* a, const auto* b) { return a->ratio > b->ratio; });
  std::vector<std::string> names;
  for (const ClassResult* r : slowest) names.push_back(r->name);
  const std::string common = take_common(names);
  std::vector<Cells> rows;
  for (std::size_t i = 0; i < slowest.size(); ++i) {
    const ClassResult& r = *slowest[i];
    rows.push_back({escaped(names[i]), speedup_cell(1 / r.ratio, r.noise, 3), speedup_cell(1 / r.worst, r.noise, 3),
                    fmt::format("{:.3f}", r.base_us), fmt::format("{:.3f}", r.cand_us),
                    fmt::format("{:.2f} %", r.noise * 100), std::to_string(r.rows.size())});
    Mean base_clk, base_mhz, cand_clk, cand_mhz;
    for (const PairedRow& row : r.rows) {
      base_clk.add(row.base_cycles.clk), base_mhz.add(row.base_cycles.mhz);
      cand_clk.add(row.cand_cycles.clk), cand_mhz.add(row.cand_cycles.mhz);
    }
    if (c.by_cycles)
      rows.back().insert(rows.back().begin() + 5, {shown(base_clk.get(), 0), shown(cand_clk.get(), 0),
                                                   shown(base_mhz.get(), 0), shown(cand_mhz.get(), 0)});
  }
  Cells head{"class", "speedup", "worst row", "base", "candidate", "noise", "rows"};
  if (c.by_cycles) {
    head.insert(head.begin() + 5, {"base model_clk", "candidate", "base model_mhz", "candidate"});
    out += fmt::format("<p>{}.</p>\n", ranked_by_cycles);
  }
  return rows.empty() ? out : out + common + table(head, rows);
}

std::string campaign_html(const std::string& name, const State& s) {
  std::string out = fmt::format("<h2>Campaign {}</h2>\n<p>{} rounds{}</p>\n", escaped(name), s.rounds.size(),
                                s.stopped.empty() ? "" : "; stopped: " + escaped(s.stopped));
  std::vector<Cells> rows;
  for (const Round& r : s.rounds) {
    rows.push_back({std::to_string(r.number), escaped(r.date), r.status == "keep" ? "<b>keep</b>" : escaped(r.status),
                    r.us > 0 ? fmt::format("{:.3f}", r.us) : "-", fmt::format("{:.4f}", r.total),
                    escaped(r.proposal.hypothesis), escaped(r.reason)});
  }
  return out + history(s) + table({"round", "date", "status", "us", "over the baseline", "hypothesis", "why"}, rows);
}

std::string table_html(const Csv& csv) {
  Cells head;
  for (const std::string& c : csv.columns) head.push_back(escaped(c));
  std::vector<Cells> rows;
  for (const auto& row : csv.rows) {
    Cells cells;
    for (const std::string& cell : row) cells.push_back(escaped(cell));
    rows.push_back(cells);
  }
  return fmt::format("<h2>{}</h2>\n", escaped(csv.source)) + table(head, rows);
}

std::string isa_html(const IsaTables& tables) {
  std::string out = fmt::format("<h2>Compiled kernels</h2>\n<p>By {}{}</p>\n", escaped(tables.compiler),
                                tables.full ? "." : "; of row operations not all specs.");
  const auto cells = [](const std::vector<std::string>& words) {
    Cells all;
    for (const std::string& word : words) all.push_back(escaped(word));
    return all;
  };
  for (const Table& t : tables.tables) {
    std::vector<Cells> rows;
    for (const auto& row : t.rows) rows.push_back(cells(row));
    out += "<h3>" + escaped(t.title) + "</h3>\n" + table(cells(t.columns), rows);
  }
  return out;
}

std::string ledger_html(const Csv& csv) {
  constexpr double ledger_noise = 0.02;  // a ledger does not say its own
  const std::size_t kernel = csv.need("kernel"), model = csv.need("model");
  const auto speedup = csv.find("speedup");
  const std::size_t us = speedup ? 0 : csv.need("us"), base = speedup ? 0 : csv.need("baseline_us");
  std::map<std::string, std::map<std::string, Mean>> cells;
  std::map<std::string, Mean> all;  // of a kernel
  std::map<std::string, int> models;
  const auto speedup_of = [&](std::size_t r) {
    return speedup ? csv.need_number(r, *speedup) : csv.need_number(r, base) / csv.need_number(r, us);
  };
  for (std::size_t r = 0; r < csv.rows.size(); ++r) {
    const double value = speedup_of(r);
    if (!std::isfinite(value) || value <= 0) refuse(csv.where(r) + ": a speedup that is not above 0");
    cells[csv.rows[r][kernel]][csv.rows[r][model]].add(value);
    all[csv.rows[r][kernel]].add(value);
    ++models[csv.rows[r][model]];
  }
  Cells head{"kernel", "speedup"};
  for (const auto& [name, count] : models) head.push_back(escaped(name));
  std::vector<Cells> rows;
  for (const auto& [name, by_model] : cells) {
    Cells row{escaped(name), speedup_cell(*all[name].get(), ledger_noise, 2)};
    for (const auto& [m, count] : models) {
      const auto found = by_model.find(m);
      row.push_back(found == by_model.end() ? ""
                                            : speedup_cell(*found->second.get(), ledger_noise, 2,
                                                           fmt::format(" ({})", found->second.count())));
    }
    rows.push_back(row);
  }
  std::string out =
      "<h2>Kernel x model</h2>\n<p>Speedup over the baseline, geometric mean, and the number of shapes.</p>\n" +
      table(head, rows);
  if (const auto shape = csv.find("shape")) {
    std::vector<std::size_t> order(csv.rows.size());  // by kernel, the slowest first
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const auto &x = csv.rows[a][kernel], &y = csv.rows[b][kernel];
      return x != y ? x < y : speedup_of(a) < speedup_of(b);
    });
    std::vector<Cells> shapes;
    for (const std::size_t r : order) {
      const auto& row = csv.rows[r];
      shapes.push_back({escaped(row[kernel]), speedup_cell(speedup_of(r), ledger_noise, 2), escaped(row[model]),
                        escaped(row[*shape])});
    }
    out += table({"kernel", "speedup", "model", "shape"}, shapes);
  }
  return out;
}

std::string page_html(const std::string& title, const std::vector<std::string>& sections) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'><title>{0}</title>\n<style>\n"
      "body{{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1100px;padding:0 1rem;color:#222;background:#fff}}\n"
      ".scroll{{overflow-x:auto}}.scroll th:first-child,.scroll td:first-child{{position:sticky;left:0;background:#fff}}.scroll th:first-child{{background:#f4f4f4}}\n"
      "td:first-child{{max-width:26rem}}.up,.down{{padding:0 .3rem;border-radius:3px}}.up{{color:#0a5c2b;background:#dff3e4}}.down{{color:#a01010;background:#fde4e4}}\n"
      ".legend{{list-style:none;padding:0;font-size:.85rem}}.legend li{{display:inline-block;margin:0 1.2rem .3rem 0;overflow-wrap:anywhere}}svg.key{{width:28px;min-width:0;height:10px;margin-right:.4rem}}\n"
      "table{{border-collapse:collapse;font-size:.85rem;margin:.5rem 0 1.5rem}}\n"
      "th,td{{border-bottom:1px solid #ddd;padding:.25rem .6rem;text-align:left;vertical-align:top}}th{{background:#f4f4f4;white-space:nowrap}}td.n{{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}}\n"
      "td.t{{min-width:12rem;overflow-wrap:anywhere}}svg{{width:100%;min-width:720px;height:auto;font:12px sans-serif}}.bad{{color:#b00}}\n"
      "@media(max-width:600px){{table{{font-size:.78rem}}th,td{{padding:.2rem .35rem}}td.t{{min-width:9rem}}td.t:first-child{{min-width:8rem;max-width:10rem}}h1{{font-size:1.5rem}}}}\n</style></head><body>\n<h1>{0}</h1>\n{1}</body></html>\n",
      escaped(title), fmt::join(sections, "\n"));
}

}  // namespace tilewave::tool
