// SPDX-License-Identifier: MIT
// How tokens are sorted: may change the speed, never the answer.
#pragma once

#include <array>
#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/moe_sort/spec.hpp"

namespace tilewave {

struct MoeSortPolicy {
  int threads = 512;
  int turns = 2;           // choices of a lane at a time, where there is a workspace
  int tiles_alone = 8;     // up to so many tiles are sorted in one launch
  int cluster = 1;         // blocks that count them together, where one would read more than `batch()`
  int waves_per_simd = 4;  // occupancy claimed: sets the register budget

  friend constexpr bool operator==(const MoeSortPolicy&, const MoeSortPolicy&) = default;

  constexpr int block_threads() const { return threads; }
  /// Choices that a block sorts at a time.
  constexpr int tile() const { return threads * turns; }
  /// Choices that a block counts at a time.
  static constexpr int counted_of_lane = 8;
  constexpr int batch() const { return threads * counted_of_lane; }
};

/// `t256.r4.a2`: threads, turns, tiles of one launch; `.c8`: of clusters.
inline std::string name_of(const MoeSortPolicy& p) {
  return "t" + std::to_string(p.threads) + ".r" + std::to_string(p.turns) + ".a" + std::to_string(p.tiles_alone) +
         (p.cluster > 1 ? ".c" + std::to_string(p.cluster) : "");
}

struct MoeSortPolicies {
  std::array<MoeSortPolicy, 1> list{};
  int count = 1;
  constexpr const MoeSortPolicy& operator[](std::size_t i) const { return list[i]; }
  constexpr std::size_t size() const { return count; }
};

/// The policies that entries are built for. Counts of 1024 experts take most of the LDS of gfx942. Without clusters
/// blocks take longer to count more than some thousand choices each than two launches do; with them, more than a
/// quarter million.
constexpr MoeSortPolicies moe_sort_policies(ArchId arch, const MoeSortSpec&) {
  if (arch == ArchId::sm90) return {{{{.tiles_alone = 256, .cluster = 8}}}};
  return {{{{.waves_per_simd = arch == ArchId::gfx942 ? 2 : 4}}}};
}

}  // namespace tilewave
