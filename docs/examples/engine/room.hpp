// SPDX-License-Identifier: MIT
// The chip that kernels.cpp and plans.cpp are compiled for, part 8 of the tutorial. ENGINE_CHIP comes from CMake: host (the
// emulated device), or a chip.
#pragma once

#if defined(ENGINE_GFX942)
#include <tilewave/arch/gfx942/backend.hpp>
#elif defined(ENGINE_GFX950)
#include <tilewave/arch/gfx950/backend.hpp>
#elif defined(ENGINE_SM90)
#include <tilewave/arch/sm90/backend.hpp>
#else
#include <tilewave/arch/host/backend.hpp>
#endif

namespace engine {

#if defined(ENGINE_GFX942)
using Room = tilewave::gfx942::Backend;
#elif defined(ENGINE_GFX950)
using Room = tilewave::gfx950::Backend;
#elif defined(ENGINE_SM90)
using Room = tilewave::sm90::Backend;
#else
#ifndef ENGINE_EMULATES
#define ENGINE_EMULATES gfx950
#endif
using Room = tilewave::host::Backend<tilewave::ArchId::ENGINE_EMULATES>;
#endif

}  // namespace engine
