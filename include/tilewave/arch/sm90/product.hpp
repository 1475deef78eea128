// SPDX-License-Identifier: MIT
// wgmma for every width that a tile has, with both operands in shared memory or one in registers.
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

/// For an operand type: its name in instructions, and the k of one product.
template <DType type>
struct MmaTypes;
template <>
struct MmaTypes<DType::bf16> {
  static constexpr char names[] = "bf16.bf16", k[] = "k16";
};
template <>
struct MmaTypes<DType::f16> {
  static constexpr char names[] = "f16.f16", k[] = "k16";
};
template <>
struct MmaTypes<DType::fp8_e4m3fn> {
  static constexpr char names[] = "e4m3.e4m3", k[] = "k32";
};
template <>
struct MmaTypes<DType::i8> {
  static constexpr char names[] = "s8.s8", k[] = "k32";
};
/// The scales of both operands are 1. 16-bit operands also have a flag that says whether their rows, rather than k, are
/// contiguous.
template <DType type, bool a_transposed, bool b_transposed>
struct MmaScales {
  static_assert(size_of(type) == 2, "wgmma transposes operands of 16 bits only");
  static constexpr char text[] = {'1', ',', ' ', '1', ',', ' ', '0' + a_transposed, ',', ' ', '0' + b_transposed, '\0'};
};
template <>
struct MmaScales<DType::fp8_e4m3fn, false, false> {
  static constexpr char text[] = "1, 1";
};

/// With an operand in registers: whether it adds, scales of 1, and whether b has its rows side by side.
template <DType type, bool b_transposed, bool add>
struct RegisterMmaScales {
  static_assert(size_of(type) == 2, "wgmma transposes operands of 16 bits only");
  static constexpr char text[] = {'0' + add, ',', ' ', '1', ',', ' ', '1', ',', ' ', '0' + b_transposed, '\0'};
};
template <bool add>
struct RegisterMmaScales<DType::fp8_e4m3fn, false, add> {
  static constexpr char text[] = {'0' + add, ',', ' ', '1', ',', ' ', '1', '\0'};
};

/// Returns the matrix descriptor of wgmma (PTX ISA, "asynchronous warpgroup-level matrix shared memory layout") without
/// swizzle, k-major. Its leading dimension is the distance of two 16-byte units along k, and its stride that of two
/// groups of eight rows.
TILEWAVE_DEVICE std::uint64_t group_descriptor(GroupOperand m) {
  // In a cluster the block's number stands above the address. The offset is added separately, so that all products of a
  // loop share the part that depends on `at`.
  const std::uint32_t at = (static_cast<std::uint32_t>(__cvta_generic_to_shared(m.at)) & 0x3ffff) >> 4;
  const std::uint32_t low = at + (m.offset >> 4) + ((m.next_unit >> 4) << 16);
  return std::uint64_t(m.eight_rows >> 4) << 32 | low;
}

// A lane holds columns / 2 sums. Operands of inline PTX have numbers only, and each sum is one, so that each count has
// a text "%0, %1, ..." and a list of operands. Every list continues the one before it.
#define TILEWAVE_SUM_NAMES_4 "%0, %1, %2, %3"
#define TILEWAVE_SUM_NAMES_8 TILEWAVE_SUM_NAMES_4 ", %4, %5, %6, %7"
#define TILEWAVE_SUM_NAMES_16 TILEWAVE_SUM_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TILEWAVE_SUM_NAMES_24 TILEWAVE_SUM_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TILEWAVE_SUM_NAMES_32 TILEWAVE_SUM_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TILEWAVE_SUM_NAMES_40 TILEWAVE_SUM_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TILEWAVE_SUM_NAMES_48 TILEWAVE_SUM_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TILEWAVE_SUM_NAMES_56 TILEWAVE_SUM_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TILEWAVE_SUM_NAMES_64 TILEWAVE_SUM_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TILEWAVE_SUM_NAMES_72 TILEWAVE_SUM_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TILEWAVE_SUM_NAMES_80 TILEWAVE_SUM_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TILEWAVE_SUM_NAMES_88 TILEWAVE_SUM_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TILEWAVE_SUM_NAMES_96 TILEWAVE_SUM_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TILEWAVE_SUM_NAMES_104 TILEWAVE_SUM_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define TILEWAVE_SUM_NAMES_112 TILEWAVE_SUM_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define TILEWAVE_SUM_NAMES_120 TILEWAVE_SUM_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define TILEWAVE_SUM_NAMES_128 TILEWAVE_SUM_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"

// `kind` is the constraint of one sum: "+f" of a float, "+r" of an integer.
#define TILEWAVE_EIGHT_SUMS(kind, acc, i)                                                                 \
  kind(acc[i]), kind(acc[i + 1]), kind(acc[i + 2]), kind(acc[i + 3]), kind(acc[i + 4]), kind(acc[i + 5]), \
      kind(acc[i + 6]), kind(acc[i + 7])
#define TILEWAVE_SUMS_4(kind, acc) kind(acc[0]), kind(acc[1]), kind(acc[2]), kind(acc[3])
#define TILEWAVE_SUMS_8(kind, acc) TILEWAVE_SUMS_4(kind, acc), kind(acc[4]), kind(acc[5]), kind(acc[6]), kind(acc[7])
#define TILEWAVE_SUMS_16(kind, acc) TILEWAVE_SUMS_8(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 8)
#define TILEWAVE_SUMS_24(kind, acc) TILEWAVE_SUMS_16(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 16)
#define TILEWAVE_SUMS_32(kind, acc) TILEWAVE_SUMS_24(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 24)
#define TILEWAVE_SUMS_40(kind, acc) TILEWAVE_SUMS_32(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 32)
#define TILEWAVE_SUMS_48(kind, acc) TILEWAVE_SUMS_40(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 40)
#define TILEWAVE_SUMS_56(kind, acc) TILEWAVE_SUMS_48(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 48)
#define TILEWAVE_SUMS_64(kind, acc) TILEWAVE_SUMS_56(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 56)
#define TILEWAVE_SUMS_72(kind, acc) TILEWAVE_SUMS_64(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 64)
#define TILEWAVE_SUMS_80(kind, acc) TILEWAVE_SUMS_72(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 72)
#define TILEWAVE_SUMS_88(kind, acc) TILEWAVE_SUMS_80(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 80)
#define TILEWAVE_SUMS_96(kind, acc) TILEWAVE_SUMS_88(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 88)
#define TILEWAVE_SUMS_104(kind, acc) TILEWAVE_SUMS_96(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 96)
#define TILEWAVE_SUMS_112(kind, acc) TILEWAVE_SUMS_104(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 104)
#define TILEWAVE_SUMS_120(kind, acc) TILEWAVE_SUMS_112(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 112)
#define TILEWAVE_SUMS_128(kind, acc) TILEWAVE_SUMS_120(kind, acc), TILEWAVE_EIGHT_SUMS(kind, acc, 120)

// The numbers are those of the operands behind the sums: both descriptors, the flag, and the texts of the types, of k
// and of the scales.
#define TILEWAVE_WGMMA(columns, sums, a_at, b_at, flag, types, k_text, scales)                                        \
  asm volatile("{ .reg .pred add;\n  setp.ne.u32 add, %" #flag ", 0;\n  wgmma.mma_async.sync.aligned.m64n" #columns   \
               "%" #k_text ".f32.%" #types " {" TILEWAVE_SUM_NAMES_##sums "}, %" #a_at ", %" #b_at ", add, %" #scales \
                                                                          "; }"                                       \
               : TILEWAVE_SUMS_##sums("+f", acc)                                                                      \
               : "l"(a), "l"(b), "r"(add), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k),                        \
                 "C"(MmaScales<type, a_transposed, b_transposed>::text))

/// Computes acc = a b^T, plus acc itself where `add` is not 0. a and b are matrix descriptors (PTX ISA, "matrix
/// descriptor format").
template <DType type, int columns, bool a_transposed, bool b_transposed>
TILEWAVE_DEVICE void multiply_group(std::uint64_t a, std::uint64_t b, std::uint32_t add, Vec<float, columns / 2>& acc) {
  if constexpr (columns == 8) {
    TILEWAVE_WGMMA(8, 4, 4, 5, 6, 7, 8, 9);
  } else if constexpr (columns == 16) {
    TILEWAVE_WGMMA(16, 8, 8, 9, 10, 11, 12, 13);
  } else if constexpr (columns == 32) {
    TILEWAVE_WGMMA(32, 16, 16, 17, 18, 19, 20, 21);
  } else if constexpr (columns == 48) {
    TILEWAVE_WGMMA(48, 24, 24, 25, 26, 27, 28, 29);
  } else if constexpr (columns == 64) {
    TILEWAVE_WGMMA(64, 32, 32, 33, 34, 35, 36, 37);
  } else if constexpr (columns == 80) {
    TILEWAVE_WGMMA(80, 40, 40, 41, 42, 43, 44, 45);
  } else if constexpr (columns == 96) {
    TILEWAVE_WGMMA(96, 48, 48, 49, 50, 51, 52, 53);
  } else if constexpr (columns == 112) {
    TILEWAVE_WGMMA(112, 56, 56, 57, 58, 59, 60, 61);
  } else if constexpr (columns == 128) {
    TILEWAVE_WGMMA(128, 64, 64, 65, 66, 67, 68, 69);
  } else if constexpr (columns == 144) {
    TILEWAVE_WGMMA(144, 72, 72, 73, 74, 75, 76, 77);
  } else if constexpr (columns == 160) {
    TILEWAVE_WGMMA(160, 80, 80, 81, 82, 83, 84, 85);
  } else if constexpr (columns == 176) {
    TILEWAVE_WGMMA(176, 88, 88, 89, 90, 91, 92, 93);
  } else if constexpr (columns == 192) {
    TILEWAVE_WGMMA(192, 96, 96, 97, 98, 99, 100, 101);
  } else if constexpr (columns == 208) {
    TILEWAVE_WGMMA(208, 104, 104, 105, 106, 107, 108, 109);
  } else if constexpr (columns == 224) {
    TILEWAVE_WGMMA(224, 112, 112, 113, 114, 115, 116, 117);
  } else if constexpr (columns == 240) {
    TILEWAVE_WGMMA(240, 120, 120, 121, 122, 123, 124, 125);
  } else {
    static_assert(columns == 256, "this product is written out for the widths above and 256");
    TILEWAVE_WGMMA(256, 128, 128, 129, 130, 131, 132, 133);
  }
}

#define TILEWAVE_WGMMA_OF_INTS(columns, sums, a_at, b_at, flag)                                                     \
  asm volatile("{ .reg .pred add;\n  setp.ne.u32 add, %" #flag ", 0;\n  wgmma.mma_async.sync.aligned.m64n" #columns \
               "k32.s32.s8.s8 {" TILEWAVE_SUM_NAMES_##sums "}, %" #a_at ", %" #b_at ", add; }"                      \
               : TILEWAVE_SUMS_##sums("+r", acc)                                                                    \
               : "l"(a), "l"(b), "r"(add))

/// Multiplies i8 like multiply_group, for the widths that entries have. Sums wrap around.
template <int columns>
TILEWAVE_DEVICE void multiply_group_of_ints(std::uint64_t a, std::uint64_t b, std::uint32_t add,
                                            Vec<std::int32_t, columns / 2>& acc) {
  if constexpr (columns == 16) {
    TILEWAVE_WGMMA_OF_INTS(16, 8, 8, 9, 10);
  } else if constexpr (columns == 64) {
    TILEWAVE_WGMMA_OF_INTS(64, 32, 32, 33, 34);
  } else if constexpr (columns == 128) {
    TILEWAVE_WGMMA_OF_INTS(128, 64, 64, 65, 66);
  } else {
    static_assert(columns == 256, "this product is written out for the widths above and 256");
    TILEWAVE_WGMMA_OF_INTS(256, 128, 128, 129, 130);
  }
}

// The numbers are those of the operands behind the sums: four of a, the descriptor of b, and texts of the types, of k
// and of the scales.
#define TILEWAVE_WGMMA_REGISTERS(columns, sums, a0, a1, a2, a3, b_operand, types, k_text, scales)                      \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "%" #k_text ".f32.%" #types " {" TILEWAVE_SUM_NAMES_##sums \
               "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_operand ", %" #scales ";"                           \
               : TILEWAVE_SUMS_##sums("+f", acc)                                                                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "C"(MmaTypes<type>::names),                    \
                 "C"(MmaTypes<type>::k), "C"(RegisterMmaScales<type, b_transposed, add>::text))

/// acc = a b^T, plus acc if `add`: a in registers, b a matrix descriptor. `acc` may have more sums, which stay.
template <DType type, int columns, bool b_transposed = false, bool add = true>
TILEWAVE_DEVICE void multiply_registers(const Chunk& a, std::uint64_t b_at, auto& acc) {
  if constexpr (columns == 8) {
    TILEWAVE_WGMMA_REGISTERS(8, 4, 4, 5, 6, 7, 8, 9, 10, 11);
  } else if constexpr (columns == 16) {
    TILEWAVE_WGMMA_REGISTERS(16, 8, 8, 9, 10, 11, 12, 13, 14, 15);
  } else if constexpr (columns == 32) {
    TILEWAVE_WGMMA_REGISTERS(32, 16, 16, 17, 18, 19, 20, 21, 22, 23);
  } else if constexpr (columns == 48) {
    TILEWAVE_WGMMA_REGISTERS(48, 24, 24, 25, 26, 27, 28, 29, 30, 31);
  } else if constexpr (columns == 64) {
    TILEWAVE_WGMMA_REGISTERS(64, 32, 32, 33, 34, 35, 36, 37, 38, 39);
  } else if constexpr (columns == 80) {
    TILEWAVE_WGMMA_REGISTERS(80, 40, 40, 41, 42, 43, 44, 45, 46, 47);
  } else if constexpr (columns == 128) {
    TILEWAVE_WGMMA_REGISTERS(128, 64, 64, 65, 66, 67, 68, 69, 70, 71);
  } else if constexpr (columns == 160) {
    TILEWAVE_WGMMA_REGISTERS(160, 80, 80, 81, 82, 83, 84, 85, 86, 87);
  } else if constexpr (columns == 192) {
    TILEWAVE_WGMMA_REGISTERS(192, 96, 96, 97, 98, 99, 100, 101, 102, 103);
  } else {
    static_assert(columns == 256, "this product is written out for the widths above and 256");
    TILEWAVE_WGMMA_REGISTERS(256, 128, 128, 129, 130, 131, 132, 133, 134, 135);
  }
}

}  // namespace tilewave::sm90

#undef TILEWAVE_SUM_NAMES_4
#undef TILEWAVE_SUM_NAMES_8
#undef TILEWAVE_SUM_NAMES_16
#undef TILEWAVE_SUM_NAMES_24
#undef TILEWAVE_SUM_NAMES_32
#undef TILEWAVE_SUM_NAMES_40
#undef TILEWAVE_SUM_NAMES_48
#undef TILEWAVE_SUM_NAMES_56
#undef TILEWAVE_SUM_NAMES_64
#undef TILEWAVE_SUM_NAMES_72
#undef TILEWAVE_SUM_NAMES_80
#undef TILEWAVE_SUM_NAMES_88
#undef TILEWAVE_SUM_NAMES_96
#undef TILEWAVE_SUM_NAMES_104
#undef TILEWAVE_SUM_NAMES_112
#undef TILEWAVE_SUM_NAMES_120
#undef TILEWAVE_SUM_NAMES_128
#undef TILEWAVE_EIGHT_SUMS
#undef TILEWAVE_SUMS_4
#undef TILEWAVE_SUMS_8
#undef TILEWAVE_SUMS_16
#undef TILEWAVE_SUMS_24
#undef TILEWAVE_SUMS_32
#undef TILEWAVE_SUMS_40
#undef TILEWAVE_SUMS_48
#undef TILEWAVE_SUMS_56
#undef TILEWAVE_SUMS_64
#undef TILEWAVE_SUMS_72
#undef TILEWAVE_SUMS_80
#undef TILEWAVE_SUMS_88
#undef TILEWAVE_SUMS_96
#undef TILEWAVE_SUMS_104
#undef TILEWAVE_SUMS_112
#undef TILEWAVE_SUMS_120
#undef TILEWAVE_SUMS_128
#undef TILEWAVE_WGMMA
#undef TILEWAVE_WGMMA_OF_INTS
#undef TILEWAVE_WGMMA_REGISTERS

#endif
