// SPDX-License-Identifier: MIT
// Parts that the tests of wave groups share: matrices of small integers, and who holds which element.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "test/arch/room.hpp"

namespace tilewave::test {

inline constexpr int group_lanes = 128, rows = 64;  // of a group, of its products

inline std::uint32_t code_of(DType type, float value) {
  if (type == DType::i8) return static_cast<std::uint8_t>(static_cast<std::int8_t>(value));
  return type == DType::bf16 ? f32_to_bf16(value) : type == DType::f16 ? f32_to_f16(value) : f32_to_fp8(type, value);
}

using Matrix = std::vector<float>;  // row by row

inline Matrix random_integers(int count, int limit, unsigned seed) {
  std::mt19937 random(seed);
  Matrix values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % (2 * limit + 1)) - limit);
  return values;
}

/// Appends the elements in the order given, as `type`.
inline void append(std::vector<std::uint32_t>& words, DType type, const Matrix& values) {
  const std::size_t per_word = 4 / size_of(type);
  for (std::size_t i = 0; i < values.size(); i += per_word) {
    std::uint32_t word = 0;
    for (std::size_t e = 0; e < per_word; ++e) word |= code_of(type, values[i + e]) << 8 * size_of(type) * e;
    words.push_back(word);
  }
}
inline void append(std::vector<std::uint32_t>& words, const Matrix& values) {
  for (const float v : values) words.push_back(__builtin_bit_cast(std::uint32_t, v));
}

/// The position of a lane in the group.
template <class B>
struct Place {
  int lane = B::lane_id(), wave = B::wave_id() % 4, group = B::wave_id() / 4;
  int id = 32 * wave + lane;

  TILEWAVE_DEVICE int row(int i) const { return 16 * wave + lane / 4 + 4 * (i & 2); }
  TILEWAVE_DEVICE int column(int i) const { return 8 * (i / 4) + 2 * (lane % 4) + i % 2; }
  /// Operand a as registers hold it, of a matrix with rows of `pitch` words (of two elements), from word `first` on.
  TILEWAVE_DEVICE Chunk registers(const std::uint32_t* matrix, int pitch, int first) const {
    Chunk a;
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int a_row = 16 * wave + lane / 4 + 8 * (i % 2);
      a[i] = B::load(matrix + a_row * pitch + first + 4 * (i / 2) + lane % 4);
    }
    return a;
  }
};

/// The two 16-byte units of each of `count` rows (32 bytes each in `from`) go where `to` wants them.
template <class B>
TILEWAVE_DEVICE void place_operand(const GroupOperand& to, const std::uint32_t* from, int count, int id) {
  if (id >= 2 * count) return;
  const int row = id / 2, unit = id % 2;
  auto* const at = static_cast<char*>(const_cast<void*>(to.at)) + to.offset + row / 8 * to.eight_rows + row % 8 * 16;
  B::store(reinterpret_cast<Chunk*>(at + unit * to.next_unit), B::load(reinterpret_cast<const Chunk*>(from) + id));
}

/// left[.., k] right[.., k]^T
inline Matrix product(const Matrix& left, const Matrix& right, std::size_t k) {
  Matrix out;
  for (std::size_t i = 0; i < left.size(); i += k) {
    for (std::size_t j = 0; j < right.size(); j += k) {
      float sum = 0;
      for (std::size_t e = 0; e < k; ++e) sum += left[i + e] * right[j + e];
      out.push_back(sum);
    }
  }
  return out;
}

}  // namespace tilewave::test
