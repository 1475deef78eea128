// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/sync.hpp"

#if defined(__HIP__)

namespace tilewave::gfx942 {

using Sync = gfx9::Sync;

}  // namespace tilewave::gfx942

#endif
