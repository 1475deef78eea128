// SPDX-License-Identifier: MIT
// wgmma with operand a in registers.
#pragma once

#include "tilewave/arch/sm90/product.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

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

/// acc = a b^T, plus acc if `add`: a in registers, b a matrix descriptor.
template <DType type, int columns, bool b_transposed = false, bool add = true>
TILEWAVE_DEVICE void multiply_registers(const Chunk& a, std::uint64_t b_at, Vec<float, columns / 2>& acc) {
  if constexpr (columns == 8) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8%10.f32.%9 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, %11;"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "C"(MmaTypes<type>::names),
                   "C"(MmaTypes<type>::k), "C"(RegisterMmaScales<type, b_transposed, add>::text));
  } else if constexpr (columns == 16) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16%14.f32.%13 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, "
        "%11}, %12, %15;"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k),
          "C"(RegisterMmaScales<type, b_transposed, add>::text));
  } else if constexpr (columns == 32) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32%22.f32.%21 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
        "%12, %13, %14, %15}, {%16, %17, %18, %19}, %20, %23;"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]),
          "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]),
          "+f"(acc[14]), "+f"(acc[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k),
          "C"(RegisterMmaScales<type, b_transposed, add>::text));
  } else if constexpr (columns == 64) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64%38.f32.%37 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
        "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
        "%31}, {%32, %33, %34, %35}, %36, %39;"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]),
          "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]),
          "+f"(acc[14]), "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]),
          "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]),
          "+f"(acc[28]), "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k),
          "C"(RegisterMmaScales<type, b_transposed, add>::text));
  } else {
    static_assert(columns == 128, "this product is written out for the widths above and 128");
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128%70.f32.%69 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
        "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, "
        "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, %71;"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]),
          "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]),
          "+f"(acc[14]), "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]),
          "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]),
          "+f"(acc[28]), "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31]), "+f"(acc[32]), "+f"(acc[33]), "+f"(acc[34]),
          "+f"(acc[35]), "+f"(acc[36]), "+f"(acc[37]), "+f"(acc[38]), "+f"(acc[39]), "+f"(acc[40]), "+f"(acc[41]),
          "+f"(acc[42]), "+f"(acc[43]), "+f"(acc[44]), "+f"(acc[45]), "+f"(acc[46]), "+f"(acc[47]), "+f"(acc[48]),
          "+f"(acc[49]), "+f"(acc[50]), "+f"(acc[51]), "+f"(acc[52]), "+f"(acc[53]), "+f"(acc[54]), "+f"(acc[55]),
          "+f"(acc[56]), "+f"(acc[57]), "+f"(acc[58]), "+f"(acc[59]), "+f"(acc[60]), "+f"(acc[61]), "+f"(acc[62]),
          "+f"(acc[63])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k),
          "C"(RegisterMmaScales<type, b_transposed, add>::text));
  }
}

}  // namespace tilewave::sm90

#endif
