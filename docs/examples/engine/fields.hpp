// SPDX-License-Identifier: MIT
// Fields of a JSON object that may be anything, part 5 of the tutorial: configs, headers of files, requests.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "error.hpp"

namespace engine {

/// Reads fields. Every failure is an Error that says where the object is and which field is wrong. A field that is null counts
/// as missing.
class Fields {
 public:
  Fields(std::string where, const nlohmann::json& object) : where_(std::move(where)), object_(object) {
    if (!object.is_object()) throw Error(where_ + "is no JSON object");
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
    throw Error(where_ + name + " " + why);
  }
  bool has(const std::string& name) const { return object_.contains(name) && !object_[name].is_null(); }
  bool is_list(const std::string& name) const { return has(name) && object_[name].is_array(); }
  Fields inner(const std::string& name) const {
    if (!has(name) || !object_[name].is_object()) refuse(name, "is no object");
    return {where_ + name + ": ", object_[name]};
  }

  /// An integer, a number, a flag or a text.
  template <class T>
  T get(const std::string& name) const {
    if (!has(name)) refuse(name, "is missing");
    return value<T>(name, "", object_[name]);
  }
  template <class T>
  T get(const std::string& name, const T& otherwise) const {
    return has(name) ? get<T>(name) : otherwise;
  }
  template <class T>
  std::vector<T> list(const std::string& name) const {
    if (!has(name)) refuse(name, "is missing");
    if (!object_[name].is_array()) refuse(name, "is no list");
    std::vector<T> found;
    for (const nlohmann::json& entry : object_[name]) found.push_back(value<T>(name, "has an entry that ", entry));
    return found;
  }
  /// One integer of a range. Without `otherwise` it must be there.
  std::int32_t integer(const std::string& name, std::int32_t least, std::int32_t most,
                       std::optional<std::int32_t> otherwise = std::nullopt) const {
    if (otherwise && !has(name)) return *otherwise;
    const auto value = get<std::int64_t>(name);
    if (value < least || value > most) refuse(name, "is " + std::to_string(value) + ", outside its range");
    return static_cast<std::int32_t>(value);
  }

 private:
  template <class T>
  T value(const std::string& name, const std::string& what, const nlohmann::json& value) const {
    if constexpr (std::same_as<T, bool>) {
      if (!value.is_boolean()) refuse(name, what + "is neither true nor false");
    } else if constexpr (std::same_as<T, std::string>) {
      if (!value.is_string()) refuse(name, what + "is no text");
    } else if constexpr (std::floating_point<T>) {
      if (!value.is_number()) refuse(name, what + "is no number");
    } else {
      if (!value.is_number_integer()) refuse(name, what + "is no integer");
      const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<std::uint64_t>())
                                                   : std::in_range<T>(value.get<std::int64_t>());
      if (!fits) refuse(name, what + "is outside its range");
    }
    return value.get<T>();
  }

  std::string where_;
  const nlohmann::json& object_;
};

}  // namespace engine
