// SPDX-License-Identifier: MIT
// Rooms of CDNA offer these primitives for tiles in LDS: square products straight on 16-byte units of rows, buffers
// read with a bounds check, copies from memory into LDS, and the lanes of an LDS read that are served together.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

/// The lane map of a product of `side` x `side` sums (16 or 32) of one wave. Lane l supplies 16-byte units of row l %
/// side of both operands. Unit c of its `chunks` is unit units * c + l / side of the row. k is summed over, so its
/// order does not matter as long as both operands agree.
template <int side>
struct ProductMap {
  static_assert(side == 16 || side == 32, "products have 16 x 16 or 32 x 32 sums");
  static constexpr int units = 64 / side;        // lanes that share a row
  static constexpr int sums = side * side / 64;  // sums of one lane

  TILEWAVE_HOST_DEVICE static constexpr int row(int lane) { return lane % side; }
  TILEWAVE_HOST_DEVICE static constexpr int unit(int lane) { return lane / side; }
  /// Returns the row of the kv operand that sum i of a lane belongs to; its row of the rows operand is `row(lane)`.
  /// Four neighbouring sums have neighbouring rows. (CDNA3 ISA guide, "Dense matrices": the C layouts of 16x16 and
  /// 32x32, one block.)
  TILEWAVE_HOST_DEVICE static constexpr int kv_row(int lane, int i) {
    return 4 * units * (i / 4) + 4 * (lane / side) + i % 4;
  }
};

/// Returns the phase in which a lane of an LDS access of 16 bytes a lane is served. gfx942 serves 8 lanes at a time and
/// gfx950 16, once in each half of a wave (measured by nod-ai/amd-shark-ai, "empirical-lds").
constexpr int lds_read_phase(ArchId arch, int lane) {
  const int quarter = lane % 32 / 4;  // four neighbours go together
  constexpr int of_gfx942[] = {0, 1, 2, 3, 1, 0, 3, 2}, of_gfx950[] = {0, 1, 1, 0, 1, 0, 0, 1};
  const int gfx942 = of_gfx942[quarter] + lane / 32 * 4, gfx950 = of_gfx950[quarter] + lane / 32 * 2;
  return per_arch(arch, gfx942, gfx950, gfx950);  // sm90 has not been measured and takes gfx950's phases
}

/// Returns the additional cycles that an LDS read of 16 bytes a lane takes beyond one for each phase. `unit_of(lane)`
/// is its address in units of 16 bytes.
template <class UnitOf>
constexpr int lds_conflicts(ArchId arch, const UnitOf& unit_of) {
  constexpr int most_phases = 8, most_units = 16;
  const int columns = facts_of(arch).lds_banks / 4, phases = per_arch(arch, 8, 4, 4);
  int cycles = 0;
  for (int phase = 0; phase < phases; ++phase) {
    int used[most_units] = {}, most = 0;
    for (int lane = 0; lane < 64; ++lane) {
      if (lds_read_phase(arch, lane) == phase) most = max_of(most, ++used[unit_of(lane) % columns]);
    }
    cycles += most - 1;
  }
  static_assert(most_phases * 8 == 64, "eight phases of eight lanes each are a wave");
  return cycles;
}

/// Returns the same for load_transposed, which reads 8 bytes a lane. gfx950 serves 32 neighbours at a time (not
/// measured yet). `unit_of(lane)` is the address in units of 8 bytes.
template <class UnitOf>
constexpr int lds_transposed_conflicts(ArchId arch, const UnitOf& unit_of) {
  constexpr int most_columns = 32;
  const int columns = facts_of(arch).lds_banks / 2;
  int cycles = 0;
  for (int first = 0; first < 64; first += 32) {
    int used[most_columns] = {}, most = 0;
    for (int lane = first; lane < first + 32; ++lane) most = max_of(most, ++used[unit_of(lane) % columns]);
    cycles += most - 1;
  }
  return cycles;
}

/// A room of a chip with such products. docs/reference/primitives.md says what each primitive promises. A room whose
/// facts say direct_copies also has source.copy(shared, lane_offset, offset).
template <class B>
concept LdsBackend = Backend<B> &&
    requires(const void* base, std::uint32_t offset, void* shared, const Chunk (&operand)[2], Vec<float, 4>& small,
             Vec<float, 16>& large, float& number, Vec<std::int32_t, 16>& ints, std::int32_t& scalar,
             const std::int32_t* constant) {
  { B::template product_chunks<DType::bf16> } -> std::convertible_to<int>;
  { B::template multiply<DType::bf16, 16>(operand, operand, small) } -> std::same_as<void>;
  { B::template multiply<B::facts.fp8, 32>(operand, operand, large) } -> std::same_as<void>;
  { B::template multiply<DType::i8, 32>(operand, operand, ints) } -> std::same_as<void>;
  { typename B::Source{base, offset}.load(offset, 0) } -> std::same_as<Chunk>;
  { typename B::Source{base, offset}.load_word(offset, 0) } -> std::same_as<std::uint32_t>;
  { typename B::Source{base, offset}.load_two_words(offset, 0) } -> std::same_as<Vec<std::uint32_t, 2>>;
  { typename B::Source{base, offset}.load_sixes(offset, 0) } -> std::same_as<Vec<Chunk, 2>>;
  { typename B::Source{base, offset}.template copy_word<256>(shared, offset, 0) } -> std::same_as<void>;
  // at most this many copies of the wave are under way afterwards
  { B::template copies_wait<0>() } -> std::same_as<void>;
  { B::loads_wait() } -> std::same_as<void>;   // for loads and copies of the wave
  { B::lds_barrier() } -> std::same_as<void>;  // loads and copies stay under way
  // of an address that all lanes of the wave share, whose memory nobody writes; loads and copies stay under way
  { B::load_uniform(constant) } -> std::same_as<std::int32_t>;
  { B::keep(large) } -> std::same_as<void>;  // keeps its product between the fences around it
  { B::keep(ints) } -> std::same_as<void>;
  { B::keep(number) } -> std::same_as<void>;
  { B::keep_uniform(scalar) } -> std::same_as<void>;
  // eight i4 as fp8 of the chip's flavour, the low halves of bytes first
  { B::widen_i4_to_fp8(offset) } -> std::same_as<Vec<std::uint32_t, 2>>;
  // four fp8 of values within the type's range
  { B::pack_fp8_within(number, number, number, number) } -> std::same_as<std::uint32_t>;
  { B::template priority<1>() } -> std::same_as<void>;  // priority of this wave on its SIMD, 0 to 3
};

/// An LDS room of a chip that transposes elements of one byte or two as it reads LDS.
template <class B>
concept TransposedLdsBackend = LdsBackend<B> && requires(const void* row) {
  { B::template load_transposed<1>(row) } -> std::same_as<Vec<std::uint32_t, 2>>;
  { B::template load_transposed<2>(row) } -> std::same_as<Vec<std::uint32_t, 2>>;
};

/// An LDS room of a chip that has square products of 8 bytes a lane.
template <class B>
concept HalfProductBackend = LdsBackend<B> && requires(const Vec<std::uint32_t, 2>& half, Vec<float, 16>& sums) {
  { B::template multiply_half<DType::bf16, 32>(half, half, sums) } -> std::same_as<void>;
  { B::template multiply_half<B::facts.fp8, 32>(half, half, sums) } -> std::same_as<void>;
};

/// An LDS room of a chip that multiplies OCP MX's formats, with an e8m0 scale for 32 k of a row.
template <class B>
concept MxProductBackend = LdsBackend<B> && MxBackend<B> &&
    requires(const Chunk (&two)[2], const Chunk (&four)[4], const std::uint32_t (&scales)[2], Vec<float, 16>& sums) {
  { B::template multiply_mx<DType::fp4_e2m1, B::facts.fp8, 32>(two, four, scales, scales, sums) } -> std::same_as<void>;
};

}  // namespace tilewave
