// SPDX-License-Identifier: MIT
// Writes heads of new tokens into a paged KV cache. In fused specs q and k are normalised and rotated on the way.
//
// Grid: first the blocks of q's and k's heads, with the heads of a token next to each other; then the blocks of V's. A
// block has P.rows heads, and P.lanes lanes hold one head in two accesses. In a dim_major cache the dimensions of a
// token lie apart, so V has the tokens of a head next to each other. Neighbours in such a cache are then written by
// neighbours in the block. Slots, positions, weights and heads are fetched together, and the tables behind the
// positions. There is no shared memory. Bound: bytes over memory bandwidth.
#pragma once

#include "tilewave/ops/kv_cache_write/args.hpp"
#include "tilewave/ops/kv_cache_write/policy.hpp"
#include "tilewave/ops/rope/rotation.hpp"
#include "tilewave/tile/row_output.hpp"

namespace tilewave {

template <class B, KvCacheWriteSpec S, KvCacheWritePolicy P>
struct KvCacheWrite {
  using Room = B;
  using Args = KvCacheWriteArgs;
  struct Shared {};
  static constexpr bool waits_itself = StagedBackend<B>;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = P.vec / size_of(S.x);
  static constexpr bool grouped = S.group > 0;
  static constexpr bool quantised = is_fp8(S.kv), finds_scale = S.quant == Scaling::per_token && !grouped;
  static constexpr int group = grouped ? S.group : P.lanes * 2 * unit, group_lanes = group / (2 * unit);
  using Angles = Rotation<B, S.rope(), unit>;
  // A head that is not rotated is held in neighbouring accesses if these become 16 bytes of codes, else in halves.
  static constexpr RopePairs plain_pairs = quantised ? RopePairs::neighbours : RopePairs::halves;
  using Plain = Rotation<B, RopeSpec{S.x, S.x, plain_pairs}, unit>;
  using Access = Packed<S.x, unit>;
  using Values = Vec<float, unit>;
  using Window = typename B::template Window<false>;
  using Code = Storage<S.kv>;
  static_assert(P.chunks == 2 && P.lanes <= B::facts.wave_lanes,
                "a lane has two accesses of a head, and a head is within a wave");

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    if constexpr (waits_itself) {
      if (!a.tables_ready) wait(a);
      B::promised_reads(a.tables_ready);
    }
    const int thread = B::block_lane_id(), lane = thread % P.lanes, block = B::block_id();
    const auto row_of = [&](int first_block) { return (block - first_block) * P.rows + thread / P.lanes; };
    if (grouped || block < a.head_blocks) {
      write_heads(a, row_of(0), lane);
    } else if constexpr (!grouped) {
      write_values(a, row_of(a.head_blocks), lane);
    }
  }

 private:
  /// Says whether tables are read before the kernel in front is over.
  TILEWAVE_DEVICE static bool early(const Args& a) { return waits_itself && a.tables_ready; }
  /// What comes behind it may read what the kernel in front has written.
  TILEWAVE_DEVICE static void wait(const Args&) {
    if constexpr (waits_itself) {
      B::promised_reads(false);
      B::wait_for_previous();
      B::launch_next();
    }
  }
  /// What a lane holds of a head.
  struct Head {
    RotationSlot at;
    Values low, high;
  };

  TILEWAVE_DEVICE static void write_heads(const Args& a, std::int32_t wanted, int lane) {
    const std::int32_t row = min_of(wanted, a.head_rows - 1);
    const std::int32_t token = a.heads.quotient(row), token_head = row - token * a.heads.divisor;
    const bool is_k = token_head >= a.q_heads, active = wanted == row;
    const std::int32_t head = is_k ? token_head - a.q_heads : token_head;
    const auto pick = [&](auto q, auto k) { return is_k ? k : q; };  // by value, see Rope
    const HeadStrides strides{pick(a.q_strides.token, a.k_strides.token), pick(a.q_strides.head, a.k_strides.head)};

    const Vec<std::uint32_t, 2> slot = a.slots.template load<B>(token);
    Vec<std::uint32_t, 2> position{};
    if constexpr (S.fused) position = a.positions.template load<B>(token);
    Head h;
    Access low, high, low_weight, high_weight;
    if constexpr (S.fused) {
      h.at = Angles::slot(lane, a.rotary, a.rotary_first);
    } else {
      h.at = Plain::slot(lane, a.head_size);
    }
    float given;
    const auto load_head = [&]() TILEWAVE_INLINE_LAMBDA {
      load(a, pick(a.q, a.k), token * strides.token + head * strides.head, h.at, low, high);
      const void* weight = pick(a.q_norm, a.k_norm);
      if constexpr (S.norm) load(a, weight, 0, h.at, low_weight, high_weight);
      given = given_scale(a, a.k_scale, is_k ? head : 0);
    };
    if (!early(a)) load_head();
    B::sched_fence();  // all loads are on their way before one of them is waited for
    [[maybe_unused]] bool known = true;
    [[maybe_unused]] Angles rotation;
    if constexpr (S.fused) {
      known = a.positions.below(position, a.table_rows);
      const std::int64_t angles = (known ? position[0] : 0) * a.table_stride;
      rotation.load(static_cast<const Storage<S.table>*>(a.cos) + angles,
                    static_cast<const Storage<S.table>*>(a.sin) + angles, h.at.rotates ? h.at.column : 0);
      B::sched_fence();
    }
    if (early(a)) {
      wait(a);
      load_head();
    }
    widen_held(a, low, high, h);
    if constexpr (S.norm) {
      const float square = B::template reduce<P.lanes>(squares(h.low) + squares(h.high), Sum{}) * a.per_column + a.eps;
      const float rstd = square < __builtin_inff() ? B::rsqrt(square) : square - square;  // as Norm does it
      normalise(h.low, rstd, widen<B, S.x, unit>(low_weight), pick(a.q_weighted, a.k_weighted));
      normalise(h.high, rstd, widen<B, S.x, unit>(high_weight), pick(a.q_weighted, a.k_weighted));
    }
    [[maybe_unused]] Scale group_scale;
    if constexpr (grouped) group_scale = group_scale_of(h);
    if constexpr (S.fused) {
      Values first = h.low, second = h.high;
      rotation.rotate(known, first, second);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) {
        h.low[e] = h.at.rotates ? first[e] : h.low[e];
        h.high[e] = h.at.rotates ? second[e] : h.high[e];
      }
    }
    Scale scale = scale_of(h, given);
    if constexpr (grouped) scale = group_scale;
    const CacheSlot to = cache_slot(a, slot);
    if constexpr (S.fused) {
      if (a.k_out != nullptr && is_k && active) write_key(a, h, token, head);
    }
    if (!is_k) {
      if constexpr (S.fused) {
        if (active) {
          if constexpr (grouped) store_group(a, a.q_scale, token * a.q_heads + head, h, lane, scale);
          write_query(a, h, token, head, scale);
        }
      }
    } else if (active && to.in_cache) {
      if constexpr (grouped) store_group(a, a.k_scale, scale_offset(a, to, head), h, lane, scale);
      if (finds_scale && lane == 0) B::store(static_cast<float*>(a.k_scale) + scale_offset(a, to, head), scale.value);
      Code* keys = static_cast<Code*>(a.k_cache) + to.page * a.k_cache_strides.page + head * a.k_cache_strides.head +
                   to.token * a.k_cache_strides.token;
      const auto address = [&](int dim) { return keys + dim / S.unit() * a.k_cache_strides.unit + dim % S.unit(); };
      store_head<S.kv, (S.fused ? Angles::neighbours : Plain::neighbours)>(a, h, scale.inverse, address);
    }
  }

  TILEWAVE_DEVICE static void write_values(const Args& a, std::int32_t wanted, int lane) {
    const std::int32_t row = min_of(wanted, a.value_rows - 1);
    const std::int32_t outer = a.inner_values.quotient(row), inner = row - outer * a.inner_values.divisor;
    const std::int32_t token = a.dim_major ? inner : outer, head = a.dim_major ? outer : inner;
    const Vec<std::uint32_t, 2> slot = a.slots.template load<B>(token);
    Head h;
    h.at = Plain::slot(lane, a.head_size);
    if (early(a)) wait(a);
    Access low, high;
    load(a, a.v, token * a.v_strides.token + head * a.v_strides.head, h.at, low, high);
    const float given = given_scale(a, a.v_scale, head);
    B::sched_fence();
    widen_held(a, low, high, h);
    const Scale scale = scale_of(h, given);
    const CacheSlot to = cache_slot(a, slot);
    if (wanted != row || !to.in_cache) return;
    if (finds_scale && lane == 0) B::store(a.v_scale + scale_offset(a, to, head), scale.value);
    Code* values = static_cast<Code*>(a.v_cache) + to.page * a.v_cache_strides.page + head * a.v_cache_strides.head;
    if (!a.dim_major) {
      values += to.token * a.v_cache_strides.token;
      store_head<S.kv, Plain::neighbours>(a, h, scale.inverse, [&](int dim) { return values + dim; });
    } else {
      values += to.token / S.unit() * a.v_cache_strides.unit + to.token % S.unit();
      store_elements(a, h.low, h.at.low, scale.inverse, values);
      store_elements(a, h.high, h.at.high, scale.inverse, values);
    }
  }

  /// Loads both accesses of a head that starts at an element of `data`. Lanes behind the end of the head read the last
  /// access again. Where a tensor is null, other memory is read instead and not used.
  TILEWAVE_DEVICE static void load(const Args& a, const void* data, std::int64_t first, const RotationSlot& at,
                                   Access& low, Access& high) {
    const int last = a.head_size - unit;
    const Window head{B::opaque(static_cast<const Storage<S.x>*>(data) + first),
                      static_cast<std::uint32_t>(a.head_size * size_of(S.x))};
    low = head.template load_stream_inside<Access>(min_of(at.low, last) * size_of(S.x));
    high = head.template load_stream_inside<Access>(min_of(at.high, last) * size_of(S.x));
  }
  /// Widens both accesses to f32. Values behind the end of the head are 0.
  TILEWAVE_DEVICE static void widen_held(const Args& a, const Access& low, const Access& high, Head& h) {
    const bool held = h.at.low < a.head_size;
    h.low = widen<B, S.x, unit>(low);
    h.high = widen<B, S.x, unit>(high);
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) {
      h.low[e] = held ? h.low[e] : 0.0f;
      h.high[e] = held ? h.high[e] : 0.0f;
    }
  }
  TILEWAVE_DEVICE static float squares(Values v) {
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) v[e] *= v[e];
    return fold(v, Sum{});
  }
  TILEWAVE_DEVICE static void normalise(Values& v, float rstd, const Values& weight, bool weighted) {
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) v[e] *= rstd * (weighted ? weight[e] : 1.0f);
  }

  /// What multiplies the codes of a head, and its inverse. If scales are e8m0, value holds the bits of the code.
  struct Scale {
    float value, inverse;
  };
  TILEWAVE_DEVICE static float given_scale(const Args& a, const void* scales, std::int32_t head) {
    if constexpr (!quantised || finds_scale || grouped) {
      return 1.0f;
    } else {
      return B::load(static_cast<const float*>(scales) + head * a.scale_head_stride);
    }
  }
  TILEWAVE_DEVICE static Scale scale_of(const Head& h, float given) {
    if constexpr (!quantised || grouped) {
      return {1.0f, 1.0f};
    } else if constexpr (!finds_scale) {
      return {given, 1.0f / given};
    } else {
      const float largest = B::template reduce<P.lanes>(largest_of(h), Max{});
      return {quant_scale(S.kv, largest), quant_factor(S.kv, largest)};
    }
  }
  TILEWAVE_DEVICE static float largest_of(const Head& h) {
    float largest = 0.0f;
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) largest = Max{}(largest, Max{}(abs_of(h.low[e]), abs_of(h.high[e])));
    return largest;
  }
  /// The scale of this lane's group, found before the head is rotated. Rotation makes a value at most sqrt(2) times as
  /// large as the largest.
  TILEWAVE_DEVICE static Scale group_scale_of(const Head& h) {
    constexpr float sqrt2 = 1.41421356f;
    const float largest = B::template reduce<group_lanes>(largest_of(h), Max{}) * sqrt2;
    if constexpr (S.e8m0) {  // rounded to a power of two, 2^7 of which are below the largest code of both fp8 flavours
      const int code = max_of(((__builtin_bit_cast(std::int32_t, largest) + 0x400000) >> 23) - 7, 0);
      return {__builtin_bit_cast(float, code), __builtin_bit_cast(float, (254 - code) << 23)};
    } else {
      return {quant_scale(S.kv, largest), quant_factor(S.kv, largest)};
    }
  }
  /// Stores the scale of this lane's group. `block` is the number of the head, each of which has a block of group
  /// scales.
  TILEWAVE_DEVICE static void store_group(const Args& a, void* scales, std::int64_t block, const Head& h, int lane,
                                          const Scale& scale) {
    if (lane % group_lanes != 0 || h.at.low >= a.head_size) return;
    const std::int64_t index = block * (a.head_size / group) + h.at.low / group;
    if constexpr (S.e8m0) {
      B::store(static_cast<std::uint8_t*>(scales) + index,
               static_cast<std::uint8_t>(__builtin_bit_cast(int, scale.value)));
    } else {
      B::store(static_cast<float*>(scales) + index, scale.value);
    }
  }

  /// Where a token lies in the cache, if it has a slot there.
  struct CacheSlot {
    bool in_cache;
    std::int32_t page, token;
  };
  TILEWAVE_DEVICE static CacheSlot cache_slot(const Args& a, const Vec<std::uint32_t, 2>& slot) {
    const bool in_cache = a.slots.below(slot, a.slot_limit);
    const std::int32_t index = in_cache ? static_cast<std::int32_t>(slot[0]) : 0, page = a.block_size.quotient(index);
    return {in_cache, page, index - page * a.block_size.divisor};
  }
  TILEWAVE_DEVICE static std::int64_t scale_offset(const Args& a, const CacheSlot& to, std::int32_t head) {
    return to.page * a.scale_page_stride + head * a.scale_head_stride + to.token;
  }

  TILEWAVE_DEVICE static void write_query(const Args& a, const Head& h, std::int32_t token, std::int32_t head,
                                          const Scale& found_scale) {
    auto* out = static_cast<Storage<S.q_out>*>(a.q_out) + token * a.q_out_strides.token + head * a.q_out_strides.head;
    float inverse = 1.0f;
    if constexpr (grouped) {
      inverse = found_scale.inverse;
    } else if constexpr (is_fp8(S.q_out)) {
      inverse = 1.0f / B::load(static_cast<const float*>(a.q_scale));
    }
    store_head<S.q_out, Angles::neighbours>(a, h, inverse, [&](int dim) { return out + dim; });
  }
  TILEWAVE_DEVICE static void write_key(const Args& a, const Head& h, std::int32_t token, std::int32_t head) {
    auto* out = static_cast<Storage<S.x>*>(a.k_out) + token * a.k_out_strides.token + head * a.k_out_strides.head;
    store_head<S.x, Angles::neighbours>(a, h, 1.0f, [&](int dim) { return out + dim; });
  }
  /// Stores a head as elements of T, which are codes if T is fp8. `address(dim)` is where a dimension lies.
  /// Neighbouring accesses of codes are one store.
  template <DType T, bool neighbours, class Address>
  TILEWAVE_DEVICE static void store_head(const Args& a, const Head& h, float inverse, const Address& address) {
    if (h.at.low >= a.head_size) return;
    if constexpr (is_fp8(T) && neighbours) {
      Vec<float, 2 * unit> both;
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) {
        both[e] = h.low[e] * inverse;
        both[unit + e] = h.high[e] * inverse;
      }
      store<T, 2 * unit>(address(h.at.low), both);
    } else {
      store<T, unit>(address(h.at.low), scaled<T>(h.low, inverse));
      store<T, unit>(address(h.at.high), scaled<T>(h.high, inverse));
    }
  }
  template <DType T, int n>
  TILEWAVE_DEVICE static void store(Storage<T>* to, const Vec<float, n>& values) {
    B::store(reinterpret_cast<Packed<T, n>*>(to), narrow<B, T, n>(values));
  }
  template <DType T>
  TILEWAVE_DEVICE static Values scaled(Values v, float inverse) {
    if constexpr (is_fp8(T)) {
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) v[e] *= inverse;
    }
    return v;
  }
  /// Stores a token's dimensions from `first` on into a dim_major cache. `values` is the token's dimension 0.
  TILEWAVE_DEVICE static void store_elements(const Args& a, const Values& v, int first, float inverse, Code* values) {
    if (first >= a.head_size) return;
    constexpr int per_word = 4 / size_of(S.kv), bits = 8 * size_of(S.kv);
    const Packed<S.kv, unit> codes = narrow<B, S.kv, unit>(scaled<S.kv>(v, inverse));
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) {
      const auto code = static_cast<Code>(codes[e / per_word] >> (e % per_word * bits));
      B::store(values + (first + e) * a.v_cache_strides.dim, code);
    }
  }
};

}  // namespace tilewave
