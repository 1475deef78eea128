// SPDX-License-Identifier: MIT
#include "request_json.hpp"

#include "fields.hpp"

namespace engine {

using nlohmann::json;

json parse_object(const std::string& text) {
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw Error("the request is no JSON object");
  return object;
}

Request to_request(const json& object) {
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

json to_json(const Event& event) {
  json object{{"id", event.id}, {"tokens", event.tokens}, {"logprobs", event.logprobs}};
  if (!event.finish_reason.empty()) object["finish_reason"] = event.finish_reason;
  return object;
}

}  // namespace engine
