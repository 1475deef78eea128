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

  /// global_load_lds_dword moves 4 bytes a lane to lane-linear LDS, so four of them move the wave's 64 chunks; lane l
  /// of the i-th supplies the address of word l % 4 of the chunk that lane 16 i + l / 4 asked for.
  TILEWAVE_DEVICE static void copy_async(Chunk* shared, const Chunk* global) {
    const auto address = reinterpret_cast<std::uint64_t>(global);
    const int lane = gfx9::Lanes::lane_id();
    auto* base = (gfx9::Shared<std::uint32_t>*)(shared - lane);
    const gfx9::Global<std::uint32_t>* words[4];
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int from = 16 * i + lane / 4;
      const std::uint64_t low = gfx9::Lanes::shuffle(static_cast<std::uint32_t>(address), from);
      const std::uint64_t high = gfx9::Lanes::shuffle(static_cast<std::uint32_t>(address >> 32), from);
      words[i] = (gfx9::Global<std::uint32_t>*)((high << 32 | low) + 4 * (lane % 4));
    }
    before_copy();
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) {
      __builtin_amdgcn_global_load_lds(const_cast<gfx9::Global<std::uint32_t>*>(words[i]), base + 64 * i, 4, 0, 0);
    }
  }
  TILEWAVE_DEVICE static void commit() {}
  template <int pending, int copies_per_commit = 1>
  TILEWAVE_DEVICE static void wait() {
    wait_vmcnt<4 * pending * copies_per_commit>();
  }
};

}  // namespace tilewave::gfx942

#endif
