// SPDX-License-Identifier: MIT
// Fetching of a chip that copies no more than words straight into LDS, where a block has waves without rows: they load
// tiles into their registers, several tiles ahead, and write one to LDS when there is room. On the way codes become
// the bf16 that products take, so this serves all layouts of the cache.
#pragma once

#include "tilewave/ops/mla_decode/latent_tokens.hpp"
#include "tilewave/ops/mla_decode/lds/layout.hpp"

namespace tilewave {

/// What a wave with rows does where others fetch.
template <class L>
struct MlaLdsNoFetch {
  static constexpr int copies = 0, under_way = 0;
  TILEWAVE_DEVICE MlaLdsNoFetch(const PagedAttentionArgs&, const PagedAttentionWorkItem&) {}
  TILEWAVE_DEVICE static void look_up(std::int32_t) {}
  TILEWAVE_DEVICE static void find() {}
  template <int>
  TILEWAVE_DEVICE static void copy(typename L::Shared&, std::int32_t) {}
};

/// A unit is 16 bytes of a token in LDS. A load has units of all lanes: latent ones of a token, or of two of fp8, and
/// then rotated ones of all of the wave's tokens.
template <class L>
struct MlaLdsHeldFetch : MlaLdsPlaces<L> {
  using B = typename L::B;
  using Places = MlaLdsPlaces<L>;
  using Half = Vec<std::uint32_t, 2>;
  using Places::first, Places::place, Places::token_stride;
  static constexpr LatentRow row = L::spec.row();
  static constexpr bool widened = size_of(L::spec.kv) < L::element;
  static constexpr int tokens = Places::tokens, units = L::latent_bytes / 16, rope_units = L::rope_bytes / 16;
  static constexpr int load_tokens = L::lanes / units, latent_loads = tokens / load_tokens;
  static constexpr int loads = latent_loads + (rope_units > 0 ? 1 : 0);
  static constexpr int code_units = row.codes() / 8;  // of widened ones
  static constexpr int group_units = max_of(row.group() / 8, 1);
  static_assert(rope_units == 0 || tokens * rope_units == L::lanes, "one load has all rotated units");

  /// What was loaded of a tile. Codes are the first half of a unit.
  struct Tile {
    Half low[loads], high[loads];
    std::uint32_t scale[loads];
  };

  std::int32_t latent_at, rope_at;  // where the lane reads, from the token of a load
  std::int32_t scales;              // of those apart: bytes from a page to its first one

  TILEWAVE_DEVICE MlaLdsHeldFetch(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item)
      : Places(args.attention, item), scales(static_cast<std::int32_t>(args.page_scales)) {
    latent_at = B::opaque(token_of(0) * token_stride + byte_of(unit_of(0)));
    if constexpr (rope_units > 0)
      rope_at = B::opaque(token_of(latent_loads) * token_stride + byte_of(unit_of(latent_loads)));
  }

  /// Loads unit i of the tile whose place was found. Zeros take the place of what lies behind the last token.
  template <int i>
  TILEWAVE_DEVICE void load(Tile& to) const {
    constexpr bool latent = i < latent_loads;
    constexpr int token = latent ? i * load_tokens : 0;
    const std::int32_t at = min_of(place.offset + token * token_stride, place.bytes),
                       lane = latent ? latent_at : rope_at;
    const auto source = this->source();
    if constexpr (!widened) {
      const Chunk unit = source.load(lane, at);
      to.low[i] = {{unit[0], unit[1]}}, to.high[i] = {{unit[2], unit[3]}};
    } else {
      to.low[i] = source.load_two_words(lane, at);
      if constexpr (has_wide<i>()) to.high[i] = source.load_two_words(lane + 8, at);
      if constexpr (row.scales_apart()) {
        // Behind the last token are scales of any value, NaN among them.
        const std::int32_t word = unit_of(i) / group_units / 4 * 4;
        const std::int32_t end = scales + LatentRow::apart_bytes * this->end_in_page;
        to.scale[i] = typename B::Source{place.page, static_cast<std::uint32_t>(end)}.load_word(
            word, min_of(scales + LatentRow::apart_bytes * (this->in_page + token), end));
      } else if constexpr (row.group() > 0 && has_codes<i>()) {
        to.scale[i] = source.load_word(row.scale_byte() + unit_of(i) / group_units * 4, at);
      }
    }
  }
  /// Writes unit i of a tile into the slot that lies `slot` bytes behind the first.
  template <int i>
  TILEWAVE_DEVICE void put(const Tile& from, typename L::Shared& shared, std::int32_t slot) const {
    constexpr bool latent = i < latent_loads;
    const int token = first + (latent ? i * load_tokens : 0) + token_of(i), unit = unit_of(i);
    const std::int32_t at =
        latent ? token * L::pitch + 16 * unit
               : L::latent_tile_bytes + token * L::rope_bytes + 16 * ((unit - units) ^ L::rope_mask(token));
    *reinterpret_cast<Chunk*>(reinterpret_cast<char*>(&shared) + slot + at) = unit_from<i>(from);
  }

 private:
  template <int i>
  static constexpr bool has_codes() {
    return widened && (i < latent_loads ? code_units > 0 : code_units > units);
  }
  template <int i>
  static constexpr bool has_wide() {
    return i < latent_loads ? code_units < units : code_units < units + rope_units;
  }
  /// Returns the lane's token, counted from the first one of load i, and its unit.
  TILEWAVE_DEVICE static int token_of(int i) { return L::lane() / (i < latent_loads ? units : max_of(rope_units, 1)); }
  TILEWAVE_DEVICE static int unit_of(int i) {
    return i < latent_loads ? L::lane() % units : units + L::lane() % max_of(rope_units, 1);
  }
  TILEWAVE_DEVICE static int byte_of(int unit) {
    if (!widened) return 16 * unit;
    return unit < code_units ? 8 * unit : row.wide_byte() + 16 * (unit - code_units);
  }
  template <int i>
  TILEWAVE_DEVICE static Chunk unit_from(const Tile& from) {
    const Half &low = from.low[i], &high = from.high[i];
    if constexpr (has_codes<i>()) {
      const Half first = B::widen_fp8(low[0]), second = B::widen_fp8(low[1]);
      Chunk unit{{first[0], first[1], second[0], second[1]}};
      if constexpr (row.scales_apart()) {
        unit = scale_unit<B>(unit,
                             e8m0_to_f32(static_cast<std::uint8_t>(from.scale[i] >> unit_of(i) / group_units % 4 * 8)));
      } else if constexpr (row.group() > 0) {
        unit = scale_unit<B>(unit, __builtin_bit_cast(float, from.scale[i]));
      }
      if constexpr (has_wide<i>()) {
        const bool is_code = unit_of(i) < code_units;
        unit = {{is_code ? unit[0] : low[0], is_code ? unit[1] : low[1], is_code ? unit[2] : high[0],
                 is_code ? unit[3] : high[1]}};
      }
      return unit;
    } else {
      return {{low[0], low[1], high[0], high[1]}};
    }
  }
};

/// The waves that fetch, and those that have neither rows nor tokens. All meet the barriers of waves with rows.
template <class L>
struct MlaLdsHeldFetching {
  using B = typename L::B;
  using Fetch = MlaLdsHeldFetch<L>;
  using Tile = typename Fetch::Tile;
  static constexpr int depth = 3, loads = Fetch::loads;  // tiles in registers

  TILEWAVE_DEVICE static void run(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item,
                                  typename L::Shared& shared) {
    const std::int32_t barriers = item.tiles + 2;
    if (Fetch::wave() < 0) {
      for (std::int32_t t = 0; t < barriers; ++t) B::lds_barrier();
      return;
    }
    Fetch fetch(args, item);
    Tile held[depth];
    fetch.look_up(0);
    static_for<depth>([&](auto t) TILEWAVE_INLINE_LAMBDA { load(fetch, held[t], t); });
    std::int32_t slot = 0;
    for (std::int32_t t = 0; t < barriers; t += depth) {
      static_for<depth>([&](auto ahead) TILEWAVE_INLINE_LAMBDA {
        if (t + ahead >= barriers) return;
        static_for<loads>([&](auto i) TILEWAVE_INLINE_LAMBDA { fetch.template put<i>(held[ahead], shared, slot); });
        load(fetch, held[ahead], t + ahead + depth);
        B::lds_barrier();  // tile t + ahead
        slot = L::template slot_behind<1>(slot);
        B::keep_uniform(slot);
      });
    }
  }

 private:
  /// Loads tile t, whose page was looked up, and looks up the next one's.
  TILEWAVE_DEVICE static void load(Fetch& fetch, Tile& to, std::int32_t t) {
    fetch.find();
    static_for<loads>([&](auto i) TILEWAVE_INLINE_LAMBDA { fetch.template load<i>(to); });
    fetch.look_up(t + 1);
  }
};

}  // namespace tilewave
