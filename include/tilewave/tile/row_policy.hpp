// SPDX-License-Identifier: MIT
// A row policy says how a row is held in registers: by part of a wave, a wave, a block or a cluster of blocks. All row
// operations share it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave {

struct RowPolicy {
  int lanes = 256;         // lanes of a block that share a row: a power of two
  int rows = 1;            // rows of one block, side by side
  int chunks = 4;          // accesses of `vec` bytes that a lane holds
  int vec = 16;            // bytes of one access: 16, or 8 of codes; one element where rows are not aligned to 16 bytes
  int span = 1;            // neighbouring chunks of a lane, so that narrower outputs still make wide stores
  int blocks = 1;          // blocks of a cluster that share a row
  bool held = true;        // true: the row is read once and kept; false: every pass reads it again
  int waves_per_simd = 2;  // claimed occupancy, which sets the register budget

  friend constexpr bool operator==(const RowPolicy&, const RowPolicy&) = default;

  TILEWAVE_HOST_DEVICE constexpr int block_threads() const { return lanes * rows; }
  /// True if an access has several elements of type x. Rows must then be aligned.
  constexpr bool wide(DType x) const { return vec > size_of(x); }
  /// Columns that one block, and one cluster, covers at a time.
  TILEWAVE_HOST_DEVICE constexpr int block_columns(DType x) const { return lanes * chunks * (vec / size_of(x)); }
  TILEWAVE_HOST_DEVICE constexpr std::int64_t columns(DType x) const { return std::int64_t{blocks} * block_columns(x); }
};

/// The name is like `l256.r1.c4.v16`: lanes, rows, chunks, bytes; `.s2` is the span, `.b4` the blocks, `.again` means
/// that the row is not held.
inline std::string name_of(const RowPolicy& p) {
  return "l" + std::to_string(p.lanes) + ".r" + std::to_string(p.rows) + ".c" + std::to_string(p.chunks) + ".v" +
         std::to_string(p.vec) + (p.span > 1 ? ".s" + std::to_string(p.span) : "") +
         (p.blocks > 1 ? ".b" + std::to_string(p.blocks) : "") + (p.held ? "" : ".again");
}

/// True if a lane has the registers to keep its part of a row in f32 from one pass to the next. Otherwise passes widen
/// the packed elements again. The limit is half of what the claimed occupancy leaves a lane, and less on CDNA.
constexpr bool keeps_values(const ArchFacts& facts, DType x, const RowPolicy& p) {
  const int budget = facts.register_file_lanes / p.waves_per_simd - (facts.wave_lanes == 64 ? 16 : 0);
  return p.held && 2 * p.chunks * (p.vec / size_of(x)) <= budget;
}

/// Returns ok if a policy can hold rows of type x on a chip, or the law that it breaks. Kernels assert it; lists and
/// tests ask it.
constexpr Status row_policy_status(const ArchFacts& facts, DType x, const RowPolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  if (!is_power_of_two(p.lanes) || p.lanes > 1024) return {bad, "lanes is a power of two up to 1024"};
  if (p.rows < 1 || p.rows > 1024) return {bad, "a block has at least one row, and at most 1024"};
  if (p.chunks < 1 || p.chunks > 1024) return {bad, "a lane holds at least one chunk, and at most 1024"};
  if (p.waves_per_simd < 1) return {bad, "waves_per_simd must be positive"};
  if (p.block_threads() % facts.wave_lanes != 0) return {bad, "lanes times rows is a multiple of the wave"};
  if (p.block_threads() > 1024) return {bad, "lanes times rows is at most 1024, the largest block"};
  if (p.rows > 1 && p.lanes > facts.wave_lanes && p.lanes % facts.wave_lanes != 0)
    return {bad, "rows side by side have parts of a wave or whole waves each"};
  if (p.vec != 16 && !(p.vec == 8 && size_of(x) == 1) && p.vec != size_of(x))
    return {bad, "vec is 16 bytes, one element, or 8 bytes of elements of one byte"};
  if (p.span < 1 || p.chunks % p.span != 0) return {bad, "span divides chunks: a lane's neighbours are whole runs"};
  if (!is_power_of_two(p.blocks) || p.blocks > facts.max_cluster_blocks)
    return {bad, "blocks is a power of two, up to the chip's largest cluster"};
  if (p.blocks > 1 && (!p.held || p.rows != 1)) return {bad, "a cluster has one row at a time, and holds it"};
  return {};
}

}  // namespace tilewave
