// SPDX-License-Identifier: MIT
// A list of values that are known when compiling: the specs of an op, or the policies of a spec.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>

namespace tilewave {

namespace detail {

/// The compiler stops here, by this name, where a list is made that has no room for all of its values: the capacity
/// stands where the list's type is named.
[[noreturn]] inline void the_list_is_full() { std::abort(); }

}  // namespace detail

/// At most `most` values, in the order in which they were added. Its members are public, so that a list can be a
/// template argument.
template <class Value, int most = 32>
struct ValueList {
  static constexpr int capacity = most;
  std::array<Value, most> values{};
  int count = 0;

  /// Adds a value. One too many does not compile, since lists are made when compiling.
  constexpr void add(const Value& value) {
    if (full()) detail::the_list_is_full();
    values[count++] = value;
  }
  constexpr bool full() const { return count == most; }
  constexpr std::size_t size() const { return count; }
  constexpr const Value& operator[](std::size_t i) const { return values[i]; }
  constexpr Value& back() { return values[count - 1]; }
  constexpr const Value& back() const { return values[count - 1]; }
  constexpr const Value* begin() const { return values.data(); }
  constexpr const Value* end() const { return values.data() + count; }
};

}  // namespace tilewave
