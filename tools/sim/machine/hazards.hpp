// SPDX-License-Identifier: MIT
// Wait states that gfx942 and gfx950 do not keep by themselves: between some pairs of instructions the program has to put
// others, or s_nop. Compilers do; inline and hand-written assembly may not.
#pragma once

#include <string>
#include <vector>

#include "sim/programs/code_object.hpp"

namespace tilewave::sim {

/// Returns every pair that comes too close on some path, taken or not, ordered by `to`. Paths end at s_endpgm and at
/// jumps through registers.
std::vector<Hazard> find_hazards(const CodeObject& object);
std::string text_of(const Hazard& hazard, const CodeObject& object);

}  // namespace tilewave::sim
