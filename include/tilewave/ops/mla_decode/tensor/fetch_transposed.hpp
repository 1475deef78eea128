// SPDX-License-Identifier: MIT
// The four waves that fetch rows of fp8 for products of fp8. Each transposes the values of sixteen tokens of a tile,
// and wave 0 starts all copies, two tiles ahead.
#pragma once

#include "tilewave/attention/value_transpose.hpp"
#include "tilewave/ops/mla_decode/tensor/copies.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, class L>
class MlaDecodeFetchTransposed : MlaDecodeCopies<B, S, L> {
  using Copies = MlaDecodeCopies<B, S, L>;
  using Copies::args_;
  using Copies::shared_;
  using typename Copies::Item;

 public:
  /// `wave`: 0 to 3 of those that fetch.
  TILEWAVE_DEVICE MlaDecodeFetchTransposed(const typename L::Args& args, typename L::Shared& shared, int wave)
      : Copies(args, shared), wave_(wave), rank_(args.clustered() ? B::cluster_rank() : 0) {}

  TILEWAVE_DEVICE void run(const Item& item, const std::int32_t* table) {
    if (item.tiles == 0) return;
    if (wave_ == 0) {
      look_up(item, table, 0);
      Copies::fetch_q(item);
      for (std::int32_t tile = 0; tile < min_of<std::int32_t>(item.tiles, L::stages); ++tile) copy(item, table, tile);
    }
    if (wave_ == 1) Copies::touch_output(item);
    TILEWAVE_ROLL
    for (std::int32_t tile = 0; tile < item.tiles; ++tile) {
      const int stage = tile % L::stages;
      TILEWAVE_UNROLL
      for (int box = 0; box < L::last_box; ++box) B::mbarrier_wait(&shared_.full[stage][box], parity_[stage]);
      const std::int32_t there = item.end - item.begin - tile * L::tokens;  // tokens of the tile
      if (there < L::tokens) clear(stage, there);
      B::mbarrier_wait(&shared_.free[stage][1][0], parity_[stage] ^ 1);
      transpose_.template run<latent_value_size / 32>(shared_.kv[stage] + wave_ * wave_rows * L::box_chunks,
                                                      L::box_size, shared_.aside.values, 4 * stage + wave_);
      B::shared_written();
      B::mbarrier_arrive(&shared_.aside.full[stage]);
      L::release(args_, shared_.free[stage][0][0]);
      parity_[stage] ^= 1;
      if (wave_ == 0 && tile + L::stages < item.tiles) copy(item, table, tile + L::stages);
    }
  }

 private:
  static constexpr int wave_rows = L::tokens / L::group_waves;  // of a tile that a wave transposes

  TILEWAVE_DEVICE void look_up(const Item& item, const std::int32_t* table, std::int32_t tile) {
    if (tile < item.tiles) rows_ = Copies::segment_row(item, table, item.begin + tile * L::tokens);
  }
  /// Starts the copies of a tile, and looks up the next.
  TILEWAVE_DEVICE void copy(const Item& item, const std::int32_t* table, std::int32_t tile) {
    const int stage = tile % L::stages;
    const std::int32_t token = item.begin + tile * L::tokens;
    B::mbarrier_wait(&shared_.free[stage][0][0], copied_[stage] ^ 1);
    copied_[stage] ^= 1;
    const bool alone = !args_.clustered();
    Copies::template copy_boxes<L::score_boxes>(rows_, stage, 0, [&](int box) TILEWAVE_INLINE_LAMBDA {
      return alone || (box < L::half_boxes) == (rank_ == 0);
    });
    look_up(item, table, tile + 1);
    // The lanes of a wave ask for 32 rows: of the other half, the other block's wave does.
    Copies::prefetch(item, table, token, rank_ * L::lanes, L::lanes);
  }

  /// Clears this wave's rows of values from row `first` of the tile on, whose codes may be NaN.
  TILEWAVE_DEVICE void clear(int stage, std::int32_t first) {
    const int begin = max_of<int>(first, wave_ * wave_rows) * L::box_chunks,
              end = (wave_ + 1) * wave_rows * L::box_chunks;
    TILEWAVE_ROLL
    for (int i = begin + B::lane_id(); i < end; i += L::lanes) {
      TILEWAVE_UNROLL
      for (int box = 0; box < L::last_box; ++box) shared_.kv[stage][box * L::box_size + i] = Chunk{};
    }
    B::wave_barrier();
  }

  int wave_, rank_;
  std::int32_t rows_ = 0;                                // of the next tile's segments
  int parity_[L::stages] = {}, copied_[L::stages] = {};  // of the tiles that were transposed, and copied
  ValueTranspose8<B> transpose_;
};

}  // namespace tilewave
