// SPDX-License-Identifier: MIT
// How a GEMM is computed. A policy may change the speed, but the answer only by the order of summation.
#pragma once

#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave {

/// How operands reach the products.
/// - tensor: the tensor copy engine copies them into shared memory (sm90).
/// - direct: lanes copy them from memory straight into LDS (gfx950).
/// - staged: lanes load them into registers and store them into LDS (CDNA).
/// - weights_in_registers: lanes load both operands straight to registers (CDNA, and few rows of 16 bits on sm90). Of
///   int4 weights on sm90 each wave copies its own into shared memory, and loads A straight to registers.
enum class GemmPath : int { tensor, direct, staged, weights_in_registers };

constexpr const char* name_of(GemmPath p) {
  constexpr const char* names[] = {"tensor", "direct", "staged", "wreg"};
  return names[static_cast<int>(p)];
}

/// A block computes a tile of rows x columns of C, in steps of `depth_bytes` bytes of A's K. Its `waves_rows` x
/// `waves_columns` waves (on sm90: wave groups) share the tile. `stages` steps are in shared memory or registers at a
/// time.
struct GemmPolicy {
  int rows = 128, columns = 256;
  int depth_bytes = 128;
  int stages = 4;
  int waves_rows = 2, waves_columns = 1;
  GemmPath path = GemmPath::tensor;
  /// sm90: B's rows (weights) are the 64-row side of the products, so that few rows of A cost few columns. `rows` still
  /// counts rows of A.
  bool swapped = false;
  int cluster = 1;          // sm90: blocks that take neighbouring tiles along M and share B's rows by multicast
  int cluster_columns = 1;  // sm90: blocks that take neighbouring tiles along N and share A's rows by multicast
  int splits = 1;           // the most blocks that may share the K of a tile; their sums are merged in a fixed order
  int waves_per_simd = 1;
  /// There are so many times the waves, which share the K of the tile and merge their sums through shared memory. For
  /// few rows of int4 weights on sm90, these are all waves of a block; on path tensor they are wave groups, which take
  /// stages in turn.
  int waves_k = 1;
  /// sm90, stream-K: blocks get equal parts of the K of the tiles that do not fill a round. A second launch combines
  /// their sums in a fixed order.
  bool stream = false;
  /// sm90: two wave groups take whole tiles in turn, so that the epilogue of one runs beside the products of the other.
  bool pingpong = false;
  /// sm90: a tile's values wait in registers, rounded, and leave below the first products of the block's next tile.
  bool late = false;

  /// sm90: the blocks that share boxes.
  constexpr int sharers() const { return cluster * cluster_columns; }
  constexpr int waves() const { return waves_rows * waves_columns; }
  /// sm90: a launch of few rows leaves an SM room for a block of the next launch.
  constexpr bool leaves_room() const { return path == GemmPath::tensor && waves_per_simd > 2; }
  /// sm90: those of a block that multiply.
  constexpr int wave_groups() const { return pingpong ? 2 : waves() * (path == GemmPath::tensor ? waves_k : 1); }
  friend constexpr bool operator==(const GemmPolicy&, const GemmPolicy&) = default;
};

/// The boxes of output of a wave group whose values leave late: one is filled while the other is sent.
inline constexpr int gemm_late_boxes = 2;

/// Returns a name such as `t128x256x128.w2x1.s4.tensor`: tile with bytes of A's K, waves, stages and path. What is not
/// the default follows: `.swap`, `.c2` cluster, `.a2` cluster_columns, `.k8` splits, `.o2` waves a SIMD, `.d4` waves
/// that share K, `.stream`, `.pingpong`, `.late`.
inline std::string name_of(const GemmPolicy& p) {
  const auto text = [](int i) { return std::to_string(i); };
  std::string name = "t" + text(p.rows) + "x" + text(p.columns) + "x" + text(p.depth_bytes) + ".w" +
                     text(p.waves_rows) + "x" + text(p.waves_columns) + ".s" + text(p.stages) + "." + name_of(p.path);
  if (p.swapped) name += ".swap";
  if (p.cluster > 1) name += ".c" + text(p.cluster);
  if (p.cluster_columns > 1) name += ".a" + text(p.cluster_columns);
  if (p.splits > 1) name += ".k" + text(p.splits);
  if (p.waves_per_simd > 1) name += ".o" + text(p.waves_per_simd);
  if (p.waves_k > 1) name += ".d" + text(p.waves_k);
  if (p.stream) name += ".stream";
  if (p.pingpong) name += ".pingpong";
  if (p.late) name += ".late";
  return name;
}

namespace detail {

/// Says whether sums of int4 stay in the matrix unit and are multiplied where scales change (GemmInt4Rows::rescaled):
/// stages of 64 k.
constexpr bool gemm_rescales_sums(const GemmSpec& s, const GemmPolicy& p) {
  return s.b == DType::i4 && !is_fp8(s.a) && !s.rounds_weights() && p.path == GemmPath::tensor && p.depth_bytes == 128;
}

/// Says whether groups have few rows, as experts do that get tokens by chance.
constexpr bool gemm_low_groups(const GemmSpec& s, const GemmPolicy& p) {
  return p.path == GemmPath::direct && p.rows == 64 && s.groups != GemmGroups::one && s.scale == Scaling::per_block;
}
/// Says whether a block goes through several tiles of a group that lie side by side, and copies the next one's steps
/// while it multiplies and writes (docs/notebook/2026-11-28-moe-cdna-walk.md). Groups have few rows there, so what
/// begins and ends a tile would take as long as its steps.
constexpr bool gemm_walks(const GemmSpec& s, const GemmPolicy& p) {
  return gemm_low_groups(s, p) && s.groups == GemmGroups::contiguous && !s.gathered && s.out_scale == Scaling::none;
}

/// Says whether a lane's two rows of a product are a gate and its up: where a wave group has 64 rows of preshuffled
/// weights of four bits, it has 32 gates and their ups (GemmInt4Rows::row_of).
constexpr bool gemm_pairs_halves(const GemmSpec& s, const GemmPolicy& p) {
  return s.gated && s.four_bit() && s.weights == GemmWeights::preshuffled && p.path == GemmPath::tensor && p.swapped &&
         p.columns == 64 * p.waves_rows;
}

}  // namespace detail

}  // namespace tilewave
