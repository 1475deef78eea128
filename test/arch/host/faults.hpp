// SPDX-License-Identifier: MIT
// Kernels that do something wrong, of which the host room must tell.
#pragma once

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test {

/// Launches K with 2 KiB to read, under every schedule: the launch must fail, and the reason name the block, the place in
/// `file`, the schedule and all `parts`.
template <class K>
void check_fault(const char* file, std::initializer_list<const char*> parts) {
  static std::vector<Chunk> in(128);
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    const Status status = launch<Sm90, K>(3, {in.data()});
    INFO(status.reason);
    CHECK(status.code == StatusCode::launch_failed);
    CHECK(contains(status.reason, "block "));
    CHECK(contains(status.reason, file));
    CHECK(contains(status.reason, "(schedule "));  // all of it fits
    for (const char* part : parts) CHECK(contains(status.reason, part));
  }
}

}  // namespace tilewave::test
