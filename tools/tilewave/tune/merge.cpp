// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/columns.hpp"
#include "tools/tilewave/tune/tune.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

std::string words_of(const Csv& csv, std::size_t row, const std::vector<std::size_t>& columns) {
  std::vector<std::string> words;
  for (const std::size_t c : columns) words.push_back(csv.columns[c] + "=" + csv.rows[row][c]);
  return words.empty() ? "all" : join(words, " ");
}

/// Returns the columns of a config: all that are neither policy nor measurement.
std::vector<std::size_t> config_columns(const Csv& csv, const std::vector<std::string>& marked) {
  std::vector<std::size_t> columns;
  for (std::size_t i = 0; i < csv.columns.size(); ++i) {
    const Role role = role_of(csv.columns[i], marked);
    if (role == Role::identity || role == Role::device || role == Role::inputs) columns.push_back(i);
  }
  return columns;
}

/// The policy alone: an entry's name holds the spec as well, which differs between configs of a class.
std::vector<std::size_t> policy_columns(const Csv& csv, const std::vector<std::string>& marked) {
  std::vector<std::size_t> columns;
  for (std::size_t i = 0; i < csv.columns.size(); ++i)
    if (contains(marked, csv.columns[i])) columns.push_back(i);
  if (columns.empty())
    refuse(csv.source + ": its column policy_columns, which says what a policy is, is missing or empty");
  return columns;
}

double time_of(const Csv& csv, std::size_t row, const std::string& metric) {
  const double us = csv.need_number(row, csv.need(metric));
  if (!std::isfinite(us) || us <= 0)
    refuse(csv.where(row) + ": " + metric + " is no time: an emulated row cannot be tuned by us");
  return us;
}

/// Sorts the candidates of a config by what they are compared by.
void rank(TunedConfig& config, const Csv& tried, const Csv* selected, std::size_t selected_row,
          const std::string& metric) {
  OneClock clock(metric);
  for (const Tried& t : config.tried) clock.add(tried, t.row);
  if (config.selected_us) clock.add(*selected, selected_row);
  const auto mhz = clock.mhz();
  config.by_cycles = mhz.has_value();
  for (Tried& t : config.tried) t.rank = mhz ? cycles_of(tried, t.row).us_at(*mhz, t.us) : t.us;
  if (config.selected_us)
    config.selected_rank =
        mhz ? cycles_of(*selected, selected_row).us_at(*mhz, *config.selected_us) : *config.selected_us;
}

TunedClass judge_class(const std::string& name, const std::vector<const TunedConfig*>& configs) {
  TunedClass c;
  c.name = name, c.configs = configs.size();
  std::map<std::string, std::pair<std::size_t, double>> policies;  // configs that have it right, sum of logs
  double selected = 0;
  std::size_t selections = 0, decided = 0;
  for (const TunedConfig* config : configs) {
    c.tried += config->tried.size();
    c.wrong += static_cast<std::size_t>(
        std::count_if(config->tried.begin(), config->tried.end(), [](const Tried& t) { return !t.right; }));
    if (!config->tried.front().right) continue;
    ++decided;
    const double best = config->tried.front().rank;
    for (const Tried& t : config->tried) {
      if (t.right) ++policies[t.policy].first, policies[t.policy].second += std::log(t.rank / best);
    }
    if (config->selected_rank) selected += std::log(*config->selected_rank / best), ++selections;
  }
  double least = 1e300;
  for (const auto& [policy, sum] : policies) {
    if (sum.first == decided && sum.second < least) least = sum.second, c.policy = policy;
  }
  if (!c.policy.empty()) c.loss = std::exp(least / static_cast<double>(decided));
  if (selections > 0) c.selected_loss = std::exp(selected / static_cast<double>(selections));
  return c;
}

}  // namespace

Csv gather(const std::vector<std::string>& folders, bool partial) {
  Csv all;
  std::string plan;
  std::set<std::string> names, planned;
  const auto take = [&](const std::string& folder, const std::string& its_plan) {
    const auto lines = lines_of(its_plan);
    for (std::size_t i = 1; i < lines.size(); ++i) planned.insert(lines[i]);
    std::vector<fs::path> files;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(fs::path(folder) / "chunks", error)) {
      if (entry.path().extension() == ".csv") files.push_back(entry.path());
      if (entry.path().extension() != ".left") continue;
      for (const std::string& name : lines_of(read_file(entry.path().string()))) planned.erase(name);
    }
    if (error) refuse(fmt::format("cannot read {}/chunks: {}", folder, error.message()));
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
      const Csv csv = read_csv(file.string(), "name");
      if (all.columns.empty()) all.columns = csv.columns, all.source = folder;
      if (csv.columns != all.columns)
        throw Error(Exit::refused, file.string() + " has other columns than the chunks before it");
      const std::size_t name = csv.need("name");
      for (std::size_t r = 0; r < csv.rows.size(); ++r) {
        if (!names.insert(csv.rows[r][name]).second)
          throw Error(Exit::refused,
                      fmt::format("{}: {} was measured twice", csv.where(r), printable(csv.rows[r][name], 200)));
        all.rows.push_back(csv.rows[r]);
        all.lines.push_back(all.rows.size() + 1);
      }
    }
  };
  const auto plan_text = [](const std::string& folder) { return read_file((fs::path(folder) / "plan.txt").string()); };
  for (const std::string& folder : folders) {
    const std::string text = plan_text(folder);
    if (plan.empty()) plan = text;
    if (text != plan) throw Error(Exit::refused, fmt::format("{} has another plan than {}", folder, folders.front()));
    take(folder, text);
    for (int round = 1; fs::exists(generated_folder(folder, round) / "plan.txt"); ++round) {
      const std::string inside = generated_folder(folder, round).string();
      take(inside, plan_text(inside));
    }
  }
  if (all.rows.empty()) refuse(folders.front() + " holds no chunk");
  if (!partial && names != planned)
    throw Error(Exit::refused,
                fmt::format("{} of {} rows are measured; --partial takes what is there", names.size(), planned.size()));
  return all;
}

Tuned judge_tuning(const Csv& tried, const Csv* selected, const std::vector<std::string>& by,
                   const std::string& metric) {
  const std::vector<std::string> marked = marked_policy(tried);
  const auto config = config_columns(tried, marked), policy = policy_columns(tried, marked);
  const std::size_t err = tried.need("err");
  const auto entry = tried.find("entry");
  std::vector<std::size_t> group;
  for (const std::string& c : by.empty() ? class_columns() : by) {
    if (!by.empty()) tried.need(c);
    if (const auto at = tried.find(c)) group.push_back(*at);
  }
  std::map<std::string, std::size_t> at;
  Tuned tuned;
  for (std::size_t r = 0; r < tried.rows.size(); ++r) {
    const std::string key = words_of(tried, r, config);
    const auto [found, fresh] = at.try_emplace(key, tuned.configs.size());
    if (fresh) tuned.configs.push_back({.config = key, .group = words_of(tried, r, group), .tried = {}});
    Tried t{words_of(tried, r, policy),
            entry ? tried.rows[r][*entry] : "",
            time_of(tried, r, metric),
            tried.need_number(r, err) == 0,
            r,
            0};
    auto& list = tuned.configs[found->second].tried;
    if (std::any_of(list.begin(), list.end(),
                    [&](const Tried& o) { return o.policy == t.policy && o.entry == t.entry; })) {
      throw Error(Exit::refused, fmt::format("{}: {} was tried twice for one config", tried.where(r), t.policy));
    }
    list.push_back(t);
  }
  std::map<std::size_t, std::size_t> selected_row;  // by config
  if (selected != nullptr) {
    const auto columns = config_columns(*selected, marked);
    for (std::size_t r = 0; r < selected->rows.size(); ++r) {
      const auto found = at.find(words_of(*selected, r, columns));
      if (found == at.end()) continue;
      tuned.configs[found->second].selected_us = time_of(*selected, r, metric);
      selected_row[found->second] = r;
    }
  }
  for (std::size_t i = 0; i < tuned.configs.size(); ++i)
    rank(tuned.configs[i], tried, selected, selected_row[i], metric);
  std::map<std::string, std::vector<const TunedConfig*>> classes;
  for (TunedConfig& c : tuned.configs) {
    std::stable_sort(c.tried.begin(), c.tried.end(),
                     [](const Tried& a, const Tried& b) { return a.right != b.right ? a.right : a.rank < b.rank; });
    classes[c.group].push_back(&c);
  }
  for (const auto& [name, configs] : classes) tuned.classes.push_back(judge_class(name, configs));
  return tuned;
}

}  // namespace tilewave::tool
