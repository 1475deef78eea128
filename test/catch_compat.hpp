// SPDX-License-Identifier: MIT
// One include for Catch2 2.13 (Debian 12) and 3.x (Ubuntu 24.04): TEST_CASE, SECTION, CHECK, REQUIRE, INFO, CAPTURE,
// GENERATE, Approx. Not in both, so not used: v3's SKIP() (skip_test below instead), and matchers, thus CHECK_THROWS_WITH
// (thrown_by below).
#pragma once

#include <exception>
#include <string>

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
namespace tilewave::test {
using Catch::Approx;
}
#else
#include <catch2/catch.hpp>
namespace tilewave::test {
using Catch::Detail::Approx;
}
#endif

namespace tilewave::test {

/// Says why this test case cannot run here; the process then exits with 77, which ctest shows as "Skipped". The caller
/// returns from the test case afterwards.
void skip_test(const char* reason);

/// Returns the message of the exception that `run` throws, or an empty text.
template <class Run>
std::string thrown_by(const Run& run) {
  try {
    run();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace tilewave::test
