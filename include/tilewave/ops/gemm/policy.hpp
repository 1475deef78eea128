// SPDX-License-Identifier: MIT
// How a GEMM is computed: may change the speed, never the answer beyond summation order.
#pragma once

#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave {

/// How operands reach the products: through shared memory by the tensor copy engine (sm90), by loads straight into LDS
/// (CDNA), through registers and stores into LDS (CDNA), or B of preshuffled weights straight to registers, A by LDS
/// (sm90: of i4 weights, by copies that each wave makes for itself, and A straight).
enum class GemmPath : int { tensor, direct, staged, weights_in_registers };

constexpr const char* name_of(GemmPath p) {
  constexpr const char* names[] = {"tensor", "direct", "staged", "wreg"};
  return names[static_cast<int>(p)];
}

/// A block computes rows x columns of C in steps of `depth_bytes` bytes of A's K, of which `stages` are in shared
/// memory. Its `waves_rows` x `waves_columns` waves (sm90: wave groups) share the tile.
struct GemmPolicy {
  int rows = 128, columns = 256;
  int depth_bytes = 128;
  int stages = 4;
  int waves_rows = 2, waves_columns = 1;
  GemmPath path = GemmPath::tensor;
  bool swapped =
      false;        // B's rows (weights) are the products' 64-row side: few rows of A cost few columns. `rows` then
                    // are of A still
  int cluster = 1;  // blocks that take neighbouring tiles along M and share B's by multicast
  int splits = 1;   // at most: blocks that share K of one tile, merged in fixed order
  int waves_per_simd = 1;
  int waves_k = 1;      // as many times the waves, which share K of the tile and merge their sums through shared memory
                        // (sm90: all of a block, of few rows of i4 weights)
  bool stream = false;  // (sm90) blocks have equal shares of the K of tiles that do not fill a round; a second launch
                        // adds them up in fixed order

  constexpr int waves() const { return waves_rows * waves_columns; }
  friend constexpr bool operator==(const GemmPolicy&, const GemmPolicy&) = default;
};

/// `t128x256x128.w2x1.s4.tensor`: tile with bytes of A's K, waves, stages, path; then `.swap`, `.c2` cluster, `.k8`
/// splits, `.o2` waves a SIMD, `.d4` waves that share K, `.stream`, where they are not the default.
inline std::string name_of(const GemmPolicy& p) {
  const auto text = [](int i) { return std::to_string(i); };
  std::string name = "t" + text(p.rows) + "x" + text(p.columns) + "x" + text(p.depth_bytes) + ".w" +
                     text(p.waves_rows) + "x" + text(p.waves_columns) + ".s" + text(p.stages) + "." + name_of(p.path);
  if (p.swapped) name += ".swap";
  if (p.cluster > 1) name += ".c" + text(p.cluster);
  if (p.splits > 1) name += ".k" + text(p.splits);
  if (p.waves_per_simd > 1) name += ".o" + text(p.waves_per_simd);
  if (p.waves_k > 1) name += ".d" + text(p.waves_k);
  if (p.stream) name += ".stream";
  return name;
}

}  // namespace tilewave
