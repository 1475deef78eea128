// SPDX-License-Identifier: MIT
// A day of requests through the engine's scheduler. Kernels here compute nothing, but watch over the cache: whatever a
// sequence reads must be what it wrote.
#include <cstdint>
#include <vector>

#include "engine.hpp"
#include "test/catch_compat.hpp"

#if !TILEWAVE_ON_GPU_COMPILER  // tables of a device cannot be read here

using namespace engine;

namespace {

std::uint64_t mixed(std::uint64_t before, std::uint64_t with) {
  std::uint64_t x = before * 0x9e3779b97f4a7c15u + with + 1;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  return x ^ x >> 27;
}

/// Keeps for each slot of the cache a hash of its token and of all tokens before it, as the sequence that wrote it had
/// them. On the emulated device tables can be read as they are.
class Watch final : public Kernels {
 public:
  Watch(const CacheShape& cache, std::int32_t vocab)
      : cache_(cache), vocab_(vocab), known_(static_cast<std::size_t>(cache.pages) * cache.page_tokens) {}

  void gather_rows(const void*, std::int32_t, const std::int32_t*, float, void*, std::int32_t) override {}
  void norm(const void*, void*, const void*, void*, std::int32_t) override {}
  void linear(const void*, const Linear&, const void*, void*, std::int32_t) override {}
  Fusions fuses(const Linear&, std::int32_t) const override { return {}; }
  void gated(const void*, const Linear&, void*, std::int32_t) override {}
  void experts(const void*, const Experts&, void*, std::int32_t) override {}
  void logits(const void*, const Linear&, float*, std::int32_t) override {}
  void rotate_and_cache(void*, const CacheWrite& write) override {
    const StepTables& step = write.step;
    for (std::int32_t s = 0; s < step.sequences; ++s) {
      for (std::int32_t i = step.q_starts[s]; i < step.q_starts[s + 1]; ++i) {
        const std::int32_t position = step.positions[i];
        if (step.slots[i] != slot_of(step, s, position)) throw Error("a token goes to another sequence's slot");
        const std::uint64_t before = position == 0 ? 0 : known_[slot_of(step, s, position - 1)];
        known_[step.slots[i]] = mixed(before, step.ids[i]);
      }
    }
  }
  /// The hash of a sequence's newest token stands for all of its tokens, if each follows from the one before it.
  void attend(const void*, const void*, const void*, std::int32_t, const float*, void*,
              const StepTables& step) override {
    for (std::int32_t s = 0; s < step.sequences; ++s) {
      std::int32_t fresh = step.q_starts[s];
      for (std::int32_t position = step.positions[fresh]; fresh < step.q_starts[s + 1]; ++fresh, ++position) {
        const std::uint64_t before = position == 0 ? 0 : known_[slot_of(step, s, position - 1)];
        if (known_[slot_of(step, s, position)] != mixed(before, step.ids[fresh]))
          throw Error("a page was handed out twice");
      }
    }
    last_ = known_of_last_tokens(step);
  }
  /// Draws what depends on all tokens of the sequence alone: a request has the same tokens whatever is beside it.
  void sample(const float*, const SampleTables& tables, std::int32_t* tokens, float* logprobs) override {
    for (std::int32_t row = 0; row < tables.rows; ++row) {
      tokens[row] = static_cast<std::int32_t>(last_[tables.from[row]] % static_cast<std::uint64_t>(vocab_ / 64));
      logprobs[row] = 0.0f;
    }
  }
  std::uint64_t workspace_moves() const override { return 0; }

 private:
  std::int64_t slot_of(const StepTables& step, std::int32_t s, std::int32_t position) const {
    const std::int32_t page = step.block_table[s * step.table_columns + position / cache_.page_tokens];
    return std::int64_t{page} * cache_.page_tokens + position % cache_.page_tokens;
  }
  std::vector<std::uint64_t> known_of_last_tokens(const StepTables& step) const {
    std::vector<std::uint64_t> known;
    for (std::int32_t i = 0; i < step.tokens; ++i) known.push_back(known_[step.slots[i]]);
    return known;
  }

  CacheShape cache_;
  std::int32_t vocab_;
  std::vector<std::uint64_t> known_, last_;
};

}  // namespace

TEST_CASE("a day of requests, one a second, loses no page, hands none out twice, and changes no answer") {
  ModelConfig config;
  config.vocab = 256, config.hidden = 64, config.intermediate = 64, config.layers = 1;
  config.q_heads = config.kv_heads = 1, config.head_size = 64, config.max_positions = 512;
  EngineOptions options{.page_tokens = 16, .pages = 14, .most_tokens = 48, .most_sequences = 5, .drafts = 2};
  options.graphs = false;
  const CacheShape cache{options.pages, options.page_tokens};
  ModelWeights weights;
  weights.layers.resize(1);
  const auto engine_of = [&](ModelWeights of) {
    return Engine(
        Model(config, std::move(of), cache, options.most_tokens, std::make_unique<Watch>(cache, config.vocab)),
        options);
  };
  Engine engine = engine_of(std::move(weights));

  std::uint64_t state = 36;
  const auto below = [&](std::uint64_t most) {
    state = mixed(state, 1);
    return static_cast<std::int32_t>((state >> 33) % most);
  };
  constexpr int day = 24 * 60 * 60;
  int submitted = 0, finished = 0, cancelled = 0;
  std::map<std::string, std::vector<std::int32_t>> prompts, answers;
  std::map<std::vector<std::int32_t>, std::vector<std::int32_t>> answer_of;  // what a prompt was answered first
  std::int64_t compared = 0, steps = 0;
  while (submitted < day || !engine.idle()) {
    while (submitted < day && engine.unfinished() < 8) {
      Request request{.id = std::to_string(submitted++), .max_tokens = 1 + below(24), .ignore_eos = true};
      const std::int32_t family = below(6), length = 1 + below(70);  // prompts that begin alike
      for (std::int32_t i = 0; i < length; ++i) request.prompt.push_back((family * 7 + i / 9) % 4);
      prompts[request.id] = request.prompt;
      REQUIRE(!engine.submit(std::move(request)));
    }
    if (below(32) == 0 && !prompts.empty()) {
      const std::string gone = std::next(prompts.begin(), below(prompts.size()))->first;
      engine.cancel(gone);
      prompts.erase(gone), answers.erase(gone);
      ++cancelled;
    }
    for (Event& event : engine.step()) {
      std::vector<std::int32_t>& answer = answers[event.id];
      answer.insert(answer.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish_reason.empty()) continue;
      std::vector<std::int32_t>& first = answer_of[prompts.at(event.id)];
      const std::size_t common = std::min(first.size(), answer.size());
      if (!std::equal(answer.begin(), answer.begin() + static_cast<std::ptrdiff_t>(common), first.begin()))
        FAIL("request " << event.id << " was answered otherwise than the same prompt before");
      compared += static_cast<std::int64_t>(common);
      if (answer.size() > first.size()) first = answer;
      prompts.erase(event.id), answers.erase(event.id);
      ++finished;
    }
    if (++steps % 64 == 0) engine.pages().check();
  }
  CHECK(submitted == day);
  CHECK(finished + cancelled == day);
  CHECK(cancelled > day / 100);
  CHECK(compared > day);
  engine.pages().check();
  CHECK(engine.pages().available() == engine.page_count());
}

#endif  // !TILEWAVE_ON_GPU_COMPILER
