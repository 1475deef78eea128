// SPDX-License-Identifier: MIT
#include "request_json.hpp"

namespace engine {

namespace {

using nlohmann::json;

template <class T>
void read(const json& object, const char* name, T& field) {
  if (!object.contains(name) || object[name].is_null()) return;
  const json& value = object[name];
  if constexpr (std::is_same_v<T, bool>) {
    if (!value.is_boolean()) throw Error(std::string(name) + " is neither true nor false");
    field = value.get<bool>();
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!value.is_number()) throw Error(std::string(name) + " is no number");
    field = static_cast<T>(value.get<double>());
  } else {
    if (!value.is_number_integer()) throw Error(std::string(name) + " is no integer");
    const auto wide = value.get<std::int64_t>();
    if (value.is_number_unsigned() ? !std::in_range<T>(value.get<std::uint64_t>()) : !std::in_range<T>(wide))
      throw Error(std::string(name) + " is outside its range");
    field = value.is_number_unsigned() ? static_cast<T>(value.get<std::uint64_t>()) : static_cast<T>(wide);
  }
}

}  // namespace

json parse_object(const std::string& text) {
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw Error("the request is no JSON object");
  return object;
}

Request to_request(const json& object) {
  Request request;
  if (object.contains("id")) {
    if (!object["id"].is_string()) throw Error("id is no text");
    request.id = object["id"].get<std::string>();
  }
  if (!object.contains("prompt") || !object["prompt"].is_array()) throw Error("prompt is no list of token ids");
  for (const json& token : object["prompt"]) {
    if (!token.is_number_integer()) throw Error("prompt has an entry that is no integer");
    const auto id = token.get<std::int64_t>();
    if (!std::in_range<std::int32_t>(id)) throw Error("prompt has a token that is no 32-bit integer");
    request.prompt.push_back(static_cast<std::int32_t>(id));
  }
  read(object, "max_tokens", request.max_tokens);
  read(object, "temperature", request.temperature);
  read(object, "top_p", request.top_p);
  read(object, "top_k", request.top_k);
  read(object, "seed", request.seed);
  read(object, "ignore_eos", request.ignore_eos);
  return request;
}

json to_json(const Event& event) {
  json object{{"id", event.id}, {"tokens", event.tokens}, {"logprobs", event.logprobs}};
  if (!event.finish_reason.empty()) object["finish_reason"] = event.finish_reason;
  return object;
}

}  // namespace engine
