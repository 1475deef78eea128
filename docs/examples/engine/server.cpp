// SPDX-License-Identifier: MIT
#include "server.hpp"

#include <httplib.h>

#include "request_json.hpp"

namespace engine {

namespace {

using nlohmann::json;

std::string error_body(const std::string& message) {
  return json{{"error", {{"message", message}, {"type", "invalid_request_error"}}}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

json completion(const std::string& id, const std::string& model, const std::vector<std::int32_t>& tokens,
                const std::vector<float>& logprobs, const std::string& reason) {
  json choice{
      {"index", 0}, {"tokens", tokens}, {"logprobs", {{"token_logprobs", logprobs}}}, {"finish_reason", nullptr}};
  if (!reason.empty()) choice["finish_reason"] = reason;
  return {{"id", id}, {"object", "text_completion"}, {"model", model}, {"choices", json::array({choice})}};
}

constexpr std::chrono::seconds patience(1);  // then a connection looks whether its client is still there

/// Sends each event as it comes. Gives false when the stream is over.
bool stream_event(Events& events, const std::string& id, const std::string& model, httplib::DataSink& sink) {
  const std::optional<Event> event = events.get(patience);
  if (!event) return sink.is_writable();
  const std::string line =
      "data: " + completion(id, model, event->tokens, event->logprobs, event->finish_reason).dump() + "\n\n";
  if (!sink.write(line.data(), line.size())) return false;
  if (event->finish_reason.empty()) return true;
  constexpr std::string_view done = "data: [DONE]\n\n";
  sink.write(done.data(), done.size());
  sink.done();
  return true;
}

void answer_whole(Events& events, std::size_t prompt_tokens, const std::string& id, const std::string& model,
                  httplib::Response& response) {
  Event all{.id = id};
  while (all.finish_reason.empty()) {
    const std::optional<Event> event = events.get();
    all.tokens.insert(all.tokens.end(), event->tokens.begin(), event->tokens.end());
    all.logprobs.insert(all.logprobs.end(), event->logprobs.begin(), event->logprobs.end());
    all.finish_reason = event->finish_reason;
  }
  if (all.finish_reason == "error") {
    response.status = 500;
    response.set_content(error_body("the engine failed"), "application/json");
    return;
  }
  json body = completion(id, model, all.tokens, all.logprobs, all.finish_reason);
  body["usage"] = {{"prompt_tokens", prompt_tokens},
                   {"completion_tokens", all.tokens.size()},
                   {"total_tokens", prompt_tokens + all.tokens.size()}};
  response.set_content(body.dump(), "application/json");
}

}  // namespace

void serve(Service& service, const std::string& model, const std::string& host, int port) {
  httplib::Server server;
  server.set_payload_max_length(64 << 20);
  std::atomic<std::uint64_t> served{0};
  server.Get("/health", [](const httplib::Request&, httplib::Response& response) {
    response.set_content("{}", "application/json");
  });
  server.Get("/v1/models", [&](const httplib::Request&, httplib::Response& response) {
    response.set_content(json{{"object", "list"}, {"data", json::array({{{"id", model}, {"object", "model"}}})}}.dump(),
                         "application/json");
  });
  server.Post("/v1/completions", [&](const httplib::Request& post, httplib::Response& response) {
    const std::string id = "cmpl-" + std::to_string(++served);
    const auto events = std::make_shared<Events>();
    std::optional<std::string> error;
    std::size_t prompt_tokens = 0;
    bool stream = false;
    try {
      const json body = parse_object(post.body);
      Request request = to_request(body);
      stream = body.contains("stream") && body["stream"].is_boolean() && body["stream"].get<bool>();
      request.id = id;
      prompt_tokens = request.prompt.size();
      error = service.submit(std::move(request), events);
    } catch (const std::exception& wrong) {
      error = wrong.what();
    }
    if (error) {
      response.status = 400;
      response.set_content(error_body(*error), "application/json");
    } else if (stream) {
      response.set_chunked_content_provider(
          "text/event-stream",
          [=](std::size_t, httplib::DataSink& sink) { return stream_event(*events, id, model, sink); },
          [&service, id](bool) { service.cancel(id); });  // finished or gone: nothing is left to do
    } else {
      answer_whole(*events, prompt_tokens, id, model, response);
    }
  });
  if (!server.listen(host, port)) throw Error("cannot listen on " + host + ":" + std::to_string(port));
}

}  // namespace engine
