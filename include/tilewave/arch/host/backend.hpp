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

static_assert(tilewave::LdsBackend<Backend<ArchId::gfx942>>,
              "the emulated gfx942 lacks a primitive of LdsBackend, see arch/lds.hpp");
static_assert(tilewave::LdsBackend<Backend<ArchId::gfx950>>,
              "the emulated gfx950 lacks a primitive of LdsBackend, see arch/lds.hpp");
static_assert(tilewave::MxProductBackend<Backend<ArchId::gfx950>> && !tilewave::MxBackend<Backend<ArchId::gfx942>>,
              "of the emulated rooms gfx950 has products with mx scales, and gfx942 has none");
static_assert(tilewave::TurnedLdsBackend<Backend<ArchId::gfx950>> &&
                  !tilewave::TurnedLdsBackend<Backend<ArchId::gfx942>>,
              "of the emulated rooms gfx950 transposes what it reads from LDS, and gfx942 does not");
static_assert(tilewave::TensorBackend<Backend<ArchId::sm90>>,
              "the emulated sm90 lacks a primitive of TensorBackend, see arch/backend.hpp");
static_assert(tilewave::PairBackend<Backend<ArchId::sm90>> && !tilewave::PairBackend<Backend<ArchId::gfx950>>,
              "of the emulated rooms sm90 computes on pairs, and gfx950 does not");
static_assert(tilewave::Fp8AtomBackend<Backend<ArchId::gfx942>>,
              "the emulated gfx942 lacks a primitive of Fp8AtomBackend, see arch/backend.hpp");

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
