// SPDX-License-Identifier: MIT
// Counter-based random numbers: every value is a pure function of its coordinates. Any part of a tensor can then be
// made in any order by any thread, and is always the same.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace tilewave::bench {

/// This is the finaliser of splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Returns 64 random bits of a list of coordinates; their order matters.
constexpr std::uint64_t random_bits(std::initializer_list<std::uint64_t> coordinates) {
  std::uint64_t state = 0;
  for (const std::uint64_t c : coordinates) state = mix64(state + 0x9e3779b97f4a7c15ull + c);
  return state;
}

/// Returns the i-th number of the stream `key`, uniform in (-1, 1): odd multiples of 2^-23, exact in f32. One hash
/// makes two.
constexpr float random_uniform(std::uint64_t key, std::uint64_t i) {
  const std::uint64_t bits = mix64(key + (i / 2 + 1) * 0x9e3779b97f4a7c15ull) >> (i % 2 * 32);
  return static_cast<float>(static_cast<std::int32_t>(bits >> 9 & 0x7fffffu) * 2 - 0x7fffff) * 0x1p-23f;
}

/// Writes the first `count` numbers of the stream `key`.
inline void random_uniforms(std::uint64_t key, int count, float* values) {
  const auto number = [](std::uint64_t bits) {
    return static_cast<float>(static_cast<std::int32_t>(bits >> 9 & 0x7fffffu) * 2 - 0x7fffff) * 0x1p-23f;
  };
  for (int i = 0; i < count; i += 2) {
    const std::uint64_t bits = mix64(key + (static_cast<std::uint64_t>(i) / 2 + 1) * 0x9e3779b97f4a7c15ull);
    values[i] = number(bits);
    if (i + 1 < count) values[i + 1] = number(bits >> 32);
  }
}

/// Returns number `column` of the stream that seed, name and row make. Tensors are filled row by row, so the last row's
/// stream is kept: making it takes three times as long as a number.
inline float random_of_row(std::uint64_t seed, char name, std::int64_t row, std::int64_t column) {
  struct Stream {
    std::uint64_t seed = 0;
    std::int64_t row = -1;
    char name = 0;
    std::uint64_t key = 0;
  };
  thread_local constinit Stream last;
  if (last.row != row || last.name != name || last.seed != seed) {
    const auto letter = static_cast<std::uint64_t>(name);
    last = {seed, row, name, random_bits({seed, letter, static_cast<std::uint64_t>(row)})};
  }
  return random_uniform(last.key, static_cast<std::uint64_t>(column));
}

/// Writes the first `count` numbers of that stream.
inline void random_uniforms_of_row(std::uint64_t seed, char name, std::int64_t row, int count, float* values) {
  random_uniforms(random_bits({seed, static_cast<std::uint64_t>(name), static_cast<std::uint64_t>(row)}), count,
                  values);
}

/// Returns a uniform integer in [0, n), n < 2^32: the top bits of a product, biased by less than n / 2^32.
constexpr std::int64_t random_below(std::uint64_t bits, std::int64_t n) {
  return static_cast<std::int64_t>((bits >> 32) * static_cast<std::uint64_t>(n) >> 32);
}

}  // namespace tilewave::bench
