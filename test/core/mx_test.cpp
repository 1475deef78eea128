// SPDX-License-Identifier: MIT
// OCP MX's fp4 and e8m0 against their definitions.
#include <cmath>
#include <cstdint>
#include <limits>

#include "test/catch_compat.hpp"
#include "test/core/mx_table.hpp"
#include "tilewave/core/dtype.hpp"

namespace {
using namespace tilewave;
using test::fp4_by_definition;
using test::nearest_fp4;
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

TEST_CASE("e8m0 codes are powers of two, the last one NaN") {
  for (int code = 0; code < 255; ++code) {
    CHECK(e8m0_to_f32(static_cast<std::uint8_t>(code)) == std::ldexp(1.0, code - 127));
  }
  CHECK(std::isnan(e8m0_to_f32(255)));
}

TEST_CASE("two fp4 share an element") {
  CHECK(packing_of(DType::fp4_e2m1) == 2);
  CHECK(size_of(DType::fp4_e2m1) == 1);
  CHECK(packing_of(DType::fp8_e4m3fn) == 1);
  CHECK(name_of(DType::fp4_e2m1) == "fp4_e2m1");
}
