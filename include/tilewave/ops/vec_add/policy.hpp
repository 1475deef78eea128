// SPDX-License-Identifier: MIT
// The policy says how a vector addition is computed. It changes only the speed.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/vec_add/spec.hpp"

namespace tilewave {

struct VecAddPolicy {
  int lanes = 256;  // lanes of a block: a multiple of the wave
  int chunks = 1;   // accesses of a lane to each tensor, `lanes` accesses apart; all are loaded before the first sum
  int vec = 16;     // bytes of one access; one element where the tensors are not aligned alike
  bool stream = false;     // true: the caches are asked to keep nothing
  int waves_per_simd = 8;  // claimed occupancy, which sets the register budget

  friend constexpr bool operator==(const VecAddPolicy&, const VecAddPolicy&) = default;

  TILEWAVE_HOST_DEVICE constexpr int block_threads() const { return lanes; }
  /// Returns the bytes of each tensor that one block covers.
  TILEWAVE_HOST_DEVICE constexpr int tile_bytes() const { return lanes * chunks * vec; }
};

/// The name is like `l256.c1.v16`: lanes, chunks, bytes; `.nt` if streamed.
inline std::string name_of(const VecAddPolicy& p) {
  return "l" + std::to_string(p.lanes) + ".c" + std::to_string(p.chunks) + ".v" + std::to_string(p.vec) +
         (p.stream ? ".nt" : "");
}

/// Returns ok if a chip's kernels can be built for a policy of elements of type x, or the law that it breaks.
constexpr Status vec_add_policy_status(const ArchFacts& facts, DType x, const VecAddPolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  if (p.lanes < 1 || p.lanes > 1024) return {bad, "a block has 1 to 1024 lanes"};
  if (p.lanes % facts.wave_lanes != 0) return {bad, "lanes is a multiple of the wave"};
  if (p.chunks < 1) return {bad, "a lane has at least one access"};
  if (p.vec != 16 && p.vec != size_of(x)) return {bad, "vec is 16 bytes or one element"};
  if (p.vec != 16 && p.stream) return {bad, "only accesses of 16 bytes are streamed past the caches"};
  return {};
}

/// Returns the policies that entries of a spec are built for, by preference. Plain 16-byte accesses, one a lane, copy
/// fastest on an H200: 4.2 TB/s against 3.8 with four. In f32, chunks 1, 2 and 4 are FlyDSL's vec_width 4, 8 and 16.
constexpr auto vec_add_policies(ArchId, const VecAddSpec& s) {
  return std::to_array<VecAddPolicy>(
      {{.chunks = 1}, {.chunks = 2}, {.chunks = 4}, {.chunks = 1, .stream = true}, {.chunks = 8, .vec = size_of(s.x)}});
}

}  // namespace tilewave
