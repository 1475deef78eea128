// SPDX-License-Identifier: MIT
// Products of fp8 want both operands with the dimension that they sum over contiguous: V with a row per dimension and
// keys side by side. Waves beside the fetching one transpose each tile of V, from where the copy engine puts it to a
// tile of its own in shared memory.
//
// A step transposes 16 keys of 32 dimensions. load_matrices reads, of 16 bytes of dimensions, matrices whose rows are
// keys, byte permutes put two keys of a dimension together, and store_matrices transposes pairs. Keys go to the places
// where the probabilities of a lane stand as operands (FlashAttentionSoftmax::pack): place 4 t + i of sixteen has key 8
// (i / 2) + 2 t + i % 2.
#pragma once

#include "tilewave/ops/flash_attention/tensor/work.hpp"

namespace tilewave {

/// One of the waves that transpose, and its slots in the rings.
template <class B, FlashAttentionSpec S, class L, FlashAttentionPolicy P>
class FlashAttentionTranspose {
 public:
  TILEWAVE_DEVICE FlashAttentionTranspose(typename L::Shared& shared, int number) : shared_(shared), number_(number) {
    const int matrix = B::lane_id() / 8, row = B::lane_id() % 8, second = matrix % 2;
    // Rows of a matrix are keys, or dimensions, that differ modulo 8: they lie in different banks.
    const int key = row + (row % 2 == 0 ? second : 8 - second);
    from_ = key * L::box_chunks + (matrix / 2 ^ key % 8);
    const int dimension = 16 * (matrix / 2) + 4 * (row / 2) + row % 2 + ((row < 4) == (second == 0) ? 0 : 2);
    to_ = dimension * L::box_chunks;
    to_swizzle_ = dimension % 8;
    // The lane's words are those of keys a and b, or of b and a.
    const bool odd = B::lane_id() / 4 % 2 == 1, upper = B::lane_id() % 4 >= 2;
    const std::uint32_t low = odd ? 0x1504u : 0x5140u, high = odd ? 0x3726u : 0x7362u;
    pick_[0] = upper ? high : low;
    pick_[1] = upper ? low : high;
  }

  TILEWAVE_DEVICE void run(const FlashAttentionItem& item) {
    TILEWAVE_ROLL
    for (std::int32_t tile = item.end_tile - 1; tile >= item.first_tile; --tile) {
      shared_.v_ring.wait_full(v_);
      if ((tile + 1) * P.keys > item.sequence.kv_count) clear(item.sequence.kv_count - tile * P.keys);
      shared_.transposed.ring.wait_free(transposed_);
      TILEWAVE_ROLL
      for (int keys = number_; keys < P.keys / 16; keys += L::transposing_waves) transpose(keys);
      B::shared_written();
      B::mbarrier_arrive(&shared_.transposed.ring.full[transposed_.slot]);
      shared_.v_ring.release(v_.slot);
      v_.advance();
      transposed_.advance();
    }
  }

 private:
  /// Transposes keys 16 * keys to 16 * keys + 15, of all dimensions.
  TILEWAVE_DEVICE void transpose(int keys) {
    constexpr int steps = S.value_size / 32;
    const Chunk* const from = shared_.v[v_.slot] + 16 * keys * L::box_chunks;
    Chunk* const to = shared_.transposed.values[transposed_.slot] + keys / 8 * (S.value_size * L::box_chunks) + to_ +
                      (keys % 8 ^ to_swizzle_);
    TILEWAVE_UNROLL
    for (int step = 0; step < steps; ++step) {
      const int box = step / 4, unit = step % 4 * 2;
      const Chunk words = B::load_matrices(from + box * (P.keys * L::box_chunks) + (from_ ^ unit));
      Vec<std::uint32_t, 4> pairs;
      TILEWAVE_UNROLL
      for (int i = 0; i < 4; ++i) pairs[i] = B::permute_bytes(words[i / 2 * 2], words[i / 2 * 2 + 1], pick_[i % 2]);
      B::template store_matrices<4>(to + 32 * step * L::box_chunks, pairs);
    }
  }
  /// Clears the rows of V from `first` of the tile on, which may be NaN. Each wave clears them for itself, as each
  /// writes the same.
  TILEWAVE_DEVICE void clear(std::int32_t first) {
    TILEWAVE_ROLL
    for (int i = first * L::box_chunks + B::lane_id(); i < P.keys * L::box_chunks; i += B::facts.wave_lanes) {
      TILEWAVE_UNROLL
      for (int box = 0; box < L::value_boxes; ++box) shared_.v[v_.slot][box * (P.keys * L::box_chunks) + i] = Chunk{};
    }
    B::wave_barrier();
  }

  typename L::Shared& shared_;
  int number_, from_, to_, to_swizzle_;
  std::uint32_t pick_[2];
  typename L::KvSlot v_, transposed_;
};

}  // namespace tilewave
