// SPDX-License-Identifier: MIT
// Tiny models of every family, in every format of weights and caches, against transformers.
#include "engine.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixtures.hpp"
#include "test/catch_compat.hpp"

using namespace engine;
using tilewave::test::thrown_by;

namespace {

/// The distance of the logits behind a case's prompt from transformers', as a part of their size.
double distance(Engine& engine, const Case& c) {
  REQUIRE(!engine.submit(request_of("logits", c)));
  static_cast<void>(engine.step());
  const std::vector<float> logits = engine.model().last_logits();
  REQUIRE(logits.size() == c.logits.size());
  engine.cancel("logits");
  double square = 0, off = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    square += std::pow(c.logits[i], 2), off += std::pow(logits[i] - c.logits[i], 2);
  return std::sqrt(off / square);
}

/// A folder with a model's weights under a config that differs in some fields.
std::filesystem::path changed(const std::string& family, const nlohmann::json& fields) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("tilewave_engine_test_changed_" + family);
  std::filesystem::create_directories(folder);
  std::ifstream from(fixtures() / family / "config.json");
  nlohmann::json config = nlohmann::json::parse(from);
  config.update(fields);
  std::ofstream(folder / "config.json") << config.dump();
  std::filesystem::copy_file(fixtures() / family / "model.safetensors", folder / "model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  return folder;
}

}  // namespace

TEST_CASE("logits are transformers', within the rounding of bf16, and greedy tokens equal") {
  int families = 0;
  for (const auto& folder : std::filesystem::directory_iterator(fixtures())) {
    const std::string family = folder.path().filename();
    CAPTURE(family);
    ++families;
    // Two experts may be about equally good for a token. Which one it gets is then a matter of rounding, which differs
    // where a prompt's beginning comes from known pages.
    EngineOptions options = small;
    options.reuse = nlohmann::json::parse(std::ifstream(folder.path() / "config.json")).count("num_local_experts") == 0;
    Engine engine(folder, options);
    for (const Case& c : cases_of(family)) {
      CAPTURE(c.prompt.size());
      // A layer rounds its rows to bf16 eight times, each by at most 2^-9 of a value; two layers and the output add up.
      CHECK(distance(engine, c) < 0.02);
      REQUIRE(!engine.submit(request_of("again", c)));
      CHECK(finish(engine)["again"] == c.tokens);
    }
  }
  CHECK(families >= 4);
}

TEST_CASE("weights and caches of fp8 give logits near transformers', and the same tokens in every schedule") {
  EngineOptions options = small;
  const std::string what = GENERATE("weights", "cache", "both");
  CAPTURE(what);
  options.weights = what == "cache" ? WeightFormat::bf16 : WeightFormat::fp8, options.fp8_cache = what != "weights";
  const std::string family = what == "both" ? "qwen3" : GENERATE("qwen3", "gemma2", "gemma3");
  CAPTURE(family);
  const std::vector<Case> cases = cases_of(family);
  Engine whole(fixtures() / family, options);
  options.most_tokens = 16;
  Engine chunks(fixtures() / family, options);
  for (const Case& c : cases) {
    // fp8 rounds a value by 2.6 % (rms) and so a product by 3.7 %. Eight products in two layers, K and V add up to some
    // 15 %; a wrong scale would be off by far more.
    const double off = distance(whole, c);
    CHECK(off < 0.25);
    CHECK(off > 1e-4);
    REQUIRE(!whole.submit(request_of("x", c)));
    REQUIRE(!chunks.submit(request_of("x", c)));
    CHECK(finish(whole) == finish(chunks));
  }
}

TEST_CASE("experts in fp8 give logits near those in bf16, and the same tokens in every schedule") {
  const std::string family = GENERATE("mixtral", "qwen3_moe");
  CAPTURE(family);
  std::vector<Case> cases = cases_of(family);
  // A token that has all experts has the same ones whatever is rounded.
  const auto folder = changed(family, {{"num_experts_per_tok", family == "mixtral" ? 4 : 8}});
  EngineOptions options = small;
  Engine exact(folder, options);
  options.weights = WeightFormat::fp8;
  Engine whole(folder, options);
  options.most_tokens = 16;
  Engine chunks(folder, options);
  for (Case& c : cases) {
    CHECK(distance(exact, c) > 0.02);  // more experts than transformers had
    c.logits = exact.model().last_logits();
    const double off = distance(whole, c);
    CHECK(off < 0.25);
    CHECK(off > 1e-4);
    for (Engine* engine : {&whole, &chunks}) REQUIRE(!engine->submit(request_of("x", c)));
    CHECK(finish(whole) == finish(chunks));
  }
  CHECK(whole.model().weights().layers[0].down.format == WeightFormat::fp8);
}

TEST_CASE("weights that are int4 already are quantised without a change: logits and tokens are transformers'") {
  EngineOptions options = small;
  options.weights = WeightFormat::int4;
  Engine whole(fixtures() / "llama_int4", options);
  options.most_tokens = 16;
  Engine chunks(fixtures() / "llama_int4", options);
  for (const Case& c : cases_of("llama_int4")) {
    CHECK(distance(whole, c) < 0.02);
    for (Engine* engine : {&whole, &chunks}) {
      REQUIRE(!engine->submit(request_of("x", c)));
      CHECK(finish(*engine)["x"] == c.tokens);
    }
  }
  CHECK(whole.model().weights().layers[0].down.format == WeightFormat::int4);
  // Extents that groups of 128 k fit, with Gemma's gate, and with experts: one answer however a prompt is cut.
  const Case any{
      .prompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4}, .tokens = {0, 0, 0}, .logits = {}};
  options.random_weights = true;
  for (const char* const family : {"gemma3", "mixtral"}) {
    const auto folder = changed(family, {{"hidden_size", 128}, {"intermediate_size", 256}});
    options.most_tokens = 16;
    Engine in_chunks(folder, options);
    options.most_tokens = 256;
    Engine at_once(folder, options);
    for (Engine* engine : {&in_chunks, &at_once}) REQUIRE(!engine->submit(request_of("x", any)));
    CHECK(finish(in_chunks) == finish(at_once));
  }
  options.random_weights = false;
  CHECK(
      thrown_by([&] { Engine(fixtures() / "llama", options); }) ==
      "weights of this format need a hidden_size, an intermediate_size and columns of heads that are multiples of 128");
  CHECK(thrown_by([&] { Engine(fixtures() / "gpt_oss", options); }) ==
        "experts of MXFP4 are served with the weights as they are");
}
