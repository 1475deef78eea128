// SPDX-License-Identifier: MIT
// v_mfma_f32_16x16x32_bf16 as the chained atom: KV is the A operand, so a lane's results are 4 kv values of one row.
#pragma once

#include "tilewave/arch/backend.hpp"

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
  /// v_mfma_f32_16x16x32_f16.
  TILEWAVE_DEVICE static Accumulator mma_f16(KvOperand kv, RowsOperand rows, Accumulator acc) {
    using Halves = _Float16 __attribute__((ext_vector_type(8)));
    using Floats = float __attribute__((ext_vector_type(4)));
    return __builtin_bit_cast(Accumulator, __builtin_amdgcn_mfma_f32_16x16x32_f16(
                                               __builtin_bit_cast(Halves, kv), __builtin_bit_cast(Halves, rows),
                                               __builtin_bit_cast(Floats, acc), 0, 0, 0));
  }
};

}  // namespace tilewave::gfx950

#endif
