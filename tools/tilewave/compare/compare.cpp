// SPDX-License-Identifier: MIT
#include "tools/tilewave/compare/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

double noise_of(const Csv& csv, std::size_t row, double us, bool modelled) {
  const auto value = [&](const char* column) {
    const auto at = csv.find(column);
    const auto v = at ? number(csv.rows[row][*at]) : std::nullopt;
    return v && std::isfinite(*v) ? *v : 0.0;
  };
  if (modelled) return value("model_error_pct") / 100;
  const double spread = (value("us_q3") - value("us_q1")) / 1.349, samples = value("samples");
  return samples >= 2 && spread > 0 ? 1.25 * spread / us / std::sqrt(samples) : 0;
}

namespace {

[[noreturn]] void not_comparable(const std::string& why) { throw Error(Exit::refused, "not comparable: " + why); }

struct Row {
  std::size_t at = 0;
  double us = 0, noise = 0;  // noise: relative standard error of us
  double rank = 0;           // us, or that at one clock
};

/// The columns that join, of both files.
std::vector<std::string> identity_columns(const Csv& base, const Csv& cand, const ColumnMap& map) {
  if (!map.config.empty()) {
    for (const Csv* csv : {&base, &cand}) {
      for (const std::string& column : map.config) csv->need(column);
    }
    return map.config;
  }
  // A column that one file marks is a policy in both: the other may come from a project that marks nothing.
  std::vector<std::string> columns, marked = marked_policy(base);
  for (const std::string& c : marked_policy(cand)) marked.push_back(c);
  const auto is_identity = [&](const std::string& c) {
    return role_of(c, marked) == Role::identity && !contains(map.ignored, c) && c != map.us && c != map.err;
  };
  for (const std::string& c : base.columns) {
    if (!is_identity(c)) continue;
    if (!cand.find(c))
      not_comparable(
          fmt::format("{} has no column '{}'; --map ignore={} leaves it out", cand.source, printable(c), printable(c)));
    columns.push_back(c);
  }
  for (const std::string& c : cand.columns) {
    if (is_identity(c) && !base.find(c))
      not_comparable(
          fmt::format("{} has no column '{}'; --map ignore={} leaves it out", base.source, printable(c), printable(c)));
  }
  if (columns.empty()) not_comparable(base.source + " has no column that distinguishes configs");
  return columns;
}

std::string key_of(const Csv& csv, std::size_t row, const std::vector<std::string>& columns) {
  std::string key;
  for (const std::string& c : columns)
    key += fmt::format("{}{}={}", key.empty() ? "" : " ", c, csv.rows[row][csv.need(c)]);
  return key;
}

std::string entry_of(const Csv& csv, std::size_t row) {
  for (const char* column : {"label", "entry", "kernelName", "policy", "name"}) {
    if (const auto at = csv.find(column); at && !csv.rows[row][*at].empty()) return csv.rows[row][*at];
  }
  return csv.source;
}

/// Why a row is wrong, or nothing.
std::string wrong(const Csv& csv, std::size_t row, const ColumnMap& map) {
  const auto error_column = csv.find("error_occurred");
  if (error_column && (csv.rows[row][*error_column] == "true" || csv.rows[row][*error_column] == "True"))
    return "error_occurred";
  if (map.err.empty() || (map.err_may_lack && !csv.find(map.err))) return "";
  const double err = csv.need_number(row, csv.need(map.err));
  if (std::isfinite(err) && err >= 0 && err <= map.max_err) return "";
  return fmt::format("{} = {}", map.err, err);
}

/// Returns the chip for which a row's times were modelled.
std::string chip_of(const Csv& csv, std::size_t row) {
  const auto at = csv.find(modelled_chip);
  return at ? csv.rows[row][*at] : "none";
}

/// The rows of one file by config. Time is not looked at here.
std::map<std::string, std::vector<std::size_t>> by_config(const Csv& csv, const std::vector<std::string>& columns) {
  std::map<std::string, std::vector<std::size_t>> rows;
  for (std::size_t r = 0; r < csv.rows.size(); ++r) rows[key_of(csv, r, columns)].push_back(r);
  return rows;
}

Row timed(const Csv& csv, const std::vector<std::size_t>& rows, const std::string& key, const CompareOptions& o,
          const std::optional<double>& mhz) {
  if (rows.size() > 1 && o.repeats == Repeats::refuse) {
    not_comparable(fmt::format("{} and line {} are the same config, {}; --repeats=best or median takes one",
                               csv.where(rows[0]), csv.lines[rows[1]], printable(key, 200)));
  }
  std::vector<Row> timed;
  for (const std::size_t r : rows) {
    const double us = csv.need_number(r, csv.need(o.map.us));
    const bool modelled = chip_of(csv, r) != "none";
    if (is_modelled(o.map.us) && !modelled)
      not_comparable(fmt::format("{}: {} of a row that was measured, not modelled", csv.where(r), o.map.us));
    if (!is_modelled(o.map.us) && modelled && !std::isfinite(us))
      not_comparable(
          fmt::format("{}: a row that was modelled, not measured; --time=model_us compares such rows", csv.where(r)));
    if (!std::isfinite(us) || us <= 0) {
      not_comparable(fmt::format("{}: {} is {}: an emulated or failed row has no time", csv.where(r), o.map.us, us));
    }
    timed.push_back({r, us, noise_of(csv, r, us, modelled), mhz ? cycles_of(csv, r).us_at(*mhz, us) : us});
  }
  std::sort(timed.begin(), timed.end(), [](const Row& a, const Row& b) { return a.rank < b.rank; });
  if (o.repeats == Repeats::best || timed.size() == 1) return timed.front();
  Row middle = timed[(timed.size() - 1) / 2];
  // Repeats show what the samples of one run cannot: the spread from run to run.
  const double spread = (timed.back().rank - timed.front().rank) / 2 / middle.rank;
  middle.noise = std::max(middle.noise, spread / std::sqrt(static_cast<double>(timed.size())));
  return middle;
}

/// Refuses rows whose columns differ, as text or as number.
void must_agree(const Csv& base, std::size_t b, const Csv& cand, std::size_t c, const std::string& metric) {
  for (std::size_t i = 0; i < base.columns.size(); ++i) {
    const Role role = role_of(base.columns[i], {});
    if (role != Role::device && role != Role::inputs && role != Role::work) continue;
    const auto j = cand.find(base.columns[i]);
    if (!j) not_comparable(fmt::format("{} has no column '{}'", cand.source, printable(base.columns[i])));
    const std::string &x = base.rows[b][i], &y = cand.rows[c][*j];
    const auto nx = number(x), ny = number(y);
    if (x == y || (nx && ny && (*nx == *ny || (std::isnan(*nx) && std::isnan(*ny))))) continue;
    const char* what = role == Role::device ? "another device" : role == Role::inputs ? "other inputs" : "other work";
    not_comparable(fmt::format("{}: {} than {}: {} is {} instead of {}", cand.where(c), what, base.where(b),
                               base.columns[i], printable(y), printable(x)));
  }
  const std::string x = chip_of(base, b), y = chip_of(cand, c);
  if (is_modelled(metric) && x != y && x != "none" && y != "none")
    not_comparable(fmt::format("{}: another device than {}: {} is {} instead of {}", cand.where(c), base.where(b),
                               modelled_chip, printable(y), printable(x)));
}

double geomean(const std::vector<PairedRow>& rows, double (*value)(const PairedRow&)) {
  double sum = 0;
  for (const PairedRow& row : rows) sum += std::log(value(row));
  return std::exp(sum / static_cast<double>(rows.size()));
}

void judge(ClassResult& c, const CompareOptions& o) {
  c.base_us = geomean(c.rows, [](const PairedRow& r) { return r.base_us; });
  c.cand_us = geomean(c.rows, [](const PairedRow& r) { return r.cand_us; });
  c.by_cycles =
      std::any_of(c.rows.begin(), c.rows.end(), [](const PairedRow& r) { return r.at_one_clock.has_value(); });
  c.ratio = c.by_cycles ? geomean(c.rows, [](const PairedRow& r) { return r.ratio(); }) : c.cand_us / c.base_us;
  double variance = 0;
  for (const PairedRow& row : c.rows) {
    variance += row.noise * row.noise;
    if (row.ratio() > c.worst) c.worst = row.ratio(), c.worst_row = row.config;
  }
  c.noise = 2 * std::sqrt(variance) / static_cast<double>(c.rows.size());
  const double tie = std::max(o.tie_pct / 100, c.noise), change = c.ratio - 1;
  c.verdict = change < -tie ? Verdict::keep : change > tie ? Verdict::discard : Verdict::tie;
  const auto before = o.previous.find(c.name);
  if (c.verdict == Verdict::tie && before != o.previous.end() && std::abs(change) > c.noise && change != 0) {
    const double was = before->second - 1;
    if (was != 0 && (was < 0) == (change < 0))
      c.twice = true, c.verdict = change < 0 ? Verdict::keep : Verdict::discard;
  }
  // The mean of a class must not hide a row that pays for it.
  if (c.verdict != Verdict::discard && c.worst - 1 > o.row_loss_pct / 100) {
    c.verdict = c.verdict == Verdict::keep ? Verdict::split : Verdict::discard;
  }
}

bool is_target(const ClassResult& c, const std::string& target) {
  const auto has = split(c.name, ' ');
  const auto wants = split(target, ',');
  return std::all_of(wants.begin(), wants.end(), [&](const std::string& w) { return contains(has, w); });
}

void conclude(Comparison& result, const CompareOptions& o) {
  std::size_t gains = 0, losses = 0, mixed = 0, targets = 0, target_gains = 0;
  double sum = 0;
  for (const ClassResult& c : result.classes) {
    gains += c.verdict == Verdict::keep;
    losses += c.verdict == Verdict::discard;
    mixed += c.verdict == Verdict::split;
    sum -= std::log(c.ratio);
    if (!o.target.empty() && is_target(c, o.target)) ++targets, target_gains += c.verdict == Verdict::keep;
  }
  if (!o.target.empty() && targets == 0)
    refuse(fmt::format("--target '{}' is no class; classes: {}", printable(o.target), result.classes.front().name));
  result.score = std::exp(sum / static_cast<double>(result.classes.size()));
  const std::string counts = fmt::format("{} classes gain, {} lose, {} gain at the cost of single rows, {} tie", gains,
                                         losses, mixed, result.classes.size() - gains - losses - mixed);
  result.reason = counts;
  if (mixed > 0 || (gains > 0 && losses > 0)) {
    result.verdict = Verdict::split;
  } else if (losses > 0) {
    result.verdict = Verdict::discard;
  } else if (gains == 0) {
    result.verdict = Verdict::tie;
  } else if (targets > 0 && target_gains == 0) {
    result.verdict = Verdict::discard, result.reason = counts + "; the target class does not gain";
  } else {
    result.verdict = Verdict::keep;
  }
}

/// Drops from each config what all configs share.
std::string varying(const Csv& csv, std::size_t row, const std::vector<std::string>& columns) {
  std::vector<std::string> words;
  for (const std::string& c : columns) {
    const std::size_t at = csv.need(c);
    if (std::any_of(csv.rows.begin(), csv.rows.end(), [&](const auto& r) { return r[at] != csv.rows[0][at]; })) {
      words.push_back(fmt::format("{}={}", c, csv.rows[row][at]));
    }
  }
  return words.empty() ? "the only config" : join(words, " ");
}

}  // namespace

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::keep: return "keep";
    case Verdict::discard: return "discard";
    case Verdict::tie: return "tie";
    case Verdict::split: return "split";
    case Verdict::incorrect: return "incorrect";
  }
  return "unknown";
}

Exit exit_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::keep: return Exit::ok;
    case Verdict::discard: return Exit::discard;
    case Verdict::tie: return Exit::tie;
    case Verdict::split: return Exit::split;
    case Verdict::incorrect: return Exit::incorrect;
  }
  return Exit::failed;
}

Comparison compare(const Csv& base, const Csv& cand, const CompareOptions& o) {
  Comparison result;
  const auto columns = identity_columns(base, cand, o.map);
  // A candidate does not lose what the baseline was judged by.
  if (o.map.err_may_lack && base.find(o.map.err)) cand.need(o.map.err);
  for (const std::string& c : o.by.empty() ? class_columns() : o.by) {
    if (!o.by.empty()) base.need(c), cand.need(c);
    if (base.find(c) && cand.find(c)) result.by.push_back(c);
  }
  const auto base_rows = by_config(base, columns), cand_rows = by_config(cand, columns);
  for (const auto& [key, rows] : base_rows) {
    for (const std::size_t r : rows) {
      if (const auto why = wrong(base, r, o.map); !why.empty())
        not_comparable(fmt::format("{}: the baseline is wrong: {}", base.where(r), why));
    }
  }
  std::size_t missing = 0;
  std::string first;
  for (const auto& [key, rows] : base_rows) {
    if (!cand_rows.contains(key) && missing++ == 0) first = varying(base, rows[0], columns);
  }
  if (missing > 0)
    not_comparable(fmt::format("{} of {} configs are not in {}, the first is {}", missing, base_rows.size(),
                               cand.source, printable(first, 300)));
  for (const auto& [key, rows] : cand_rows) {
    if (!base_rows.contains(key)) ++result.extra_rows;
    for (const std::size_t r : rows) {
      if (const auto why = wrong(cand, r, o.map); !why.empty())
        result.wrong.push_back(fmt::format("{}: {} ({})", cand.where(r), varying(cand, r, columns), why));
    }
  }
  if (!result.wrong.empty()) {
    result.verdict = Verdict::incorrect;
    result.reason = fmt::format("{} rows of the candidate are wrong", result.wrong.size());
    result.score = 0;
    return result;
  }
  std::map<std::string, std::size_t> classes;
  for (const auto& [key, rows] : base_rows) {
    const auto& others = cand_rows.at(key);
    must_agree(base, rows[0], cand, others[0], o.map.us);
    OneClock clock(o.map.us);
    for (const std::size_t r : rows) clock.add(base, r);
    for (const std::size_t r : others) clock.add(cand, r);
    const auto mhz = clock.mhz();
    const Row b = timed(base, rows, key, o, mhz), c = timed(cand, others, key, o, mhz);
    const std::string name = result.by.empty() ? "all" : key_of(base, b.at, result.by);
    const auto [at, fresh] = classes.try_emplace(name, result.classes.size());
    if (fresh) result.classes.push_back({.name = name, .rows = {}, .worst_row = {}});
    result.classes[at->second].rows.push_back({varying(base, b.at, columns), name, b.us, c.us,
                                               std::hypot(b.noise, c.noise), entry_of(base, b.at), entry_of(cand, c.at),
                                               b.at, cycles_of(base, b.at), cycles_of(cand, c.at),
                                               mhz ? std::optional(c.rank / b.rank) : std::nullopt});
    result.by_cycles |= mhz.has_value();
  }
  for (ClassResult& c : result.classes) judge(c, o);
  conclude(result, o);
  return result;
}

void decide_by_kernels(Comparison& comparison, const KernelSum& base, const KernelSum& cand, double tie_pct,
                       std::optional<double> previous) {
  const double change = (cand.us / base.us - 1) * 100;
  std::string times =
      fmt::format("GPU kernel time of a call {:.3f} -> {:.3f} us ({:+.2f} %)", base.us, cand.us, change);
  if (base.launches != cand.launches) times += fmt::format(" in {} -> {} launches", base.launches, cand.launches);
  const bool twice = previous && change != 0 && (*previous < 1) == (change < 0) && *previous != 1;
  if (twice && std::abs(change) <= tie_pct) times += ", the second time in this direction";
  const bool gains = change < -tie_pct || (twice && change < 0), loses = change > tie_pct || (twice && change > 0);
  if (comparison.verdict == Verdict::keep && !gains) {
    comparison.verdict = loses ? Verdict::discard : Verdict::tie;
    comparison.reason += "; but " + times + " does not improve";
  } else if (comparison.verdict == Verdict::tie && (gains || loses)) {
    comparison.verdict = gains ? Verdict::keep : Verdict::discard;
    comparison.reason += "; but " + times + " decides";
  } else {
    comparison.reason += "; " + times;
  }
  comparison.base_kernels = base, comparison.cand_kernels = cand;
}

}  // namespace tilewave::tool
