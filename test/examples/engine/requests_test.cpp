// SPDX-License-Identifier: MIT
// The engine's promises to requests: however they are scheduled, their tokens are the same, and wrong ones harm nobody.
#include <bit>
#include <cmath>

#include "engine.hpp"
#include "fixtures.hpp"
#include "test/catch_compat.hpp"

using namespace engine;

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

namespace {

/// A family's requests have the same bits alone and together, in chunks, with drafts, and from known pages.
void check_bits(const std::string& family) {
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

}  // namespace

TEST_CASE(
    "batch-invariant requests have the same bits alone and together, in chunks, with drafts, and from known pages") {
  check_bits(GENERATE("llama", "qwen3", "gemma2", "gpt_oss"));
}
TEST_CASE("batch-invariant requests of the other families have the same bits in every schedule", "[full]") {
  check_bits(GENERATE("mistral", "qwen2", "gemma3", "mixtral", "qwen3_moe"));
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

TEST_CASE("log probabilities are those of the logits as they are, and top_k and top_p bound what is drawn") {
  const Case c = cases_of("llama").front();
  Engine engine(fixtures() / "llama", small);
  Request request = request_of("x", c);
  request.temperature = 3.0f, request.seed = 5, request.max_tokens = 1;
  REQUIRE(!engine.submit(request));
  const std::vector<Event> events = engine.step();
  const std::vector<float> logits = engine.model().last_logits();
  REQUIRE(events.size() == 1);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  CHECK(std::fabs(events[0].logprobs[0] - (logits[events[0].tokens[0]] - std::log(sum))) < 1e-4);
  // Under a temperature at which all tokens are about equally likely, the likeliest alone is left.
  for (const bool by_count : {true, false}) {
    Request bound = request_of("x", c);
    bound.temperature = 1000.0f, bound.seed = 5;
    by_count ? static_cast<void>(bound.top_k = 1) : static_cast<void>(bound.top_p = 1e-6f);
    REQUIRE(!engine.submit(bound));
    CHECK(finish(engine)["x"] == c.tokens);
  }
}

TEST_CASE("drafts that are right save steps") {
  const Case c = cases_of("gemma3").front();  // it goes on with one token again and again
  const auto steps = [&](std::int32_t drafts) {
    EngineOptions options = small;
    options.drafts = drafts;
    Engine engine(fixtures() / "gemma3", options);
    REQUIRE(!engine.submit(request_of("x", c)));
    int count = 0;
    for (; !engine.idle(); ++count) static_cast<void>(engine.step());
    return count;
  };
  CHECK(steps(0) == 8);
  CHECK(steps(3) == 5);  // two tokens a step, once a token has come twice
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
  EngineOptions few = small;
  few.pages = 2;
  Engine narrow(fixtures() / "llama", few);
  CHECK(narrow.submit({.id = "long", .prompt = {1, 2, 3}, .max_tokens = 30}).value_or("") ==
        "prompt and max_tokens are more than the cache holds");
  CHECK(!narrow.submit({.id = "fits", .prompt = {1, 2, 3}, .max_tokens = 29}));
}

namespace {

/// Random requests, some of which go away: each ends or is cancelled, and all pages are there at the end.
void soak(int requests) {
  EngineOptions options = small;
  options.pages = 12, options.most_tokens = 48, options.drafts = 2, options.most_sequences = 4;
  Engine engine(fixtures() / "qwen2", options);
  std::uint32_t state = 36;
  const auto below = [&](std::uint32_t most) {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::int32_t>((state >> 8) % most);
  };
  int submitted = 0, finished = 0, cancelled = 0;
  while (submitted < requests || !engine.idle()) {
    if (engine.unfinished() < 6 && submitted < requests) {
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
  CHECK(finished + cancelled == requests);
  CHECK(cancelled > 0);
  CHECK(engine.pages().available() == engine.page_count());
}

}  // namespace

TEST_CASE("a soak of random requests loses no page and gives none out twice") { soak(40); }
TEST_CASE("a day of requests, one a minute, on the emulated chip's kernels", "[full]") { soak(24 * 60); }
