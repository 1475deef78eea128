// SPDX-License-Identifier: MIT
// Where one lane finds its 16-byte units of K and V in the paged cache, tile by tile.
//
// A wave tile is four units of tokens, one for each lane group. With x elements in 16 bytes, unit u holds tokens u*x to
// u*x + x - 1. Of V a lane reads the unit of its own lane group. Of K, the row that a lane supplies to score tile j is
// token x*g + C*j + c, where its position in the lane group is C*g + c. The scores that a lane ends up with are then
// those of the tokens of its own V unit. So the first product's result is the second one's operand (arch/atom.hpp,
// "chained").
//
// Pages of a multiple of 16 tokens hold whole units: a lane looks up one page for K and one for V. With any_block_size
// it looks up a page for each of its K tokens. Of V it looks up the one token of the unit that stands at its position,
// and the lanes of a lane group exchange addresses.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/attention/value_tiles.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

/// The K and V of one KV head of one sequence, for one lane.
template <class B, PagedAttentionSpec S>
struct PagedKv {
  using Values = ValueMap<B, S.value_shape()>;
  using Transpose = ValueTranspose<B, S.value_shape()>;
  static constexpr AtomFacts atom = B::atom;
  static constexpr int unit = S.unit();                 // x
  static constexpr int kv_per_lane = atom.kv_per_lane;  // C
  static constexpr int wave_tokens = AtomFacts::groups * unit;
  static constexpr int head_units = S.head_size / unit;
  static constexpr int k_units = ceil_div(head_units, int{AtomFacts::groups});  // that a lane reads of a token
  static constexpr int scale_words = ceil_div(unit, int{atom.kv});  // tokens of the unit whose scales a lane loads
  static constexpr bool per_token = S.quant == Scaling::per_token;
  static constexpr bool token_major = S.values == ValueLayout::token_major;
  static constexpr bool any_block = S.any_block_size;
  static constexpr int k_addresses = any_block ? unit / kv_per_lane : 1;  // K tokens of a lane, one in each score tile
  static constexpr int v_addresses = any_block ? scale_words : 1;
  static constexpr int element = size_of(S.kv);

  /// Block-table entries of one tile, and where in its page each unit starts, or with any_block_size each token.
  struct Pages {
    std::int32_t k_page[k_addresses], k_token[k_addresses], v_page[v_addresses], v_token[v_addresses];
  };
  /// All that is needed to load one tile.
  struct Cursor {
    /// For each K token of the lane, the first unit of dimensions of its lane group. Without any_block_size only the
    /// token in score tile 0 has an address, and the others follow it.
    const char* k[k_addresses];
    /// The lane's unit of tokens at the first dimension of its position; with any_block_size the token at dimension 0.
    const char* v[v_addresses];
    Vec<float, scale_words> k_scale, v_scale;
  };

  const PagedAttentionArgs& a;
  const std::int32_t* table;  // of the sequence
  const char* k_lane;         // K of the KV head in page 0: first unit of the lane group, first token of the lane
  const char* v_lane;         // V of the KV head in page 0: first dimension of the position
  const float* k_scale_head;
  const float* v_scale_head;
  std::int64_t k_unit_step, k_tile_step,
      v_dim_step;  // bytes from a unit to the fourth behind it, a score tile, a head dimension tile to the next
  std::int64_t k_last_unit;      // bytes from the first unit of this lane to its last
  std::int64_t v_token_step;     // bytes from a token to the next, of token_major values
  std::int32_t v_first, v_last;  // first dimension that this lane loads of the first block, and of the last
  std::int32_t lane_group, k_token_unit, position;
  std::int32_t first_unit,
      last_unit;  // first tokens of the first and last unit that may be read; with any_block_size, tokens

  /// Tokens [first, end) of the sequence are attended; there is at least one.
  TILEWAVE_DEVICE PagedKv(const PagedAttentionArgs& args, std::int32_t sequence, std::int32_t kv_head,
                          std::int32_t first, std::int32_t end)
      : a(args) {
    const int lane = B::lane_id();
    lane_group = LaneMap<B>::group(lane);
    position = LaneMap<B>::position(lane);
    k_token_unit = position / kv_per_lane;
    table = a.block_table + sequence * a.table_row_stride;
    k_lane = static_cast<const char*>(a.k) + element * (kv_head * a.k_strides.head + lane_group * a.k_strides.unit +
                                                        (any_block ? 0 : position % kv_per_lane * a.k_strides.token));
    v_first = Values::first_loaded(0, position);
    v_last =
        min_of(Values::first_loaded(Values::tiles.count / Values::width - 1, position), S.head_size - Values::width);
    v_lane = static_cast<const char*>(a.v) +
             element * (kv_head * a.v_strides.head + (any_block     ? 0
                                                      : token_major ? v_first
                                                                    : position * a.v_strides.dim));
    k_scale_head = a.k_scale + kv_head * a.scale_head_stride;
    v_scale_head = a.v_scale + kv_head * a.scale_head_stride;
    k_unit_step = element * AtomFacts::groups * a.k_strides.unit;
    k_last_unit = (past_end(k_units - 1) ? k_units - 2 : k_units - 1) * k_unit_step;
    k_tile_step = element * kv_per_lane * a.k_strides.token;
    v_dim_step = element * atom.kv * a.v_strides.dim;
    v_token_step = element * a.v_strides.token;
    first_unit = any_block ? first : align_down(first, std::int32_t{unit});
    last_unit = any_block ? end - 1 : align_down(end - 1, std::int32_t{unit});
  }

  /// Looks up the pages of the tile whose first token is `token`. Units outside the attended tokens are clamped to
  /// them. Their scores are masked, but neither their pages nor their table entries need exist.
  TILEWAVE_DEVICE Pages pages(std::int32_t token) const {
    Pages p;
    std::int32_t k_column[k_addresses], v_column[v_addresses];
    TILEWAVE_UNROLL
    for (int i = 0; i < k_addresses; ++i) {
      const std::int32_t in_unit = any_block ? kv_per_lane * i + position % kv_per_lane : 0;
      p.k_token[i] = clamp(token + unit * k_token_unit + in_unit);
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < v_addresses; ++i) {
      const std::int32_t in_unit = any_block ? min_of(position + i * atom.kv, unit - 1) : 0;
      p.v_token[i] = clamp(token + unit * lane_group + in_unit);
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < k_addresses; ++i) k_column[i] = a.block_size.quotient(p.k_token[i]);
    TILEWAVE_UNROLL
    for (int i = 0; i < v_addresses; ++i) v_column[i] = a.block_size.quotient(p.v_token[i]);
    TILEWAVE_UNROLL
    for (int i = 0; i < k_addresses; ++i) {
      p.k_page[i] = B::load(table + k_column[i]);
      p.k_token[i] -= k_column[i] * a.block_size.divisor;
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < v_addresses; ++i) {
      p.v_page[i] = B::load(table + v_column[i]);
      p.v_token[i] -= v_column[i] * a.block_size.divisor;
    }
    return p;
  }

  TILEWAVE_DEVICE Cursor cursor(const Pages& p) const {
    Cursor c;
    TILEWAVE_UNROLL
    for (int i = 0; i < k_addresses; ++i) {
      c.k[i] = k_lane + chunk * (product(p.k_page[i], a.k_page_step) + product(p.k_token[i], a.k_token_step));
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < v_addresses; ++i) {
      const std::int32_t in_page = token_major ? p.v_token[i] : p.v_token[i] / unit;
      c.v[i] = v_lane + chunk * (product(p.v_page[i], a.v_page_step) + product(in_page, a.v_token_step));
    }
    if constexpr (per_token) {
      TILEWAVE_UNROLL
      for (int i = 0; i < scale_words; ++i) {
        const int address = any_block ? i : 0;
        const std::int64_t scale = product(p.v_page[address], a.scale_page_step) + p.v_token[address] +
                                   (any_block ? 0 : position + i * atom.kv);
        c.k_scale[i] = B::load(k_scale_head + scale);
        c.v_scale[i] = B::load(v_scale_head + scale);
      }
    }
    return c;
  }

  /// Returns whether the lane's unit 4 * u + lane_group of dimensions lies behind the head's last one. The lane then
  /// reads unit u - 1 again, and multiplies it by a Q of zero.
  TILEWAVE_DEVICE static bool past_end(int u) {
    return AtomFacts::groups * (u + 1) > head_units &&
           AtomFacts::groups * u + LaneMap<B>::group(B::lane_id()) >= head_units;
  }

  /// 16 bytes of K: unit 4 * unit_index + lane_group of the dimensions of the lane's token in score tile `tile`.
  template <bool stream>
  TILEWAVE_DEVICE Chunk load_k(const Cursor& c, int unit_index, int tile) const {
    const bool last = head_units % AtomFacts::groups != 0 && unit_index == k_units - 1;
    const std::int64_t offset = last ? k_last_unit : unit_index * k_unit_step;
    if constexpr (any_block) return load<Chunk, stream>(c.k[tile] + offset);
    return load<Chunk, stream>(c.k[0] + offset + tile * k_tile_step);
  }

  /// V of `count` output tiles from `first` on, 16 bytes for each. Of a dim_major cache these are x tokens of one head
  /// dimension. Of a token_major cache they are whole blocks, still to be transposed.
  template <bool stream, int first, int count>
  TILEWAVE_DEVICE void load_v(const Cursor& c, Chunk* to) const {
    if constexpr (!token_major) {
      TILEWAVE_UNROLL
      for (int i = 0; i < count; ++i) to[i] = load<Chunk, stream>(c.v[0] + (first + i) * v_dim_step);
    } else {
      constexpr int width = Values::width, last_block = Values::tiles.count / width - 1;
      static_assert(first % width == 0 && count % width == 0, "token_major values are loaded in whole blocks of tiles");
      static_for<unit>([&](auto e) {
        const char* token;
        if constexpr (any_block) {
          token = address_at<e % atom.kv>(c.v[e / atom.kv]) + element * v_first;
        } else {
          token = c.v[0] + e * v_token_step;
        }
        TILEWAVE_UNROLL
        for (int i = 0; i < count; i += width) {
          const int block = (first + i) / width;
          const int past = Values::padded && block == last_block ? v_last - v_first : block * Values::block_dims;
          Transpose::set_token(to + i, e, load<typename Transpose::TokenDims, stream>(token + element * past));
        }
      });
    }
  }

 private:
  static constexpr int chunk = sizeof(Chunk);
  TILEWAVE_DEVICE static std::int64_t product(std::int32_t x, std::int32_t y) { return std::int64_t{x} * y; }
  TILEWAVE_DEVICE std::int32_t clamp(std::int32_t token) const { return max_of(first_unit, min_of(token, last_unit)); }

  /// The address that the lane at `source_position` of this lane's group holds.
  template <int source_position>
  TILEWAVE_DEVICE static const char* address_at(const char* address) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address);
    const auto low = B::template group_broadcast<source_position>(static_cast<std::uint32_t>(bits));
    const auto high = B::template group_broadcast<source_position>(static_cast<std::uint32_t>(bits >> 32));
    return reinterpret_cast<const char*>(std::uintptr_t{high} << 32 | low);
  }

  template <class T, bool stream>
  TILEWAVE_DEVICE static T load(const char* p) {
    const T* from = reinterpret_cast<const T*>(p);
    if constexpr (stream && sizeof(T) == sizeof(Chunk)) {
      return B::load_stream(from);
    } else {
      return B::load(from);
    }
  }
};

}  // namespace tilewave
