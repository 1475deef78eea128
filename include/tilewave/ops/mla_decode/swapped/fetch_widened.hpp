// SPDX-License-Identifier: MIT
// The four waves that fetch rows of fp8. Lanes load codes to registers, several boxes of 64 ahead, and widen them into
// boxes of a stage when these are free. Each wave has sixteen tokens of a tile. Pages may have any size.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/tensor/copies.hpp"

namespace tilewave {

/// Lanes do not fence what they stored: that would wait for their loads as well. Waves that multiply do, behind their
/// waits.
template <class B, MlaDecodeSpec S, class L>
class MlaDecodeFetchWidened : MlaDecodeCopies<B, S, L> {
  using Copies = MlaDecodeCopies<B, S, L>;
  using Copies::args_;
  using Copies::shared_;
  using typename Copies::Item;

 public:
  /// `wave`: 0 to 3 of those that fetch.
  TILEWAVE_DEVICE MlaDecodeFetchWidened(const typename L::Args& args, typename L::Shared& shared, int wave)
      : Copies(args, shared), wave_(wave), first_row_(wave * wave_rows + B::lane_id() / row_lanes) {
    const int r = first_row_ % 8, column = B::lane_id() % row_lanes;
    for (int n = 0; n < 2; ++n) to_[n] = first_row_ * L::box_chunks + ((2 * column + n) ^ r);
  }

  TILEWAVE_DEVICE void run(const Item& item, const std::int32_t* table) {
    if (item.tiles == 0) return;
    const LatentTokens<B, S> tokens{args_.of, table, item.end - 1};
    if constexpr (!L::converts_q) {
      if (wave_ == 0) Copies::fetch_q(item);
    }
    look_up(tokens, item.begin);
    static_for<held_boxes>([&](auto n) TILEWAVE_INLINE_LAMBDA { load_next<n>(tokens, item.begin); });
    if (wave_ == 1) Copies::touch_output(item);
    TILEWAVE_ROLL
    for (std::int32_t tile = 0; tile < item.tiles; tile += L::stages) {
      static_for<L::stages>([&](auto stage) TILEWAVE_INLINE_LAMBDA {
        if (tile + stage < item.tiles) add_tile<stage>(item, tokens, table, tile + stage);
      });
    }
  }

 private:
  static constexpr LatentRow row = S.row();
  static constexpr int wave_rows = L::tokens / L::group_waves, row_lanes = 4;  // each has sixteen codes of a box
  static constexpr int slots = wave_rows * row_lanes / B::facts.wave_lanes;    // rows of a lane, eight apart
  static constexpr int boxes = L::score_boxes, held_boxes = L::held_boxes;
  static_assert(boxes * L::stages % held_boxes == 0, "a box is always held in the same place");
  static constexpr bool scaled = row.group() > 0;
  static constexpr int wide_box = row.codes() / 64;  // of the 16-bit dimensions behind codes of groups
  static constexpr int scale_boxes = scaled ? row.group() / 64 : 1;
  struct Nothing {};

  /// A lane's sixteen codes of a box, for each of its rows, and their scale: f32, or the byte of an e8m0.
  struct Held {
    Chunk codes[slots];
    std::uint32_t scale[scaled ? slots : 1];
  };

  /// Loads the pages of the tile from `first` on.
  TILEWAVE_DEVICE void look_up(const LatentTokens<B, S>& tokens, std::int32_t first) {
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot) page_[slot] = tokens.page_of(first + first_row_ + 8 * slot);
  }
  /// Goes on to that tile, and looks up the next.
  TILEWAVE_DEVICE void turn_page(const LatentTokens<B, S>& tokens, std::int32_t first) {
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot) token_[slot] = tokens.token(first + first_row_ + 8 * slot, page_[slot]);
    look_up(tokens, first + L::tokens);
  }

  /// ptxas moves streaming loads behind all of a tile's stores, where it has few registers for them. That suits lanes
  /// that hold a whole tile.
  TILEWAVE_DEVICE static Chunk load_codes(const Chunk* p) {
    if constexpr (held_boxes >= boxes) return B::load_stream(p);
    return B::load(p);
  }
  /// Begins the loads of the n-th box from the tile `first` stages before the one from `token` on.
  template <int n, int first = 0>
  TILEWAVE_DEVICE void load_next(const LatentTokens<B, S>& tokens, std::int32_t token) {
    if constexpr (n % boxes == 0) turn_page(tokens, token + (n / boxes - first) * L::tokens);
    load<n>();
  }
  template <int n>
  TILEWAVE_DEVICE void load() {
    constexpr int box = L::score_box(n % boxes);
    Held& held = held_[n % held_boxes];
    const int column = B::lane_id() % row_lanes;
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot) {
      if constexpr (scaled && box == wide_box) {
        const auto* const wide = reinterpret_cast<const Chunk*>(token_[slot].row + row.wide_byte()) + 2 * column;
        held.codes[slot] = load_codes(wide);
        wide_[slot] = load_codes(wide + 1);
      } else {
        held.codes[slot] = load_codes(reinterpret_cast<const Chunk*>(token_[slot].row + 64 * box) + column);
        if constexpr (row.scales_apart()) {
          held.scale[slot] = B::load(reinterpret_cast<const std::uint8_t*>(token_[slot].scales) + box / scale_boxes);
        } else if constexpr (scaled) {
          held.scale[slot] = B::load(reinterpret_cast<const std::uint32_t*>(token_[slot].scales) + box / scale_boxes);
        }
      }
    }
  }

  /// Widens the boxes of a tile, and begins the loads of as many behind those that are held.
  template <int stage>
  TILEWAVE_DEVICE void add_tile(const Item& item, const LatentTokens<B, S>& tokens, const std::int32_t* table,
                                std::int32_t tile) {
    // Row blocks that share rows ask for every other eight of them each.
    Copies::prefetch(item, table, item.begin + tile * L::tokens,
                     wave_ * wave_rows + item.first_row / L::rows % 2 * (wave_rows / 2), wave_rows / 2);
    typename L::Shared& shared = shared_;
    const int parity = static_cast<int>(~parities_ >> stage & 1);
    parities_ ^= 1u << stage;
    static_for<boxes>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      constexpr int n = stage * boxes + i, box = L::score_box(i);
      // Probabilities that the last box had were multiplied before these places were freed.
      if constexpr (box < L::last_box && box % L::part_boxes == 0)
        B::mbarrier_wait(&shared.free[stage][box / L::half_boxes][box / L::part_boxes % L::parts], parity);
      put<box>(shared.kv[stage] + box * L::box_size, held_[n % held_boxes]);
      B::mbarrier_arrive(&shared.full[stage][box]);
      load_next<n + held_boxes, stage>(tokens, item.begin + tile * L::tokens);
    });
  }

  /// Sixteen codes become two units. Two rows that follow each other have all banks.
  template <int box>
  TILEWAVE_DEVICE void put(Chunk* to, const Held& held) const {
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot) {
      Chunk* const rows = to + 8 * slot * L::box_chunks;
      const Chunk& codes = held.codes[slot];
      if constexpr (scaled && box == wide_box) {
        rows[to_[0]] = codes;
        rows[to_[1]] = wide_[slot];
      } else {
        const std::uint32_t scale = held.scale[scaled ? slot : 0];
        rows[to_[0]] = widened(codes[0], codes[1], scale);
        rows[to_[1]] = widened(codes[2], codes[3], scale);
      }
    }
  }
  /// Returns eight codes as operands: exactly as f16, or as bf16 times their scale.
  TILEWAVE_DEVICE static Chunk widened(std::uint32_t low, std::uint32_t high, std::uint32_t bits) {
    const auto a = B::widen_fp8_to_f16(low), b = B::widen_fp8_to_f16(high);
    if constexpr (!scaled) {
      return {{a[0], a[1], b[0], b[1]}};
    } else {
      const float scale =
          row.scales_apart() ? e8m0_to_f32(static_cast<std::uint8_t>(bits)) : __builtin_bit_cast(float, bits);
      const auto product = [&](std::uint32_t pair) TILEWAVE_INLINE_LAMBDA {
        const auto wide = B::widen_f16(pair);
        return B::round_bf16(wide[0] * scale, wide[1] * scale);
      };
      return {{product(a[0]), product(a[1]), product(b[0]), product(b[1])}};
    }
  }

  int wave_, first_row_;                             // of this lane
  int to_[2];                                        // where its units of a box go
  std::uint32_t parities_ = 0;                       // bit s: of stage s; an array would keep the object in memory
  typename LatentTokens<B, S>::Token token_[slots];  // of the tile whose boxes are loaded
  std::int32_t page_[slots];                         // of the tile behind it
  Held held_[held_boxes];
  std::conditional_t<scaled, Chunk, Nothing> wide_[slots];
};

}  // namespace tilewave
