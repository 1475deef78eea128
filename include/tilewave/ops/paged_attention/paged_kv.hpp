// SPDX-License-Identifier: MIT
// Where one lane finds its 16-byte units of K and V in the paged cache, tile by tile.
//
// A wave tile is four units of tokens, one per lane group; unit u holds tokens u*x .. u*x + x - 1 (x = 16 bytes of
// elements). V is read with the unit of the lane's own group; K row (4C*j' ..) of score tile j is token x*g + C*j + c,
// so that the scores a lane ends up with are the tokens of its own V unit (see arch/atom.hpp, "chained").
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

template <class B, PagedAttentionSpec S>
struct PagedKv {
  static constexpr AtomFacts atom = B::atom;
  static constexpr int unit = S.unit();                 // x
  static constexpr int kv_per_lane = atom.kv_per_lane;  // C
  static constexpr int wave_tokens = AtomFacts::groups * unit;
  static constexpr int scale_words = ceil_div(unit, int{atom.kv});  // per-token scales a lane loads of its unit
  static constexpr bool per_token = S.quant == QuantMode::per_token;
  static constexpr int element = size_of(S.kv);

  /// Block-table entries of one tile, and where in its page each unit starts.
  struct Pages {
    std::int32_t k_page, k_token, v_page, v_token;
  };
  /// Everything needed to load one tile.
  struct Cursor {
    const char* k;  // unit 4*0 + g of the lane's token in score tile 0
    const char* v;  // the lane's token unit, head dimension `position`
    Vec<float, scale_words> k_scale, v_scale;
  };

  const PagedAttentionArgs& a;
  const std::int32_t* table;  // this sequence's row
  const char* k_lane;         // K of this kv head, unit `group`, token offset of this lane's row
  const char* v_lane;         // V of this kv head, dimension `position`
  const float* k_scale_head;
  const float* v_scale_head;
  std::int64_t k_unit_step, k_tile_step, v_dim_step;  // bytes between units 4 apart, score tiles, output tiles
  std::int32_t group, k_group, position;
  std::int32_t first_unit, last_unit;  // token of the first and last unit that may be read

  /// [first, end) are the tokens this sequence may attend; end > first.
  TILEWAVE_DEVICE PagedKv(const PagedAttentionArgs& args, std::int32_t sequence, std::int32_t kv_head,
                          std::int32_t first, std::int32_t end)
      : a(args) {
    const int lane = B::lane_id();
    group = LaneMap<B>::group(lane);
    position = LaneMap<B>::position(lane);
    k_group = position / kv_per_lane;
    table = a.block_table + sequence * a.table_row_stride;
    k_lane = static_cast<const char*>(a.k) + element * (kv_head * a.k_strides.head + group * a.k_strides.unit +
                                                        position % kv_per_lane * a.k_strides.token);
    v_lane = static_cast<const char*>(a.v) + element * (kv_head * a.v_strides.head + position * a.v_strides.dim);
    k_scale_head = a.k_scale + kv_head * a.scale_head_stride;
    v_scale_head = a.v_scale + kv_head * a.scale_head_stride;
    k_unit_step = element * AtomFacts::groups * a.k_strides.unit;
    k_tile_step = element * kv_per_lane * a.k_strides.token;
    v_dim_step = element * atom.kv * a.v_strides.dim;
    first_unit = align_down(first, std::int32_t{unit});
    last_unit = align_down(end - 1, std::int32_t{unit});
  }

  /// Block-table lookup for the tile at `token`. Units outside the attended range are clamped into it: their scores are
  /// masked, but neither their pages nor their table entries need exist.
  TILEWAVE_DEVICE Pages pages(std::int32_t token) const {
    const std::int32_t k_token = clamp(token + unit * k_group), v_token = clamp(token + unit * group);
    const std::int32_t k_column = a.block_size.quotient(k_token), v_column = a.block_size.quotient(v_token);
    return {B::load(table + k_column), k_token - k_column * a.block_size.divisor, B::load(table + v_column),
            v_token - v_column * a.block_size.divisor};
  }

  TILEWAVE_DEVICE Cursor cursor(const Pages& p) const {
    Cursor c;
    c.k = k_lane + element * (p.k_page * a.k_strides.page + p.k_token * a.k_strides.token);
    c.v = v_lane + element * (p.v_page * a.v_strides.page + p.v_token / unit * a.v_strides.unit);
    if constexpr (per_token) {
      TILEWAVE_UNROLL
      for (int i = 0; i < scale_words; ++i) {
        const std::int64_t at = p.v_page * a.scale_page_stride + p.v_token + position + i * atom.kv;
        c.k_scale[i] = B::load(k_scale_head + at);
        c.v_scale[i] = B::load(v_scale_head + at);
      }
    }
    return c;
  }

  /// 16 bytes of K: head dimensions x * (4 * unit_step + group) .., token of score tile `tile`.
  template <bool stream>
  TILEWAVE_DEVICE Chunk load_k(const Cursor& c, int unit_index, int tile) const {
    return load<stream>(c.k + unit_index * k_unit_step + tile * k_tile_step);
  }
  /// 16 bytes of V: x tokens of head dimension 4C * out_tile + position.
  template <bool stream>
  TILEWAVE_DEVICE Chunk load_v(const Cursor& c, int out_tile) const {
    return load<stream>(c.v + out_tile * v_dim_step);
  }

 private:
  TILEWAVE_DEVICE std::int32_t clamp(std::int32_t token) const { return max_of(first_unit, min_of(token, last_unit)); }

  template <bool stream>
  TILEWAVE_DEVICE static Chunk load(const char* p) {
    const Chunk* chunk = reinterpret_cast<const Chunk*>(p);
    if constexpr (stream) {
      return B::load_stream(chunk);
    } else {
      return B::load(chunk);
    }
  }
};

/// What the computing waves of the staged kernel know of K and V, besides the stages.
template <class B, PagedAttentionSpec S>
struct StagedKv {
  static constexpr int scale_words = PagedKv<B, S>::scale_words, wave_tokens = PagedKv<B, S>::wave_tokens;
  static constexpr bool per_token = PagedKv<B, S>::per_token;
  struct Pages {};
  struct Cursor {
    Vec<float, scale_words> k_scale, v_scale;
  };

  const PagedAttentionArgs& a;
  std::int32_t group, position;

  TILEWAVE_DEVICE explicit StagedKv(const PagedAttentionArgs& args)
      : a(args), group(LaneMap<B>::group(B::lane_id())), position(LaneMap<B>::position(B::lane_id())) {}
};

/// The mma operands inside one 16-byte unit: its elements as bf16 pairs, `unit / 2` words.
template <class B, PagedAttentionSpec S>
TILEWAVE_DEVICE Vec<std::uint32_t, S.unit() / 2> widen(const Chunk& chunk) {
  Vec<std::uint32_t, S.unit() / 2> words;
  if constexpr (is_fp8(S.kv)) {
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const Vec<std::uint32_t, 2> pair = B::widen_fp8(chunk[i]);
      words[2 * i] = pair[0];
      words[2 * i + 1] = pair[1];
    }
  } else {
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = chunk[i];
  }
  return words;
}

/// Ones where the elements of a word, from `token` on, are of tokens in [first, end).
template <PagedAttentionSpec S>
TILEWAVE_DEVICE std::uint32_t attended_mask(std::int32_t token, std::int32_t first, std::int32_t end) {
  constexpr int per_word = 4 / size_of(S.kv);
  constexpr std::uint32_t element_mask = size_of(S.kv) == 1 ? 0xffu : 0xffffu;
  std::uint32_t mask = 0;
  TILEWAVE_UNROLL
  for (int e = 0; e < per_word; ++e) {
    const auto t = static_cast<std::uint32_t>(token + e - first);  // before `first` is huge
    if (t < static_cast<std::uint32_t>(end - first)) mask |= element_mask << (e * 8 * size_of(S.kv));
  }
  return mask;
}

/// Zero the elements of a V unit whose token lies outside [first, end): 0 * NaN of an unused cache slot is NaN.
template <PagedAttentionSpec S>
TILEWAVE_DEVICE void zero_outside(Chunk& chunk, std::int32_t token, std::int32_t first, std::int32_t end) {
  TILEWAVE_UNROLL
  for (int w = 0; w < 4; ++w) chunk[w] &= attended_mask<S>(token + w * (4 / size_of(S.kv)), first, end);
}

}  // namespace tilewave
