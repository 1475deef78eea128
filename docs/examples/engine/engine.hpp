// SPDX-License-Identifier: MIT
// Continuous batching, part 3 of the tutorial: which tokens of which requests the next step computes. One step serves decoding requests, each
// with its newest token and perhaps some drafts, and chunks of prompts, together.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "model.hpp"
#include "pages.hpp"

namespace engine {

struct Request {
  std::string id;
  std::vector<std::int32_t> prompt;  // token ids
  std::int32_t max_tokens = 16;
  float temperature = 0.0f;  // 0: the likeliest token
  float top_p = 1.0f;
  std::int32_t top_k = 0;  // 0: no bound
  std::uint64_t seed = 0;
  bool ignore_eos = false;
};

/// New tokens of a request. A finished request has a reason: "stop" (an end token), "length" (max_tokens).
struct Event {
  std::string id;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::string finish_reason;  // empty while it goes on
};

struct EngineOptions {
  std::int32_t page_tokens = 16;
  std::int32_t pages = 1024;
  std::int32_t most_tokens = 2048;  // of a step: prompts are cut into chunks
  std::int32_t most_sequences = 256;
  std::int32_t drafts = 0;  // tokens that are guessed from the request's own text and verified in one step
  bool reuse = true;        // of pages whose tokens are known
  bool graphs = true;       // of decode steps
  WeightFormat weights = WeightFormat::bf16;  // of products of layers: quantised while they are loaded
  bool fp8_cache = false;                     // K and V
  bool batch_invariant = false;               // the same bits in every schedule, which takes longer
  bool random_weights = false;                // for measurements: the folder has a config alone
};

class Engine {
 public:
  /// Throws Error as Model does, and for options outside their ranges.
  Engine(const std::filesystem::path& folder, const EngineOptions& options);
  /// Serves a model that was made with the same pages and tokens of a step.
  Engine(Model model, const EngineOptions& options);

  const ModelConfig& config() const { return model_.config(); }
  Model& model() { return model_; }
  PagePool& pages() { return pool_; }
  std::int32_t page_count() const { return options_.pages; }
  std::int32_t last_step_tokens() const { return step_tokens_; }
  /// Says in one line why a request cannot be served, whatever else is running: what submit() refuses but for ids. Any
  /// thread may ask.
  std::optional<std::string> refusal(const Request& request) const;
  /// Takes a request, or says in one line why not: no tokens, a token outside the vocabulary, more than the model's
  /// positions or the whole cache, parameters outside their ranges, an id that is in use.
  std::optional<std::string> submit(Request request);
  /// Forgets a request, whose client went away.
  void cancel(const std::string& id);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  std::int32_t unfinished() const { return static_cast<std::int32_t>(waiting_.size() + running_.size()); }
  /// Computes one step, and gives what it brought.
  std::vector<Event> step();

 private:
  struct Sequence {
    Request request;
    std::vector<std::int32_t> tokens;  // the prompt and what was drawn
    std::int32_t computed = 0;         // tokens that are in the cache
    std::vector<std::int32_t> pages;
    std::int32_t published = 0;  // pages
    std::uint64_t page_key = 0;  // of the last published page
    std::vector<std::int32_t> drafts;
    std::int32_t scheduled = 0;   // tokens in this step, drafts included
    std::int32_t first_row = -1;  // of its logits in this step

    std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }
    std::int32_t generated() const { return size() - static_cast<std::int32_t>(request.prompt.size()); }
  };
  using Sequences = std::list<Sequence>;

  void schedule();
  bool give_pages(Sequence& sequence, std::int32_t tokens);
  void drop_pages(Sequence& sequence);
  void preempt(Sequences::iterator youngest);
  StepInput input();
  Event accept(Sequence& sequence, const StepOutput& out);
  void publish(Sequence& sequence);

  EngineOptions options_;
  Model model_;
  PagePool pool_;
  Sequences waiting_, running_;
  std::int32_t step_tokens_ = 0;
};

/// Up to `most` tokens that followed the last occurrence of the newest tokens, the longest match of 3, 2 or 1 of them.
std::vector<std::int32_t> draft_tokens(const std::vector<std::int32_t>& tokens, std::int32_t most);

}  // namespace engine
