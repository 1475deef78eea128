// SPDX-License-Identifier: MIT
// The host room: any chip's kernels on a CPU, one fiber per lane, with that chip's wave size and matrix atom.
//
// It looks for bugs that silicon hides. Shared memory is NaN until written, bulk copies land when no lane can run
// without them, waves run in any of several orders (host::Options), and a lane that misses a barrier or a collective,
// shuffles from a lane that is not there or loads from a misaligned address fails the launch with its block, wave and
// lane. Built with -fsanitize=thread, races between lanes are reported with both source lines.
// What it cannot show: timing, cache and register effects, hardware hazards, and memory orders weaker than a CPU's.
//
//   TILEWAVE_HOST_THREADS    threads that run blocks (default: the cores)
//   TILEWAVE_HOST_SCHEDULE   lockstep, reverse, first_wave_ahead, last_wave_ahead, random,
//                            one_wave_behind
//   TILEWAVE_HOST_SEED       of random and one_wave_behind
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <iterator>
#include <utility>

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/host/group.hpp"
#include "tilewave/arch/host/lanes.hpp"
#include "tilewave/arch/host/launch.hpp"
#include "tilewave/arch/host/lds.hpp"
#include "tilewave/arch/host/memory.hpp"
#include "tilewave/arch/host/mma.hpp"
#include "tilewave/arch/host/numbers.hpp"
#include "tilewave/arch/host/staged.hpp"
#include "tilewave/arch/host/sync.hpp"
#include "tilewave/arch/host/tensor.hpp"
#include "tilewave/arch/pairs.hpp"
#include "tilewave/arch/room.hpp"

namespace tilewave::host {

template <ArchId Id>
struct Backend : Memory<Id>,
                 Lanes<Id>,
                 Mma<Id>,
                 Numbers<facts_of(Id).fp8>,
                 MxNumbers<facts_of(Id).mx>,
                 PairNumbers<Id == ArchId::sm90>,
                 Sync,
                 Lds<Id>,
                 Staged<Id>,
                 Groups<Id>,
                 Tensors<Id>,
                 Launch<Id> {
  static constexpr ArchFacts facts = facts_of(Id);
  static constexpr AtomFacts atom = atom_of(Id);
};

template <std::size_t... i>
constexpr bool are_whole_rooms(std::index_sequence<i...>) {
  return (is_whole_room<Backend<all_archs[i]>>() && ...);
}
static_assert(are_whole_rooms(std::make_index_sequence<std::size(all_archs)>()));
static_assert(Fp8AtomBackend<Backend<ArchId::gfx942>>);
static_assert(PairBackend<Backend<ArchId::sm90>> && !PairBackend<Backend<ArchId::gfx950>>);

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
