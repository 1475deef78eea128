// SPDX-License-Identifier: MIT
// How many bytes of a kernel's arguments are there when it begins.
#pragma once

#include <cstddef>

namespace tilewave {

/// On sm90 so many bytes of arguments come with the launch. The launch waits for the others, which come from memory: up
/// to 0.9 us in every other launch, 0.3 us with 200 bytes (docs/notebook/2026-11-22-decode.md). Ops of a decode step
/// take about 4 us in all, so their arguments fit.
inline constexpr std::size_t sm90_arguments_with_launch = 176;

}  // namespace tilewave
