// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/json.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

/// A destructor that recurses once a level would run out of stack on a file of brackets.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] == '\\') ++i;
      if (i < text.size() && text[i] == '"') quoted = false;
    } else if (text[i] == '"') {
      quoted = true;
    } else if (text[i] == '[' || text[i] == '{') {
      if (++depth > 200) return true;
    } else if (text[i] == ']' || text[i] == '}') {
      --depth;
    }
  }
  return false;
}

[[noreturn]] void wrong_type(const char* key, const char* type, const std::string& source) {
  refuse(fmt::format("{}: '{}' is no {}", source, key, type));
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  text = utf8_of(text, source);
  if (trim(text).empty()) refuse(source + " is empty: it is no JSON");
  if (text.find('\0') != text.npos) refuse(source + " holds zero bytes: it is no JSON");
  if (too_deep(text)) refuse(source + " nests deeper than 200");
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    refuse(fmt::format("{} is no JSON: {}", source, printable(error.what(), 200)));
  }
}

Json parse_json_in_talk(std::string_view text, const std::string& source) {
  text = utf8_of(text, source);
  // Warnings may begin with a bracket too ("[WARNING] ..."), so every line that begins with one is tried.
  int tries = 100;
  for (std::size_t at = 0; at < text.size() && tries > 0; at = std::min(text.find('\n', at), text.size() - 1) + 1) {
    if (text[at] != '{' && text[at] != '[') continue;
    const std::size_t end = text.find_last_of("}]");
    if (end == text.npos || end < at) break;
    --tries;
    try {
      return parse_json(text.substr(at, end + 1 - at), source);
    } catch (const Error&) {
      continue;
    }
  }
  return parse_json(text, source);  // which says what is wrong
}

std::string dump(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"; }

const Json& member(const Json& json, const char* key, const std::string& source) {
  if (!json.is_object()) refuse(fmt::format("{}: no object where '{}' should be", source, key));
  const auto found = json.find(key);
  if (found == json.end()) refuse(fmt::format("{}: '{}' is missing", source, key));
  return *found;
}

std::string text_member(const Json& json, const char* key, const std::string& source) {
  const Json& value = member(json, key, source);
  if (!value.is_string()) wrong_type(key, "text", source);
  return value.get<std::string>();
}

double number_member(const Json& json, const char* key, const std::string& source) {
  const Json& value = member(json, key, source);
  if (!value.is_number()) wrong_type(key, "number", source);
  return value.get<double>();
}

std::int64_t integer_member(const Json& json, const char* key, const std::string& source) {
  const Json& value = member(json, key, source);
  if (!value.is_number_integer()) wrong_type(key, "integer", source);
  return value.get<std::int64_t>();
}

bool bool_member(const Json& json, const char* key, const std::string& source) {
  const Json& value = member(json, key, source);
  if (!value.is_boolean()) wrong_type(key, "true or false", source);
  return value.get<bool>();
}

const Json& list_member(const Json& json, const char* key, const std::string& source) {
  const Json& value = member(json, key, source);
  if (!value.is_array()) wrong_type(key, "list", source);
  return value;
}

}  // namespace tilewave::tool
