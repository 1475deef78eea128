// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lds.hpp"
#include "tilewave/arch/gfx942/lanes.hpp"
#include "tilewave/arch/gfx942/launch.hpp"
#include "tilewave/arch/gfx942/memory.hpp"
#include "tilewave/arch/gfx942/mma.hpp"
#include "tilewave/arch/gfx942/sync.hpp"
#include "tilewave/arch/room.hpp"

#if defined(__HIP__)

namespace tilewave::gfx942 {

struct Backend : Memory, Lanes, Mma, Product, gfx9::Lds, Sync, Launch {
  static constexpr ArchFacts facts = gfx942_facts;
  static constexpr AtomFacts atom = gfx942_atom;
};
static_assert(tilewave::is_whole_room<Backend>() && tilewave::Fp8AtomBackend<Backend>);

}  // namespace tilewave::gfx942

#endif
