// SPDX-License-Identifier: MIT
// The rows of a row operation that are launched and verified, and the counts of comparing one.
#include "bench/harness/rows/rows.hpp"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

TEST_CASE("all rows are verified up to 2^22 elements, and a spread of them beyond, both ends included") {
  CHECK(verified_rows(1024, 4096).size() == 1024);
  CHECK(verified_rows(1, 1 << 24) == std::vector<std::int32_t>{0});
  CHECK(verified_rows(0, 8192).empty());
  CHECK(verified_rows(1000, 1 << 24) == std::vector<std::int32_t>{0, 499, 999});
  const auto [rows, columns, most] = GENERATE(std::tuple{32768, 8192, 512}, std::tuple{1025, 4096, 1024},
                                              std::tuple{256, 262144, 16}, std::tuple{65535, 129, 32513});
  const std::vector<std::int32_t> some = verified_rows(rows, columns);
  CHECK(static_cast<int>(some.size()) == most);
  CHECK(std::set<std::int32_t>(some.begin(), some.end()).size() == some.size());
  CHECK(some.front() == 0);
  CHECK(some.back() == rows - 1);
}

TEST_CASE("a GPU launches all rows, the emulated device 2^18 elements or three rows") {
  if (!emulated_device) {
    CHECK(launched_rows(32768, 8192) == 32768);
    return;
  }
  CHECK(launched_rows(32768, 8192) == 32);
  CHECK(launched_rows(32, 8192) == 32);
  CHECK(launched_rows(31, 8192) == 31);
  CHECK(launched_rows(1000, 1 << 22) == 3);
  CHECK(launched_rows(2, 1 << 22) == 2);
}

TEST_CASE("errors of a row: the first is told, NaN is infinite, equal infinities are none") {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  RowErrors errors;
  errors.out(true, 7, 0, 3, 4);
  errors.out(true, 7, 1, -inf, -inf);
  CHECK(errors.bad == 0);
  CHECK(errors.max_abs == 1);
  CHECK(errors.relative() == 0.25);
  errors.out(false, 7, 2, nan, 1);
  errors.expect(false, "scale", 7, 3, 1, 2);
  CHECK(errors.bad == 2);
  CHECK(errors.max_abs == inf);
  CHECK(errors.reason.find("out is nan") == 0);
  CHECK(errors.reason.find("at row 7, column 2") != std::string::npos);
  CHECK(RowErrors{}.relative() == 0);
}

TEST_CASE("poison is no value of its type, and elements are set to the nearest") {
  for (const DType type : {DType::fp8_e4m3fn, DType::fp8_e4m3fnuz}) {
    CHECK(std::isnan(fp8_to_f32(type, static_cast<std::uint8_t>(poison_byte(type)))));
  }
  CHECK(poison_byte(DType::i8) == 0x80);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const TwinBuffer buffer = filled(type, 3, 5, 2, [](std::int64_t r, std::int64_t c) { return r + 0.1f * c; });
    const double step = half_step(type, 2.3);
    const void* data = buffer.host();
    const float got = type == DType::f32   ? static_cast<const float*>(data)[13]
                      : type == DType::f16 ? f16_to_f32(static_cast<const std::uint16_t*>(data)[13])
                                           : bf16_to_f32(static_cast<const std::uint16_t*>(data)[13]);
    CHECK(std::abs(got - 2.3f) <= step);
  }
  const auto code = [](DType type, float value) {
    std::uint8_t bits = 0;
    set_element(type, &bits, 0, value);
    return int{bits};
  };
  CHECK(code(DType::i8, -2.6f) == 0xfd);
  CHECK(code(DType::fp8_e4m3fn, -1.0f) == 0xb8);
  CHECK(code(DType::fp8_e4m3fnuz, -1.0f) == 0xc0);
}

}  // namespace
}  // namespace tilewave::bench
