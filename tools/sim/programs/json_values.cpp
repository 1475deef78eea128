// SPDX-License-Identifier: MIT
#include "sim/programs/json_values.hpp"

#include <unistd.h>

#include <charconv>
#include <cmath>

namespace tilewave::sim {
namespace {

using nlohmann::json;

/// Stops at the first value that lies too deep; takes everything else.
class DepthCheck : public nlohmann::json_sax<json> {
 public:
  bool too_deep = false;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool enter() {
    too_deep = ++depth_ > max_json_depth;
    return !too_deep;
  }
  bool leave() { return --depth_, true; }

  int depth_ = 0;
};

template <class Bytes>
void check_depth(const Bytes& bytes, json::input_format_t format, const std::string& what) {
  DepthCheck check;
  json::sax_parse(bytes, &check, format);
  if (check.too_deep) throw Error(what + " is nested deeper than " + std::to_string(max_json_depth) + " levels");
}

}  // namespace

json parse_json(const std::string& text, const std::string& what) {
  check_depth(text, json::input_format_t::json, what);
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) throw Error(what + " is no JSON");
  return value;
}

json parse_msgpack(const std::vector<std::uint8_t>& bytes, const std::string& what) {
  check_depth(bytes, json::input_format_t::msgpack, what);
  json value = json::from_msgpack(bytes, true, false);
  if (value.is_discarded()) throw Error(what + " is damaged");
  return value;
}

std::string shown(const json& v) {
  constexpr std::size_t most = 80;
  std::string text = v.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > most) text.replace(most, std::string::npos, "...");
  return text;
}

void check_memory(std::uint64_t bytes, const std::string& what) {
  const std::uint64_t there =
      static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes > there)
    throw Error(what + " has " + std::to_string(bytes) + " bytes, more than this machine's " + std::to_string(there));
}

std::string text_of(const json& v, const std::string& what) {
  if (!v.is_string()) throw Error(what + " is no text: " + shown(v));
  return v.get<std::string>();
}

double real_of(const json& v, const std::string& what) {
  if (v.is_number()) return v.get<double>();
  if (v == "inf" || v == "-inf") return v == "inf" ? INFINITY : -INFINITY;
  if (v == "nan") return NAN;
  throw Error(what + " is no number: " + shown(v));
}

const json& member(const json& object, const char* key, const std::string& what) {
  if (!object.is_object() || !object.contains(key)) throw Error(what + " has no " + key);
  return object.at(key);
}

const json& list_of(const json& object, const char* key, const std::string& what) {
  const json& list = member(object, key, what);
  if (!list.is_array()) throw Error(std::string(key) + " of " + what + " is no list: " + shown(list));
  return list;
}

std::vector<std::uint8_t> bytes_from_hex(const std::string& text) {
  if (text.size() % 2) throw Error("hex with an odd number of digits: " + text);
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, value, 16);
    if (error != std::errc{} || end != text.data() + i + 2) throw Error("no hex digits: " + text);
    bytes.push_back(static_cast<std::uint8_t>(value));
  }
  return bytes;
}

}  // namespace tilewave::sim
