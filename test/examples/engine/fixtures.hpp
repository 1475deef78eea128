// SPDX-License-Identifier: MIT
// Where the tiny models are: test/examples/engine/models, made by make_fixtures.py.
#pragma once

#include <filesystem>

inline std::filesystem::path fixtures() { return ENGINE_FIXTURES; }
