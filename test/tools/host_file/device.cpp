// SPDX-License-Identifier: MIT
// The kernels of engine.cpp: the only file that the device compiler sees.
#include ROOM_HEADER
#include <tilewave/ops/vec_add/registry.hpp>

using namespace tilewave;

std::span<const VecAddEntry> engine_entries() { return vec_add_entries<ROOM::Backend, VecAddSpec{DType::f32}>; }
