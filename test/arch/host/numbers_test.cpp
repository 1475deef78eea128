// SPDX-License-Identifier: MIT
// The host room's conversions against those of core/dtype.hpp.
#include <bit>
#include <cmath>
#include <limits>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::numbers {

TEMPLATE_TEST_CASE("widen_fp8 is exact for every code", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  for (std::uint32_t code = 0; code < 256; ++code) {
    const float value = fp8_to_f32(B::facts.fp8, static_cast<std::uint8_t>(code));
    for (int place = 0; place < 4; ++place) {
      const Vec<std::uint32_t, 2> wide = B::widen_fp8(code << 8 * place);
      for (int i = 0; i < 4; ++i) {
        const float got = bf16_to_f32(static_cast<std::uint16_t>(wide[i / 2] >> 16 * (i % 2)));
        const float expected = i == place ? value : 0.0f;
        if (std::isnan(expected)) {
          CHECK(std::isnan(got));
        } else {
          CHECK(got == expected);
        }
      }
    }
  }
}

TEST_CASE("the fp8 flavour is the chip's own") {
  CHECK(Gfx942::widen_fp8(0x40)[0] == f32_to_bf16(1.0f));
  CHECK(Gfx950::widen_fp8(0x40)[0] == f32_to_bf16(2.0f));
  CHECK(Sm90::widen_fp8(0x40)[0] == f32_to_bf16(2.0f));
}

TEST_CASE("pack_bf16 puts the first value low and rounds ties to even") {
  const float tie_down = std::bit_cast<float>(0x3f808000u), tie_up = std::bit_cast<float>(0x3f818000u);
  CHECK(Gfx950::pack_bf16(1.0f, -2.0f) == 0xc0003f80u);
  CHECK(Gfx950::pack_bf16(tie_down, tie_up) == 0x3f823f80u);
}

TEMPLATE_TEST_CASE("packed bytes start with the first value, packed halves with the low one", "", Gfx942, Gfx950,
                   Sm90) {
  using B = TestType;
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  CHECK(B::pack_i8(1.0f, -1.0f, 127.9f, -127.9f) == 0x817fff01u);
  CHECK(B::pack_i8(nan, infinity, -infinity, -0.9f) == 0x00817f00u);
  const bool fnuz = B::facts.fp8 == DType::fp8_e4m3fnuz;
  CHECK(B::pack_fp8(1.0f, -1.0f, infinity, -nan) == (fnuz ? 0x807fc040u : 0x7f7eb838u));
  CHECK(B::pack_f16(1.0f, -2.0f) == 0xc0003c00u);
  CHECK(B::widen_f16(0xc0000001u)[0] == 0x1p-24f);
  CHECK(B::widen_f16(0xc0000001u)[1] == -2.0f);
  CHECK(B::round_bf16(1.0f, -2.0f) == 0xc0003f80u);
  CHECK(B::rsqrt(0.25f) == 2.0f);
  CHECK(B::reciprocal(-0.25f) == -4.0f);
}

TEST_CASE("exp2 and log2") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(Gfx950::exp2(-infinity) == 0.0f);
  CHECK(Gfx950::exp2(3.0f) == 8.0f);
  CHECK(Gfx950::log2(0.0f) == -infinity);
  CHECK(Gfx950::log2(8.0f) == 3.0f);
  CHECK(Gfx950::exp2(0.5f) == Approx(1.41421356));
}

}  // namespace tilewave::test::numbers
