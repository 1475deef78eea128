// SPDX-License-Identifier: MIT
// The policy says how an activation is computed. It changes only the speed.
#pragma once

#include "tilewave/ops/activation/spec.hpp"
#include "tilewave/tile/row_tiles.hpp"

namespace tilewave {

using ActivationPolicy = RowPolicy;

/// Returns the policies that entries of a spec are built for: policies of tiles, or of rows that a block holds where
/// the largest value of a row is found first. A lane holds gates and ups, which become as many bytes of values in f32.
constexpr RowPolicies activation_policies(ArchId arch, const ActivationSpec& s) {
  const bool hopper = facts_of(arch).family == Family::hopper;
  const int span = output_span(arch, s.x, s.out);
  if (s.tiled()) {
    RowPolicies all = tile_policies(arch, s.x, s.out, s.scale, s.gated() ? 2 : 1);
    // Without ups, four accesses give a lane of Hopper as many bytes in flight, behind which gelu's arithmetic hides.
    if (hopper && !s.gated()) {
      all.add({.lanes = 128, .chunks = 4, .span = span, .waves_per_simd = 8});
    }
    return all;
  }
  RowPolicies all;
  const auto add = [&](RowPolicy p) {
    if (p.wide(s.x)) {
      p.chunks = max_of(p.chunks, span);
      p.span = span;
    }
    if (row_policy_status(facts_of(arch), s.x, p).ok()) all.add(p);
  };
  add({.lanes = 64, .rows = 4, .chunks = 1, .waves_per_simd = 8});
  if (hopper) {  // lanes of short rows fetch as much as those of long ones
    add({.lanes = 64, .rows = 4, .chunks = 4, .waves_per_simd = 8});
    add({.lanes = 128, .rows = 2, .chunks = 3, .waves_per_simd = 8});
  }
  add({.lanes = 256, .chunks = 2, .waves_per_simd = 8});
  add({.lanes = 256, .chunks = 4, .waves_per_simd = 4});
  // sm90 runs two blocks at a time, so that one loads while the other writes.
  add({.lanes = 512, .chunks = 4, .waves_per_simd = per_arch(arch, 4, 4, 8)});
  if (hopper) {
    add({.lanes = 512, .chunks = 4, .blocks = 2, .waves_per_simd = 8});
    add({.lanes = 512, .chunks = 4, .blocks = 4, .waves_per_simd = 8});
  } else {
    add({.lanes = 1024, .chunks = 4, .waves_per_simd = 4});
  }
  add({.lanes = 256, .chunks = 2, .held = false, .waves_per_simd = 8});
  const int element = size_of(s.x);
  add({.lanes = 256, .chunks = 16, .vec = element, .span = 8, .waves_per_simd = 4});
  add({.lanes = 256, .chunks = 16, .vec = element, .span = 8, .held = false, .waves_per_simd = 4});
  return all;
}

}  // namespace tilewave
