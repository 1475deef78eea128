// SPDX-License-Identifier: MIT
// The four waves that fetch rows of fp8. Lanes hold the codes of the next half of a tile in registers, while products
// still read its place, and widen them into it. Each wave has sixteen tokens of a tile. Pages may have any size. In a
// cluster a block widens one half of each tile, the one of its rank, and stores it into both blocks.
#pragma once

#include "tilewave/ops/mla_decode/tensor/copies.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, class L>
class MlaDecodeFetchWidened : MlaDecodeCopies<B, S, L> {
  using Copies = MlaDecodeCopies<B, S, L>;
  using Copies::args_;
  using Copies::shared_;
  using typename Copies::Item;

 public:
  /// `wave`: 0 to 3 of those that fetch.
  TILEWAVE_DEVICE MlaDecodeFetchWidened(const typename L::Args& args, typename L::Shared& shared, int wave)
      : Copies(args, shared),
        wave_(wave),
        clustered_(args.clustered()),
        rank_(clustered_ ? B::cluster_rank() : 0),
        first_row_(wave * wave_rows + B::lane_id() / row_lanes) {}

  TILEWAVE_DEVICE void run(const Item& item, const std::int32_t* table) {
    if (item.tiles == 0) return;
    look_up(item, table, 0);
    load(rank_);
    if constexpr (!L::converts_q) {
      if (wave_ == 0) Copies::fetch_q(item);
    }
    if (wave_ == 1) Copies::touch_output(item);
    TILEWAVE_ROLL
    for (std::int32_t tile = 0; tile < item.tiles; ++tile) {
      const int stage = tile % L::stages;
      TILEWAVE_ROLL
      for (int half = rank_;;) {
        widen(stage, half);
        half = clustered_ || half == 1 ? 2 : 1;
        if (half == 2) break;
        load(half);
      }
      parities_ ^= 1u << stage;
      if (tile + 1 >= item.tiles) break;
      // Each wave asks for the rows that it will load, or for half of them, and the other block's wave for the others.
      const int count = clustered_ ? wave_rows / 2 : wave_rows;
      Copies::prefetch(item, table, item.begin + tile * L::tokens, wave_ * wave_rows + rank_ * count, count);
      look_up(item, table, tile + 1);
      load(rank_);
    }
  }

 private:
  static constexpr LatentRow row = S.row();
  static constexpr int wave_rows = L::tokens / L::group_waves, row_lanes = 8;
  static constexpr int slots = wave_rows * row_lanes / B::facts.wave_lanes;  // rows of a lane
  static constexpr int part_codes = 128, half_codes = 2 * part_codes;        // which become two boxes, and four
  static constexpr bool short_part = row.codes() < latent_value_size;        // the last part has 64 codes
  static constexpr bool wide_last = row.group() > 0, code_last = !wide_last && L::any_last;
  // Dimensions behind the last whole part are 64 codes, or 64 of 16 bits, which are the last box of values if the last
  // part is short.
  static constexpr int wide_box = (row.codes() + 63) / 64;
  using Eight = Vec<std::uint32_t, 2>;

  /// The lane's codes of half a tile: sixteen of each of its rows in each part, and what is behind them. Rows of scaled
  /// groups have their scales beside: f32, or the byte of an e8m0.
  struct Held {
    Chunk part[2][slots];
    std::conditional_t<wide_last, Chunk, Eight> last[slots];
    std::uint32_t scale[2][wide_last ? slots : 1];
  };

  TILEWAVE_DEVICE void look_up(const Item& item, const std::int32_t* table, std::int32_t tile) {
    const LatentTokens<B, S> tokens{args_.of, table, item.end - 1};
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot)
      token_[slot] = tokens.token(item.begin + tile * L::tokens + first_row_ + slot * 4);
  }

  /// Begins the loads of half a tile.
  TILEWAVE_DEVICE void load(int half) {
    const int column = B::lane_id() % row_lanes;
    TILEWAVE_UNROLL
    for (int part = 0; part < 2; ++part) {
      TILEWAVE_UNROLL
      for (int slot = 0; slot < slots; ++slot) {
        const char* const codes = token_[slot].row + half * half_codes + part * part_codes;
        if (short_part && part == 1 && half == 1) {
          const Eight eight = B::load(reinterpret_cast<const Eight*>(codes) + column);
          held_.part[part][slot] = Chunk{{eight[0], eight[1], 0, 0}};
        } else {
          held_.part[part][slot] = B::load_stream(reinterpret_cast<const Chunk*>(codes) + column);
        }
        if constexpr (wide_last) {
          const int code = half * half_codes + part * part_codes +
                           (short_part && part == 1 && half == 1 ? 8 : 16) * column;
          held_.scale[part][slot] = load_scale(token_[slot].scales, code / row.group());
        }
      }
    }
    if (half == 0) return;
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot) {
      if constexpr (wide_last) {
        held_.last[slot] = B::load_stream(reinterpret_cast<const Chunk*>(token_[slot].row + row.wide_byte()) + column);
      } else if constexpr (code_last) {
        held_.last[slot] = B::load(reinterpret_cast<const Eight*>(token_[slot].row + latent_value_size) + column);
      }
    }
  }
  TILEWAVE_DEVICE static std::uint32_t load_scale(const char* scales, int group) {
    if constexpr (row.scales_apart()) {
      return B::load(reinterpret_cast<const std::uint8_t*>(scales) + group);
    } else {
      return B::load(reinterpret_cast<const std::uint32_t*>(scales) + group);
    }
  }

  /// Widens the codes that are held into half of a stage, part by part, as places become free.
  TILEWAVE_DEVICE void widen(int stage, int half) {
    const int parity = static_cast<int>(~parities_ >> stage & 1);
    TILEWAVE_UNROLL
    for (int part = 0; part < L::parts; ++part) {
      static_assert(L::parts == 2 && L::part_boxes * 64 == part_codes, "a part of codes becomes a part of values");
      B::mbarrier_wait(&shared_.free[stage][half][part], parity);
      if (part == 0 && clustered_) expect_other_half(stage, half);
      const int box = half * L::half_boxes + part * L::part_boxes;
      if (short_part && part == 1 && half == 1) {
        if constexpr (short_part) {
          put_eights(stage, box, [&](int slot) TILEWAVE_INLINE_LAMBDA {
            const Chunk& codes = held_.part[1][slot];
            return widened(codes[0], codes[1], part, slot);
          });
          put_wide(stage);
        }
      } else {
        put_sixteens(stage, box, part);
      }
      told(stage, box, 2);
    }
    if (half == 0 || !L::any_last) return;
    B::mbarrier_wait(&shared_.free[stage][0][L::parts - 1], parity);  // whose probabilities the last box had
    if constexpr (code_last) {
      put_eights(stage, L::last_box, [&](int slot) TILEWAVE_INLINE_LAMBDA {
        return widened(held_.last[slot][0], held_.last[slot][1], 0, slot);
      });
    } else if constexpr (L::any_last) {
      put_wide(stage);
    }
    told(stage, L::last_box, 1);
  }
  TILEWAVE_DEVICE void put_wide(int stage) {
    if constexpr (wide_last)
      put_eights(stage, wide_box, [&](int slot) TILEWAVE_INLINE_LAMBDA { return held_.last[slot]; });
  }
  /// All of this block's boxes of the stage are full of the tile before, or it would not be free: what the other block
  /// will store may be expected.
  TILEWAVE_DEVICE void expect_other_half(int stage, int half) {
    constexpr int bytes = wave_rows * L::box_chunks * int{sizeof(Chunk)};
    const int first = (1 - half) * L::half_boxes, end = half == 0 ? L::score_boxes : L::half_boxes;
    for (int box = first; box < end; ++box) B::mbarrier_expect(&shared_.full[stage][box], bytes);
  }
  TILEWAVE_DEVICE void told(int stage, int box, int boxes) {
    B::shared_written();
    for (int i = 0; i < boxes; ++i) B::mbarrier_arrive(&shared_.full[stage][box + i]);
  }

  /// Stores a unit of a lane's row, here and in the other block of the cluster.
  TILEWAVE_DEVICE void put(int stage, int box, int r, int unit, const Chunk& wide) {
    Chunk* const to = shared_.kv[stage] + box * L::box_size + L::chunk_of(r, unit);
    *to = wide;
    if (clustered_) B::send(&shared_.full[stage][box], to, 1 - rank_, wide);
  }
  template <class Unit>
  TILEWAVE_DEVICE void put_eights(int stage, int box, const Unit& unit) {
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot)
      put(stage, box, first_row_ + 4 * slot, B::lane_id() % row_lanes, unit(slot));
  }
  /// Sixteen codes become two units. Lanes of the upper half of a row store the second one first: so eight lanes write
  /// to all banks.
  TILEWAVE_DEVICE void put_sixteens(int stage, int first_box, int part) {
    const int column = B::lane_id() % row_lanes, swapped = column / 4;
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot) {
      const Chunk& codes = held_.part[part][slot];
      TILEWAVE_UNROLL
      for (int n = 0; n < 2; ++n) {
        const int which = n ^ swapped;
        put(stage, first_box + column / 4, first_row_ + 4 * slot, (2 * column + which) % L::box_chunks,
            widened(which == 0 ? codes[0] : codes[2], which == 0 ? codes[1] : codes[3], part, slot));
      }
    }
  }
  /// Returns eight codes as operands: exactly as f16, or as bf16 times their scale.
  TILEWAVE_DEVICE Chunk widened(std::uint32_t low, std::uint32_t high, int part, int slot) const {
    const auto a = B::widen_fp8_to_f16(low), b = B::widen_fp8_to_f16(high);
    if constexpr (L::type == DType::f16) {
      return {{a[0], a[1], b[0], b[1]}};
    } else {
      const std::uint32_t bits = held_.scale[part][slot];
      float scale;
      if constexpr (row.scales_apart()) {
        scale = e8m0_to_f32(static_cast<std::uint8_t>(bits));
      } else {
        scale = __builtin_bit_cast(float, bits);
      }
      const auto scaled = [&](std::uint32_t pair) TILEWAVE_INLINE_LAMBDA {
        const auto wide = B::widen_f16(pair);
        return B::round_bf16(wide[0] * scale, wide[1] * scale);
      };
      return {{scaled(a[0]), scaled(a[1]), scaled(b[0]), scaled(b[1])}};
    }
  }

  int wave_;
  bool clustered_;
  int rank_, first_row_;  // of this lane
  std::uint32_t parities_ = 0;  // bit s: of stage s; an array would keep the object in memory
  typename LatentTokens<B, S>::Token token_[slots];  // of the lane's rows of a tile
  Held held_;
};

}  // namespace tilewave
