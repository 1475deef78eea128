// SPDX-License-Identifier: MIT
// A workspace is refused for one reason at a time, and one that is not needed may be anything but larger than memory.
#include "tilewave/tile/workspace.hpp"

#include <string>

#include "test/catch_compat.hpp"

namespace tilewave::test {
namespace {

constexpr std::size_t most = std::size_t{1} << 56;

TEST_CASE("a workspace is there, large enough and aligned, in this order") {
  alignas(16) char memory[32]{};
  const auto reason = [](const void* workspace, std::size_t bytes, std::size_t needed) {
    const Status s = check_workspace(workspace, bytes, needed);
    return std::string(name_of(s.code)) + ": " + s.reason;
  };
  CHECK(reason(memory, 16, 16) == "ok: ");
  CHECK(reason(memory, most, 16) == "ok: ");
  CHECK(reason(nullptr, 0, 16) == "null_pointer: workspace is null");
  CHECK(reason(nullptr, 16, 16) == "null_pointer: workspace is null");
  const std::string too_small = "workspace_too_small: workspace_bytes is less than plan.workspace_bytes(problem)";
  CHECK(reason(memory, 15, 16) == too_small);
  CHECK(reason(memory + 8, 15, 16) == too_small);
  CHECK(reason(memory + 8, 16, 16) == "misaligned: workspace needs 16-byte alignment");
  CHECK(reason(memory, most + 1, 16) == "bad_value: workspace_bytes is more than 2^56");
}

TEST_CASE("a workspace that no launch needs has a possible size and nothing else") {
  alignas(16) char memory[32]{};
  CHECK(check_workspace(nullptr, 0, 0).ok());
  CHECK(check_workspace(nullptr, 16, 0).ok());
  CHECK(check_workspace(memory + 1, 1, 0).ok());
  CHECK(check_workspace(nullptr, static_cast<std::size_t>(-1), 0).code == StatusCode::bad_value);
  CHECK(check_workspace_alignment(nullptr).ok());
  CHECK(check_workspace_alignment(memory + 4).code == StatusCode::misaligned);
}

}  // namespace
}  // namespace tilewave::test
