// SPDX-License-Identifier: MIT
// How many waves of a kernel a SIMD holds, which resource limits them, and how far the next step is.
#pragma once

#include <string>
#include <vector>

#include "tools/tilewave/isa/binary.hpp"

namespace tilewave::tool {

struct Limit {
  std::string what;             // registers, SGPRs, LDS, or the hardware
  int needed = 0, waves = 0;    // of what, rounded as the hardware does; waves per SIMD that fit
  int at_most = 0, wanted = 0;  // may be needed for `wanted` waves; 0: no more to have, or not to be had this way
};

struct Waves {
  int per_simd = 0;
  std::vector<Limit> limits;  // the tightest first
};

/// A SIMD of sm90 is a scheduler, its waves are warps. `extra_lds`: what a launch adds; block_lanes 0 counts as one wave.
Waves waves_of(const KernelNeeds& kernel, const std::string& arch, int extra_lds = 0);

}  // namespace tilewave::tool
