// SPDX-License-Identifier: MIT
// Values of JSON with their types and ranges checked, for launch files, bundles and the metadata of kernels. Every
// Error is one line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sim/machine/instruction.hpp"

namespace tilewave::sim {

/// Documents nested deeper than any of ours are refused: readers and writers of such values call themselves.
constexpr int max_json_depth = 64;

/// Parses the text of a file; `what` names the file in an Error.
nlohmann::json parse_json(const std::string& text, const std::string& what);
nlohmann::json parse_msgpack(const std::vector<std::uint8_t>& bytes, const std::string& what);

/// The value as an Error shows it, cut short.
std::string shown(const nlohmann::json& v);
/// Memory that is to be filled has to be there: what the system promises and does not have, it takes by killing.
void check_memory(std::uint64_t bytes, const std::string& what);

/// A whole number of JSON that T holds.
template <class T>
T integer_of(const nlohmann::json& v, const std::string& what) {
  const bool fits = v.is_number_unsigned() ? std::in_range<T>(v.get<std::uint64_t>())
                                           : v.is_number_integer() && std::in_range<T>(v.get<std::int64_t>());
  if (!fits) throw Error(what + " is no whole number in range: " + shown(v));
  return v.is_number_unsigned() ? static_cast<T>(v.get<std::uint64_t>()) : static_cast<T>(v.get<std::int64_t>());
}
std::string text_of(const nlohmann::json& v, const std::string& what);
/// Also accepts values that JSON has no numbers for, as text: inf, -inf, nan.
double real_of(const nlohmann::json& v, const std::string& what);
const nlohmann::json& member(const nlohmann::json& object, const char* key, const std::string& what);
/// A member that is a list.
const nlohmann::json& list_of(const nlohmann::json& object, const char* key, const std::string& what);

/// Hexadecimal digits, two a byte.
std::vector<std::uint8_t> bytes_from_hex(const std::string& text);

}  // namespace tilewave::sim
