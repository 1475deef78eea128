// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/gfx9/lds.hpp"
#include "tilewave/arch/gfx950/lanes.hpp"
#include "tilewave/arch/gfx950/launch.hpp"
#include "tilewave/arch/gfx950/memory.hpp"
#include "tilewave/arch/gfx950/mma.hpp"
#include "tilewave/arch/gfx950/sync.hpp"

#if defined(__HIP__)

namespace tilewave::gfx950 {

struct Backend : Memory, Lanes, Mma, Product, gfx9::Lds, Sync, Launch {
  static constexpr ArchFacts facts = gfx950_facts;
  static constexpr AtomFacts atom = gfx950_atom;
};
static_assert(tilewave::MxProductBackend<Backend> && tilewave::TurnedLdsBackend<Backend>,
              "this room lacks a primitive of MxProductBackend or TurnedLdsBackend, see arch/lds.hpp");

}  // namespace tilewave::gfx950

#endif
