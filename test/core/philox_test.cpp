// SPDX-License-Identifier: MIT
// Philox4x32-10 against the known answers that Random123 publishes (kat_vectors).
#include "tilewave/core/philox.hpp"

#include "test/catch_compat.hpp"

namespace tilewave::test {
namespace {

using Words = Vec<std::uint32_t, 4>;

bool gives(Words counter, Vec<std::uint32_t, 2> key, Words wanted) {
  const Words got = philox4x32(counter, key);
  return got[0] == wanted[0] && got[1] == wanted[1] && got[2] == wanted[2] && got[3] == wanted[3];
}

TEST_CASE("philox gives the known answers of Random123") {
  constexpr std::uint32_t ones = 0xffffffffu;
  CHECK(gives({{0, 0, 0, 0}}, {{0, 0}}, {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}}));
  CHECK(gives({{ones, ones, ones, ones}}, {{ones, ones}}, {{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}}));
  CHECK(gives({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, {{0xa4093822u, 0x299f31d0u}},
              {{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}}));
}

}  // namespace
}  // namespace tilewave::test
