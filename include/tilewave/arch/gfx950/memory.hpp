// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lanes.hpp"
#include "tilewave/arch/gfx9/memory.hpp"
#include "tilewave/arch/gfx9/window.hpp"

#if defined(__HIP__)

namespace tilewave::gfx950 {

struct Memory : gfx9::Memory {
  template <bool uniform>
  using Window = std::conditional_t<uniform, gfx9::BufferWindow, gfx9::LaneWindow>;

  /// global_load_lds_dwordx4: 16 bytes a lane straight to lane-linear LDS, new with CDNA4. (Other passes of a fat
  /// binary reject the size when they parse it.)
  TILEWAVE_DEVICE static void copy_async([[maybe_unused]] Chunk* shared, [[maybe_unused]] const Chunk* global) {
#if defined(__gfx950__)
    before_copy();
    __builtin_amdgcn_global_load_lds((gfx9::Global<Chunk>*)const_cast<Chunk*>(global),
                                     (gfx9::Shared<Chunk>*)(shared - gfx9::Lanes::lane_id()), 16, 0, 0);
#else
    __builtin_trap();
#endif
  }
  TILEWAVE_DEVICE static void commit() {}
  template <int pending, int copies_per_commit = 1>
  TILEWAVE_DEVICE static void wait() {
    wait_vmcnt<pending * copies_per_commit>();
  }
};

}  // namespace tilewave::gfx950

#endif
