// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lds.hpp"
#include "tilewave/arch/gfx942/lanes.hpp"
#include "tilewave/arch/gfx942/launch.hpp"
#include "tilewave/arch/gfx942/memory.hpp"
#include "tilewave/arch/gfx942/mma.hpp"
#include "tilewave/arch/gfx942/sync.hpp"

#if defined(__HIP__)

namespace tilewave::gfx942 {

struct Backend : Memory, Lanes, Mma, Product, gfx9::Lds, Sync, Launch {
  static constexpr ArchFacts facts = gfx942_facts;
  static constexpr AtomFacts atom = gfx942_atom;
};
static_assert(tilewave::LdsBackend<Backend>, "this room lacks a primitive of LdsBackend, see arch/lds.hpp");
static_assert(tilewave::Fp8AtomBackend<Backend>, "this room lacks a primitive of Fp8AtomBackend, see arch/backend.hpp");

}  // namespace tilewave::gfx942

#endif
