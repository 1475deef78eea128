// SPDX-License-Identifier: MIT
// v_mfma_f32_16x16x32_bf16 is the chained atom. KV is the A operand, so a lane's results are 4 kv values of one row.
// Products of tiles in LDS follow.
#pragma once

#include "tilewave/arch/gfx9/product.hpp"

#if defined(__HIP__)

namespace tilewave::gfx950 {

struct Mma : AtomRegisters<gfx950_atom.k_per_lane, gfx950_atom.rows_per_lane, gfx950_atom.kv_per_lane> {
  TILEWAVE_DEVICE static Accumulator mma(KvOperand kv, RowsOperand rows, Accumulator acc) {
    using Bf16s = __bf16 __attribute__((ext_vector_type(8)));
    using Floats = float __attribute__((ext_vector_type(4)));
    return __builtin_bit_cast(Accumulator, __builtin_amdgcn_mfma_f32_16x16x32_bf16(
                                               __builtin_bit_cast(Bf16s, kv), __builtin_bit_cast(Bf16s, rows),
                                               __builtin_bit_cast(Floats, acc), 0, 0, 0));
  }
  /// This is v_mfma_f32_16x16x32_f16.
  TILEWAVE_DEVICE static Accumulator mma_f16(KvOperand kv, RowsOperand rows, Accumulator acc) {
    using Halves = _Float16 __attribute__((ext_vector_type(8)));
    using Floats = float __attribute__((ext_vector_type(4)));
    return __builtin_bit_cast(Accumulator, __builtin_amdgcn_mfma_f32_16x16x32_f16(
                                               __builtin_bit_cast(Halves, kv), __builtin_bit_cast(Halves, rows),
                                               __builtin_bit_cast(Floats, acc), 0, 0, 0));
  }
};

/// Square products on CDNA4 take one unit a lane of 16-bit elements. fp8 takes two, since it has its full rate only in
/// f8f6f4, and fp6 takes six words of two units.
struct Product {
  template <DType type>
  static constexpr int product_chunks = is_fp8(type) || is_fp6(type) ? 2 : 1;

  template <DType type, int side>
  using Sums = Vec<ProductSum<type>, side * side / 64>;

  /// This is ds_read_b64_tr_b16, or ds_read_b64_tr_b8.
  template <int element_bytes>
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> load_transposed(const void* row) {
    static_assert(element_bytes == 1 || element_bytes == 2, "elements have one byte or two");
    if constexpr (element_bytes == 2) {
      using Elements = short __attribute__((ext_vector_type(4)));
      using InLds = __attribute__((address_space(3))) Elements*;
      return __builtin_bit_cast(Vec<std::uint32_t, 2>,
                                __builtin_amdgcn_ds_read_tr16_b64_v4i16((InLds) const_cast<void*>(row)));
    } else {
      using Elements = int __attribute__((ext_vector_type(2)));
      using InLds = __attribute__((address_space(3))) Elements*;
      return __builtin_bit_cast(Vec<std::uint32_t, 2>,
                                __builtin_amdgcn_ds_read_tr8_b64_v2i32((InLds) const_cast<void*>(row)));
    }
  }

  template <DType type, int side, int chunks>
  TILEWAVE_DEVICE static void multiply(const Chunk (&kv)[chunks], const Chunk (&rows)[chunks], Sums<type, side>& sums) {
    static_assert(chunks % product_chunks<type> == 0, "operands are a whole number of products, see product_chunks");
    TILEWAVE_UNROLL
    for (int c = 0; c < chunks; c += product_chunks<type>) {
      if constexpr (is_fp8(type)) {
        sums = product<type, side>(Pair{{kv[c], kv[c + 1]}}, Pair{{rows[c], rows[c + 1]}}, sums);
      } else {
        sums = product<type, side>(kv[c], rows[c], sums);
      }
    }
  }

  /// CDNA3's products, which CDNA4 has, too, at half of its rate or less.
  template <DType type, int side>
  TILEWAVE_DEVICE static void multiply_half(const Vec<std::uint32_t, 2>& kv, const Vec<std::uint32_t, 2>& rows,
                                            Sums<type, side>& sums) {
    static_assert(!is_fp8(type) || type == DType::fp8_e4m3fn, "gfx950 multiplies the OCP flavour of fp8");
    sums = gfx9::half_product<type, side>(kv, rows, sums);
  }

  /// This is v_mfma_scale_f32_*_f8f6f4.
  template <DType of_kv, DType of_rows, int side, int products>
  TILEWAVE_DEVICE static void multiply_mx(const Chunk (&kv)[products * product_chunks<of_kv>],
                                          const Chunk (&rows)[products * product_chunks<of_rows>],
                                          const std::uint32_t (&kv_scales)[products],
                                          const std::uint32_t (&rows_scales)[products], Sums<DType::f32, side>& sums) {
    using Registers = float __attribute__((ext_vector_type(side * side / 64)));
    TILEWAVE_UNROLL
    for (int p = 0; p < products; ++p) {
      const Words a = words<of_kv>(kv, p), b = words<of_rows>(rows, p);
      const auto sum = __builtin_bit_cast(Registers, sums);
      const int scale_a = static_cast<int>(kv_scales[p]), scale_b = static_cast<int>(rows_scales[p]);
      constexpr int format_a = format<of_kv>, format_b = format<of_rows>;
      if constexpr (side == 16) {
        sums = __builtin_bit_cast(
            Vec<float, side * side / 64>,
            __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, sum, format_a, format_b, 0, scale_a, 0, scale_b));
      } else {
        sums = __builtin_bit_cast(
            Vec<float, side * side / 64>,
            __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, b, sum, format_a, format_b, 0, scale_a, 0, scale_b));
      }
    }
  }

 private:
  using Pair = Vec<Chunk, 2>;
  using Words = int __attribute__((ext_vector_type(8)));
  /// Returns the format code of an operand: 0 is e4m3; 2 and 3 are e2m3 and e3m2, which use the first six of eight
  /// registers; 4 is e2m1, which uses four.
  template <DType type>
  static constexpr int format = type == DType::fp4_e2m1   ? 4
                                : type == DType::fp6_e3m2 ? 3
                                : type == DType::fp6_e2m3 ? 2
                                                          : 0;
  template <DType type, int chunks>
  TILEWAVE_DEVICE static Words words(const Chunk (&units)[chunks], int product) {
    static_assert(type == DType::fp4_e2m1 || is_fp6(type) || type == DType::fp8_e4m3fn,
                  "scaled products take fp4, fp6 and the OCP flavour of fp8");
    if constexpr (type == DType::fp4_e2m1) return __builtin_bit_cast(Words, (Pair{{units[product], Chunk{}}}));
    return __builtin_bit_cast(Words, (Pair{{units[2 * product], units[2 * product + 1]}}));
  }
  template <DType type, int side, class Operand>
  TILEWAVE_DEVICE static Sums<type, side> product(const Operand& kv, const Operand& rows,
                                                  const Sums<type, side>& sums) {
    using Result = Sums<type, side>;
    using Registers = ProductSum<type> __attribute__((ext_vector_type(side * side / 64)));
    const auto c = __builtin_bit_cast(Registers, sums);
    if constexpr (type == DType::bf16) {
      using Bf16s = __bf16 __attribute__((ext_vector_type(8)));
      const auto a = __builtin_bit_cast(Bf16s, kv), b = __builtin_bit_cast(Bf16s, rows);
      if constexpr (side == 16) {
        return __builtin_bit_cast(Result, __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, c, 0, 0, 0));
      } else {
        return __builtin_bit_cast(Result, __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, c, 0, 0, 0));
      }
    } else if constexpr (type == DType::f16) {
      using Halves = _Float16 __attribute__((ext_vector_type(8)));
      const auto a = __builtin_bit_cast(Halves, kv), b = __builtin_bit_cast(Halves, rows);
      if constexpr (side == 16) {
        return __builtin_bit_cast(Result, __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, 0, 0, 0));
      } else {
        return __builtin_bit_cast(Result, __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, 0, 0, 0));
      }
    } else if constexpr (type == DType::i8) {
      using Words = int __attribute__((ext_vector_type(4)));
      const auto a = __builtin_bit_cast(Words, kv), b = __builtin_bit_cast(Words, rows);
      if constexpr (side == 16) {
        return __builtin_bit_cast(Result, __builtin_amdgcn_mfma_i32_16x16x64_i8(a, b, c, 0, 0, 0));
      } else {
        return __builtin_bit_cast(Result, __builtin_amdgcn_mfma_i32_32x32x32_i8(a, b, c, 0, 0, 0));
      }
    } else {
      static_assert(type == DType::fp8_e4m3fn, "gfx950 multiplies bf16, f16, i8 and the OCP flavour of fp8");
      // Scales of 0 mean the instruction without scales.
      const auto a = __builtin_bit_cast(Words, kv), b = __builtin_bit_cast(Words, rows);
      if constexpr (side == 16) {
        return __builtin_bit_cast(Result, __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, c, 0, 0, 0, 0, 0, 0));
      } else {
        return __builtin_bit_cast(Result, __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, b, c, 0, 0, 0, 0, 0, 0));
      }
    }
  }
};

}  // namespace tilewave::gfx950

#endif
