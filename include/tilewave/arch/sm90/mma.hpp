// SPDX-License-Identifier: MIT
// mma.sync m16n8k16 is the chained atom: ROWS is the A operand, KV is B. wgmma is the product of a wave group.
#pragma once

#include "tilewave/arch/sm90/product.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

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
    // The A registers alternate between the lane's two rows: (r0, k low), (r1, k low), (r0, k high), (r1, k high).
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.%10.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(rows[0]), "r"(rows[2]), "r"(rows[1]), "r"(rows[3]), "r"(kv[0]), "r"(kv[1]), "C"(MmaTypes<type>::names));
    return acc;
  }
};

/// The products of a wave group: wgmma reads B, and A unless it is in registers, straight from shared memory.
struct Group {
  template <DType type, int columns>
  TILEWAVE_DEVICE static void group_mma(GroupOperand a, GroupOperand b, Vec<float, columns / 2>& acc) {
    multiply_group<type, columns, false, false>(group_descriptor(a), group_descriptor(b), 1, acc);
  }

  template <DType type, int columns>
  TILEWAVE_DEVICE static void group_mma(const Chunk& a, GroupOperand b, Vec<float, columns / 2>& acc) {
    multiply_registers<type, columns>(a, group_descriptor(b), acc);
  }

  /// It forces values written to an accumulator into its registers before the batch begins. If ptxas moved them between
  /// the products, it would wait for the earlier products (C7517).
  template <class T, int count>
  TILEWAVE_DEVICE static void group_mma_fence(Vec<T, count>& acc) {
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

  /// Barrier 0 belongs to the block.
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
      static_assert(count == 4, "stmatrix stores 1, 2 or 4 matrices");
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]),
                   "r"(words[1]), "r"(words[2]), "r"(words[3])
                   : "memory");
    }
  }
};

}  // namespace tilewave::sm90

#endif
