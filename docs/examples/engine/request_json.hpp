// SPDX-License-Identifier: MIT
// Requests and answers as JSON, part 5 of the tutorial. A request: {"prompt": [1, 2, 3], "max_tokens": 16,
// "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0, "ignore_eos": false, "id": "any text"}; everything but the
// prompt may be left out.
#pragma once

#include "engine.hpp"
#include "fields.hpp"

namespace engine {

/// Returns the object that the text is, which may be anything at all. Throws Error if it is none.
inline nlohmann::json parse_object(const std::string& text) {
  nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw Error("the request is no JSON object");
  return object;
}

/// Throws Error with the field that is wrong.
inline Request to_request(const nlohmann::json& object) {
  const Fields fields("", object);
  Request r;
  r.id = fields.get("id", r.id);
  r.prompt = fields.list<std::int32_t>("prompt");
  r.max_tokens = fields.get("max_tokens", r.max_tokens);
  r.temperature = fields.get("temperature", r.temperature);
  r.top_p = fields.get("top_p", r.top_p);
  r.top_k = fields.get("top_k", r.top_k);
  r.seed = fields.get("seed", r.seed);
  r.ignore_eos = fields.get("ignore_eos", r.ignore_eos);
  return r;
}
inline Request parse_request(const std::string& text) { return to_request(parse_object(text)); }

/// {"id", "tokens", "logprobs", "finish_reason"}; what is not there yet has no field.
inline nlohmann::json to_json(const Event& event) {
  nlohmann::json object{{"id", event.id}, {"tokens", event.tokens}, {"logprobs", event.logprobs}};
  if (!event.finish_reason.empty()) object["finish_reason"] = event.finish_reason;
  return object;
}

}  // namespace engine
