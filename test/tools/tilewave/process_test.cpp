// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/process.hpp"

#include <chrono>
#include <filesystem>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/common/text.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::status_of;
}  // namespace

TEST_CASE("programs give their output and how they ended") {
  CHECK(run_process({"echo", "a b", "c"}).out == "a b c\n");
  CHECK(run_shell("echo err >&2; exit 3", {.quiet = true}).status == 3);
  CHECK(run_shell("echo err >&2", {.errors_too = true}).out == "err\n");
  CHECK(run_shell("kill -9 $$").status == 128 + 9);
  CHECK(run_process({"no-such-program-anywhere"}).status == 127);
  CHECK(run_shell("echo $X; pwd", {.folder = "/", .variables = {{"X", "5"}}}).out == "5\n/\n");
  CHECK(run_shell("yes | head -c 100000", {.max_bytes = 10}).out.size() == 10);
}

TEST_CASE("what takes too long is killed with all that it started") {
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result = run_shell("sleep 30 & sleep 30", {.timeout_s = 0.2});
  CHECK(result.timed_out);
  CHECK(result.status == 128 + 9);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("durations have units") {
  CHECK(seconds_of("90") == 90);
  CHECK(seconds_of("10m") == 600);
  CHECK(seconds_of("1.5h") == 5400);
  for (const char* bad : {"", "m", "soon", "-1", "nan", "1e9", "5x"})
    CHECK(status_of([&] { seconds_of(bad); }) == Exit::usage);
}

TEST_CASE("a file is written whole or not at all") {
  const auto folder = std::filesystem::temp_directory_path() / "tilewave_process_test";
  std::filesystem::remove_all(folder);
  write_atomically(folder / "deep" / "file", "one");
  write_atomically(folder / "deep" / "file", "two");
  CHECK(read_file((folder / "deep" / "file").string()) == "two");
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "deep"), {}) == 1);  // nothing left beside it
  CHECK(status_of([&] { write_atomically(folder / "deep", "a folder is there"); }) == Exit::failed);
  CHECK(status_of([&] { read_file((folder / "deep" / "file").string(), 2); }) == Exit::usage);
  std::filesystem::remove_all(folder);
}
