// SPDX-License-Identifier: MIT
// Tiny models of every family against transformers, and the engine's promises: however requests are scheduled, their
// tokens are the same.
#include "engine.hpp"

#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "fixtures.hpp"
#include "test/catch_compat.hpp"

using namespace engine;
using tilewave::test::thrown_by;

namespace {

struct Case {
  std::vector<std::int32_t> prompt, tokens;
  std::vector<float> logits;
};

std::vector<Case> cases_of(const std::string& family) {
  std::ifstream stream(fixtures() / family / "expected.json");
  const nlohmann::json expected = nlohmann::json::parse(stream);
  std::vector<Case> cases;
  for (const nlohmann::json& c : expected["cases"]) cases.push_back({c["prompt"], c["tokens"], c["logits"]});
  return cases;
}

Request request_of(const std::string& id, const Case& c) {
  return {.id = id, .prompt = c.prompt, .max_tokens = static_cast<std::int32_t>(c.tokens.size())};
}

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

/// Runs all requests to their ends; tokens by id.
std::map<std::string, std::vector<std::int32_t>> finish(Engine& engine, int most_steps = 1000) {
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

const EngineOptions small{.page_tokens = 16, .pages = 64, .most_tokens = 256, .most_sequences = 8};

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

TEST_CASE("gpt_oss gives the same tokens in chunks, with drafts and without graphs") {
  EngineOptions options = small;
  const std::string how = GENERATE("chunks", "drafts", "no graphs");
  CAPTURE(how);
  if (how == "chunks") options.most_tokens = 16;
  if (how == "drafts") options.drafts = 3;
  if (how == "no graphs") options.graphs = false;
  Engine engine(fixtures() / "gpt_oss", options);
  const std::vector<Case> cases = cases_of("gpt_oss");
  for (std::size_t i = 0; i < cases.size(); ++i) REQUIRE(!engine.submit(request_of(std::to_string(i), cases[i])));
  const auto tokens = finish(engine);
  for (std::size_t i = 0; i < cases.size(); ++i) CHECK(tokens.at(std::to_string(i)) == cases[i].tokens);
}

TEST_CASE("requests give the same tokens alone and together, in chunks, with drafts, and from known pages") {
  const std::vector<Case> cases = cases_of("llama");
  EngineOptions options = small;
  const std::string how = GENERATE("together", "chunks", "drafts", "few pages", "no reuse", "no graphs");
  CAPTURE(how);
  if (how == "chunks") options.most_tokens = 16;
  if (how == "drafts") options.drafts = 3;
  if (how == "few pages") options.pages = 4;  // the longest takes three: the others are preempted
  if (how == "no reuse") options.reuse = false;
  if (how == "no graphs") options.graphs = false;
  Engine engine(fixtures() / "llama", options);
  for (int round = 0; round < 2; ++round) {  // the second round finds its prompts' pages
    for (std::size_t i = 0; i < cases.size(); ++i) REQUIRE(!engine.submit(request_of(std::to_string(i), cases[i])));
    const auto tokens = finish(engine);
    for (std::size_t i = 0; i < cases.size(); ++i) CHECK(tokens.at(std::to_string(i)) == cases[i].tokens);
  }
  // Steps of drafts verify several tokens of a sequence, and are not captured.
  if (how != "drafts") CHECK((engine.model().graphs() > 0) == (how != "no graphs"));
}

TEST_CASE(
    "batch-invariant requests have the same bits alone and together, in chunks, with drafts, and from known pages") {
  const std::string family = GENERATE("llama", "qwen3", "gemma2", "gpt_oss");
  CAPTURE(family);
  const std::vector<Case> cases = cases_of(family);
  EngineOptions options = small;
  options.batch_invariant = true;
  using Bits = std::map<std::string, std::vector<std::uint32_t>>;
  const auto run = [&](Engine& engine) {
    Bits bits;
    while (!engine.idle())
      for (const Event& event : engine.step())
        for (const float logprob : event.logprobs) bits[event.id].push_back(std::bit_cast<std::uint32_t>(logprob));
    return bits;
  };
  Bits alone;
  Engine one(fixtures() / family, options);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    REQUIRE(!one.submit(request_of(std::to_string(i), cases[i])));
    alone.merge(run(one));
    CHECK(alone.at(std::to_string(i)).size() == cases[i].tokens.size());
  }
  for (const std::string how : {"together", "chunks", "drafts"}) {
    CAPTURE(how);
    EngineOptions other = options;
    if (how == "chunks") other.most_tokens = 16;
    if (how == "drafts") other.drafts = 3;
    Engine engine(fixtures() / family, other);
    for (int round = 0; round < 2; ++round) {  // the second round finds its prompts' pages
      for (std::size_t i = 0; i < cases.size(); ++i) REQUIRE(!engine.submit(request_of(std::to_string(i), cases[i])));
      CHECK(run(engine) == alone);
    }
  }
}

TEST_CASE("a known prompt is computed from its last page on") {
  const Case longest = cases_of("llama").back();  // 40 tokens: two pages and a half
  Engine engine(fixtures() / "llama", small);
  const auto first_step_tokens = [&] {
    REQUIRE(!engine.submit(request_of("x", longest)));
    static_cast<void>(engine.step());
    return engine.last_step_tokens();
  };
  CHECK(first_step_tokens() == 40);
  static_cast<void>(finish(engine));
  CHECK(first_step_tokens() == 8);
}

TEST_CASE("a seed draws the same tokens whatever else is in the batch, another seed others") {
  const std::vector<Case> cases = cases_of("qwen3");
  Engine engine(fixtures() / "qwen3", small);
  const auto draw = [&](std::uint64_t seed, bool beside) {
    Request request = request_of("drawn", cases[1]);
    request.temperature = 3.0f, request.seed = seed, request.max_tokens = 16, request.ignore_eos = true;
    REQUIRE(!engine.submit(request));
    if (beside) REQUIRE(!engine.submit(request_of("beside", cases[0])));
    return finish(engine)["drawn"];
  };
  const std::vector<std::int32_t> alone = draw(7, false);
  CHECK(alone.size() == 16);
  CHECK(draw(7, true) == alone);
  CHECK(draw(8, false) != alone);
}

TEST_CASE("a request ends at an end token, and at max_tokens") {
  const Case c = cases_of("llama").front();
  Engine engine(fixtures() / "llama", small);
  Request request = request_of("x", c);
  request.max_tokens = 2;
  REQUIRE(!engine.submit(request));
  std::vector<Event> events;
  while (!engine.idle())
    for (const Event& event : engine.step()) events.push_back(event);
  REQUIRE(events.size() == 2);
  CHECK(events[0].finish_reason.empty());
  CHECK(events[1].finish_reason == "length");
}

TEST_CASE("wrong requests are refused in one line, and the others live") {
  Engine engine(fixtures() / "llama", small);
  const auto refused = [&](const std::function<void(Request&)>& edit) {
    Request request{.id = "x", .prompt = {1, 2, 3}};
    edit(request);
    return engine.submit(request).value_or("");
  };
  CHECK(refused([](Request& r) { r.prompt.clear(); }) == "the prompt has no tokens");
  CHECK(refused([](Request& r) { r.prompt[1] = 256; }) == "token 256 is outside the vocabulary");
  CHECK(refused([](Request& r) { r.prompt[1] = -1; }) == "token -1 is outside the vocabulary");
  CHECK(refused([](Request& r) { r.max_tokens = 0; }) == "max_tokens is below 1");
  CHECK(refused([](Request& r) { r.max_tokens = 510; }) ==
        "prompt and max_tokens are more than the model's 512 positions");
  CHECK(refused([](Request& r) { r.temperature = NAN; }) == "temperature is negative or not finite");
  CHECK(refused([](Request& r) { r.top_p = 0.0f; }) == "top_p is outside (0, 1]");
  CHECK(refused([](Request& r) { r.top_k = -1; }) == "top_k is negative");
  CHECK(refused([](Request&) {}).empty());
  CHECK(refused([](Request&) {}) == "the id is in use");
  CHECK(engine.unfinished() == 1);
  engine.cancel("x");
  CHECK(engine.idle());
  CHECK(engine.pages().available() == engine.page_count());
}

TEST_CASE("a soak of random requests loses no page and gives none out twice") {
  EngineOptions options = small;
  options.pages = 12, options.most_tokens = 48, options.drafts = 2, options.most_sequences = 4;
  Engine engine(fixtures() / "qwen2", options);
  std::uint32_t state = 36;
  const auto below = [&](std::uint32_t most) {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::int32_t>((state >> 8) % most);
  };
  int submitted = 0, finished = 0, cancelled = 0;
  for (int step = 0; step < 150; ++step) {
    if (engine.unfinished() < 6 && submitted < 40) {
      Request request{.id = std::to_string(submitted++), .max_tokens = 1 + below(20), .ignore_eos = true};
      for (std::int32_t i = 0, count = 1 + below(60); i < count; ++i)
        request.prompt.push_back(below(4));  // alike prompts
      REQUIRE(!engine.submit(request));
    }
    if (below(16) == 0) {
      const std::int32_t before = engine.unfinished();
      engine.cancel(std::to_string(below(static_cast<std::uint32_t>(submitted))));
      cancelled += before - engine.unfinished();
    }
    for (const Event& event : engine.step()) finished += event.finish_reason.empty() ? 0 : 1;
    engine.pages().check();
  }
  finished += static_cast<int>(finish(engine).size());
  CHECK(finished + cancelled >= submitted);
  CHECK(submitted == 40);
}
