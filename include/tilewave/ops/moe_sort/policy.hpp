// SPDX-License-Identifier: MIT
// How tokens are sorted: may change the speed, never the answer.
#pragma once

#include <array>
#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/moe_sort/spec.hpp"

namespace tilewave {

struct MoeSortPolicy {
  int threads = 512;            // of a block that counts for itself
  int batch = 8;                // choices that a lane of it counts at a time
  int cluster = 1;              // blocks that count together, where one would have more than a batch
  int most_blocks = 128;        // of such a launch
  int tiles_alone = 8;          // up to so many tiles are sorted by it
  int workspace_threads = 512;  // of a block, where there is a workspace
  int turns = 2;                // choices of a lane of it at a time
  int waves_per_simd = 4;       // occupancy claimed: sets the register budget

  friend constexpr bool operator==(const MoeSortPolicy&, const MoeSortPolicy&) = default;

  constexpr int block_threads() const { return threads; }
  /// Choices that a block sorts at a time where there is a workspace.
  constexpr int tile() const { return workspace_threads * turns; }
  /// Of the kernels that use it.
  constexpr MoeSortPolicy with_workspace() const {
    MoeSortPolicy p = *this;
    p.threads = workspace_threads;
    return p;
  }
};

/// `t256.w512.r2.a40.c8`: threads, of a workspace, turns, tiles of one launch, blocks of a cluster if any.
inline std::string name_of(const MoeSortPolicy& p) {
  return "t" + std::to_string(p.threads) + ".w" + std::to_string(p.workspace_threads) + ".r" + std::to_string(p.turns) +
         ".a" + std::to_string(p.tiles_alone) + (p.cluster > 1 ? ".c" + std::to_string(p.cluster) : "");
}

struct MoeSortPolicies {
  std::array<MoeSortPolicy, 1> list{};
  int count = 1;
  constexpr const MoeSortPolicy& operator[](std::size_t i) const { return list[i]; }
  constexpr std::size_t size() const { return count; }
};

/// The policies that entries are built for. Counts of 1024 experts take most of the LDS of gfx942. Of more choices than
/// `tiles_alone` each block, or each cluster, counts all for longer than a launch before it takes.
constexpr MoeSortPolicies moe_sort_policies(ArchId arch, const MoeSortSpec&) {
  if (arch == ArchId::sm90)
    return {{{{.threads = 256, .batch = 16, .cluster = 8, .tiles_alone = 40, .waves_per_simd = 8}}}};
  return {{{{.waves_per_simd = arch == ArchId::gfx942 ? 2 : 4}}}};
}

}  // namespace tilewave
