// SPDX-License-Identifier: MIT
#include "tilewave/core/vec.hpp"

#include <cstdint>
#include <type_traits>

#include "test/catch_compat.hpp"

namespace {

using namespace tilewave;

// A vector that one instruction moves is as large as its elements and aligned to all of them.
template <class T, int N>
constexpr bool is_one_access = sizeof(Vec<T, N>) == N * sizeof(T) && alignof(Vec<T, N>) == N * sizeof(T);

template <class T, int N>
constexpr bool is_packed = sizeof(Vec<T, N>) == N * sizeof(T) && alignof(Vec<T, N>) == alignof(T);

}  // namespace

TEST_CASE("a vector of up to 16 bytes is aligned to its size") {
  STATIC_REQUIRE(is_one_access<std::uint8_t, 2>);
  STATIC_REQUIRE(is_one_access<std::uint8_t, 4>);
  STATIC_REQUIRE(is_one_access<std::uint8_t, 8>);
  STATIC_REQUIRE(is_one_access<std::uint8_t, 16>);
  STATIC_REQUIRE(is_one_access<std::uint16_t, 1>);
  STATIC_REQUIRE(is_one_access<std::uint16_t, 8>);
  STATIC_REQUIRE(is_one_access<float, 1>);
  STATIC_REQUIRE(is_one_access<float, 2>);
  STATIC_REQUIRE(is_one_access<float, 4>);
  STATIC_REQUIRE(is_one_access<std::uint32_t, 4>);
  STATIC_REQUIRE(sizeof(Chunk) == 16);
  STATIC_REQUIRE(alignof(Chunk) == 16);
}

TEST_CASE("a longer vector is moved in 16-byte pieces, an odd one element by element") {
  STATIC_REQUIRE(alignof(Vec<float, 8>) == 16);
  STATIC_REQUIRE(sizeof(Vec<float, 8>) == 32);
  STATIC_REQUIRE(alignof(Vec<std::uint16_t, 64>) == 16);
  STATIC_REQUIRE(is_packed<float, 3>);
  STATIC_REQUIRE(is_packed<std::uint16_t, 3>);
  STATIC_REQUIRE(is_packed<std::uint8_t, 5>);
}

TEST_CASE("a vector is trivially copyable, so it may live in kernel arguments and registers") {
  STATIC_REQUIRE(std::is_trivially_copyable_v<Chunk>);
  STATIC_REQUIRE(std::is_trivially_default_constructible_v<Chunk>);
  STATIC_REQUIRE(Vec<float, 6>::size == 6);
}

TEST_CASE("elements are written and read by index") {
  Vec<int, 4> v{{1, 2, 3, 4}};
  v[2] = 30;
  const Vec<int, 4>& constant = v;
  CHECK(constant[0] == 1);
  CHECK(constant[1] == 2);
  CHECK(constant[2] == 30);
  CHECK(constant[3] == 4);
}
