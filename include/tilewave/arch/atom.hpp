// SPDX-License-Identifier: MIT
// Facts of the 16-bit matrix instructions: their shapes and their lane -> (row, column, k) maps, apart from the
// instructions themselves. bf16 and f16 have the same ones.
//
// Every room offers one *chained atom* computing, in f32,
//     acc[row][kv] += sum over k of ROWS[row][k] * KV[kv][k]
// where ROWS is the small side (query rows, then probabilities) and KV the streamed side (K tokens, then V head
// dimensions). Which of the two is the instruction's A operand differs per chip and stays inside the room.
// A lane holds, for a lane group g = 0..3 and a position m inside the group,
//     KV operand    k_per_lane elements   KV[m][k(lane, e)]
//     ROWS operand  rows_per_lane rows of k_per_lane elements, in the order [r][e]
//     accumulator   rows_per_lane rows of kv_per_lane elements, in the order [r][c], kv = kv_per_lane * g + c
// The atom is "chained": for any number of score tiles j, element C*j + c of a lane's scores is the k-th probability of
// the next product without moving between lanes, because k is summed over and may be permuted alike on both operands.
#pragma once

#include "tilewave/arch/facts.hpp"

namespace tilewave {

/// The coordinates of one operand or accumulator element.
struct AtomElement {
  int index;  // row of ROWS, row of KV
  int k;      // summed dimension; for the accumulator, its kv column
};

struct AtomFacts {
  ArchId arch;
  Matrix matrix;
  int rows, kv, k;  // tile shape: rows x kv accumulators; k is summed
  int lanes;
  int k_per_lane;     // called E below
  int rows_per_lane;  // called R below
  int kv_per_lane;    // called C below

  friend constexpr bool operator==(const AtomFacts&, const AtomFacts&) = default;

  static constexpr int groups = 4;  // lane groups that divide k among them, in every room

  /// Returns the position inside the group (0..kv-1), which is the KV row that this lane supplies.
  TILEWAVE_HOST_DEVICE constexpr int position(int lane) const { return per_matrix(matrix, lane % 16, lane / 4); }
  /// Returns the lane group (0..3): the part of k, or the accumulator columns, that this lane holds.
  TILEWAVE_HOST_DEVICE constexpr int group(int lane) const { return per_matrix(matrix, lane / 16, lane % 4); }
  TILEWAVE_HOST_DEVICE constexpr int lane_of(int position, int group) const {
    return per_matrix(matrix, group * 16 + position, position * 4 + group);
  }
  /// Returns the r-th query row that this lane holds, in the ROWS operand and in the accumulator alike.
  TILEWAVE_HOST_DEVICE constexpr int row(int lane, int r) const {
    return per_matrix(matrix, lane % 16, lane / 4 + 8 * r);
  }
  /// Returns the k of operand element e. MFMA: CDNA3/CDNA4 ISA guide, "MFMA operand layouts": k = E * (lane / 16) + e.
  /// mma.sync: PTX ISA, "mma.m16n8k16": k = 2 * (lane % 4) + (e & 1) + 8 * (e >> 1).
  TILEWAVE_HOST_DEVICE constexpr int k_of(int lane, int e) const {
    return per_matrix(matrix, k_per_lane * (lane / 16) + e, 2 * (lane % 4) + (e & 1) + 8 * (e >> 1));
  }

  constexpr AtomElement kv_operand(int lane, int e) const { return {position(lane), k_of(lane, e)}; }
  constexpr AtomElement rows_operand(int lane, int i) const {
    return {row(lane, i / k_per_lane), k_of(lane, i % k_per_lane)};
  }
  constexpr AtomElement accumulator(int lane, int i) const {
    return {row(lane, i / kv_per_lane), kv_per_lane * group(lane) + i % kv_per_lane};
  }
};

// v_mfma_f32_16x16x16_bf16: KV is A, ROWS is B, so a lane's accumulators are 4 kv values of one row.
inline constexpr AtomFacts gfx942_atom{.arch = ArchId::gfx942,
                                       .matrix = Matrix::mfma,
                                       .rows = 16,
                                       .kv = 16,
                                       .k = 16,
                                       .lanes = 64,
                                       .k_per_lane = 4,
                                       .rows_per_lane = 1,
                                       .kv_per_lane = 4};
// v_mfma_f32_16x16x32_fp8_fp8: the same shape for fp8, with twice the k in as many registers.
inline constexpr AtomFacts gfx942_fp8_atom{.arch = ArchId::gfx942,
                                           .matrix = Matrix::mfma,
                                           .rows = 16,
                                           .kv = 16,
                                           .k = 32,
                                           .lanes = 64,
                                           .k_per_lane = 8,
                                           .rows_per_lane = 1,
                                           .kv_per_lane = 4};
// v_mfma_f32_16x16x32_bf16: the double-K shape that runs at CDNA4's full rate.
inline constexpr AtomFacts gfx950_atom{.arch = ArchId::gfx950,
                                       .matrix = Matrix::mfma,
                                       .rows = 16,
                                       .kv = 16,
                                       .k = 32,
                                       .lanes = 64,
                                       .k_per_lane = 8,
                                       .rows_per_lane = 1,
                                       .kv_per_lane = 4};
// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: ROWS is A, KV is B.
inline constexpr AtomFacts sm90_atom{.arch = ArchId::sm90,
                                     .matrix = Matrix::mma,
                                     .rows = 16,
                                     .kv = 8,
                                     .k = 16,
                                     .lanes = 32,
                                     .k_per_lane = 4,
                                     .rows_per_lane = 2,
                                     .kv_per_lane = 2};

/// The maps of a room's atom as kernels use them. The copy is a local constexpr, because device code may not refer to a
/// static member object of host memory.
template <class B>
struct LaneMap {
  TILEWAVE_HOST_DEVICE static constexpr int position(int lane) {
    constexpr AtomFacts atom = B::atom;
    return atom.position(lane);
  }
  TILEWAVE_HOST_DEVICE static constexpr int group(int lane) {
    constexpr AtomFacts atom = B::atom;
    return atom.group(lane);
  }
  TILEWAVE_HOST_DEVICE static constexpr int row(int lane, int r) {
    constexpr AtomFacts atom = B::atom;
    return atom.row(lane, r);
  }
  TILEWAVE_HOST_DEVICE static constexpr int lane_of(int position, int group) {
    constexpr AtomFacts atom = B::atom;
    return atom.lane_of(position, group);
  }
};

constexpr const AtomFacts& atom_of(ArchId id) {
  switch (id) {
    case ArchId::gfx942: return gfx942_atom;
    case ArchId::gfx950: return gfx950_atom;
    case ArchId::sm90: return sm90_atom;
  }
  unknown_architecture();
}

}  // namespace tilewave
