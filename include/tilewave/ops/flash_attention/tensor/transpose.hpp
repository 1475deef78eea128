// SPDX-License-Identifier: MIT
// Waves beside the fetching one transpose each tile of V of fp8 (ValueTranspose8).
#pragma once

#include "tilewave/attention/value_transpose.hpp"
#include "tilewave/ops/flash_attention/tensor/work.hpp"

namespace tilewave {

/// One of the waves that transpose, and its slots in the rings.
template <class B, FlashAttentionSpec S, class L, FlashAttentionPolicy P>
class FlashAttentionTranspose {
 public:
  TILEWAVE_DEVICE FlashAttentionTranspose(typename L::Shared& shared, int number) : shared_(shared), number_(number) {}

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
    const int of_128 = P.keys <= 128 ? 0 : keys / 8, slot = transposed_.slot;
    const int rows = L::stages_share_rows ? 0 : slot, behind = L::stages_share_rows ? 4 * slot : 0;
    transpose_.template run<S.value_size / 32>(
        shared_.v[v_.slot], P.keys * L::box_chunks, 16 * keys * L::box_chunks,
        shared_.transposed.values[rows] + of_128 * (S.value_size * L::box_chunks), keys - 8 * of_128 + behind);
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
  int number_;
  ValueTranspose8<B> transpose_;
  typename L::KvSlot v_, transposed_;
};

}  // namespace tilewave
