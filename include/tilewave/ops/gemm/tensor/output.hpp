// SPDX-License-Identifier: MIT
// How GemmTensorKernel's sums leave: as boxes that the copy engine writes, or where it cannot, element by element.
#pragma once

#include "tilewave/ops/gemm/tensor/sum_map.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
class GemmTensorOutput : public GemmSumMap<B, S, P, UserEpilogue> {
 public:
  using Pieces = GemmSumMap<B, S, P, UserEpilogue>;
  using L = typename Pieces::L;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Sums = typename L::Sums;
  using Epilogue = typename Pieces::Epilogue;
  using Pieces::per_group;
  using Pieces::quantised;
  static constexpr bool boxes = L::out_in_boxes;
  static constexpr bool in_floats = boxes && S.out == DType::f32;
  static constexpr int unit = 16 / size_of(S.out);  // elements of 16 bytes

  static constexpr bool row_scales = L::row_scales;

  /// By all lanes of a group, before a tile's products: the scales it will need are on their way meanwhile. The tall
  /// side's stay with the lanes, the wide side's are the group's.
  TILEWAVE_DEVICE void begin(const Args& a, const GemmTile& tile, int group) {
    if constexpr (row_scales) {
      TILEWAVE_UNROLL
      for (int i = 0; i < 2 * L::tiles; ++i) {
        const InTile at = element(group, i / 2 % tiles_c, 2 * (i % 2));
        tall_scale_[i] = P.swapped ? Epilogue::column_scale(a.gemm, tile, at.column, i / 2 / tiles_c)
                                   : Epilogue::row_scale(a.gemm, tile, at.row);
      }
      TILEWAVE_UNROLL
      for (int r = 0; r < rounds; ++r) {
        const int wide = L::wide_row(group) + min_of(r * L::group_lanes + L::group_lane(), L::group_wide - 1);
        using Rows = typename L::TileRows;
        wide_scale_[r] = P.swapped ? Epilogue::row_scale(a.gemm, tile, wide)
                                   : Epilogue::column_scale(a.gemm, tile, Rows::column(wide), Rows::half(wide));
      }
    }
  }

  /// By all lanes of a group.
  TILEWAVE_DEVICE void write(const Args& a, const GemmTile& tile, int group, Shared& shared, Sums (&sums)[L::tiles]) {
    factor_ = Epilogue::tensor_scale(a.gemm);
    out_factor_ = Epilogue::out_factor(a.gemm);
    if constexpr (row_scales) {
      TILEWAVE_UNROLL
      for (float& scale : tall_scale_) scale *= factor_;
      B::group_barrier();  // the tile before has been written
      TILEWAVE_UNROLL
      for (int r = 0; r < rounds; ++r) {
        const int at = r * L::group_lanes + L::group_lane();
        if (at < L::group_wide) shared.wide_scale[group][at] = wide_scale_[r];
      }
      B::group_barrier();
    }
    // The common case apart: its code is read anew for every tile, and what it jumps over would be read with it.
    if (boxes && a.wide_stores && a.gemm.bias == nullptr && a.gemm.residual == nullptr) {
      write_parts<false>(a, tile, group, shared, sums);
    } else {
      write_parts<true>(a, tile, group, shared, sums);
    }
  }
  TILEWAVE_DEVICE void finish() {
    if (boxes && L::team_lane() == 0) B::template stores_read<0>();
  }

 private:
  using Pieces::columns;
  using Pieces::element;
  using Pieces::first_tall;
  using Pieces::first_wide;
  using Pieces::keep_scale;
  using Pieces::out_factor_;
  using Pieces::store;
  using Pieces::sum_of;
  using Pieces::tiles_c;
  using Pieces::wide_c;
  using InTile = typename Pieces::InTile;

  /// What one box holds: 128 bytes of rows of C, of a wave's or (swapped: 64 columns) of all of a group's. Values are
  /// worked out part by part: of a whole tile they would need more registers than sums leave.
  static constexpr int part_wide = P.swapped ? wide_c : in_floats ? L::box_columns * L::out_boxes : L::box_columns;

  template <bool any>
  TILEWAVE_DEVICE void write_parts(const Args& a, const GemmTile& tile, int group, Shared& shared,
                                   Sums (&sums)[L::tiles]) {
    TILEWAVE_UNROLL
    for (int t = 0; t < tiles_c; ++t) {
      TILEWAVE_UNROLL
      for (int from = 0; from < wide_c; from += part_wide) {
        if (from + part_wide <= wide_c) {
          write_part<any, part_wide>(a, tile, group, shared, sums, t, from);
        } else {
          write_part<any, wide_c % part_wide>(a, tile, group, shared, sums, t, from);
        }
      }
    }
  }

  /// `wide` rows of the wide side, from `from` on, of tile t. `any`: with bias, residual or rows that are not aligned.
  template <bool any, int wide>
  TILEWAVE_DEVICE void write_part(const Args& a, const GemmTile& tile, int group, Shared& shared,
                                  const Sums (&sums)[L::tiles], int t, int from) {
    if constexpr (wide > 0 && in_floats) {
      write_float_boxes<any, wide>(a, tile, group, shared, sums, t, from);
    } else if constexpr (wide > 0 && quantised) {
      write_box<wide>(a, tile, group, shared, codes_of<any, wide>(a, tile, group, shared, sums, t, from), t, from);
    } else if constexpr (wide > 0) {
      const Vec<float, wide / 2> part = values_of<any, wide>(a, tile, group, shared, sums, t, from);
      if (boxes && (!any || a.wide_stores)) {
        if constexpr (boxes) write_box<wide>(a, tile, group, shared, part, t, from);
      } else {
        TILEWAVE_UNROLL
        for (int i = 0; i < wide / 2; ++i) store(a, tile, element(group, t, from / 2 + i), part[i]);
      }
    }
  }
  template <bool any, int wide>
  TILEWAVE_DEVICE Vec<float, wide / 2> values_of(const Args& a, const GemmTile& tile, int group, Shared& shared,
                                                 const Sums (&sums)[L::tiles], int t, int from) {
    Vec<float, wide / 2> parts[L::halves];
    TILEWAVE_UNROLL
    for (int half = 0; half < L::halves; ++half) {
      TILEWAVE_UNROLL
      for (int i = 0; i < wide / 2; ++i) parts[half][i] = static_cast<float>(sum_of(sums, half, t, from / 2 + i));
    }
    const auto at = [&](int i) TILEWAVE_INLINE_LAMBDA { return element(group, t, from / 2 + i); };
    const float* const wide_scale =
        shared.wide_scale[row_scales ? group : 0] + (row_scales ? from + 2 * (B::lane_id() % 4) : 0);
    const auto scale_of = [&](int i, int half) TILEWAVE_INLINE_LAMBDA {
      if constexpr (!row_scales) return factor_;
      const int of_tall = 2 * (P.swapped ? t + half * tiles_c : t) + i / 2 % 2;
      return tall_scale_[of_tall] * wide_scale[8 * (i / 4) + i % 2 + (P.swapped ? 0 : half * wide_c)];
    };
    Epilogue::template apply<any>(a.gemm, a.epilogue, tile, parts, at, scale_of);
    return parts[0];
  }
  /// Quantised, four elements a word. A few at a time, and rounded as soon as may be: registers are few.
  template <bool any, int wide>
  TILEWAVE_DEVICE Vec<std::uint32_t, wide / 8> codes_of(const Args& a, const GemmTile& tile, int group, Shared& shared,
                                                        const Sums (&sums)[L::tiles], int t, int from) {
    constexpr int step = min_of(wide, 16), kept = per_group ? wide / 2 : step / 2;
    Vec<float, kept> values;
    Vec<std::uint32_t, wide / 8> codes;
    float factor[2] = {out_factor_, out_factor_}, largest[2] = {0.0f, 0.0f};  // of the lane's two rows
    const auto round = [&](int word, int first) TILEWAVE_INLINE_LAMBDA {
      Vec<float, 4> four;
      TILEWAVE_UNROLL
      for (int e = 0; e < 4; ++e) four[e] = values[first + e] * factor[e / 2];
      codes[word] = narrow<B, S.out, 4>(four)[0];
    };
    TILEWAVE_UNROLL
    for (int done = 0; done < wide; done += step) {
      const Vec<float, step / 2> some = values_of<any, step>(a, tile, group, shared, sums, t, from + done);
      TILEWAVE_UNROLL
      for (int i = 0; i < step / 2; ++i) {
        values[(done / 2 + i) % kept] = some[i];
        if constexpr (per_group) {
          const std::int32_t column = tile.first_column + element(group, t, (from + done) / 2 + i).column;
          largest[i / 2 % 2] = Epilogue::amax(a.gemm, column, largest[i / 2 % 2], some[i]);
        } else if (i % 4 == 3) {
          round((done / 2 + i) / 4, i - 3);
        }
      }
    }
    if constexpr (per_group) {
      static_assert(wide == scale_group, "a lane has a quarter of two rows of 128 columns");
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const InTile at = element(group, t, from / 2 + 2 * h);
        const int first = at.column / scale_group * scale_group;
        factor[h] = Pieces::template keep_scale<4>(a, tile, at.row, first, largest[h]);
      }
      TILEWAVE_UNROLL
      for (int word = 0; word < wide / 8; ++word) round(word, 4 * word);
    }
    return codes;
  }

  /// Through shared memory, as words of two neighbours of the wide side. A wave's box is its own: no other waits for
  /// it.
  template <int wide, class Part>
  TILEWAVE_DEVICE void write_box(const Args& a, const GemmTile& tile, int group, Shared& shared, const Part& part,
                                 int t, int from) {
    const int wave = L::group_wave();
    Chunk* const box = shared.out[group][next_box_] + (P.swapped ? 0 : wave * L::out_rows * 8);
    next_box_ = (next_box_ + 1) % L::out_boxes;
    if (L::team_lane() == 0) B::template stores_read<L::out_boxes - 1>();
    L::team_barrier();
    if constexpr (quantised) {
      write_bytes<wide>(box, part);
    } else {
      write_matrices<wide>(box, part);
    }
    B::shared_written();
    L::team_barrier();
    const std::int32_t row =
        tile.first_row + (P.swapped ? L::wide_row(group) : L::tall_row(group) + 64 * t + 16 * wave);
    const std::int32_t column = tile.first_column + (P.swapped ? first_tall(group) + 64 * t : first_wide(group) + from);
    send_box(a, tile, row, column, P.swapped ? 64 : wide, box);
  }
  /// As many boxes as a wave has. Rows that the engine cannot write go through them, too, and what sends a box is there
  /// once for all of them: each copy of it costs registers that sums need.
  template <bool any, int wide>
  TILEWAVE_DEVICE void write_float_boxes(const Args& a, const GemmTile& tile, int group, Shared& shared,
                                         const Sums (&sums)[L::tiles], int t, int from) {
    constexpr int of_box = L::box_columns;
    const int wave = L::group_wave();
    Chunk* const first = shared.out[group][0] + wave * L::out_rows * 8;
    if (L::team_lane() == 0) B::template stores_read<0>();
    L::team_barrier();
    TILEWAVE_UNROLL
    for (int at = 0; at < wide; at += of_box) {
      Chunk* const box = shared.out[group][at / of_box] + wave * L::out_rows * 8;
      if (at + of_box <= wide) {
        write_floats<of_box>(box, values_of<any, of_box>(a, tile, group, shared, sums, t, from + at));
      } else if constexpr (wide % of_box != 0) {
        write_floats<wide % of_box>(box, values_of<any, wide % of_box>(a, tile, group, shared, sums, t, from + at));
      }
    }
    B::shared_written();
    L::team_barrier();
    const std::int32_t row = tile.first_row + L::tall_row(group) + 64 * t + 16 * wave;
    const std::int32_t column = tile.first_column + first_wide(group) + from;
    TILEWAVE_ROLL
    for (int at = 0; at < wide; at += of_box) {
      send_box(a, tile, row, column + at, min_of(of_box, wide - at),
               first + at / of_box * static_cast<int>(sizeof(shared.out[0][0]) / sizeof(Chunk)));
    }
  }
  /// `here` columns of a box that was written.
  TILEWAVE_DEVICE static void send_box(const Args& a, const GemmTile& tile, std::int32_t row, std::int32_t column,
                                       int here, Chunk* box) {
    constexpr bool any_rows = quantised || in_floats;  // also those that the engine cannot write
    // A group's rows end where the next group's begin, and the last box of a tile may be narrower.
    const bool whole_rows = S.groups == GemmGroups::one || row + L::out_rows <= tile.row_end;
    const bool whole_units = a.gemm.n % unit == 0 || column + here <= a.gemm.n;  // as the engine writes them
    if (here == L::box_columns && (!any_rows || a.wide_stores) && whole_rows && whole_units) {
      if (L::team_lane() == 0) {
        if (column < a.gemm.n && row < tile.row_end) B::store_tensor(a.out, column, row, tile.a_layer, box);
        B::stores_end();
      }
    } else {
      copy_out(a, tile, row, column, here / unit, box);
    }
  }

  /// Of a box that the engine reads: unit u of row r is at 8 r + (u ^ r % 8).
  template <int wide>
  TILEWAVE_DEVICE static void write_matrices(Chunk* box, const Vec<float, wide / 2>& part) {
    const int lane = B::lane_id(), wave = L::group_wave();
    TILEWAVE_UNROLL
    for (int j = 0; j < wide / 8; j += 2) {
      // Matrix m is rows 8 (j + m / 2) of the wide side by rows 16 wave + 8 (m % 2) of the tall side.
      const int m = lane / 8, pairs = min_of(2, wide / 8 - j);
      Vec<std::uint32_t, 4> words{};
      TILEWAVE_UNROLL
      for (int w = 0; w < 2 * pairs; ++w) {
        const int i = 4 * (j + w / 2) + 2 * (w % 2);
        words[w] = Epilogue::pack(part[i], part[i + 1]);
      }
      if constexpr (P.swapped) {
        const int row = 8 * min_of(j + m / 2, wide / 8 - 1) + lane % 8, unit = 2 * wave + m % 2;
        Chunk* const to = box + row * 8 + (unit ^ row % 8);
        if (pairs == 2) {
          B::template store_matrices<4>(to, words);
        } else {
          B::template store_matrices<2>(to, Vec<std::uint32_t, 2>{{words[0], words[1]}});
        }
      } else {
        static_assert(wide % 16 == 0, "a box takes whole pairs of 8 x 8 matrices");
        const int row = 8 * (m % 2) + lane % 8, unit = j + m / 2;
        B::template store_matrices_straight<4>(box + row * 8 + (unit ^ row % 8), words);
      }
    }
  }
  /// Two neighbours of a row at a time.
  template <int wide>
  TILEWAVE_DEVICE static void write_floats(Chunk* box, const Vec<float, wide / 2>& part) {
    const int lane = B::lane_id(), row = lane / 4, first = B::opaque(row * 8 + (lane % 4 / 2 ^ row));
    TILEWAVE_UNROLL
    for (int i = 0; i < wide / 2; i += 2) {
      Chunk* const unit = box + ((first ^ (2 * (i / 4))) + i / 2 % 2 * 64);
      reinterpret_cast<Vec<float, 2>*>(unit)[lane % 2] = {{part[i], part[i + 1]}};
    }
  }
  /// Elements of a byte: two neighbours of the wide side at a time, or (swapped) one.
  template <int wide>
  TILEWAVE_DEVICE static void write_bytes(Chunk* box, const Vec<std::uint32_t, wide / 8>& codes) {
    const int lane = B::lane_id(), of_tall = lane / 4 + 16 * L::group_wave() * P.swapped, of_wide = 2 * (lane % 4);
    const auto put = [&](int row, int column, auto bits) TILEWAVE_INLINE_LAMBDA {
      char* const chunk = reinterpret_cast<char*>(box + row * 8 + (column / 16 ^ row % 8));
      *reinterpret_cast<decltype(bits)*>(chunk + column % 16) = bits;
    };
    TILEWAVE_UNROLL
    for (int j = 0; j < wide / 8; ++j) {
      const std::uint32_t four = codes[j];
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int tall = of_tall + 8 * h, first = 8 * j + of_wide;
        if constexpr (P.swapped) {
          put(first, tall, static_cast<std::uint8_t>(four >> 16 * h));
          put(first + 1, tall, static_cast<std::uint8_t>(four >> (16 * h + 8)));
        } else {
          put(tall, first, static_cast<std::uint16_t>(four >> 16 * h));
        }
      }
    }
  }

  /// Rows of a box that the engine cannot write, 16 bytes a lane; only those that are the tile's.
  TILEWAVE_DEVICE static void copy_out(const Args& a, const GemmTile& tile, std::int32_t first_row,
                                       std::int32_t first_column, int units, const Chunk* box) {
    for (int i = L::team_lane(); i < L::out_rows * units; i += L::team_lanes) {
      const std::int32_t in_box = i / units, of_row = i % units;
      const std::int32_t row = first_row + in_box, column = first_column + unit * of_row;
      if (row >= tile.row_end || column >= a.gemm.n) continue;
      const Chunk values = box[in_box * 8 + (of_row ^ in_box % 8)];
      using Element = Storage<S.out>;
      auto* const to =
          static_cast<Element*>(a.gemm.out) + tile.a_layer * a.gemm.out_layer_stride + row * a.gemm.out_stride + column;
      if ((!(quantised || in_floats) || a.wide_stores) && column + unit <= a.gemm.n) {
        B::store(reinterpret_cast<Chunk*>(to), values);
      } else {
        constexpr int per_word = unit / 4, bits = 32 / per_word;
        for (int e = 0; e < min_of(a.gemm.n - column, unit); ++e)
          B::store(to + e, static_cast<Element>(values[e / per_word] >> bits * (e % per_word)));
      }
    }
  }

  int next_box_ = 0;
  float factor_ = 1.0f;
  float tall_scale_[2 * L::tiles];  // of the lane's two rows of each tile
  static constexpr int rounds = ceil_div(L::group_wide, L::group_lanes);
  float wide_scale_[rounds];  // on their way to shared memory
};

}  // namespace tilewave
