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
  /// order.
  TILEWAVE_DEVICE void write_some(const Args& a, int wave_group, Shared& shared, int step) {
    if (!waiting_) return;
    this->next_box(a, tile_, wave_group, shared, step, Base::engine_writes_tile(a, tile_, wave_group),
                   [&](auto wide, Chunk* box, int t, int from)
                       TILEWAVE_INLINE_LAMBDA { fill<decltype(wide)::value>(box, t, from); });
    if (step + 1 == steps) waiting_ = false;
  }
  /// Writes what waits behind the last tile.
  TILEWAVE_DEVICE void write_rest(const Args& a, int wave_group, Shared& shared) {
    TILEWAVE_UNROLL
    for (int step = 0; step < steps; ++step) write_some(a, wave_group, shared, step);
  }

 private:
  using Base::tiles_c;
  using Base::wide_c;
  using Epilogue = typename Base::Epilogue;

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
  Vec<std::uint32_t, wide_c / 4> words_[tiles_c];
  GemmTile tile_;
  bool waiting_ = false;
};

}  // namespace tilewave
