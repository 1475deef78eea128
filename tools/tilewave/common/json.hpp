// SPDX-License-Identifier: MIT
// JSON, with the parser and the writer compiled once.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tilewave::tool {

using Json = nlohmann::ordered_json;

/// Refuses what is no JSON, naming the source, and what nests deeper than 200.
Json parse_json(std::string_view text, const std::string& source);

/// Parses JSON from the output of a program that prints other text before and behind it.
Json parse_json_in_talk(std::string_view text, const std::string& source);

/// Indented by one, bytes that are no UTF-8 replaced, a line break at the end.
std::string dump(const Json& json);

// Members by name; each refuses, naming the source and the key, what is not there or is of another type.
const Json& member(const Json& json, const char* key, const std::string& source);
std::string text_member(const Json& json, const char* key, const std::string& source);
double number_member(const Json& json, const char* key, const std::string& source);
std::int64_t integer_member(const Json& json, const char* key, const std::string& source);
bool bool_member(const Json& json, const char* key, const std::string& source);
const Json& list_member(const Json& json, const char* key, const std::string& source);

}  // namespace tilewave::tool
