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

/// A row of out whose heads leave. Tables answer one after the other, so a lane asks for what it needs early: for the
/// row's position and slot before the products, and for angles before their sums are rounded.
template <class B>
struct GemmCacheRow {
  std::int32_t position, slot;  // -1 where tables or cache have none

  TILEWAVE_DEVICE void find(const GemmCacheArgs& c, std::int32_t row) {
    const auto of_row = c.positions.template load<B>(row), slot_of_row = c.slots.template load<B>(row);
    position = c.positions.below(of_row, c.table_rows) ? static_cast<std::int32_t>(of_row[0]) : -1;
    slot = c.slots.below(slot_of_row, c.slot_limit) ? static_cast<std::int32_t>(slot_of_row[0]) : -1;
  }
};
struct GemmNoCacheRow {};

/// n neighbours of a row of out that are of one head.
template <class B, DType T, int n>
class GemmCacheOutput {
 public:
  /// Loads the angles by which they are rotated.
  TILEWAVE_DEVICE void load(const GemmCacheArgs& c, const GemmCacheRow<B>& row, std::int32_t column) {
    head_ = c.head_size.quotient(column), dim_ = column - head_ * c.head_size.divisor;
    const std::int64_t angles = max_of(row.position, 0) * c.table_stride;
    angles_.load(c.cos + angles, c.sin + angles, dim_ / 2);
  }
  TILEWAVE_DEVICE void store(const GemmCacheArgs& c, const GemmArgs& a, const GemmCacheRow<B>& at, std::int32_t row,
                             std::int32_t column, const Packed<T, n>& values) const {
    auto* to = static_cast<Storage<T>*>(a.out) + row * a.out_stride + column;
    if (head_ >= c.q_heads) {
      if (at.slot < 0) return;
      const bool of_k = head_ < c.rotated_heads;
      const std::int32_t page = c.block_size.quotient(at.slot), of_cache = head_ - (of_k ? c.q_heads : c.rotated_heads);
      const GemmCacheArgs::Strides& strides = of_k ? c.k_strides : c.v_strides;
      to = static_cast<Storage<T>*>(of_k ? c.k_cache : c.v_cache) + page * strides.page + of_cache * strides.head +
           (at.slot - page * c.block_size.divisor) * strides.token + dim_;
    }
    B::store(reinterpret_cast<Packed<T, n>*>(to), head_ < c.rotated_heads ? rotated(at, values) : values);
  }

 private:
  static constexpr int unit = n / 2;  // of each of two accesses that are rotated together

  TILEWAVE_DEVICE Packed<T, n> rotated(const GemmCacheRow<B>& at, const Packed<T, n>& values) const {
    const Vec<float, n> x = widen<B, T, n>(values);
    Vec<float, unit> low, high;
    TILEWAVE_UNROLL
    for (int i = 0; i < unit; ++i) low[i] = x[i], high[i] = x[unit + i];
    angles_.rotate(at.position >= 0, low, high);
    Vec<float, n> all;
    TILEWAVE_UNROLL
    for (int i = 0; i < unit; ++i) all[i] = low[i], all[unit + i] = high[i];
    return narrow<B, T, n>(all);
  }

  std::int32_t head_, dim_;
  Rotation<B, RopeSpec{T, DType::f32, RopePairs::neighbours}, unit> angles_;
};

}  // namespace tilewave
