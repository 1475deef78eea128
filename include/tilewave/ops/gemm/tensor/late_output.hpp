// SPDX-License-Identifier: MIT
// The epilogue of GemmTensorKernel under P.late. When a tile's products are done, its values are rounded and stay in
// registers, half as many as its sums. They leave box by box while the first stages of the block's next tile are
// multiplied: the matrix unit waits for the rounding alone, and of two wave groups one rounds while the other
// multiplies.
#pragma once

#include "tilewave/ops/gemm/tensor/output.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
class GemmLateOutput : public GemmTensorOutput<B, S, P, UserEpilogue> {
 public:
  using Base = GemmTensorOutput<B, S, P, UserEpilogue>;
  using L = typename Base::L;
  using Args = typename Base::Args;
  using Maps = typename Base::Maps;
  using Shared = typename Base::Shared;
  using Sums = typename Base::Sums;
  /// The calls of write_some that a tile takes: in each, one box is filled, and the one before it is sent.
  static constexpr int steps = Base::all_boxes + 1;

  TILEWAVE_DEVICE explicit GemmLateOutput(const Maps* maps = nullptr) : Base(maps) {}

  /// Rounds the values of a tile.
  TILEWAVE_DEVICE void round(const Args& a, const GemmTile& tile, int wave_group, Shared& shared,
                             const Sums (&sums)[L::tiles]) {
    this->take_scales(a, wave_group, shared);
    if (this->has_extras(a)) {
      this->hold_factors();
      round_tile<true>(a, tile, wave_group, shared, sums);
    } else {
      round_tile<false>(a, tile, wave_group, shared, sums);
    }
    tile_ = tile;
    waiting_ = true;
  }
  /// Writes a part of the values that wait, if there are any. All lanes of a wave group call it with the steps in
  /// order. Nobody waits for what was stored in the same step: the barrier of the next one does.
  TILEWAVE_DEVICE void write_some(const Args& a, int wave_group, Shared& shared, int step) {
    if (!waiting_) return;
    if (step > 0) B::shared_written();
    if (L::may_send()) B::template stores_read<0>();  // of the box before that
    B::group_barrier();
    if (step > 0) send(a, wave_group, shared, step - 1);
    if (step + 1 < steps) {
      const int t = step / Base::boxes_per_tile, from = Base::box_from(step % Base::boxes_per_tile);
      Chunk* const box = box_of(shared, wave_group, step) + L::wave_in_wave_group() * 16 * 8;
      if (from + Base::box_wide <= wide_c) {
        fill<Base::box_wide>(box, t, from);
      } else {
        fill<wide_c % Base::box_wide>(box, t, from);
      }
    } else {
      waiting_ = false;
    }
  }
  /// Writes what waits behind the last tile.
  TILEWAVE_DEVICE void write_rest(const Args& a, int wave_group, Shared& shared) {
    TILEWAVE_UNROLL
    for (int step = 0; step < steps; ++step) write_some(a, wave_group, shared, step);
  }

 private:
  using Base::maps_;
  using Base::tiles_c;
  using Base::unit;
  using Base::wide_c;
  using Epilogue = typename Base::Epilogue;

  TILEWAVE_DEVICE static Chunk* box_of(Shared& shared, int wave_group, int step) {
    return shared.out[wave_group][step % L::out_boxes];
  }
  /// A few columns at a time where bias or residual are read, all of which are asked for before the first is used.
  template <bool extras>
  TILEWAVE_DEVICE void round_tile(const Args& a, const GemmTile& tile, int wave_group, Shared& shared,
                                  const Sums (&sums)[L::tiles]) {
    constexpr int columns = extras && wide_c % 64 == 0 ? 64 : 16;
    TILEWAVE_UNROLL
    for (int t = 0; t < tiles_c; ++t) {
      TILEWAVE_UNROLL
      for (int from = 0; from < wide_c; from += columns) {
        const auto values = this->template values_of<extras, columns>(a, tile, wave_group, shared, sums, t, from);
        TILEWAVE_UNROLL
        for (int w = 0; w < columns / 4; ++w)
          words_[t][from / 4 + w] = Epilogue::pack(values[2 * w], values[2 * w + 1]);
      }
    }
  }
  /// Fills a box with `wide` columns of tile t, from `from` on.
  template <int wide>
  TILEWAVE_DEVICE void fill(Chunk* box, int t, int from) {
    if constexpr (wide > 0)
      Base::Boxes::template fill_matrices<wide>(box,
                                                [&](int w) TILEWAVE_INLINE_LAMBDA { return words_[t][from / 4 + w]; });
  }
  /// Sends a box: by the copy engine where it can write it, else by the lanes that filled it.
  TILEWAVE_DEVICE void send(const Args& a, int wave_group, Shared& shared, int step) {
    constexpr int wide_here = min_of(Base::box_wide, wide_c);
    const std::int32_t row = tile_.first_row + L::tall_row(wave_group) + 64 * (step / Base::boxes_per_tile);
    const std::int32_t column =
        tile_.first_column + Base::first_wide(wave_group) + Base::box_from(step % Base::boxes_per_tile);
    const bool whole_units = a.gemm.n % unit == 0 || column + wide_here <= a.gemm.n;
    const bool by_engine = wide_here == L::box_columns && a.wide_stores && whole_units;
    Chunk* const box = box_of(shared, wave_group, step);
    if (!by_engine) {
      Base::copy_out(a, tile_, row, column, wide_here / unit, box);
    } else {
      if (L::lane_in_wave_group() == 0 && column < a.gemm.n && row < tile_.row_end)
        B::store_tensor(maps_->out, column, row, tile_.a_layer, box);
      B::stores_end();  // all lanes end them, see GemmTensorOutput::send_boxes
    }
  }

  Vec<std::uint32_t, wide_c / 4> words_[tiles_c];
  GemmTile tile_;
  bool waiting_ = false;
};

}  // namespace tilewave
