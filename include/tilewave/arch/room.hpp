// SPDX-License-Identifier: MIT
// A room offers what its chip's facts say. Policies ask the facts, and kernels then call the primitives that belong to
// them.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/lds.hpp"

namespace tilewave {

/// Returns true. A missing primitive does not compile, and the assertion says which one. Each room calls this behind
/// its Backend.
template <class B>
constexpr bool is_whole_room() {
  constexpr ArchFacts facts = B::facts;
  constexpr AtomFacts atom = B::atom;
  static_assert(Backend<B>, "a room has all primitives of Backend");
  static_assert(LdsBackend<B> == (facts.matrix == Matrix::mfma), "facts.matrix == mfma and LdsBackend go together");
  static_assert(MxProductBackend<B> == facts.mx, "facts.mx and MxProductBackend go together");
  static_assert(HalfProductBackend<B> == (facts.matrix == Matrix::mfma),
                "facts.matrix == mfma and HalfProductBackend go together");
  static_assert(TransposedLdsBackend<B> == facts.lds_transposed,
                "facts.lds_transposed and TransposedLdsBackend go together");
  static_assert(StagedBackend<B> == facts.tensor_copies, "facts.tensor_copies and StagedBackend go together");
  static_assert(GroupBackend<B> == facts.wave_groups, "facts.wave_groups and GroupBackend go together");
  static_assert(TensorBackend<B> == (facts.tensor_copies && facts.wave_groups),
                "facts.tensor_copies with wave_groups and TensorBackend go together");
  static_assert(atom.arch == facts.id && atom.matrix == facts.matrix && atom.lanes == facts.wave_lanes,
                "the atom is another chip's than the facts");
  return true;
}

}  // namespace tilewave
