// SPDX-License-Identifier: MIT
// OpenAI's completions protocol over HTTP, of token ids: POST /v1/completions, GET /v1/models, GET /health.
#pragma once

#include <string>

#include "service.hpp"

namespace engine {

/// Serves until the process ends. Throws Error if the port is taken. A request that is wrong is answered with status 400
/// and a JSON error; a client that goes away cancels its request.
void serve(Service& service, const std::string& model, const std::string& host, int port);

}  // namespace engine
