// SPDX-License-Identifier: MIT
// How likely a model finds a text, and how it would go on: the sum over a list of token ids in one step, whose rows of logits
// are all asked for. One line of JSON on stdout, to be held against another implementation's.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine.hpp"

namespace {

using namespace engine;

/// -log of each token's probability behind those before it.
std::vector<double> surprises(Model& model, const std::vector<std::int32_t>& tokens, std::int32_t page_tokens) {
  const auto count = static_cast<std::int32_t>(tokens.size());
  StepInput in{.ids = tokens};
  in.table_columns = (count + page_tokens - 1) / page_tokens;
  in.block_table.resize(in.table_columns);
  std::iota(in.block_table.begin(), in.block_table.end(), 0);
  in.q_starts = {0, count}, in.kv_lengths = {count};
  for (std::int32_t i = 0; i < count; ++i) {
    in.positions.push_back(i), in.slots.push_back(i), in.sample_from.push_back(i);
    in.temperature.push_back(0.0f), in.top_p.push_back(1.0f), in.top_k.push_back(0);
    in.seed.push_back(0), in.offset.push_back(0);
  }
  static_cast<void>(model.run(in));
  const std::vector<float> logits = model.last_logits();
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  std::vector<double> found;
  for (std::int32_t i = 0; i + 1 < count; ++i) {
    const float* const row = logits.data() + i * vocab;
    const float most = *std::max_element(row, row + vocab);
    double sum = 0;
    for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(row[v]) - most);
    found.push_back(std::log(sum) + most - row[tokens[i + 1]]);
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Prints the perplexity of a text under a model, and the greedy tokens behind its first --prompt tokens.");
  std::string folder, file;
  std::size_t most = 512, prompt = 0;
  std::int32_t greedy = 0;
  app.add_option("model", folder, "Folder with config.json and *.safetensors")->required();
  app.add_option("tokens", file, "JSON list of token ids")->required();
  app.add_option("--most", most, "Tokens of the list that are taken")->check(CLI::Range(2, 1024));
  app.add_option("--prompt", prompt, "Tokens in front of the greedy ones; all by default");
  app.add_option("--greedy", greedy, "Greedy tokens that are drawn");
  CLI11_PARSE(app, argc, argv);
  try {
    std::ifstream stream(file);
    const nlohmann::json list = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
    if (!list.is_array() || list.size() < 2) throw Error(file + ": is no JSON list of two tokens or more");
    std::vector<std::int32_t> tokens = list.get<std::vector<std::int32_t>>();
    tokens.resize(std::min(tokens.size(), most));
    EngineOptions options;
    options.most_tokens = static_cast<std::int32_t>(std::max<std::size_t>(tokens.size(), 16));
    options.pages = (options.most_tokens + greedy) / options.page_tokens + 2;
    options.most_sequences = 1, options.reuse = false;
    Engine engine(folder, options);
    for (const std::int32_t token : tokens)
      if (token < 0 || token >= engine.config().vocab) throw Error("a token is outside the vocabulary");
    const std::vector<double> each = surprises(engine.model(), tokens, options.page_tokens);
    const double mean = std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size());
    nlohmann::json answer{{"tokens", tokens.size()}, {"perplexity", std::exp(mean)}, {"surprises", each}};
    if (greedy > 0) {
      if (prompt > 0) tokens.resize(std::min(tokens.size(), prompt));
      if (const auto error = engine.submit({.id = "greedy", .prompt = tokens, .max_tokens = greedy}))
        throw Error(*error);
      while (!engine.idle())
        for (const Event& event : engine.step())
          for (const std::int32_t token : event.tokens) answer["greedy"].push_back(token);
    }
    std::cout << answer.dump() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << "perplexity: " << error.what() << "\n";
    return 1;
  }
}
