// SPDX-License-Identifier: MIT
// The waves that bring tiles of codes: one the codes, and two the scales of groups.
#pragma once

#include "tilewave/ops/mla_decode/coded/layout.hpp"
#include "tilewave/ops/mla_decode/tensor/copies.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, class L>
class MlaDecodeCodedFetch : MlaDecodeCopies<B, S, L> {
  using Copies = MlaDecodeCopies<B, S, L>;
  using Copies::args_;
  using Copies::shared_;
  using typename Copies::Item;

 public:
  /// `wave`: 0 to 3 of those that fetch.
  TILEWAVE_DEVICE MlaDecodeCodedFetch(const typename L::Args& args, typename L::Shared& shared, int wave)
      : Copies(args, shared), wave_(wave) {}

  TILEWAVE_DEVICE void run(const Item& item, const std::int32_t* table) {
    if (item.tiles == 0) return;
    if (wave_ == 3) Copies::touch_output(item);
    if constexpr (L::grouped) {
      if (wave_ == 1 || wave_ == 2) fetch_scales(item, table);
    }
    if (wave_ != 0) return;
    std::int32_t rows = Copies::segment_row(item, table, item.begin);
    TILEWAVE_ROLL
    for (std::int32_t tile = 0; tile < item.tiles; ++tile) {
      const std::int32_t now = rows;
      if (tile + 1 < item.tiles) rows = Copies::segment_row(item, table, item.begin + (tile + 1) * L::tokens);
      B::mbarrier_wait(&shared_.free[place_.slot], place_.round ^ 1);
      fetch(now, shared_.codes[place_.slot], &shared_.full[place_.slot]);
      place_.advance();
      // Row blocks that share rows ask for half of a later tile each.
      constexpr int half = L::tokens / 2;
      Copies::prefetch(item, table, item.begin + tile * L::tokens, item.first_row / L::rows % 2 * half, half);
    }
  }

 private:
  // Scales of a token as they lie in memory: f32, or bytes of e8m0.
  static constexpr bool powers = S.row().scales_apart();
  using Scales = std::conditional_t<powers, Vec<std::uint32_t, 2>, Vec<float, 4>>;
  static constexpr int scales = L::Scales::groups;

  TILEWAVE_DEVICE void fetch(std::int32_t rows, Chunk* to, typename L::Mbarrier* full) {
    B::mbarrier_expect(full, L::code_boxes * L::box_bytes);
    TILEWAVE_ROLL
    for (int token = 0, segment = 0; token < L::tokens; token += args_.box_rows, ++segment) {
      const std::int32_t row = B::uniform(B::shuffle(rows, segment));
      if (!B::elected()) continue;
      TILEWAVE_UNROLL
      for (int box = 0; box < L::code_boxes; ++box)
        B::copy_tensor(to + box * L::box_size + token * L::box_chunks, args_.kv,
                       box < L::code_boxes - 1 ? 128 * box : L::last_column, row, 0, full);
    }
  }

  /// Each lane has a token of each tile.
  TILEWAVE_DEVICE void fetch_scales(const Item& item, const std::int32_t* table) {
    const LatentTokens<B, S> tokens{args_.of, table, item.end - 1};
    const int token = (wave_ - 1) * L::lanes + B::lane_id();
    const auto load = [&](std::int32_t tile) TILEWAVE_INLINE_LAMBDA {
      return B::load(reinterpret_cast<const Scales*>(tokens.token(item.begin + tile * L::tokens + token).scales));
    };
    Scales next = load(0);
    TILEWAVE_ROLL
    for (std::int32_t tile = 0; tile < item.tiles; ++tile) {
      const Scales now = next;
      if (tile + 1 < item.tiles) next = load(tile + 1);
      B::mbarrier_wait(&shared_.free[place_.slot], place_.round ^ 1);
      put_scales(token, item.begin + tile * L::tokens + token < item.end, floats(now), shared_.scales[place_.slot]);
      B::mbarrier_arrive(&shared_.full[place_.slot]);
      place_.advance();
    }
  }
  TILEWAVE_DEVICE static Vec<float, scales> floats(const Scales& of) {
    if constexpr (powers) {
      Vec<float, scales> all;
      TILEWAVE_UNROLL
      for (int g = 0; g < scales; ++g) all[g] = e8m0_to_f32(static_cast<std::uint8_t>(of[g / 4] >> 8 * (g % 4)));
      return all;
    } else {
      return of;
    }
  }
  /// Tokens that are not the sequence's have scales of 0.
  TILEWAVE_DEVICE void put_scales(int token, bool is, const Vec<float, scales>& of, typename L::Scales& to) const {
    std::uint32_t largest = 0;
    TILEWAVE_UNROLL
    for (int g = 0; g < scales; ++g) largest = max_of(largest, __builtin_bit_cast(std::uint32_t, of[g]) & 0x7fffffffu);
    const std::uint32_t unit = is ? min_of(max_of(largest >> 23, 1u), 253u) : 1u;
    const float over = is ? L::power(254u - unit) : 0.0f;
    const int row = L::row_of(token % 8), pair = token / 8;
    TILEWAVE_UNROLL
    for (int g = 0; g < scales; ++g)
      to.pair[g][row / 2][pair][row % 2] =
          static_cast<std::uint16_t>(B::pack_f16(is ? of[g] * over : 0.0f, 0.0f) & 0xffffu);
    to.unit[token] = unit;
    const std::uint32_t most = B::highest(unit);
    if (B::lane_id() == 0) to.largest[wave_ - 1] = most;
  }

  int wave_;
  RingSlot<L::stages> place_;
};

}  // namespace tilewave
