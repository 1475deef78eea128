// SPDX-License-Identifier: MIT
// Requests and answers as JSON. A request: {"prompt": [1, 2, 3], "max_tokens": 16, "temperature": 0.0, "top_p": 1.0,
// "top_k": 0, "seed": 0, "ignore_eos": false, "id": "any text"}; everything but the prompt may be left out.
#pragma once

#include <nlohmann/json.hpp>

#include "engine.hpp"

namespace engine {

/// Throws Error with the field that is wrong. The text may be anything at all.
Request parse_request(const std::string& text);

/// {"id", "tokens", "logprobs", "finish_reason"}; what is not there yet has no field.
nlohmann::json to_json(const Event& event);

}  // namespace engine
