// SPDX-License-Identifier: MIT
// Both fp8 flavours against the formats' definitions.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "test/catch_compat.hpp"
#include "test/core/fp8_table.hpp"
#include "tilewave/core/dtype.hpp"

namespace {

using namespace tilewave;
using test::by_definition;
using test::nearest_code;

constexpr std::array flavours{DType::fp8_e4m3fn, DType::fp8_e4m3fnuz};

}  // namespace

TEST_CASE("all 256 codes of both fp8 flavours decode to the value the format defines") {
  for (const DType type : flavours) {
    int nans = 0;
    for (int code = 0; code < 256; ++code) {
      CAPTURE(name_of(type), code);
      const double expected = by_definition(type, code);
      const float value = fp8_to_f32(type, static_cast<std::uint8_t>(code));
      if (std::isnan(expected)) {
        ++nans;
        REQUIRE(std::isnan(value));
      } else {
        REQUIRE(static_cast<double>(value) == expected);
        REQUIRE(std::signbit(value) == std::signbit(expected));
      }
    }
    CHECK(nans == (type == DType::fp8_e4m3fn ? 2 : 1));
  }
}

TEST_CASE("spot values of both fp8 flavours") {
  CHECK(fp8_to_f32(DType::fp8_e4m3fn, 0x7e) == 448.0f);
  CHECK(fp8_to_f32(DType::fp8_e4m3fn, 0x38) == 1.0f);
  CHECK(fp8_to_f32(DType::fp8_e4m3fn, 0x01) == 0.001953125f);
  CHECK(fp8_to_f32(DType::fp8_e4m3fnuz, 0x7f) == 240.0f);
  CHECK(fp8_to_f32(DType::fp8_e4m3fnuz, 0x40) == 1.0f);
  CHECK(fp8_to_f32(DType::fp8_e4m3fnuz, 0x01) == 0.0009765625f);
  CHECK(fp8_max(DType::fp8_e4m3fn) == 448.0f);
  CHECK(fp8_max(DType::fp8_e4m3fnuz) == 240.0f);
}

TEST_CASE("every finite fp8 code encodes back to itself and is exact in bf16") {
  for (const DType type : flavours) {
    for (int code = 0; code < 256; ++code) {
      const float value = fp8_to_f32(type, static_cast<std::uint8_t>(code));
      if (std::isnan(value)) continue;
      CAPTURE(name_of(type), code, value);
      REQUIRE(f32_to_fp8(type, value) == code);
      REQUIRE(bf16_to_f32(f32_to_bf16(value)) == value);
    }
  }
}

TEST_CASE("f32 to fp8 takes the nearest value, ties to even, saturating") {
  for (const DType type : flavours) {
    // Every bf16 value covers all exponents and, with 8 bits of significand, every fp8 tie (which has 5) and more.
    for (std::uint32_t code = 0; code < 0x10000; ++code) {
      const float value = bf16_to_f32(static_cast<std::uint16_t>(code));
      if (std::isnan(value)) continue;
      if (f32_to_fp8(type, value) == nearest_code(type, value)) continue;
      CAPTURE(name_of(type), code, value);
      REQUIRE(int{f32_to_fp8(type, value)} == nearest_code(type, value));
    }
  }
}

TEST_CASE("f32 to fp8 one ulp either side of every tie") {
  for (const DType type : flavours) {
    for (int code = 0; code < 0x7f; ++code) {
      const double low = by_definition(type, code), high = by_definition(type, code + 1);
      if (std::isnan(low) || std::isnan(high)) continue;
      const float tie = static_cast<float>((low + high) / 2);  // exact: one more bit than the format has
      for (const float sign : {1.0f, -1.0f}) {
        for (const float value : {std::nextafter(tie, 0.0f), tie, std::nextafter(tie, 1e9f)}) {
          CAPTURE(name_of(type), code, sign * value);
          REQUIRE(int{f32_to_fp8(type, sign * value)} == nearest_code(type, sign * value));
        }
      }
    }
  }
}

TEST_CASE("f32 to fp8 at the edges") {
  const float infinity = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
  const float nan = std::numeric_limits<float>::quiet_NaN(), smallest = std::numeric_limits<float>::denorm_min();
  for (const float value : {448.0f, 449.0f, 464.0f, 1e6f, largest, infinity}) {
    CHECK(f32_to_fp8(DType::fp8_e4m3fn, value) == 0x7e);
    CHECK(f32_to_fp8(DType::fp8_e4m3fn, -value) == 0xfe);
    CHECK(f32_to_fp8(DType::fp8_e4m3fnuz, value) == 0x7f);
    CHECK(f32_to_fp8(DType::fp8_e4m3fnuz, -value) == 0xff);
  }
  CHECK(f32_to_fp8(DType::fp8_e4m3fn, -0.0f) == 0x80);
  CHECK(f32_to_fp8(DType::fp8_e4m3fnuz, -0.0f) == 0x00);  // 0x80 is this flavour's NaN
  CHECK(f32_to_fp8(DType::fp8_e4m3fnuz, -smallest) == 0x00);
  CHECK(f32_to_fp8(DType::fp8_e4m3fn, smallest) == 0x00);
  for (const float value : {nan, -nan, std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffffffffu)}) {
    CHECK(f32_to_fp8(DType::fp8_e4m3fn, value) == 0x7f);
    CHECK(f32_to_fp8(DType::fp8_e4m3fnuz, value) == 0x80);
  }
}
