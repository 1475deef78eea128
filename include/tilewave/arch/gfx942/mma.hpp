// SPDX-License-Identifier: MIT
// v_mfma_f32_16x16x16_bf16 as the chained atom, and its like on f16 and fp8: KV is the A operand, so a lane's results
// are 4 kv values of one row.
#pragma once

#include "tilewave/arch/backend.hpp"

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
  /// v_mfma_f32_16x16x16_f16. CDNA3 keeps subnormals, unlike CDNA2.
  TILEWAVE_DEVICE static Accumulator mma_f16(KvOperand kv, RowsOperand rows, Accumulator acc) {
    using Halves = _Float16 __attribute__((ext_vector_type(4)));
    using Floats = float __attribute__((ext_vector_type(4)));
    return __builtin_bit_cast(Accumulator, __builtin_amdgcn_mfma_f32_16x16x16f16(
                                               __builtin_bit_cast(Halves, kv), __builtin_bit_cast(Halves, rows),
                                               __builtin_bit_cast(Floats, acc), 0, 0, 0));
  }
  /// v_mfma_f32_16x16x32_fp8_fp8, with the maps of gfx942_fp8_atom: four elements a word.
  TILEWAVE_DEVICE static Accumulator mma_fp8(KvOperand kv, RowsOperand rows, Accumulator acc) {
    using Floats = float __attribute__((ext_vector_type(4)));
    return __builtin_bit_cast(Accumulator, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(
                                               __builtin_bit_cast(long, kv), __builtin_bit_cast(long, rows),
                                               __builtin_bit_cast(Floats, acc), 0, 0, 0));
  }
};

}  // namespace tilewave::gfx942

#endif
