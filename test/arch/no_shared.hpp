// SPDX-License-Identifier: MIT
#pragma once

namespace tilewave::test {

/// The shared memory of a kernel that has none.
struct NoShared {};

}  // namespace tilewave::test
