// SPDX-License-Identifier: MIT
// The four waves that fetch rows of fp8 for products of bf16: each has one half of one stage. Codes come by the copy
// engine into boxes of 128, which lie where the second box of what they become will be. Lanes widen them in place.
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
      : Copies(args, shared), stage_(wave / 2), half_(wave % 2), copies_(true) {
    if (args.clustered()) copies_ = B::cluster_rank() == half_;
  }

  TILEWAVE_DEVICE void run(const Item& item, const std::int32_t* table) {
    if (item.tiles == 0) return;
    look_up(item, table, stage_);
    if (stage_ == 0 && half_ == 0) Copies::fetch_q(item);
    if (stage_ == 1 && half_ == 1) Copies::touch_output(item);
    TILEWAVE_ROLL
    for (std::int32_t i = stage_; i < item.tiles; i += L::stages) {
      static_assert(L::parts == 2 && 64 * L::part_boxes == box_codes, "a box of codes becomes a part of values");
      TILEWAVE_UNROLL
      for (int part = 0; part < L::parts; ++part) {
        B::mbarrier_wait(&shared_.free[stage_][half_][part], parity_ ^ 1);
        copy_codes(2 * half_ + part);
      }
      if (half_ == 1) {
        B::mbarrier_wait(&shared_.free[stage_][0][L::parts - 1], parity_ ^ 1);  // whose probabilities the last box had
        if constexpr (row.group() == 0 && L::any_last) copy_codes(last_codes);
        if constexpr (row.group() > 0) {
          Copies::copy_box(rows_, row.wide_byte(), shared_.kv[stage_] + wide_box * L::box_size,
                           &shared_.full[stage_][wide_box], copies_);
        }
      }
      const Scales scales = scales_;
      look_up(item, table, i + L::stages);
      if (copies_) Copies::prefetch(item, table, item.begin + i * L::tokens, half_ * L::tokens / 2, L::tokens / 2);
      widen<box_codes>(2 * half_, scales.of[0]);
      if (half_ == 0 || row.codes() >= 512) {
        widen<box_codes>(2 * half_ + 1, scales.of[1]);
      } else {
        widen<box_codes / 2>(2 * half_ + 1, scales.of[1]);
      }
      if constexpr (row.group() == 0 && L::any_last) {
        if (half_ == 1) widen<box_codes / 2>(last_codes, scales.of[0]);
      }
      parity_ ^= 1;
    }
  }

 private:
  static constexpr LatentRow row = S.row();
  static constexpr int box_codes = 128, last_codes = latent_value_size / box_codes;
  static constexpr int wide_box = (row.codes() + 63) / 64;  // of 16-bit dimensions behind codes in groups
  static constexpr int slots = L::tokens / B::facts.wave_lanes;

  /// The scales of a token's codes in one box, of tokens lane and lane + 32 of a tile: a float, or two bytes.
  struct Scales {
    std::uint32_t of[2][slots];
  };

  /// Looks up where a tile's segments lie, and the scales of this half's codes, before they are needed.
  TILEWAVE_DEVICE void look_up(const Item& item, const std::int32_t* table, std::int32_t tile) {
    if (tile >= item.tiles) return;
    const std::int32_t first = item.begin + tile * L::tokens;
    rows_ = Copies::segment_row(item, table, first);
    if constexpr (row.group() > 0) {
      const LatentTokens<B, S> tokens{args_.of, table, item.end - 1};
      TILEWAVE_UNROLL
      for (int slot = 0; slot < slots; ++slot) {
        const auto token = tokens.token(first + slot * L::lanes + B::lane_id());
        if constexpr (row.scales_apart()) {
          const std::uint32_t bytes = B::load(reinterpret_cast<const std::uint32_t*>(token.scales) + half_);
          scales_.of[0][slot] = bytes & 0xffff;
          scales_.of[1][slot] = bytes >> 16;
        } else {
          const auto two = B::load(reinterpret_cast<const Vec<std::uint32_t, 2>*>(token.scales) + half_);
          scales_.of[0][slot] = two[0];
          scales_.of[1][slot] = two[1];
        }
      }
    }
  }
  /// The box that a box of codes is in. Half a box becomes one, in its own place.
  TILEWAVE_DEVICE static int place(int codes) {
    const bool whole = (codes + 1) * box_codes <= row.codes();
    return 2 * codes + (whole ? 1 : 0);
  }
  TILEWAVE_DEVICE void copy_codes(int codes) {
    Copies::copy_box(rows_, codes * box_codes, shared_.kv[stage_] + place(codes) * L::box_size,
                     &shared_.aside.codes[stage_][codes], copies_);
  }

  /// Widens a box of codes, of which rows have so many: a lane takes sixteen of a row, which become two units. Lanes
  /// of the upper half of a row store the second unit first: so eight lanes write to all banks.
  template <int row_codes>
  TILEWAVE_DEVICE void widen(int codes, const std::uint32_t (&scales)[slots]) {
    constexpr int units = row_codes / 16, at_once = L::lanes / units;  // rows
    constexpr int unrolled = 4;
    B::mbarrier_wait(&shared_.aside.codes[stage_][codes], parity_);
    const Chunk* const from = shared_.kv[stage_] + place(codes) * L::box_size;
    Chunk* const to = shared_.kv[stage_] + 2 * codes * L::box_size;
    const bool exact = exact_in_bf16(scales);
    const int unit = B::lane_id() % units, swapped = unit >= units / 2 ? 1 : 0;
    TILEWAVE_ROLL
    for (int first = 0; first < L::tokens; first += unrolled * at_once) {
      Chunk loaded[unrolled];
      TILEWAVE_UNROLL
      for (int i = 0; i < unrolled; ++i)
        loaded[i] = from[L::chunk_of(first + i * at_once + B::lane_id() / units, unit)];
      B::wave_barrier();  // rows are overwritten by lanes that have other codes of them
      TILEWAVE_UNROLL
      for (int i = 0; i < unrolled; ++i) {
        const int r = first + i * at_once + B::lane_id() / units;
        const float scale = scale_of(scales, r, unit);
        TILEWAVE_UNROLL
        for (int n = 0; n < 2; ++n) {
          const int which = n ^ swapped, u = 2 * unit + which;
          const std::uint32_t words[2] = {which == 0 ? loaded[i][0] : loaded[i][2],
                                          which == 0 ? loaded[i][1] : loaded[i][3]};
          const auto low = B::widen_fp8(words[0]), high = B::widen_fp8(words[1]);
          Chunk wide{{low[0], low[1], high[0], high[1]}};
          if constexpr (row.group() > 0) wide = scaled(wide, scale, exact);
          to[u / L::box_chunks * L::box_size + L::chunk_of(r, u % L::box_chunks)] = wide;
        }
      }
    }
    B::shared_written();
    B::mbarrier_arrive(&shared_.full[stage_][2 * codes]);
    if constexpr (row_codes == box_codes) B::mbarrier_arrive(&shared_.full[stage_][2 * codes + 1]);
  }
  /// Returns true if all scales of the wave are numbers of bf16, as powers of two are.
  TILEWAVE_DEVICE static bool exact_in_bf16(const std::uint32_t (&scales)[slots]) {
    if constexpr (row.group() == 0 || row.scales_apart()) return true;
    std::uint32_t bits = 0;
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot) bits |= scales[slot] & 0xffff;
    return !B::any(bits != 0);
  }
  TILEWAVE_DEVICE static Chunk scaled(const Chunk& wide, float scale, bool exact) {
    if (!exact) return scale_unit<B>(wide, scale);
    const std::uint32_t high = __builtin_bit_cast(std::uint32_t, scale) & 0xffff0000u, pair = high | high >> 16;
    Chunk product;
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) product[w] = B::multiply_bf16(wide[w], pair);
    return product;
  }
  /// Returns the scale of a unit of sixteen codes of a row, which another lane has.
  TILEWAVE_DEVICE static float scale_of(const std::uint32_t (&scales)[slots], int r, int unit) {
    if constexpr (row.group() == 0) {
      return 1.0f;
    } else {
      static_assert(slots == 2, "a tile has two tokens for each lane");
      const std::uint32_t first = B::shuffle(scales[0], r % L::lanes), second = B::shuffle(scales[1], r % L::lanes);
      const std::uint32_t scale = r < L::lanes ? first : second;
      if constexpr (row.scales_apart()) {
        return e8m0_to_f32(static_cast<std::uint8_t>(scale >> (unit >= 4 ? 8 : 0)));
      } else {
        return __builtin_bit_cast(float, scale);
      }
    }
  }

  int stage_, half_, parity_ = 0;
  bool copies_;            // whether this block brings the half, for the other block of its cluster too
  std::int32_t rows_ = 0;  // of the next tile's segments
  Scales scales_{};
};

}  // namespace tilewave
