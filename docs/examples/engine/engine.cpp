// SPDX-License-Identifier: MIT
// Part 3 of the tutorial. Read step() first, at the end, then schedule(), input() and accept(), which it calls in turn.
#include "engine.hpp"

#include <algorithm>
#include <cmath>

namespace engine {

namespace {

std::int32_t pages_of(std::int64_t tokens, std::int32_t page_tokens) {
  return static_cast<std::int32_t>((tokens + page_tokens - 1) / page_tokens);
}

const EngineOptions& checked(const EngineOptions& o) {
  if (o.page_tokens < 16 || o.page_tokens % 16 != 0 || o.page_tokens > 1024)
    throw Error("page_tokens is no multiple of 16 in [16, 1024]");
  if (o.pages < 1 || std::int64_t{o.pages} * o.page_tokens >= std::int64_t{1} << 31)
    throw Error("pages is below 1 or too large");
  if (o.most_tokens < 16 || o.most_tokens > 1 << 20) throw Error("most_tokens is outside [16, 1048576]");
  if (o.most_sequences < 1 || o.most_sequences > most_logit_rows) throw Error("most_sequences is outside [1, 1024]");
  if (o.most_sequences * (o.drafts + 1) > most_logit_rows) throw Error("most_sequences x (drafts + 1) is above 1024");
  if (o.drafts < 0 || o.drafts > 15) throw Error("drafts is outside [0, 15]");
  return o;
}

}  // namespace

std::vector<std::int32_t> draft_tokens(const std::vector<std::int32_t>& tokens, std::int32_t most) {
  const auto size = static_cast<std::int32_t>(tokens.size());
  for (std::int32_t match = std::min(3, size - 1); match > 0 && most > 0; --match) {
    for (std::int32_t end = size - 1; end >= match; --end) {  // the newest occurrence first
      if (!std::equal(tokens.end() - match, tokens.end(), tokens.begin() + (end - match))) continue;
      const std::int32_t count = std::min(most, size - end);
      return {tokens.begin() + end, tokens.begin() + end + count};
    }
  }
  return {};
}

namespace {

Model model_of(const std::filesystem::path& folder, const EngineOptions& o) {
  ModelConfig config = read_config(folder);
  config.weights = o.weights, config.fp8_cache = o.fp8_cache, config.batch_invariant = o.batch_invariant;
  const bool quantised = o.weights != WeightFormat::bf16;
  if (config.gpt_oss && quantised) throw Error("experts of MXFP4 are served with the weights as they are");
  const std::int32_t of = o.weights == WeightFormat::int4 ? 128 : 16;
  if (quantised &&
      (config.hidden % of != 0 || config.intermediate % of != 0 || config.q_heads * config.head_size % of != 0))
    throw Error(
        "weights of this format need a hidden_size, an intermediate_size and columns of heads that are multiples of " +
        std::to_string(of));
  ModelWeights weights = o.random_weights ? random_weights(config, room_loader().norms_in_weights)
                                          : load_weights(config, room_loader(), Safetensors(folder));
  return {config, std::move(weights), {o.pages, o.page_tokens}, o.most_tokens};
}

}  // namespace

Engine::Engine(const std::filesystem::path& folder, const EngineOptions& options)
    : Engine(model_of(folder, checked(options)), options) {}
Engine::Engine(Model model, const EngineOptions& options)
    : options_(checked(options)), model_(std::move(model)), pool_(options.pages, options.page_tokens) {
  model_.use_graphs(options.graphs);
}

std::optional<std::string> Engine::refusal(const Request& request) const {
  const ModelConfig& c = config();
  if (request.prompt.empty()) return "the prompt has no tokens";
  for (const std::int32_t token : request.prompt)
    if (token < 0 || token >= c.vocab) return "token " + std::to_string(token) + " is outside the vocabulary";
  if (request.max_tokens < 1) return "max_tokens is below 1";
  if (!(request.temperature >= 0.0f) || !std::isfinite(request.temperature))
    return "temperature is negative or not finite";
  if (!(request.top_p > 0.0f && request.top_p <= 1.0f)) return "top_p is outside (0, 1]";
  if (request.top_k < 0) return "top_k is negative";
  const std::int64_t most = static_cast<std::int64_t>(request.prompt.size()) + request.max_tokens;
  if (most > c.max_positions)
    return "prompt and max_tokens are more than the model's " + std::to_string(c.max_positions) + " positions";
  if (pages_of(most + options_.drafts, options_.page_tokens) > options_.pages)
    return "prompt and max_tokens are more than the cache holds";
  return std::nullopt;
}

std::optional<std::string> Engine::submit(Request request) {
  if (std::optional<std::string> error = refusal(request)) return error;
  const auto has_id = [&](const Sequence& s) { return s.request.id == request.id; };
  if (std::any_of(waiting_.begin(), waiting_.end(), has_id) || std::any_of(running_.begin(), running_.end(), has_id))
    return "the id is in use";
  waiting_.emplace_back().request = std::move(request);
  waiting_.back().tokens = waiting_.back().request.prompt;
  return std::nullopt;
}

void Engine::cancel(const std::string& id) {
  for (Sequences* list : {&waiting_, &running_}) {
    for (auto s = list->begin(); s != list->end(); ++s) {
      if (s->request.id != id) continue;
      drop_pages(*s);
      list->erase(s);
      return;
    }
  }
}

void Engine::drop_pages(Sequence& sequence) {
  for (const std::int32_t page : sequence.pages) pool_.release(page);
  sequence.pages.clear();
  sequence.computed = sequence.published = 0, sequence.page_key = 0;
}

/// Pages for so many tokens of the sequence in all; false if there are too few.
bool Engine::give_pages(Sequence& sequence, std::int32_t tokens) {
  const std::int32_t more = pages_of(tokens, options_.page_tokens) - static_cast<std::int32_t>(sequence.pages.size());
  if (more > pool_.available()) return false;
  for (std::int32_t i = 0; i < more; ++i) sequence.pages.push_back(pool_.take());
  return true;
}

/// The youngest request gives its pages to older ones. It starts again later, from what is still known of its pages.
void Engine::preempt(Sequences::iterator youngest) {
  drop_pages(*youngest);
  youngest->scheduled = 0;
  waiting_.splice(waiting_.begin(), running_, youngest);
}

/// Says for each running request how many tokens it computes in this step. Requests that decode come first, then prompts
/// in the order of their arrival, as far as the step's tokens and the pages go.
void Engine::schedule() {
  std::int32_t budget = options_.most_tokens;
  for (Sequence& s : running_) s.scheduled = 0, s.drafts.clear();
  for (const bool decoding : {true, false}) {
    for (auto s = running_.begin(); s != running_.end() && budget > 0;) {
      const std::int32_t left = s->size() - s->computed;
      if ((left == 1) != decoding) {
        ++s;
        continue;
      }
      if (decoding) {
        const std::int32_t wanted = std::min(s->request.max_tokens - s->generated() - 1, budget - 1);
        s->drafts = draft_tokens(s->tokens, std::min(options_.drafts, wanted));
      }
      s->scheduled = std::min(left, budget) + static_cast<std::int32_t>(s->drafts.size());
      bool given = give_pages(*s, s->computed + s->scheduled);
      while (!given && std::prev(running_.end()) != s) {  // younger ones make room
        budget += std::prev(running_.end())->scheduled;
        preempt(std::prev(running_.end()));
        given = give_pages(*s, s->computed + s->scheduled);
      }
      if (!given) {  // it is the youngest itself
        const auto self = s++;
        preempt(self);
        continue;
      }
      budget -= s->scheduled;
      ++s;
    }
  }
  while (!waiting_.empty() && budget > 0 && static_cast<std::int32_t>(running_.size()) < options_.most_sequences) {
    Sequence& s = waiting_.front();
    if (options_.reuse) {
      PagePool::Beginning known = pool_.reuse(s.tokens);
      s.pages = std::move(known.pages), s.page_key = known.key;
      s.published = static_cast<std::int32_t>(s.pages.size());
      s.computed = s.published * options_.page_tokens;
    }
    s.scheduled = std::min(s.size() - s.computed, budget);
    s.drafts.clear();
    if (!give_pages(s, s.computed + s.scheduled)) {
      drop_pages(s);
      s.scheduled = 0;
      break;
    }
    budget -= s.scheduled;
    running_.splice(running_.end(), waiting_, waiting_.begin());
  }
}

/// The tables of the step that schedule() has planned.
StepInput Engine::input() {
  StepInput in;
  std::int32_t columns = 1;
  for (const Sequence& s : running_)
    while (s.scheduled > 0 && columns < static_cast<std::int32_t>(s.pages.size()))
      columns *= 2;  // few widths: few plans
  in.table_columns = columns;
  in.q_starts.push_back(0);
  for (Sequence& s : running_) {
    s.first_row = -1;
    if (s.scheduled == 0) continue;
    for (std::int32_t i = 0; i < s.scheduled; ++i) {
      const std::int32_t position = s.computed + i;
      in.ids.push_back(position < s.size() ? s.tokens[position] : s.drafts[position - s.size()]);
      in.positions.push_back(position);
      in.slots.push_back(std::int64_t{s.pages[position / options_.page_tokens]} * options_.page_tokens +
                         position % options_.page_tokens);
      if (position < s.size() - 1) continue;  // a later token of the prompt is known
      if (s.first_row < 0) s.first_row = static_cast<std::int32_t>(in.sample_from.size());
      in.sample_from.push_back(static_cast<std::int32_t>(in.ids.size()) - 1);
      in.temperature.push_back(s.request.temperature);
      in.top_p.push_back(s.request.top_p);
      in.top_k.push_back(s.request.top_k);
      in.seed.push_back(s.request.seed);
      in.offset.push_back(static_cast<std::uint64_t>(position) +
                          1);  // a token is drawn alike, however it was scheduled
    }
    in.q_starts.push_back(static_cast<std::int32_t>(in.ids.size()));
    in.kv_lengths.push_back(s.computed + s.scheduled);
    in.block_table.insert(in.block_table.end(), s.pages.begin(), s.pages.end());
    in.block_table.resize(in.kv_lengths.size() * columns, 0);
  }
  return in;
}

/// Takes the tokens that were drawn for a sequence: the first, and each one behind a draft that was right.
Event Engine::accept(Sequence& s, const StepOutput& out) {
  Event event;
  event.id = s.request.id;
  if (s.first_row < 0) {  // a chunk of the prompt, not its end
    s.computed += s.scheduled;
    return event;
  }
  const auto drafts = static_cast<std::int32_t>(s.drafts.size());
  s.computed += s.scheduled - drafts;
  for (std::int32_t i = 0; i <= drafts; ++i) {
    const std::int32_t token = out.tokens[s.first_row + i];
    if (token < 0) throw Error("request " + s.request.id + ": the logits are NaN");
    s.tokens.push_back(token);
    event.tokens.push_back(token);
    event.logprobs.push_back(out.logprobs[s.first_row + i]);
    const std::vector<std::int32_t>& eos = config().eos;
    if (!s.request.ignore_eos && std::find(eos.begin(), eos.end(), token) != eos.end())
      event.finish_reason = "stop";
    else if (s.generated() == s.request.max_tokens)
      event.finish_reason = "length";
    if (!event.finish_reason.empty() || i == drafts || s.drafts[i] != token) break;
    ++s.computed;  // the draft's K and V are those of the token
  }
  return event;
}

void Engine::publish(Sequence& s) {
  if (!options_.reuse) return;
  for (const std::int32_t size = options_.page_tokens; (s.published + 1) * size <= s.computed; ++s.published) {
    const std::span<const std::int32_t> tokens(s.tokens.data() + s.published * size, static_cast<std::size_t>(size));
    s.page_key = pool_.publish(s.pages[s.published], s.page_key, tokens);
  }
}

std::vector<Event> Engine::step() {
  schedule();
  const StepInput in = input();
  std::vector<Event> events;
  step_tokens_ = static_cast<std::int32_t>(in.ids.size());
  if (in.ids.empty()) return events;
  const StepOutput out = model_.run(in);
  for (auto s = running_.begin(); s != running_.end();) {
    if (s->scheduled == 0) {
      ++s;
      continue;
    }
    Event event = accept(*s, out);
    publish(*s);
    const bool finished = !event.finish_reason.empty();
    if (!event.tokens.empty()) events.push_back(std::move(event));
    const auto self = s++;
    if (finished) {
      drop_pages(*self);
      running_.erase(self);
    }
  }
  return events;
}

}  // namespace engine
