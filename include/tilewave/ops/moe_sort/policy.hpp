// SPDX-License-Identifier: MIT
// The policy says how tokens are sorted. It may change the speed, never the answer.
#pragma once

#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/value_list.hpp"
#include "tilewave/ops/moe_sort/spec.hpp"

namespace tilewave {

/// The blocks that count the choices which a block does not place: the block itself, those of its cluster, or those of
/// a launch before.
enum class MoeSortCounts : int { block, cluster, workspace };

struct MoeSortPolicy {
  int threads = 512;       // lanes of a block that counts all choices
  int batch = 8;           // choices that a lane counts at a time; a block alone counts no more than one batch
  int cluster = 1;         // blocks that count together
  int most_blocks = 128;   // blocks of one launch
  int tiles_alone = 8;     // the most tiles that one launch sorts
  int many_threads = 512;  // lanes of a block of a cluster, and of one with a workspace
  int lane_choices = 2;    // choices that a lane takes at a time with a workspace
  int waves_per_simd = 4;  // claimed occupancy, which sets the register budget

  friend constexpr bool operator==(const MoeSortPolicy&, const MoeSortPolicy&) = default;

  constexpr int block_threads() const { return threads; }
  constexpr int threads_of(MoeSortCounts counts) const {
    return counts == MoeSortCounts::block ? threads : many_threads;
  }
  /// Returns the choices that a block sorts at a time with a workspace.
  constexpr int tile() const { return many_threads * lane_choices; }
};

/// The name is like `t256.m512.r2.a48.c8`: threads, threads for many choices, choices of a lane, tiles of one launch,
/// and blocks of a cluster if any.
inline std::string name_of(const MoeSortPolicy& p) {
  return "t" + std::to_string(p.threads) + ".m" + std::to_string(p.many_threads) + ".r" +
         std::to_string(p.lane_choices) + ".a" + std::to_string(p.tiles_alone) +
         (p.cluster > 1 ? ".c" + std::to_string(p.cluster) : "");
}

using MoeSortPolicies = ValueList<MoeSortPolicy, 1>;

/// Returns the policies that entries are built for. Counts of 1024 experts take most of the LDS of gfx942. Beyond
/// `tiles_alone` tiles each block, or each cluster, would take longer to count all choices than a launch before takes.
/// An H200 runs 16 clusters of eight at a time, some of them late.
constexpr MoeSortPolicies moe_sort_policies(ArchId arch, const MoeSortSpec&) {
  if (facts_of(arch).max_cluster_blocks >= 8)
    return {{{{.threads = 256, .cluster = 8, .most_blocks = 112, .tiles_alone = 48, .waves_per_simd = 8}}}, 1};
  return {{{{.waves_per_simd = per_arch(arch, 2, 4, 4)}}}, 1};
}

}  // namespace tilewave
