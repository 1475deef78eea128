// SPDX-License-Identifier: MIT
#include "tilewave/core/status.hpp"

#include <set>
#include <string>

#include "test/catch_compat.hpp"
#include "tilewave/core/dtype.hpp"

namespace {
using namespace tilewave;
constexpr StatusCode last_code = StatusCode::launch_failed;
}  // namespace

TEST_CASE("every status code has its own name") {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(last_code); ++code) {
    const std::string name(name_of(static_cast<StatusCode>(code)));
    CAPTURE(code, name);
    CHECK(name != "unknown");
    CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos);
    CHECK(names.insert(name).second);
  }
  CHECK(name_of(static_cast<StatusCode>(static_cast<int>(last_code) + 1)) == "unknown");
  CHECK(name_of(StatusCode::ok) == "ok");
}

TEST_CASE("a default status is ok and has no reason, any other code is not ok") {
  CHECK(Status{}.ok());
  CHECK(std::string(Status{}.reason).empty());
  for (int code = 1; code <= static_cast<int>(last_code); ++code) {
    CHECK_FALSE(Status{static_cast<StatusCode>(code), "why"}.ok());
  }
}

TEST_CASE("dtypes know their name and size") {
  CHECK(size_of(DType::f32) == 4);
  CHECK(size_of(DType::f16) == 2);
  CHECK(size_of(DType::bf16) == 2);
  CHECK(size_of(DType::fp8_e4m3fn) == 1);
  CHECK(size_of(DType::fp8_e4m3fnuz) == 1);
  CHECK(size_of(DType::i8) == 1);
  std::set<std::string> names;
  for (const DType t : {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3fn, DType::fp8_e4m3fnuz, DType::i8}) {
    CHECK(names.insert(std::string(name_of(t))).second);
    CHECK(is_fp8(t) == (size_of(t) == 1 && t != DType::i8));
  }
}
