// SPDX-License-Identifier: MIT
// How the engine fails, part 5 of the tutorial: one exception with one line of text, which main() prints. A request that is wrong gets an error
// of its own instead, and the engine goes on (see Engine::submit).
#pragma once

#include <stdexcept>
#include <string>

namespace engine {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace engine
