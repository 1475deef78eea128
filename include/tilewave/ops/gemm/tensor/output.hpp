// SPDX-License-Identifier: MIT
// The epilogue of GemmTensorKernel: sums leave as boxes that the copy engine writes, or element by element where the
// engine cannot write the rows of out.
#pragma once

#include <type_traits>

#include "tilewave/ops/gemm/tensor/out_boxes.hpp"
#include "tilewave/ops/gemm/tensor/values.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
class GemmTensorOutput : public GemmTensorValues<B, S, P, UserEpilogue> {
 public:
  using Values = GemmTensorValues<B, S, P, UserEpilogue>;
  using typename Values::SumMap;
  using L = typename SumMap::L;
  using Args = typename L::Args;
  using Maps = typename L::Maps;
  using Shared = typename L::Shared;
  using Sums = typename L::Sums;
  using Epilogue = typename SumMap::Epilogue;
  using Boxes = GemmOutBoxes<L, P, Epilogue>;
  using SumMap::quantised;
  using Values::boxes;
  static constexpr bool in_floats = boxes && S.out == DType::f32;
  static constexpr int unit = 16 / size_of(S.out);  // elements of 16 bytes

  /// Without maps it combines partials, whose sums leave without boxes.
  TILEWAVE_DEVICE explicit GemmTensorOutput(const Maps* maps = nullptr) : maps_(maps) {}

  /// Loads the scales of a tile, which arrive during its products. All lanes of a wave group call this before them.
  /// Scales of the tall side stay in the lane. Those of the wide side go to shared memory later.
  TILEWAVE_DEVICE void begin(const Args& a, const GemmTile& tile, int wave_group) {
    if constexpr (L::writes_cache) {
      if (a.cache.writes) {
        TILEWAVE_UNROLL
        for (int r = 0; r < cache_rounds; ++r) {
          const int row = a.gemm.splits > 1 ? vector_of(merged_first(B::cluster_rank())).row : cache_row(r);
          cache_.row[r].find(a.cache, min_of(tile.first_row + row, tile.row_end - 1));
        }
      }
    }
    load_scales(a, tile, wave_group);
  }

  /// Writes a tile. All lanes of a wave group call this.
  TILEWAVE_DEVICE void write(const Args& a, const GemmTile& tile, int wave_group, Shared& shared,
                             Sums (&sums)[L::tiles]) {
    take_scales(a, wave_group, shared);
    // The common case has code of its own, because code is fetched anew for every tile and jumps cost fetches, too.
    // What is done with a single box is there once: it is long (docs/notebook/2026-11-28-gemm-size-of-code.md).
    if constexpr (one_box) {
      if (L::may_send()) B::template stores_read<0>();
      B::group_barrier();
      if (has_extras(a)) {
        fill_box_of<true>(a, tile, wave_group, shared, sums, 0, 0);
      } else {
        fill_box_of<false>(a, tile, wave_group, shared, sums, 0, 0);
      }
      leave_boxes(a, tile, wave_group, shared, 0);
    } else if (has_extras(a)) {
      write_tile<true>(a, tile, wave_group, shared, sums);
    } else {
      write_tile<false>(a, tile, wave_group, shared, sums);
    }
  }
  /// Says whether nothing is read or written of a tile whose columns lie beyond C.
  TILEWAVE_DEVICE static bool leaves_out_columns(const Args& a) {
    if constexpr (L::writes_squares) {
      if (a.out_squares != nullptr || a.cache.writes) return false;
    }
    return !S.scattered && a.gemm.splits == 1 && a.wide_stores && a.gemm.n % unit == 0 && !has_extras(a) &&
           !a.normalises;
  }
  TILEWAVE_DEVICE void finish() {
    if (boxes && L::may_send()) B::template stores_read<0>();
  }

 protected:
  TILEWAVE_DEVICE static bool has_extras(const Args& a) {
    return a.gemm.bias != nullptr || a.gemm.residual != nullptr || (S.has_ids() && a.gemm.row_weights != nullptr);
  }
  using SumMap::cache_;
  using SumMap::cache_rounds;
  using SumMap::columns;
  using SumMap::element;
  using SumMap::first_tall;
  using SumMap::first_wide;
  using SumMap::merged_first;
  using SumMap::store;
  using SumMap::tiles_c;
  using SumMap::vector_of;
  using SumMap::wide_c;
  using Values::load_scales;
  using Values::take_scales;

  /// Boxes of one 64-row tile and of all tiles of the wave group. Values are computed box by box, because those of a
  /// whole tile would need more registers than the sums leave.
  static constexpr int box_wide = P.swapped ? wide_c : L::box_columns;
  static constexpr int boxes_per_tile = ceil_div(wide_c, box_wide), all_boxes = tiles_c * boxes_per_tile;
  /// The last box of a tile ends with it, and repeats columns of the box before where widths ask for it: the engine
  /// writes whole boxes only.
  TILEWAVE_DEVICE static constexpr int box_from(int box) {
    return min_of(box * box_wide, max_of(wide_c - box_wide, 0));
  }
  /// The columns that it repeats, where the box before is sent before it is filled.
  static constexpr int repeated =
      L::out_boxes < all_boxes ? (boxes_per_tile - 1) * box_wide - box_from(boxes_per_tile - 1) : 0;
  /// The columns of a box that must not be written again: its values would have a residual that is out itself twice.
  TILEWAVE_DEVICE static int left_out(const Args& a, int box) {
    return repeated > 0 && a.gemm.in_place && box % boxes_per_tile == boxes_per_tile - 1 ? repeated : 0;
  }
  static constexpr int sent_wide = L::pairs    ? 32
                                   : P.swapped ? 64
                                               : min_of(box_wide, wide_c);  // columns of a box that are filled
  /// A tile is one box.
  static constexpr bool one_box = boxes && all_boxes == 1 && L::out_boxes == 1;
  /// One box is filled while another is sent, where there are two or more but not boxes for a tile.
  static constexpr bool boxes_in_turn = boxes && P.pingpong && L::out_boxes > 1 && L::out_boxes < all_boxes;

  /// `extras`: with bias or residual.
  template <bool extras>
  TILEWAVE_DEVICE void write_tile(const Args& a, const GemmTile& tile, int wave_group, Shared& shared,
                                  Sums (&sums)[L::tiles]) {
    if constexpr (boxes) {
      if constexpr (boxes_in_turn) {
        if (engine_writes_tile(a, tile, wave_group)) {
          TILEWAVE_UNROLL
          for (int step = 0; step <= all_boxes; ++step)
            next_box(a, tile, wave_group, shared, step, true,
                     [&](auto wide, Chunk* box, int t, int from) TILEWAVE_INLINE_LAMBDA {
                       fill_box<extras, decltype(wide)::value>(a, tile, wave_group, shared, sums, t, from, box);
                     });
          return;
        }
      }
      TILEWAVE_UNROLL
      for (int first = 0; first < all_boxes; first += L::out_boxes)
        write_boxes<extras>(a, tile, wave_group, shared, sums, first);
    } else {
      TILEWAVE_UNROLL
      for (int t = 0; t < tiles_c; ++t) {
        const auto values = Values::template values_of<extras, wide_c>(a, tile, wave_group, shared, sums, t, 0);
        TILEWAVE_UNROLL
        for (int i = 0; i < L::sums_of(wide_c); ++i) store(a, tile, element(wave_group, t, i), values[i]);
      }
    }
  }

  /// Fills all boxes that shared memory has room for, from box `first` of the tile on, and then sends them. So lanes
  /// wait for each other only twice, and the copy engine starts few copies, each of which takes it some 120 cycles.
  template <bool extras>
  TILEWAVE_DEVICE void write_boxes(const Args& a, const GemmTile& tile, int wave_group, Shared& shared,
                                   const Sums (&sums)[L::tiles], int first) {
    if (L::may_send()) B::template stores_read<0>();
    B::group_barrier();
    TILEWAVE_UNROLL
    for (int i = 0; i < min_of(L::out_boxes, all_boxes - first); ++i)
      fill_box_of<extras>(a, tile, wave_group, shared, sums, first, i);
    leave_boxes(a, tile, wave_group, shared, first);
  }
  /// Fills box i of those from `first` on.
  template <bool extras>
  TILEWAVE_DEVICE void fill_box_of(const Args& a, const GemmTile& tile, int wave_group, Shared& shared,
                                   const Sums (&sums)[L::tiles], int first, int i) {
    const int t = (first + i) / boxes_per_tile, from = box_from((first + i) % boxes_per_tile);
    Chunk* const box = shared.out[wave_group][i] + (P.swapped ? 0 : L::wave_in_wave_group() * 16 * 8);
    if (from + box_wide <= wide_c) {
      fill_box<extras, box_wide>(a, tile, wave_group, shared, sums, t, from, box);
    } else {
      fill_box<extras, wide_c % box_wide>(a, tile, wave_group, shared, sums, t, from, box);
    }
  }
  /// What becomes of boxes that were filled, from `first` of the tile on.
  TILEWAVE_DEVICE void leave_boxes(const Args& a, const GemmTile& tile, int wave_group, Shared& shared, int first) {
    B::shared_written();
    B::group_barrier();
    if constexpr (L::writes_squares) {
      if (a.out_squares != nullptr) store_squares(a, tile, shared.out[wave_group][0]);
    }
    if constexpr (L::writes_cache) {
      if (a.cache.writes) return store_heads(a, tile, shared.out[wave_group][0]);
    }
    send_boxes(a, tile, wave_group, shared, first);
  }
  /// Stores the tile's 64 columns of each row, from its box, as GemmProblem::cache_write wants them.
  TILEWAVE_DEVICE void store_heads(const Args& a, const GemmTile& tile, const Chunk* box) {
    const int of_row = L::lane_in_wave_group() % 8;
    const std::int32_t column = tile.first_column + unit * of_row;
    if (column >= a.gemm.n) return;
    struct Round {
      GemmCacheRow<B> row;
      GemmCacheOutput<B, S.out, unit> heads;
    } rounds[cache_rounds];
    TILEWAVE_UNROLL
    for (int r = 0; r < cache_rounds; ++r) {
      rounds[r].row = cache_.row[r];
      rounds[r].heads.load(a.cache, rounds[r].row, column);
    }
    // Registers move up from round to round, so that the code of one round serves all.
    TILEWAVE_ROLL
    for (int r = 0; r < cache_rounds; ++r) {
      const int in_box = cache_row(r);
      if (const std::int32_t row = tile.first_row + in_box; row < tile.row_end)
        rounds[0].heads.store(a.cache, a.gemm, rounds[0].row, row, column, box[in_box * 8 + (of_row ^ in_box % 8)]);
      TILEWAVE_UNROLL
      for (int i = 1; i < cache_rounds; ++i) rounds[i - 1] = rounds[i];
    }
  }
  /// The row of the tile that the lane writes in a round.
  TILEWAVE_DEVICE static int cache_row(int round) { return 16 * round + L::lane_in_wave_group() / 8; }
  /// Stores the sums of squares of the tile's 64 columns of each row, from its box.
  TILEWAVE_DEVICE static void store_squares(const Args& a, const GemmTile& tile, const Chunk* box) {
    constexpr int row_lanes = L::wave_group_lanes / L::out_rows, units = 8 / row_lanes;
    const int row = L::lane_in_wave_group() / row_lanes, first = L::lane_in_wave_group() % row_lanes * units;
    float squares = 0.0f;
    TILEWAVE_UNROLL
    for (int u = 0; u < units; ++u) {
      const auto values = widen<B, S.out, 8>(box[row * 8 + ((first + u) ^ row % 8)]);
      for (const float value : values.data) squares += value * value;
    }
    SumMap::template store_square<row_lanes>(a, tile, row, squares);
  }

  /// Fills a box with `wide` rows of the wide side of tile t, from `from` on.
  template <bool extras, int wide>
  TILEWAVE_DEVICE void fill_box(const Args& a, const GemmTile& tile, int wave_group, Shared& shared,
                                const Sums (&sums)[L::tiles], int t, int from, Chunk* box) {
    if constexpr (wide > 0 && quantised) {
      Boxes::template fill_bytes<wide>(
          box, Values::template codes_of<extras, wide>(a, tile, wave_group, shared, sums, t, from));
    } else if constexpr (wide > 0 && in_floats) {
      Boxes::template fill_floats<wide>(
          box, Values::template values_of<extras, wide>(a, tile, wave_group, shared, sums, t, from));
    } else if constexpr (wide > 0) {
      Boxes::template fill_matrices<wide>(
          box, Values::template values_of<extras, wide>(a, tile, wave_group, shared, sums, t, from));
    }
  }

  /// Fills box `step` of a tile by fill(columns, box, tile of 64 rows, first column) and sends the one before it, see
  /// send_box. All lanes of a wave group call it with the steps in order, one more than there are boxes. Nobody waits
  /// for what was stored in the same step: the barrier of the next one does.
  template <class Fill>
  TILEWAVE_DEVICE void next_box(const Args& a, const GemmTile& tile, int wave_group, Shared& shared, int step,
                                bool by_engine, const Fill& fill) {
    const auto box_of = [&](int i) TILEWAVE_INLINE_LAMBDA { return shared.out[wave_group][i % L::out_boxes]; };
    if (step > 0) B::shared_written();
    if (L::may_send()) B::template stores_read<0>();  // of the box before that
    B::group_barrier();
    if (step > 0) {
      const std::int32_t row = tile.first_row + L::tall_row(wave_group) + 64 * ((step - 1) / boxes_per_tile);
      const std::int32_t column = tile.first_column + first_wide(wave_group) + box_from((step - 1) % boxes_per_tile);
      const int skipped = left_out(a, step - 1);
      const bool whole_by_engine = by_engine && skipped == 0;
      if (!whole_by_engine || L::lane_in_wave_group() == 0)
        send_box(a, tile, row, column, whole_by_engine, box_of(step - 1), skipped);
      if (by_engine) B::stores_end();  // by all lanes, see send_boxes
    }
    if (step == all_boxes) return;
    const int t = step / boxes_per_tile, from = box_from(step % boxes_per_tile);
    Chunk* const box = box_of(step) + L::wave_in_wave_group() * 16 * 8;
    if (from + box_wide <= wide_c) {
      fill(std::integral_constant<int, box_wide>{}, box, t, from);
    } else {
      fill(std::integral_constant<int, wide_c % box_wide>{}, box, t, from);
    }
  }
  /// True if the copy engine can write the boxes of the wave group's part of a tile: it writes whole boxes and units.
  /// The rows of a group of grouped GEMM end where the next group's begin.
  TILEWAVE_DEVICE static bool engine_writes_tile(const Args& a, const GemmTile& tile, int wave_group) {
    const std::int32_t row = tile.first_row + (P.swapped ? L::wide_row(wave_group) : L::tall_row(wave_group));
    const std::int32_t column = tile.first_column + (P.swapped ? first_tall(wave_group) : first_wide(wave_group));
    const bool whole_rows =
        S.groups == GemmGroups::one || row + (P.swapped ? 0 : 64 * (tiles_c - 1)) + L::out_rows <= tile.row_end;
    const bool whole_units = a.gemm.n % unit == 0 || column + (P.swapped ? 64 * tiles_c : wide_c) <= a.gemm.n;
    return !S.scattered && sent_wide == L::box_columns && a.wide_stores && whole_rows && whole_units;
  }
  /// Sends a box. The lanes that filled it do so where the engine does not, without its first `skipped` columns.
  TILEWAVE_DEVICE void send_box(const Args& a, const GemmTile& tile, std::int32_t row, std::int32_t column,
                                bool by_engine, Chunk* box, int skipped) {
    if (!by_engine) {
      copy_out(a, tile, row, column, sent_wide / unit, box, skipped / unit);
    } else if (column < a.gemm.n && row < tile.row_end) {
      B::store_tensor(maps_->out, column, row, tile.a_layer, box);
    }
  }

  /// Sends the boxes that were filled.
  TILEWAVE_DEVICE void send_boxes(const Args& a, const GemmTile& tile, int wave_group, Shared& shared, int first) {
    const std::int32_t first_row = tile.first_row + (P.swapped ? L::wide_row(wave_group) : L::tall_row(wave_group));
    const std::int32_t first_column = tile.first_column + (P.swapped ? first_tall(wave_group) : first_wide(wave_group));
    const int count = min_of(L::out_boxes, all_boxes - first);
    bool by_engine = engine_writes_tile(a, tile, wave_group);
    if constexpr (repeated > 0)
      for (int i = 0; i < count; ++i) by_engine = by_engine && left_out(a, first + i) == 0;
    const auto send = [&](int i) TILEWAVE_INLINE_LAMBDA {
      const int t = (first + i) / boxes_per_tile, from = box_from((first + i) % boxes_per_tile);
      send_box(a, tile, first_row + (P.swapped ? 0 : 64 * t), first_column + (P.swapped ? 64 * t : from), by_engine,
               shared.out[wave_group][i], left_out(a, first + i));
    };
    if (!by_engine) {
      TILEWAVE_ROLL
      for (int i = 0; i < count; ++i) send(i);
    } else {
      if (L::may_send()) {
        TILEWAVE_ROLL
        for (int i = L::first_sent(); i < count; i += L::senders) send(i);
      }
      // All lanes end their stores, though one has any: behind a lane's own end the compiler takes the lanes of a wave
      // for apart, and keeps slots of the ring in registers of lanes (docs/notebook/2026-11-28-groups.md).
      B::stores_end();
    }
  }

  /// Stores the rows of a box that the engine cannot write, 16 bytes a lane, without the first `skipped` units of each.
  /// Rows beyond the tile are left out.
  TILEWAVE_DEVICE static void copy_out(const Args& a, const GemmTile& tile, std::int32_t first_row,
                                       std::int32_t first_column, int units, const Chunk* box, int skipped) {
    for (int i = L::lane_in_wave_group(); i < L::out_rows * units; i += L::wave_group_lanes) {
      const std::int32_t in_box = i / units, of_row = i % units;
      const std::int32_t row = first_row + in_box, column = first_column + unit * of_row;
      if (row >= tile.row_end || column >= a.gemm.n || of_row < skipped) continue;
      const std::int32_t out_row = gemm_row_of_out<B, S>(a.gemm, row);
      if (S.scattered && out_row < 0) continue;
      const Chunk& values = box[in_box * 8 + (of_row ^ in_box % 8)];
      using Element = Storage<S.out>;
      auto* const to = static_cast<Element*>(a.gemm.out) + tile.a_layer * a.gemm.out_layer_stride +
                       out_row * a.gemm.out_stride + column;
      if (a.wide_stores && column + unit <= a.gemm.n) {
        B::store(reinterpret_cast<Chunk*>(to), values);
      } else {
        constexpr int per_word = unit / 4, bits = 32 / per_word;
        TILEWAVE_ROLL
        for (int e = 0; e < min_of(a.gemm.n - column, unit); ++e)
          B::store(to + e, static_cast<Element>(values[e / per_word] >> bits * (e % per_word)));
      }
    }
  }

  const Maps* maps_;
};

}  // namespace tilewave
