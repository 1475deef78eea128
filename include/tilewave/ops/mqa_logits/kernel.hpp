// SPDX-License-Identifier: MIT
// Logits of an indexer, with keys straight to registers.
//
// Grid: sequences x query blocks x chunks of columns, chunks fastest. The queries of a block stay with it, and keys
// stream by. Each team of waves takes every so-many-th tile of the chunk's keys. It loads them `stages` tiles ahead,
// multiplies them with all heads of the block's queries, and writes a logit for each. Keys that no query sees are not
// loaded, and only their logits are written. Shared memory: queries on sm90. On CDNA it is a tile of each team if keys
// are arranged, since loads of whole lines take an eighth of the L1 look-ups; else there is none. Bound: bytes of keys
// for up to three queries of 64 heads, then products.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mqa_logits/group_product.hpp"
#include "tilewave/ops/mqa_logits/seen.hpp"
#include "tilewave/ops/mqa_logits/wave_product.hpp"

namespace tilewave {

namespace detail {

template <class B, MqaLogitsSpec S, MqaLogitsPolicy P>
struct MqaProductOf {
  using type = MqaWaveProduct<B, S, P>;
};
template <GroupBackend B, MqaLogitsSpec S, MqaLogitsPolicy P>
struct MqaProductOf<B, S, P> {
  using type = MqaGroupProduct<B, S, P>;
};

}  // namespace detail

template <class B, MqaLogitsSpec S, MqaLogitsPolicy P>
struct MqaLogits {
  using Room = B;
  using Args = MqaLogitsArgs;
  using Product = typename detail::MqaProductOf<B, S, P>::type;
  using Shared = typename Product::Shared;
  using Seen = MqaLogitsSeen<B, S, P, Product::keys>;
  static constexpr int block_threads = P.teams * Product::lanes, waves_per_simd = P.waves_per_simd;
  static constexpr int lane_keys = Product::lane_keys, units = Product::units;
  static constexpr bool paged = S.keys == MqaKeys::paged, scaled = S.type == DType::fp4_e2m1;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const auto item = MqaLogitsWorkItem::of<B>(a, P.queries);
    const Seen seen(a, item);
    fill(a, item, seen, item.first_column, seen.begin);
    fill(a, item, seen, seen.begin + seen.tiles * Product::keys, item.end_column);
    if (seen.tiles > 0) multiply(a, item, seen, shared);
  }

 private:
  using Scale = std::conditional_t<scaled, Vec<std::uint32_t, units>, float>;  // of each unit, or of the key
  struct Tile {
    Chunk key[lane_keys][units];
    Scale scale[lane_keys];
  };
  using Pages = Vec<std::int32_t, lane_keys>;

  /// Writes the columns that no query of the block sees.
  TILEWAVE_DEVICE static void fill(const Args& a, const MqaLogitsWorkItem& item, const Seen& seen, std::int32_t from,
                                   std::int32_t to) {
    TILEWAVE_UNROLL
    for (int i = 0; i < P.queries; ++i) {
      if (i >= item.queries) return;
      float* const row = a.logits + item.query(a, i) * a.logits_stride;
      for (std::int32_t c = from + B::block_lane_id(); c < to; c += block_threads) {
        B::store(row + c, seen.reach[i].unseen_logit);
      }
    }
  }

  TILEWAVE_DEVICE static void multiply(const Args& a, const MqaLogitsWorkItem& item, const Seen& seen, Shared& shared) {
    const Product product(a, item, shared);
    const std::int32_t team = Product::team(), count = ceil_div(seen.tiles - team, P.teams);
    const auto first = [&](std::int32_t n)
                           TILEWAVE_INLINE_LAMBDA { return seen.begin + (n * P.teams + team) * Product::keys; };
    const auto column = [&](std::int32_t n, int i) TILEWAVE_INLINE_LAMBDA { return first(n) + Product::key(i); };
    // Beyond the last key that is seen, that key is loaded again, so that no branch stands around a load.
    const auto key = [&](std::int32_t n, int i) TILEWAVE_INLINE_LAMBDA { return min_of(column(n, i), seen.end - 1); };
    const auto pages = [&](std::int32_t n) TILEWAVE_INLINE_LAMBDA {
      Pages of{};
      if constexpr (paged) {
        TILEWAVE_UNROLL
        for (int i = 0; i < lane_keys; ++i) {
          of[i] = B::load(a.block_tables + item.sequence * a.table_stride + a.block_size.quotient(key(n, i)));
        }
      }
      return of;
    };
    const auto load = [&](Tile& tile, const Pages& of, std::int32_t n) TILEWAVE_INLINE_LAMBDA {
      TILEWAVE_UNROLL
      for (int i = 0; i < lane_keys; ++i) {
        const std::int32_t k = key(n, i), in_page = paged ? a.block_size.remainder(k) : k;
        const std::byte* const from = a.k + of[i] * a.k_page_stride + in_page * a.k_stride;
        // Keys are not loaded as a stream: a line takes several accesses, and other blocks read it as well.
        TILEWAVE_UNROLL
        for (int c = 0; c < units; ++c) {
          if constexpr (Product::arranged) {
            const std::int64_t row = min_of(first(n) + Product::loaded_key(c), seen.end - 1);
            tile.key[i][c] = B::load(reinterpret_cast<const Chunk*>(a.k + row * a.k_stride) + Product::loaded_unit());
          } else {
            const std::int64_t apart = scaled ? a.k_unit_stride : 16;
            tile.key[i][c] = B::load(reinterpret_cast<const Chunk*>(from + Product::unit(c) * apart));
          }
        }
        if constexpr (scaled) {
          const auto* const scales = static_cast<const std::uint8_t*>(a.k_scale) + of[i] * a.k_scale_page_stride;
          TILEWAVE_UNROLL
          for (int c = 0; c < units; ++c) {
            tile.scale[i][c] = B::load(scales + (Product::unit(c) * 64 + in_page % 16 * 4 + in_page / 16));
          }
        } else {
          tile.scale[i] = B::load(static_cast<const float*>(a.k_scale) + of[i] * a.k_scale_page_stride + in_page);
        }
      }
    };
    if (count <= 0) return;
    Tile tile[P.stages];
    Pages next = pages(0);
    B::sched_fence();  // loads are issued in the order in which they are waited for, in the loop and before it
    static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA {
      const Pages after = pages(s + 1);
      load(tile[s], next, s);
      next = after;
      B::sched_fence();
    });
    const auto products = [&](const Tile& of, std::int32_t n) TILEWAVE_INLINE_LAMBDA {
      const auto written = [&](int i, const Vec<float, lane_keys>& sums) TILEWAVE_INLINE_LAMBDA {
        write(
            a, item, seen.reach[i], i, [&](int j) TILEWAVE_INLINE_LAMBDA { return column(n, j); }, sums, of);
      };
      if constexpr (Product::arranged) {
        Chunk key[lane_keys][units];
        product.arrange(of.key[0], key[0]);
        product.each(key, of.scale, written);
      } else {
        product.each(of.key, of.scale, written);
      }
    };
    std::int32_t n = 0;
    for (; n + P.stages <= count; n += P.stages) {
      static_for<P.stages>([&](auto s) TILEWAVE_INLINE_LAMBDA {
        products(tile[s], n + s);
        B::sched_fence();  // else loads get registers of their own, and copies out of these wait for them
        // Pages come before the loads: to wait for the pages would wait for earlier loads as well.
        const Pages after = pages(n + s + P.stages + 1);
        load(tile[s], next, n + s + P.stages);
        next = after;
        B::sched_fence();
      });
    }
    static_for<P.stages - 1>([&](auto s) TILEWAVE_INLINE_LAMBDA {
      if (n + s < count) products(tile[s], n + s);
    });
  }

  template <class Column>
  TILEWAVE_DEVICE static void write(const Args& a, const MqaLogitsWorkItem& item, const MqaLogitsReach& reach,
                                    int query, const Column& column, const Vec<float, lane_keys>& sums,
                                    const Tile& tile) {
    float* const row = a.logits + item.query(a, query) * a.logits_stride;
    TILEWAVE_UNROLL
    for (int j = 0; j < lane_keys; ++j) {
      const std::int32_t c = column(j);
      float logit = sums[j];
      if constexpr (!scaled) logit *= tile.scale[j];
      if (c < reach.first || c >= reach.end) logit = reach.unseen_logit;
      if (Product::writes() && query < item.queries && c < item.end_column) B::store(row + c, logit);
    }
  }
};

}  // namespace tilewave
