// SPDX-License-Identifier: MIT
// The main() of every test executable: Catch2's own session, plus "skipped" as exit status 77 and a check that the
// device the tests were built for is there.
#define CATCH_CONFIG_RUNNER
#include "catch_compat.hpp"
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#endif

#include <cstdio>
#include <string_view>

#include "tilewave/core/hip.hpp"

namespace tilewave::test {
namespace {

constexpr int skipped_status = 77;
bool skipped = false;

bool only_lists(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--list")) return true;
  }
  return false;
}

bool device_is_there() {
  int count = 0;
  return hipGetDeviceCount(&count) == hipSuccess && count > 0;
}

int run(int argc, char** argv) {
  if (!only_lists(argc, argv) && !device_is_there()) {
    std::fprintf(stderr, "skipped: no device of the kind these tests were built for\n");
    return skipped_status;
  }
  Catch::Session session;
#if defined(CATCH_VERSION_MAJOR) && CATCH_VERSION_MAJOR == 2
  // A name that matches nothing is a failure, as it is in version 3: else a case whose name ctest garbles passes unrun.
  session.configData().warnings = Catch::WarnAbout::NoTests;
#endif
  // Version 2 returns the number of failures, which must not read as "skipped"; when listing, the number of tests.
  const int status = session.run(argc, argv);
  if (only_lists(argc, argv)) return status;
  return status != 0 ? 1 : skipped ? skipped_status : 0;
}

}  // namespace

void skip_test(const char* reason) {
  std::fprintf(stderr, "skipped: %s\n", reason);
  skipped = true;
}

}  // namespace tilewave::test

int main(int argc, char** argv) { return tilewave::test::run(argc, argv); }
