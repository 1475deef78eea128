// SPDX-License-Identifier: MIT
// mma.sync m16n8k16 as the chained atom: ROWS is the A operand, KV is B. wgmma as the product of a wave group.
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

/// The types of both operands as instructions name them; elements of k; scales, and no transposing, of wgmma that
/// always adds with both in shared memory and with one.
template <DType type>
struct MmaTypes;
template <>
struct MmaTypes<DType::bf16> {
  static constexpr char names[] = "bf16.bf16", k[] = "k16", plain[] = "1, 1, 1, 0, 0", from_registers[] = "1, 1, 1, 0";
};
template <>
struct MmaTypes<DType::f16> {
  static constexpr char names[] = "f16.f16", k[] = "k16", plain[] = "1, 1, 1, 0, 0", from_registers[] = "1, 1, 1, 0";
};
template <>
struct MmaTypes<DType::fp8_e4m3fn> {
  static constexpr char names[] = "e4m3.e4m3", k[] = "k32", plain[] = "1, 1, 1", from_registers[] = "1, 1, 1";
};
template <>
struct MmaTypes<DType::i8> {
  static constexpr char names[] = "s8.s8", k[] = "k32";
};
/// Scales of 1 of both operands, and of 16-bit ones which have their rows, not k, side by side.
template <DType type, bool a_turned, bool b_turned>
struct MmaScales {
  static_assert(size_of(type) == 2);
  static constexpr char text[] = {'1', ',', ' ', '1', ',', ' ', '0' + a_turned, ',', ' ', '0' + b_turned, '\0'};
};
template <>
struct MmaScales<DType::fp8_e4m3fn, false, false> {
  static constexpr char text[] = "1, 1";
};

struct Mma : AtomRegisters<sm90_atom.k_per_lane, sm90_atom.rows_per_lane, sm90_atom.kv_per_lane> {
  TILEWAVE_DEVICE static Accumulator mma(KvOperand kv, RowsOperand rows, Accumulator acc) {
    return of_types<DType::bf16>(kv, rows, acc);
  }
  TILEWAVE_DEVICE static Accumulator mma_f16(KvOperand kv, RowsOperand rows, Accumulator acc) {
    return of_types<DType::f16>(kv, rows, acc);
  }

 private:
  template <DType type>
  TILEWAVE_DEVICE static Accumulator of_types(KvOperand kv, RowsOperand rows, Accumulator acc) {
    // A registers alternate between the lane's two rows: (r0, k low), (r1, k low), (r0, k high), (r1, k high).
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.%10.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(rows[0]), "r"(rows[2]), "r"(rows[1]), "r"(rows[3]), "r"(kv[0]), "r"(kv[1]), "C"(MmaTypes<type>::names));
    return acc;
  }
};

/// acc += a b^T: a in registers, b a matrix descriptor.
template <DType type, int columns>
TILEWAVE_DEVICE void multiply_registers(const Chunk& a, std::uint64_t b_at, Vec<float, columns / 2>& acc) {
  if constexpr (columns == 8) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8%10.f32.%9 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, %11;"
                 : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "C"(MmaTypes<type>::names),
                   "C"(MmaTypes<type>::k), "C"(MmaTypes<type>::from_registers));
  } else if constexpr (columns == 16) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16%14.f32.%13 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, "
        "%11}, %12, %15;"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k),
          "C"(MmaTypes<type>::from_registers));
  } else if constexpr (columns == 32) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32%22.f32.%21 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
        "%12, %13, %14, %15}, {%16, %17, %18, %19}, %20, %23;"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]),
          "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]),
          "+f"(acc[14]), "+f"(acc[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k),
          "C"(MmaTypes<type>::from_registers));
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
          "C"(MmaTypes<type>::from_registers));
  } else {
    static_assert(columns == 128);
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
          "C"(MmaTypes<type>::from_registers));
  }
}

/// Products of a wave group: wgmma with B, and A where it is not in registers, straight from shared memory.
struct Group {
  template <DType type, int columns>
  TILEWAVE_DEVICE static void group_mma(GroupOperand a, GroupOperand b, Vec<float, columns / 2>& acc) {
    const std::uint64_t a_at = descriptor(a), b_at = descriptor(b);
    if constexpr (columns == 8) {
      asm volatile("wgmma.mma_async.sync.aligned.m64n8%7.f32.%6 {%0, %1, %2, %3}, %4, %5, %8;"
                   : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
                   : "l"(a_at), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k),
                     "C"(MmaTypes<type>::plain));
    } else if constexpr (columns == 16) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n16%11.f32.%10 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, "
          "%12;"
          : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]),
            "+f"(acc[7])
          : "l"(a_at), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k), "C"(MmaTypes<type>::plain));
    } else if constexpr (columns == 32) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n32%19.f32.%18 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
          "%12, %13, %14, %15}, %16, %17, %20;"
          : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]),
            "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]),
            "+f"(acc[14]), "+f"(acc[15])
          : "l"(a_at), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k), "C"(MmaTypes<type>::plain));
    } else {
      static_assert(columns == 64);
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n64%35.f32.%34 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
          "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
          "%31}, %32, %33, %36;"
          : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]),
            "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]), "+f"(acc[12]), "+f"(acc[13]),
            "+f"(acc[14]), "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]),
            "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23]), "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]),
            "+f"(acc[28]), "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
          : "l"(a_at), "l"(b_at), "C"(MmaTypes<type>::names), "C"(MmaTypes<type>::k), "C"(MmaTypes<type>::plain));
    }
  }

  template <DType type, int columns>
  TILEWAVE_DEVICE static void group_mma(const Chunk& a, GroupOperand b, Vec<float, columns / 2>& acc) {
    multiply_registers<type, columns>(a, descriptor(b), acc);
  }

  /// What was written to an accumulator is in its registers before the batch begins: moved between the products, ptxas
  /// would wait for those before (C7517).
  template <class T, int count>
  TILEWAVE_DEVICE static void group_mma_hold(Vec<T, count>& acc) {
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, float>) {
        asm volatile("" : "+f"(acc[i])::"memory");
      } else {
        asm volatile("" : "+r"(acc[i])::"memory");
      }
    }
  }
  TILEWAVE_DEVICE static void group_mma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  TILEWAVE_DEVICE static void group_mma_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
  template <int pending>
  TILEWAVE_DEVICE static void group_mma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  }
  TILEWAVE_DEVICE static void shared_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

  /// Barrier 0 is the block's.
  TILEWAVE_DEVICE static void group_barrier() {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory");
  }
  TILEWAVE_DEVICE static bool group_any(bool predicate) {
    std::uint32_t any;
    asm volatile(
        "{ .reg .pred mine, all;\n"
        "  setp.ne.u32 mine, %1, 0;\n"
        "  barrier.cta.red.or.pred all, %2, 128, mine;\n"
        "  selp.u32 %0, 1, 0, all; }"
        : "=r"(any)
        : "r"(std::uint32_t{predicate}), "r"(1 + threadIdx.x / 128)
        : "memory");
    return any != 0;
  }

  template <int count>
  TILEWAVE_DEVICE static void store_matrices(Chunk* row, const Vec<std::uint32_t, count>& words) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    if constexpr (count == 1) {
      asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(to), "r"(words[0]) : "memory");
    } else if constexpr (count == 2) {
      asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(words[0]),
                   "r"(words[1])
                   : "memory");
    } else {
      static_assert(count == 4);
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]),
                   "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    }
  }

 private:
  /// The matrix descriptor of wgmma (PTX ISA, "asynchronous warpgroup-level matrix shared memory layout"), no swizzle,
  /// k-major: its leading dimension is from one 16 bytes of k to the next, its stride from eight rows to the next.
  TILEWAVE_DEVICE static std::uint64_t descriptor(GroupOperand m) {
    // In a cluster the block's number stands above the address. The offset is added apart, so that all products of a
    // loop share what depends on `at`.
    const std::uint32_t at = (static_cast<std::uint32_t>(__cvta_generic_to_shared(m.at)) & 0x3ffff) >> 4;
    const std::uint32_t low = at + (m.offset >> 4) + ((m.next_piece >> 4) << 16);
    return std::uint64_t(m.eight_rows >> 4) << 32 | low;
  }
};

}  // namespace tilewave::sm90

#endif
