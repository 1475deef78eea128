// SPDX-License-Identifier: MIT
// Requests and answers as JSON. A request: {"prompt": [1, 2, 3], "max_tokens": 16, "temperature": 0.0, "top_p": 1.0,
// "top_k": 0, "seed": 0, "ignore_eos": false, "id": "any text"}; everything but the prompt may be left out.
#pragma once

#include <nlohmann/json.hpp>

#include "engine.hpp"

namespace engine {

/// Returns the object that the text is, which may be anything at all. Throws Error if it is none.
nlohmann::json parse_object(const std::string& text);
/// Throws Error with the field that is wrong.
Request to_request(const nlohmann::json& object);
inline Request parse_request(const std::string& text) { return to_request(parse_object(text)); }

/// {"id", "tokens", "logprobs", "finish_reason"}; what is not there yet has no field.
nlohmann::json to_json(const Event& event);

}  // namespace engine
