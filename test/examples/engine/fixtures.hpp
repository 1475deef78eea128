// SPDX-License-Identifier: MIT
// Where the tiny models are, test/examples/engine/models, made by make_fixtures.py; what transformers says of them; and
// an engine that runs requests to their ends.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine.hpp"
#include "test/catch_compat.hpp"

inline std::filesystem::path fixtures() { return ENGINE_FIXTURES; }

namespace engine {

struct Case {
  std::vector<std::int32_t> prompt, tokens;
  std::vector<float> logits;
};

inline std::vector<Case> cases_of(const std::string& family) {
  std::ifstream stream(fixtures() / family / "expected.json");
  const nlohmann::json expected = nlohmann::json::parse(stream);
  std::vector<Case> cases;
  for (const nlohmann::json& c : expected["cases"]) cases.push_back({c["prompt"], c["tokens"], c["logits"]});
  return cases;
}

inline Request request_of(const std::string& id, const Case& c) {
  return {.id = id, .prompt = c.prompt, .max_tokens = static_cast<std::int32_t>(c.tokens.size())};
}

/// Runs all requests to their ends; tokens by id.
inline std::map<std::string, std::vector<std::int32_t>> finish(Engine& engine, int most_steps = 1000) {
  std::map<std::string, std::vector<std::int32_t>> tokens;
  while (!engine.idle()) {
    REQUIRE(--most_steps > 0);
    for (const Event& event : engine.step()) {
      REQUIRE(event.tokens.size() == event.logprobs.size());
      for (const float logprob : event.logprobs) REQUIRE(logprob <= 1e-5f);
      tokens[event.id].insert(tokens[event.id].end(), event.tokens.begin(), event.tokens.end());
    }
    engine.pages().check();
  }
  REQUIRE(engine.pages().available() == engine.page_count());
  return tokens;
}

inline const EngineOptions small{.page_tokens = 16, .pages = 64, .most_tokens = 256, .most_sequences = 8};

}  // namespace engine
