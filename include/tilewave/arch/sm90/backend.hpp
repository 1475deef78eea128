// SPDX-License-Identifier: MIT
#pragma once

#include "tilewave/arch/pairs.hpp"
#include "tilewave/arch/sm90/lanes.hpp"
#include "tilewave/arch/sm90/launch.hpp"
#include "tilewave/arch/sm90/memory.hpp"
#include "tilewave/arch/sm90/mma.hpp"
#include "tilewave/arch/sm90/sync.hpp"
#include "tilewave/arch/sm90/tensor.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

struct Backend : Memory, Lanes, Mma, Group, Tensor, Sync, Launch {
  static constexpr ArchFacts facts = sm90_facts;
  static constexpr AtomFacts atom = sm90_atom;
};
static_assert(tilewave::TensorBackend<Backend> && tilewave::PairBackend<Backend>,
              "this room lacks a primitive of TensorBackend or PairBackend, see arch/");

}  // namespace tilewave::sm90

#endif
