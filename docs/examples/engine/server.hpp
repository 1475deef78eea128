// SPDX-License-Identifier: MIT
// OpenAI's completions protocol over HTTP, of token ids, part 4 of the tutorial: POST /v1/completions, GET /v1/models,
// GET /health.
#pragma once

#include <httplib.h>

#include "request_json.hpp"
#include "service.hpp"

namespace engine {

namespace http {

inline void answer(httplib::Response& response, const nlohmann::json& body) {
  response.set_content(body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "application/json");
}
inline void refuse(httplib::Response& response, int status, const std::string& message) {
  response.status = status;
  answer(response, {{"error", {{"message", message}, {"type", "invalid_request_error"}}}});
}

inline nlohmann::json completion(const std::string& model, const Event& event) {
  nlohmann::json choice{{"index", 0},
                        {"tokens", event.tokens},
                        {"logprobs", {{"token_logprobs", event.logprobs}}},
                        {"finish_reason", nullptr}};
  if (!event.finish_reason.empty()) choice["finish_reason"] = event.finish_reason;
  return {
      {"id", event.id}, {"object", "text_completion"}, {"model", model}, {"choices", nlohmann::json::array({choice})}};
}

/// Sends each event as it comes. Gives false when the stream is over.
inline bool stream_event(Events& events, const std::string& model, httplib::DataSink& sink) {
  constexpr std::chrono::seconds patience(1);  // then a connection looks whether its client is still there
  const std::optional<Event> event = events.get(patience);
  if (!event) return sink.is_writable();
  const std::string line = "data: " + completion(model, *event).dump() + "\n\n";
  if (!sink.write(line.data(), line.size())) return false;
  if (event->finish_reason.empty()) return true;
  constexpr std::string_view done = "data: [DONE]\n\n";
  sink.write(done.data(), done.size());
  sink.done();
  return true;
}

inline void answer_whole(Events& events, Event all, std::size_t prompt_tokens, const std::string& model,
                         httplib::Response& response) {
  while (all.finish_reason.empty()) {
    const std::optional<Event> event = events.get();
    all.tokens.insert(all.tokens.end(), event->tokens.begin(), event->tokens.end());
    all.logprobs.insert(all.logprobs.end(), event->logprobs.begin(), event->logprobs.end());
    all.finish_reason = event->finish_reason;
  }
  if (all.finish_reason == "error") return refuse(response, 500, "the engine failed");
  nlohmann::json body = completion(model, all);
  body["usage"] = {{"prompt_tokens", prompt_tokens},
                   {"completion_tokens", all.tokens.size()},
                   {"total_tokens", prompt_tokens + all.tokens.size()}};
  answer(response, body);
}

}  // namespace http

/// Serves until the process ends. Throws Error if the port is taken. A request that is wrong is answered with status 400
/// and a JSON error; a client that goes away cancels its request.
inline void serve(Service& service, const std::string& model, const std::string& host, int port) {
  httplib::Server server;
  server.set_payload_max_length(64 << 20);
  std::atomic<std::uint64_t> served{0};
  server.Get("/health", [](const httplib::Request&, httplib::Response& response) {
    http::answer(response, nlohmann::json::object());
  });
  server.Get("/v1/models", [&](const httplib::Request&, httplib::Response& response) {
    const nlohmann::json only{{"id", model}, {"object", "model"}};
    http::answer(response, {{"object", "list"}, {"data", nlohmann::json::array({only})}});
  });
  server.Post("/v1/completions", [&](const httplib::Request& post, httplib::Response& response) {
    const std::string id = "cmpl-" + std::to_string(++served);
    const auto events = std::make_shared<Events>();
    try {
      const nlohmann::json body = parse_object(post.body);
      Request request = to_request(body);
      request.id = id;
      const std::size_t prompt_tokens = request.prompt.size();
      if (const auto error = service.submit(std::move(request), events)) throw Error(*error);
      if (body.value("stream", nlohmann::json()) != true)
        return http::answer_whole(*events, {id, {}, {}, {}}, prompt_tokens, model, response);
      response.set_chunked_content_provider(
          "text/event-stream",
          [=](std::size_t, httplib::DataSink& sink) { return http::stream_event(*events, model, sink); },
          [&service, id](bool) { service.cancel(id); });  // finished or gone: nothing is left to do
    } catch (const std::exception& wrong) {
      http::refuse(response, 400, wrong.what());
    }
  });
  if (!server.listen(host, port)) throw Error("cannot listen on " + host + ":" + std::to_string(port));
}

}  // namespace engine
