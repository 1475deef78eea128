// SPDX-License-Identifier: MIT
// The host room's matrix instruction: any atom, executed from its lane -> (row, column, k) maps alone.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <array>
#include <bit>
#include <cstdint>

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/host/dense.hpp"
#include "tilewave/arch/host/schedule.hpp"

namespace tilewave::host {

namespace detail {

/// The positions of each lane's elements in the dense tile of a wave:
///   rows_side [rows, k], kv_side [k, kv] (transposed: the inner loop runs along kv), acc [rows, kv], all f32.
template <ArchId Id, bool fp8 = false>
struct DenseTile {
  static constexpr bool of_fp8 = fp8;
  static constexpr AtomFacts A = fp8 ? gfx942_fp8_atom : atom_of(Id);
  static constexpr int rows_per_operand = A.rows_per_lane * A.k_per_lane;
  static constexpr int acc_per_lane = A.rows_per_lane * A.kv_per_lane;
  // Sums lie at the same offset for all types: a lane may take its own when another has begun the next product.
  static constexpr int acc_begin = 0;
  static constexpr int rows_begin = A.rows * A.kv;
  static constexpr int kv_begin = rows_begin + A.rows * A.k;
  static constexpr int size = kv_begin + A.k * A.kv;

  template <int N>
  using Table = std::array<std::array<std::uint16_t, N>, A.lanes>;

  static constexpr Table<rows_per_operand> rows_at = [] {
    Table<rows_per_operand> table{};
    for (int lane = 0; lane < A.lanes; ++lane) {
      for (int i = 0; i < rows_per_operand; ++i) {
        const AtomElement e = A.rows_operand(lane, i);
        table[lane][i] = static_cast<std::uint16_t>(rows_begin + e.index * A.k + e.k);
      }
    }
    return table;
  }();
  static constexpr Table<A.k_per_lane> kv_at = [] {
    Table<A.k_per_lane> table{};
    for (int lane = 0; lane < A.lanes; ++lane) {
      for (int i = 0; i < A.k_per_lane; ++i) {
        const AtomElement e = A.kv_operand(lane, i);
        table[lane][i] = static_cast<std::uint16_t>(kv_begin + e.k * A.kv + e.index);
      }
    }
    return table;
  }();
  static constexpr Table<acc_per_lane> acc_at = [] {
    Table<acc_per_lane> table{};
    for (int lane = 0; lane < A.lanes; ++lane) {
      for (int i = 0; i < acc_per_lane; ++i) {
        const AtomElement e = A.accumulator(lane, i);
        table[lane][i] = static_cast<std::uint16_t>(acc_begin + e.index * A.kv + e.k);
      }
    }
    return table;
  }();
};

/// Spreads packed pairs of bf16 or f16 over the dense tile as f32.
template <int N>
TILEWAVE_HOST_UNTRACKED inline void spread(DType type, float* tile, const std::array<std::uint16_t, N>& at,
                                           const Vec<std::uint32_t, N / 2>& pairs) {
  for (int i = 0; i < N / 2; ++i) {
    if (type == DType::f16) {
      tile[at[2 * i]] = f16_to_f32(static_cast<std::uint16_t>(pairs[i]));
      tile[at[2 * i + 1]] = f16_to_f32(static_cast<std::uint16_t>(pairs[i] >> 16));
    } else {
      tile[at[2 * i]] = std::bit_cast<float>(pairs[i] << 16);
      tile[at[2 * i + 1]] = std::bit_cast<float>(pairs[i] & 0xffff0000u);
    }
  }
}

/// Does the same for fp8, four in a word.
template <int N>
TILEWAVE_HOST_UNTRACKED inline void spread_fp8(DType type, float* tile, const std::array<std::uint16_t, N>& at,
                                               const Vec<std::uint32_t, N / 4>& words) {
  const float* const values = fp8_values(type);
  for (int i = 0; i < N; ++i) tile[at[i]] = values[words[i / 4] >> 8 * (i % 4) & 0xff];
}

/// Dense is the DenseTile of the operands' type.
template <class Dense, class KvOperand, class RowsOperand, class Accumulator>
TILEWAVE_HOST_UNTRACKED inline void wave_mma(DType type, const KvOperand& kv, const RowsOperand& rows, Accumulator& acc,
                                             Where where) {
  static_assert(Dense::size * sizeof(float) <= sizeof(Wave::tile), "a wave's scratch holds the operands of an atom");
  Lane& self = *current_lane;
  float* const tile = self.wave->tile;
  const int lane = self.index;
  const auto& acc_at = Dense::acc_at[lane];
  if constexpr (Dense::of_fp8) {
    spread_fp8<Dense::rows_per_operand>(type, tile, Dense::rows_at[lane], rows);
    spread_fp8<Dense::A.k_per_lane>(type, tile, Dense::kv_at[lane], kv);
  } else {
    spread<Dense::rows_per_operand>(type, tile, Dense::rows_at[lane], rows);
    spread<Dense::A.k_per_lane>(type, tile, Dense::kv_at[lane], kv);
  }
  for (int i = 0; i < Dense::acc_per_lane; ++i) tile[acc_at[i]] = acc[i];
  if (meet(self, {CollectiveKind::mma, Dense::A.k, where})) {
    multiply_dense<Dense::A.rows, Dense::A.kv, Dense::A.k>(tile + Dense::rows_begin, tile + Dense::kv_begin,
                                                           tile + Dense::acc_begin);
    ++self.cluster->counters.mma;
    complete(self);
  }
  for (int i = 0; i < Dense::acc_per_lane; ++i) acc[i] = tile[acc_at[i]];
}

}  // namespace detail

template <ArchId Id>
struct Mma : AtomRegisters<atom_of(Id).k_per_lane, atom_of(Id).rows_per_lane, atom_of(Id).kv_per_lane> {
  using Registers = AtomRegisters<atom_of(Id).k_per_lane, atom_of(Id).rows_per_lane, atom_of(Id).kv_per_lane>;
  using typename Registers::Accumulator;
  using typename Registers::KvOperand;
  using typename Registers::RowsOperand;

  /// Multiplies bf16 operands by the chained atom of arch/atom.hpp. Sums are f32, in ascending k, on top of acc.
  /// Denormals are kept.
  static Accumulator mma(const KvOperand& kv, const RowsOperand& rows, Accumulator acc, Where where = {}) {
    detail::wave_mma<detail::DenseTile<Id>>(DType::bf16, kv, rows, acc, where);
    return acc;
  }
  /// Multiplies f16 operands the same way.
  static Accumulator mma_f16(const KvOperand& kv, const RowsOperand& rows, Accumulator acc, Where where = {}) {
    detail::wave_mma<detail::DenseTile<Id>>(DType::f16, kv, rows, acc, where);
    return acc;
  }
  /// Multiplies fp8 operands of gfx942 the same way, by the maps of its fp8 atom.
  static Accumulator mma_fp8(const KvOperand& kv, const RowsOperand& rows, Accumulator acc,
                             Where where = {}) requires(Id == ArchId::gfx942) {
    detail::wave_mma<detail::DenseTile<Id, true>>(facts_of(Id).fp8, kv, rows, acc, where);
    return acc;
  }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
