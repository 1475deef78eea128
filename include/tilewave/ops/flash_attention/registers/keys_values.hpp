// SPDX-License-Identifier: MIT
// A lane finds K and V of a tile of keys here, whatever their layout: contiguous, or pages of a cache.
//
// A tile has four units of keys, one for each lane group. A unit is as many keys as 16 bytes have elements, x in short.
// A lane loads V of its own group's unit. With C columns in a lane, row C g + c of score tile j is key x g + C j + c of
// the tile. So the scores that a lane ends up with are those of its own unit of V (arch/atom.hpp, "chained"). Keys
// beyond the last are the last one again. Their probabilities are 0, and only keys are read.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/attention/unattended.hpp"
#include "tilewave/attention/value_tiles.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/flash_attention/args.hpp"

namespace tilewave {

/// K and V of one sequence and kv head.
template <class B, FlashAttentionSpec S>
struct FlashKeysAndValues {
  static constexpr ValueShape shape{size_of(S.kv), S.value_size, S.values};
  using Values = ValueMap<B, shape>;
  using Transpose = ValueTranspose<B, shape>;
  static constexpr AtomFacts atom = B::atom;
  static constexpr int unit = S.unit(), element = size_of(S.kv), tile_keys = AtomFacts::groups * unit;
  static constexpr int kv_per_lane = atom.kv_per_lane, score_tiles = unit / kv_per_lane;
  static constexpr int head_units = S.head_size / unit, k_units = ceil_div(head_units, AtomFacts::groups);
  static constexpr int out_tiles = Values::tiles.count;
  static constexpr bool paged = S.storage == KvStorage::paged, dim_major = S.values == ValueLayout::dim_major,
                        per_token = S.quant == Scaling::per_token;

  const FlashAttentionArgs& a;
  const std::int32_t* table;  // this sequence's row of the block table, if paged
  const char* k_head;         // this kv head in the sequence's first key, or in the first page
  const char* v_head;
  std::int32_t kv_head, last_key, group, position;

  /// The sequence must have at least one key.
  TILEWAVE_DEVICE FlashKeysAndValues(const FlashAttentionArgs& args, const AttentionSequence& s, std::int32_t kv_head)
      : a(args), table(nullptr), kv_head(kv_head), last_key(s.kv_count - 1) {
    group = LaneMap<B>::group(B::lane_id());
    position = LaneMap<B>::position(B::lane_id());
    const auto *k = static_cast<const char*>(a.k), *v = static_cast<const char*>(a.v);
    if constexpr (paged) {
      table = a.block_table + s.number * a.table_row_stride;
      k_head = k + element * (kv_head * a.k_page_strides.head);
      v_head = v + element * (kv_head * a.v_page_strides.head);
    } else {
      k_head = k + element * s.key_at(a, a.k_strides, 0, kv_head);
      v_head = v + element * s.key_at(a, a.v_strides, 0, kv_head);
    }
  }

  /// The addresses of the lane's key in each score tile, at the unit of its lane group. Unit 4 u + group follows.
  struct Keys {
    const char* at[score_tiles];
  };
  TILEWAVE_DEVICE Keys keys(std::int32_t tile) const {
    Keys of;
    TILEWAVE_UNROLL
    for (int j = 0; j < score_tiles; ++j) {
      const KeyLocation p = locate(tile + unit * (position / kv_per_lane) + kv_per_lane * j + position % kv_per_lane);
      std::int64_t offset;
      if constexpr (paged) {
        const PagedKeyStrides& s = a.k_page_strides;
        offset = p.page * s.page + p.token * s.token + group * s.unit;
      } else {
        offset = p.token * a.k_strides.token + group * unit;
      }
      of.at[j] = k_head + element * offset;
    }
    return of;
  }
  /// Returns unit 4 u + group of the lane's key in a score tile, or 0 behind the head's last unit.
  TILEWAVE_DEVICE Chunk load_k(const Keys& of, int u, int score_tile) const {
    if (AtomFacts::groups * (u + 1) > head_units && AtomFacts::groups * u + group >= head_units) return {};
    const std::int64_t unit_stride = paged ? a.k_page_strides.unit : unit;
    return B::load(reinterpret_cast<const Chunk*>(of.at[score_tile] + element * AtomFacts::groups * u * unit_stride));
  }

  /// Loads V for one block of `Values::width` out tiles: a chunk of a unit of keys for each.
  TILEWAVE_DEVICE void load_v(std::int32_t tile, int block, Chunk (&to)[Values::width]) const {
    const std::int32_t first = tile + unit * group;
    if constexpr (dim_major) {
      const PagedValueStrides& s = a.v_page_strides;
      const KeyLocation p = locate(min_of(first, align_down(last_key, std::int32_t{unit})));
      const std::int64_t dim = (block * atom.kv + position) * s.dim;
      to[0] =
          B::load(reinterpret_cast<const Chunk*>(v_head + element * (p.page * s.page + p.token / unit * s.unit + dim)));
      if (first + unit - 1 > last_key) zero_outside<element>(to[0], first, 0, last_key + 1);
    } else {
      const std::int32_t dim = min_of(Values::first_loaded(block, position), S.value_size - Values::width);
      static_for<unit>([&](auto e) {
        const KeyLocation p = locate(first + e);
        const std::int64_t offset =
            paged ? p.page * a.v_page_strides.page + p.token * a.v_page_strides.token : p.token * a.v_strides.token;
        using Dims = typename Transpose::TokenDims;
        Transpose::set_token(to, e, B::load(reinterpret_cast<const Dims*>(v_head + element * (offset + dim))));
      });
      Transpose::transpose(to);
    }
  }

  /// Returns the scale of a key, for per_token scales.
  TILEWAVE_DEVICE float scale(const float* scales, std::int32_t key) const {
    const KeyLocation p = locate(key);
    return B::load(scales + p.page * a.scale_page_stride + kv_head * a.scale_head_stride + p.token);
  }

 private:
  struct KeyLocation {
    std::int64_t page, token;  // token in the page, or in the sequence
  };
  TILEWAVE_DEVICE KeyLocation locate(std::int32_t key) const {
    key = min_of(key, last_key);
    if constexpr (!paged) return {0, key};
    const std::int32_t column = a.block_size.quotient(key);
    return {B::load(table + column), key - column * a.block_size.divisor};
  }
};

}  // namespace tilewave
