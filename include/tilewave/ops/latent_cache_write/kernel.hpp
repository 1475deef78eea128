// SPDX-License-Identifier: MIT
// Writes rows into a latent cache, and rotates q's part beside it. Grid: blocks of four tokens, then blocks of 32 heads
// of q. 64 lanes have a token. Lane l has latent dimensions 8 l to 8 l + 7, and lanes 0 to 7 rotated ones as well.
// Eight lanes have a head of q. No LDS. Bound: memory.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/latent_cache_write/policy.hpp"
#include "tilewave/ops/latent_cache_write/problem.hpp"
#include "tilewave/tile/element.hpp"
#include "tilewave/tile/quant_scale.hpp"

namespace tilewave {

struct LatentCacheWriteArgs {
  const void* latent;
  const void* rope;
  void* kv;
  const float* kv_scale;
  IndexList slots, positions;
  const void* q;
  void* q_out;
  const void* cos;  // may be null
  const void* sin;
  std::int32_t tokens, q_rows, kv_blocks, table_rows, slot_limit;
  FastDiv q_heads, block_size;
  std::int64_t latent_stride, rope_stride, table_stride;
  HeadStrides q_strides, q_out_strides;
  std::int64_t page_bytes, token_bytes, page_scales;
};

template <class B, LatentCacheWriteSpec S, LatentCacheWritePolicy P>
struct LatentCacheWrite {
  using Room = B;
  using Args = LatentCacheWriteArgs;
  struct Shared {};
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = 8, rope_units = latent_rope_size / unit;
  static constexpr LatentRow layout = S.row();
  static constexpr int latent_units = (S.head_size - latent_rope_size) / unit, group = layout.group();
  static constexpr int wide_byte = layout.wide_byte(), scale_byte = layout.scale_byte();
  static constexpr bool apart = layout.scales_apart(), codes = is_fp8(S.kv), plain = S.layout == LatentLayout::plain;
  static constexpr int apart_bytes = LatentRow::apart_bytes, half = latent_rope_size / 2;
  static constexpr bool neighbours = S.pairs == RopePairs::neighbours;
  using Values = Vec<float, unit>;

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int32_t block = B::block_id();
    if (block < a.kv_blocks) {
      write_rows(a, block);
    } else {
      rotate_q(a, block - a.kv_blocks);
    }
  }

 private:
  TILEWAVE_DEVICE static Values load(const void* from, std::int64_t element) {
    return widen<B, DType::bf16, unit>(
        B::load(reinterpret_cast<const Chunk*>(static_cast<const std::uint16_t*>(from) + element)));
  }
  TILEWAVE_DEVICE static void store(void* to, const Values& values) {
    B::store(static_cast<Chunk*>(to), narrow<B, DType::bf16, unit>(values));
  }
  template <int n>
  TILEWAVE_DEVICE static Vec<float, n> angles(const void* table, std::int64_t element) {
    using Access = Packed<S.table, n>;
    static_assert(sizeof(Access) <= 16, "a table is read 16 bytes at a time");
    return widen<B, S.table, n>(
        B::load(reinterpret_cast<const Access*>(static_cast<const Storage<S.table>*>(table) + element)));
  }

  /// Returns unit u of 64 dimensions from `first` on, rotated by the position of a token.
  TILEWAVE_DEVICE static Values rotated(const Args& a, const void* x, std::int64_t first, int u, std::int32_t token) {
    Values own = load(x, first + u * unit);
    if (a.cos == nullptr) return own;
    const Vec<std::uint32_t, 2> position = a.positions.template load<B>(token);
    const bool known = a.positions.below(position, a.table_rows);
    const std::int64_t row = (known ? position[0] : 0) * a.table_stride;
    const float unknown = known ? 0.0f : __builtin_nanf("");
    if constexpr (neighbours) {
      const Vec<float, 4> c = angles<4>(a.cos, row + u * 4), s = angles<4>(a.sin, row + u * 4);
      TILEWAVE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float x0 = own[2 * e], x1 = own[2 * e + 1];
        own[2 * e] = x0 * c[e] - x1 * s[e] + unknown;
        own[2 * e + 1] = x1 * c[e] + x0 * s[e] + unknown;
      }
    } else {
      const Values other = load(x, first + (u ^ half / unit) * unit);
      const float sign = u < half / unit ? -1.0f : 1.0f;
      TILEWAVE_UNROLL
      for (int part = 0; part < 2; ++part) {
        const std::int64_t at = row + u % (half / unit) * unit + 4 * part;
        const Vec<float, 4> c = angles<4>(a.cos, at), s = angles<4>(a.sin, at);
        TILEWAVE_UNROLL
        for (int e = 0; e < 4; ++e) {
          float& x0 = own[4 * part + e];
          x0 = x0 * c[e] + sign * other[4 * part + e] * s[e] + unknown;
        }
      }
    }
    return own;
  }

  TILEWAVE_DEVICE static void write_rows(const Args& a, std::int32_t block) {
    const int lane = B::block_lane_id() % P.lanes;
    const std::int32_t wanted = block * P.rows + B::block_lane_id() / P.lanes, token = min_of(wanted, a.tokens - 1);
    const int u = min_of(lane, latent_units - 1);
    Values values = load(a.latent, token * a.latent_stride + u * unit);  // on its way while the slot is awaited
    const Vec<std::uint32_t, 2> slot = a.slots.template load<B>(token);
    const bool in_cache = wanted == token && a.slots.below(slot, a.slot_limit);
    const std::int32_t index = in_cache ? static_cast<std::int32_t>(slot[0]) : 0, page = a.block_size.quotient(index);
    const std::int32_t in_page = index - page * a.block_size.divisor;
    char* const page_at = static_cast<char*>(a.kv) + page * a.page_bytes;
    char* const row = page_at + in_page * a.token_bytes;

    float factor = 1.0f;
    if constexpr (codes && plain) factor = 1.0f / B::load(a.kv_scale);
    if constexpr (group > 0) {
      constexpr std::int32_t carry = mx_carry(S.kv, MxRounding::up);
      const int found = mx_scale(S.kv, carry, largest_of_group(values));
      const auto scale = static_cast<std::uint8_t>(found > 0 ? found : 1);
      factor = mx_factor(scale);
      if (in_cache && lane < latent_units && lane % (group / unit) == 0) {
        if constexpr (apart) {
          auto* const to = reinterpret_cast<std::uint8_t*>(page_at + a.page_scales + in_page * apart_bytes);
          B::store(to + lane / (group / unit), scale);
        } else {
          B::store(reinterpret_cast<float*>(row + scale_byte) + lane / (group / unit), e8m0_to_f32(scale));
        }
      }
    }
    if (in_cache && lane < latent_units) store_latent(row, lane, values, factor);
    if (lane < rope_units) {
      const Values rotated_values = rotated(a, a.rope, token * a.rope_stride, lane, token);
      if (in_cache) {
        if constexpr (plain) {
          store_latent(row, latent_units + lane, rotated_values, factor);
        } else {
          store(row + wide_byte + 16 * lane, rotated_values);
        }
      }
    }
  }
  /// Returns the largest of a group's magnitudes. They are compared as bits, by which NaN is the largest.
  TILEWAVE_DEVICE static float largest_of_group(const Values& values) {
    std::int32_t bits = 0;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) bits = max_of(bits, __builtin_bit_cast(std::int32_t, abs_of(values[e])));
    const auto larger = [](float a, float b) TILEWAVE_INLINE_LAMBDA {
      return __builtin_bit_cast(float,
                                max_of(__builtin_bit_cast(std::int32_t, a), __builtin_bit_cast(std::int32_t, b)));
    };
    return B::template reduce<group / unit>(__builtin_bit_cast(float, bits), larger);
  }
  /// Stores a unit of elements of the cache's type.
  TILEWAVE_DEVICE static void store_latent(char* row, int u, Values values, float factor) {
    if constexpr (codes) {
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) values[e] *= factor;
    }
    using Access = Packed<S.kv, unit>;
    B::store(reinterpret_cast<Access*>(row) + u, narrow<B, S.kv, unit>(values));
  }

  TILEWAVE_DEVICE static void rotate_q(const Args& a, std::int32_t block) {
    constexpr int heads = block_threads / rope_units;
    const int u = B::block_lane_id() % rope_units;
    const std::int32_t wanted = block * heads + B::block_lane_id() / rope_units, row = min_of(wanted, a.q_rows - 1);
    const std::int32_t token = a.q_heads.quotient(row), head = row - token * a.q_heads.divisor;
    const Values values = rotated(a, a.q, token * a.q_strides.token + head * a.q_strides.head, u, token);
    B::wave_barrier();  // in place, another lane reads what this one writes
    if (wanted != row) return;
    auto* const out =
        static_cast<std::uint16_t*>(a.q_out) + token * a.q_out_strides.token + head * a.q_out_strides.head + u * unit;
    store(out, values);
  }
};

}  // namespace tilewave
