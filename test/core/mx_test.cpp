// SPDX-License-Identifier: MIT
// OCP MX's fp4, fp6 and e8m0 against their definitions.
#include <cmath>
#include <cstdint>
#include <limits>

#include "test/catch_compat.hpp"
#include "test/core/mx_table.hpp"
#include "tilewave/core/dtype.hpp"

namespace {
using namespace tilewave;
using test::fp4_by_definition;
using test::fp6_by_definition;
using test::nearest_fp4;
using test::nearest_fp6;
}  // namespace

TEST_CASE("all 16 codes of fp4 decode to the value the format defines, and encode back") {
  for (int code = 0; code < 16; ++code) {
    CAPTURE(code);
    const float value = fp4_to_f32(static_cast<std::uint8_t>(code));
    CHECK(value == fp4_by_definition(code));
    CHECK(std::signbit(value) == (code >= 8));
    CHECK(int{f32_to_fp4(value)} == code);
    CHECK(fp4_to_f32(static_cast<std::uint8_t>(code | 0xf0)) == value);
  }
}

TEST_CASE("f32 to fp4 takes the nearest value, ties to even, saturating") {
  int wrong = 0;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {  // every bf16, which has all ties
    const float value = bf16_to_f32(static_cast<std::uint16_t>(code));
    if (!std::isnan(value)) wrong += int{f32_to_fp4(value)} != nearest_fp4(value);
  }
  CHECK(wrong == 0);
  for (int code = 0; code < 7; ++code) {
    const auto tie = static_cast<float>((fp4_by_definition(code) + fp4_by_definition(code + 1)) / 2);
    for (const float value : {std::nextafter(tie, 0.0f), tie, std::nextafter(tie, 9.0f)}) {
      CAPTURE(value);
      CHECK(int{f32_to_fp4(value)} == nearest_fp4(value));
      CHECK(int{f32_to_fp4(-value)} == nearest_fp4(-value));
    }
  }
  CHECK(int{f32_to_fp4(std::numeric_limits<float>::infinity())} == 7);
  CHECK(int{f32_to_fp4(-std::numeric_limits<float>::max())} == 15);
  CHECK(int{f32_to_fp4(std::numeric_limits<float>::denorm_min())} == 0);
}

TEST_CASE("all 64 codes of either fp6 decode to the value the format defines, and encode back") {
  for (const DType type : {DType::fp6_e2m3, DType::fp6_e3m2}) {
    CAPTURE(name_of(type));
    for (int code = 0; code < 64; ++code) {
      CAPTURE(code);
      const float value = fp6_to_f32(type, static_cast<std::uint8_t>(code));
      CHECK(value == fp6_by_definition(type, code));
      CHECK(std::signbit(value) == (code >= 32));
      CHECK(int{f32_to_fp6(type, value)} == code);
      CHECK(fp6_to_f32(type, static_cast<std::uint8_t>(code | 0xc0)) == value);
    }
  }
  CHECK(fp6_to_f32(DType::fp6_e2m3, 31) == 7.5f);
  CHECK(fp6_to_f32(DType::fp6_e3m2, 31) == 28.0f);
}

TEST_CASE("f32 to fp6 takes the nearest value, ties to even, saturating") {
  for (const DType type : {DType::fp6_e2m3, DType::fp6_e3m2}) {
    CAPTURE(name_of(type));
    int wrong = 0;
    for (std::uint32_t code = 0; code < 0x10000; ++code) {  // every bf16, which has all ties
      const float value = bf16_to_f32(static_cast<std::uint16_t>(code));
      if (!std::isnan(value)) wrong += int{f32_to_fp6(type, value)} != nearest_fp6(type, value);
    }
    for (int code = 0; code < 31; ++code) {
      const auto tie = static_cast<float>((fp6_by_definition(type, code) + fp6_by_definition(type, code + 1)) / 2);
      for (const float value : {std::nextafter(tie, 0.0f), tie, std::nextafter(tie, 99.0f)})
        wrong += int{f32_to_fp6(type, -value)} != nearest_fp6(type, -value);
    }
    CHECK(wrong == 0);
    CHECK(int{f32_to_fp6(type, std::numeric_limits<float>::infinity())} == 31);
    CHECK(int{f32_to_fp6(type, -std::numeric_limits<float>::max())} == 63);
    CHECK(int{f32_to_fp6(type, std::numeric_limits<float>::denorm_min())} == 0);
  }
}

TEST_CASE("e8m0 codes are powers of two, the last one NaN") {
  for (int code = 0; code < 255; ++code) {
    CHECK(e8m0_to_f32(static_cast<std::uint8_t>(code)) == std::ldexp(1.0, code - 127));
  }
  CHECK(std::isnan(e8m0_to_f32(255)));
}

TEST_CASE("two fp4 share an element, and four fp6") {
  CHECK(packing_of(DType::fp6_e3m2) == 4);
  CHECK(size_of(DType::fp6_e3m2) == 3);
  CHECK(elements_of_unit(DType::fp6_e3m2) == 16);
  CHECK(elements_of_unit(DType::bf16) == 8);
  CHECK(name_of(DType::fp6_e2m3) == "fp6_e2m3");
  CHECK(name_of(DType::fp6_e3m2) == "fp6_e3m2");
  CHECK(packing_of(DType::fp4_e2m1) == 2);
  CHECK(size_of(DType::fp4_e2m1) == 1);
  CHECK(packing_of(DType::fp8_e4m3fn) == 1);
  CHECK(name_of(DType::fp4_e2m1) == "fp4_e2m1");
}
