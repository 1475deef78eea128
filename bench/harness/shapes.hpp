// SPDX-License-Identifier: MIT
// A user's own configs replace the sweep: they come from a file, from the name of a row, or from a model's dimensions.
//
// A Case has each_column(), name_parts, name_types and name_mode (config_parser.hpp). imply(Words&) fills in what users
// leave out, complete() turns a config into the call that is launched, and fault() returns why no such call can be
// made, or nothing. model_cases(arch, what) are an op's calls in one decode step of a model.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "bench/harness/config_parser.hpp"
#include "bench/harness/models.hpp"

namespace CLI {
class App;
}

namespace tilewave::bench {

struct ShapeOptions {
  std::string shapes, config, model;
  int tp = 1;
  std::vector<int> batch{1}, context{8192};

  bool any() const { return !shapes.empty() || !config.empty() || !model.empty(); }
};

/// A decode step: the part of a model on one GPU, and the sequences and their lengths.
struct ModelStep {
  Model share;
  std::vector<int> batch, context;
};

void declare(CLI::App& app, ShapeOptions& o);

/// Returns the configs that the options ask for, in their order. `start` has the architecture, the seed, and defaults.
/// `others` are columns of a row that do not belong to its config; files may have them. Throws std::invalid_argument,
/// with the position, for a bad one.
template <class Case, class ModelCases>
std::vector<Case> cases_of(const ShapeOptions& o, const Case& start, const std::set<std::string>& others,
                           const ModelCases& model_cases) {
  std::vector<Case> cases;
  if (!o.model.empty()) {
    cases = model_cases(start.arch, ModelStep{share_of(o.model, o.tp), o.batch, o.context});
    for (Case& c : cases) c.seed = start.seed;
    if (cases.empty()) throw std::invalid_argument("--model: no call of this op is in a decode step");
  }
  std::vector<Words> all;
  if (!o.shapes.empty()) all = read_words(o.shapes);
  if (!o.config.empty()) all = {words_of_name(o.config, Case::name_parts, Case::name_types, Case::name_mode)};
  for (Words& words : all) {
    Case::imply(words);
    Case c = start;
    ColumnReader reader(words, start.arch);
    Case::each_column(c, reader);
    reader.check_derived();
    Case::each_column(c, reader);
    reader.expect_no_more(o.config.empty() ? others : std::set<std::string>{});  // who says a word by hand means it
    if (c.arch != start.arch)
      words.refuse("arch is " + std::string(name_of(c.arch)) + ", this run's is " + std::string(name_of(start.arch)));
    c.complete();
    if (const std::string fault = c.fault(); !fault.empty()) words.refuse(fault);
    cases.push_back(c);
  }
  return cases;
}

}  // namespace tilewave::bench
