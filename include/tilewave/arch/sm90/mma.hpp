// SPDX-License-Identifier: MIT
// mma.sync m16n8k16 as the chained atom: ROWS is the A operand, KV is B. The portable path of this chip, not its peak.
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

struct Mma : AtomRegisters<sm90_atom.k_per_lane, sm90_atom.rows_per_lane, sm90_atom.kv_per_lane> {
  TILEWAVE_DEVICE static Accumulator mma(KvOperand kv, RowsOperand rows, Accumulator acc) {
    // A registers alternate between the lane's two rows: (r0, k low), (r1, k low), (r0, k high), (r1, k high).
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(rows[0]), "r"(rows[2]), "r"(rows[1]), "r"(rows[3]), "r"(kv[0]), "r"(kv[1]));
    return acc;
  }
  TILEWAVE_DEVICE static Accumulator mma_f16(KvOperand kv, RowsOperand rows, Accumulator acc) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(rows[0]), "r"(rows[2]), "r"(rows[1]), "r"(rows[3]), "r"(kv[0]), "r"(kv[1]));
    return acc;
  }
};

}  // namespace tilewave::sm90

#endif
