// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lanes.hpp"
#include "tilewave/arch/gfx9/memory.hpp"
#include "tilewave/arch/gfx9/window.hpp"

#if defined(__HIP__)

namespace tilewave::gfx942 {

struct Memory : gfx9::Memory {
  template <bool uniform>
  using Window = std::conditional_t<uniform, gfx9::BufferWindow, gfx9::LaneWindow>;
};

}  // namespace tilewave::gfx942

#endif
