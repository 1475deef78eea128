// SPDX-License-Identifier: MIT
// How the specs of a list of row operations are divided among code objects, and which of these gate every change.
#pragma once

#include <cstddef>
#include <string_view>

/// About four specs to an object: one of its own would be mostly headers. Object i has every row_objects()-th spec from
/// i
/// on. Lists are loops over kinds, types and scales, two to four of each: with an odd step an object has some of each.
constexpr std::size_t row_objects(std::size_t specs) {
  const std::size_t fours = (specs + 3) / 4;
  return fours > 2 ? fours | 1 : fours;
}

/// The first object of an op's own list; the others, and lists for tests labelled full, wait for that label.
constexpr bool in_slice(std::string_view list, std::string_view op, std::size_t object) {
  return list == op && object == 0;
}
