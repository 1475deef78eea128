// SPDX-License-Identifier: MIT
// Heads that leave a product for a paged cache (GemmProblem::cache_write): q and k are rotated, q goes to out, and k
// and v go into their slots. It does what KvCacheWrite would do behind the product, with what the product has rounded.
#pragma once

#include "tilewave/ops/gemm/args.hpp"
#include "tilewave/ops/rope/rotation.hpp"
#include "tilewave/tile/index_list.hpp"

namespace tilewave {

/// What a kernel needs of a KvCacheWriteProblem whose q, k and v are the columns of out.
struct GemmCacheArgs {
  IndexList positions, slots;
  const Storage<DType::f32>* cos;
  const Storage<DType::f32>* sin;
  std::int64_t table_stride;
  void* k_cache;
  void* v_cache;
  struct Strides {
    std::int64_t page, head, token;
  } k_strides, v_strides;
  std::int32_t table_rows, slot_limit;  // of positions, and of slots
  std::int32_t q_heads, rotated_heads;  // the latter are those of q and k
  FastDiv head_size, block_size;
  bool writes;
};
struct GemmNoCacheArgs {};

template <class B, DType T>
struct GemmCacheOutput {
  /// Stores n neighbours of a row of out that are of one head.
  template <int n>
  TILEWAVE_DEVICE static void store(const GemmCacheArgs& c, const GemmArgs& a, std::int32_t row, std::int32_t column,
                                    Packed<T, n> values) {
    const std::int32_t head = c.head_size.quotient(column), dim = column - head * c.head_size.divisor;
    if (head < c.rotated_heads) values = rotated<n>(c, row, dim, values);
    auto* to = static_cast<Storage<T>*>(a.out) + row * a.out_stride + column;
    if (head >= c.q_heads) {
      const Vec<std::uint32_t, 2> slot = c.slots.template load<B>(row);
      if (!c.slots.below(slot, c.slot_limit)) return;
      const bool of_k = head < c.rotated_heads;
      const auto index = static_cast<std::int32_t>(slot[0]), page = c.block_size.quotient(index);
      const GemmCacheArgs::Strides& strides = of_k ? c.k_strides : c.v_strides;
      const std::int32_t of_cache = head - (of_k ? c.q_heads : c.rotated_heads);
      to = static_cast<Storage<T>*>(of_k ? c.k_cache : c.v_cache) + page * strides.page + of_cache * strides.head +
           (index - page * c.block_size.divisor) * strides.token + dim;
    }
    B::store(reinterpret_cast<Packed<T, n>*>(to), values);
  }

 private:
  template <int n>
  TILEWAVE_DEVICE static Packed<T, n> rotated(const GemmCacheArgs& c, std::int32_t row, std::int32_t dim,
                                              const Packed<T, n>& values) {
    constexpr int unit = n / 2;  // of each of two accesses that are rotated together
    const Vec<std::uint32_t, 2> position = c.positions.template load<B>(row);
    const bool known = c.positions.below(position, c.table_rows);
    const std::int64_t angles = (known ? position[0] : 0) * c.table_stride;
    Rotation<B, RopeSpec{T, DType::f32, RopePairs::neighbours}, unit> rotation;
    rotation.load(c.cos + angles, c.sin + angles, dim / 2);
    const Vec<float, n> x = widen<B, T, n>(values);
    Vec<float, unit> low, high;
    TILEWAVE_UNROLL
    for (int i = 0; i < unit; ++i) low[i] = x[i], high[i] = x[unit + i];
    rotation.rotate(known, low, high);
    Vec<float, n> all;
    TILEWAVE_UNROLL
    for (int i = 0; i < unit; ++i) all[i] = low[i], all[unit + i] = high[i];
    return narrow<B, T, n>(all);
  }
};

}  // namespace tilewave
