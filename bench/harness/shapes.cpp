// SPDX-License-Identifier: MIT
#include "bench/harness/shapes.hpp"

#include <CLI/CLI.hpp>

namespace tilewave::bench {

void declare(CLI::App& app, ShapeOptions& o) {
  std::string names;
  for (const Model& m : models) names += (names.empty() ? "" : ", ") + std::string(m.name);
  auto* shapes =
      app.add_option("--shapes", o.shapes, "CSV or JSON file of configs to run, columns named as in the output");
  auto* config =
      app.add_option("--config", o.config, "one config: the parts of a row's name, or column=value, between /");
  auto* model = app.add_option("--model", o.model, "configs of a decode step: " + names);
  shapes->excludes(config)->excludes(model);
  config->excludes(model);
  app.add_option("--tp", o.tp, "with --model: GPUs that share it (default: 1)")
      ->needs(model)
      ->check(CLI::Range(1, 1024));
  app.add_option("--batch", o.batch, "with --model: comma list of sequences of a step (default: 1)")
      ->needs(model)
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--context", o.context, "with --model: comma list of tokens of a sequence (default: 8192)")
      ->needs(model)
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 24));
}

}  // namespace tilewave::bench
