// SPDX-License-Identifier: MIT
// Products of fp8 want both operands with the dimension that they sum over contiguous: V with a row per dimension and
// keys side by side. A wave transposes boxes of V from where the copy engine puts them to a place of their own in
// shared memory.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

/// A step transposes 16 keys of 32 dimensions. load_matrices reads, of 16 bytes of dimensions, matrices whose rows are
/// keys, byte permutes put two keys of a dimension together, and store_matrices transposes pairs. Keys go to the places
/// where the probabilities of a lane stand as operands: place 4 t + i of sixteen has key 8 (i / 2) + 2 t + i % 2.
template <class B>
class ValueTranspose8 {
 public:
  static constexpr int box_chunks = 8;  // of a row of a box, which has 128 bytes

  TILEWAVE_DEVICE ValueTranspose8() {
    const int matrix = B::lane_id() / 8, row = B::lane_id() % 8, second = matrix % 2;
    // Rows of a matrix are keys, or dimensions, that differ modulo 8: they lie in different banks.
    const int key = row + (row % 2 == 0 ? second : 8 - second);
    from_ = key * box_chunks + (matrix / 2 ^ key % 8);
    const int dimension = 16 * (matrix / 2) + 4 * (row / 2) + row % 2 + ((row < 4) == (second == 0) ? 0 : 2);
    to_ = dimension * box_chunks;
    to_swizzle_ = dimension % 8;
    // The lane's words are those of keys a and b, or of b and a.
    const bool odd = B::lane_id() / 4 % 2 == 1, upper = B::lane_id() % 4 >= 2;
    const std::uint32_t low = odd ? 0x1504u : 0x5140u, high = odd ? 0x3726u : 0x7362u;
    pick_[0] = upper ? high : low;
    pick_[1] = upper ? low : high;
  }

  /// Transposes sixteen keys of 32 * steps dimensions. Their rows begin with chunk `keys`, a whole number of groups of
  /// eight rows, of each of the boxes, which are `box_size` chunks apart. Rows of `dimensions` have 128 keys, these in
  /// their 16-byte unit `unit`.
  template <int steps>
  TILEWAVE_DEVICE void run(const Chunk* boxes, int box_size, int keys, Chunk* dimensions, int unit) const {
    Chunk* const to = dimensions + to_ + (unit ^ to_swizzle_);
    // Where `keys` is not added in front of the steps, each of them holds a register.
    const int from = keys + from_;
    TILEWAVE_UNROLL
    for (int step = 0; step < steps; ++step) {
      const int box = step / 4, from_unit = step % 4 * 2;
      const Chunk words = B::load_matrices(boxes + box * box_size + (from ^ from_unit));
      Vec<std::uint32_t, 4> pairs;
      TILEWAVE_UNROLL
      for (int i = 0; i < 4; ++i) pairs[i] = B::permute_bytes(words[i / 2 * 2], words[i / 2 * 2 + 1], pick_[i % 2]);
      B::template store_matrices<4>(to + 32 * step * box_chunks, pairs);
    }
  }

 private:
  int from_, to_, to_swizzle_;
  std::uint32_t pick_[2];
};

}  // namespace tilewave
