// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lds.hpp"
#include "tilewave/arch/gfx950/lanes.hpp"
#include "tilewave/arch/gfx950/launch.hpp"
#include "tilewave/arch/gfx950/memory.hpp"
#include "tilewave/arch/gfx950/mma.hpp"
#include "tilewave/arch/gfx950/sync.hpp"
#include "tilewave/arch/room.hpp"

#if defined(__HIP__)

namespace tilewave::gfx950 {

struct Backend : Memory, Lanes, Mma, Product, gfx9::Lds, Sync, Launch {
  static constexpr ArchFacts facts = gfx950_facts;
  static constexpr AtomFacts atom = gfx950_atom;
};
static_assert(tilewave::is_whole_room<Backend>());

}  // namespace tilewave::gfx950

#endif
