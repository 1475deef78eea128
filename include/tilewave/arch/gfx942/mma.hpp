// SPDX-License-Identifier: MIT
// v_mfma_f32_16x16x16_bf16 is the chained atom, and its counterparts multiply f16 and fp8. KV is the A operand, so a
// lane's results are 4 kv values of one row. Products of tiles in LDS follow.
#pragma once

#include "tilewave/arch/gfx9/product.hpp"

#if defined(__HIP__)

namespace tilewave::gfx942 {

struct Mma : AtomRegisters<gfx942_atom.k_per_lane, gfx942_atom.rows_per_lane, gfx942_atom.kv_per_lane> {
  TILEWAVE_DEVICE static Accumulator mma(KvOperand kv, RowsOperand rows, Accumulator acc) {
    using Shorts = short __attribute__((ext_vector_type(4)));
    using Floats = float __attribute__((ext_vector_type(4)));
    return __builtin_bit_cast(Accumulator, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
                                               __builtin_bit_cast(Shorts, kv), __builtin_bit_cast(Shorts, rows),
                                               __builtin_bit_cast(Floats, acc), 0, 0, 0));
  }
  /// This is v_mfma_f32_16x16x16_f16. CDNA3 keeps subnormals, unlike CDNA2.
  TILEWAVE_DEVICE static Accumulator mma_f16(KvOperand kv, RowsOperand rows, Accumulator acc) {
    using Halves = _Float16 __attribute__((ext_vector_type(4)));
    using Floats = float __attribute__((ext_vector_type(4)));
    return __builtin_bit_cast(Accumulator, __builtin_amdgcn_mfma_f32_16x16x16f16(
                                               __builtin_bit_cast(Halves, kv), __builtin_bit_cast(Halves, rows),
                                               __builtin_bit_cast(Floats, acc), 0, 0, 0));
  }
  /// This is v_mfma_f32_16x16x32_fp8_fp8, with the maps of gfx942_fp8_atom: four elements a word.
  TILEWAVE_DEVICE static Accumulator mma_fp8(KvOperand kv, RowsOperand rows, Accumulator acc) {
    using Floats = float __attribute__((ext_vector_type(4)));
    return __builtin_bit_cast(Accumulator, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(
                                               __builtin_bit_cast(long, kv), __builtin_bit_cast(long, rows),
                                               __builtin_bit_cast(Floats, acc), 0, 0, 0));
  }
};

/// Square products on CDNA3 take 8 bytes a lane at a time, so a unit is two instructions.
struct Product {
  using Half = Vec<std::uint32_t, 2>;

  template <DType>
  static constexpr int product_chunks = 1;

  template <DType type, int side>
  using Sums = Vec<ProductSum<type>, side * side / 64>;

  template <DType type, int side, int chunks>
  TILEWAVE_DEVICE static void multiply(const Chunk (&kv)[chunks], const Chunk (&rows)[chunks], Sums<type, side>& sums) {
    TILEWAVE_UNROLL
    for (int half = 0; half < 2 * chunks; ++half) {
      const auto of = [half](const Chunk& unit) TILEWAVE_INLINE_LAMBDA {
        return Vec<std::uint32_t, 2>{{unit[half % 2 * 2], unit[half % 2 * 2 + 1]}};
      };
      sums = product<type, side>(of(kv[half / 2]), of(rows[half / 2]), sums);
    }
  }
  template <DType type, int side>
  TILEWAVE_DEVICE static void multiply_half(const Half& kv, const Half& rows, Sums<type, side>& sums) {
    sums = product<type, side>(kv, rows, sums);
  }

 private:
  template <DType type, int side>
  TILEWAVE_DEVICE static Sums<type, side> product(const Half& kv, const Half& rows, const Sums<type, side>& sums) {
    static_assert(!is_fp8(type) || type == DType::fp8_e4m3fnuz, "gfx942 multiplies the fnuz flavour of fp8");
    return gfx9::half_product<type, side>(kv, rows, sums);
  }
};

}  // namespace tilewave::gfx942

#endif
