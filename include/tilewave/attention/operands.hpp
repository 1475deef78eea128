// SPDX-License-Identifier: MIT
// From the 16-byte units of a KV cache to operands of the room's 16-bit matrix instruction.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// The elements of a unit, of type `from`, as pairs of type `to`: bf16 or f16. fp8 is widened exactly; a 16-bit `from`
/// is passed on as it is.
template <class B, DType from, DType to>
TILEWAVE_DEVICE Vec<std::uint32_t, 8 / size_of(from)> widen_unit(const Chunk& unit) {
  Vec<std::uint32_t, 8 / size_of(from)> words;
  if constexpr (is_fp8(from)) {
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) {
      Vec<std::uint32_t, 2> pair;
      if constexpr (to == DType::f16) {
        pair = B::widen_fp8_to_f16(unit[i]);
      } else {
        pair = B::widen_fp8(unit[i]);
      }
      words[2 * i] = pair[0];
      words[2 * i + 1] = pair[1];
    }
  } else {
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = unit[i];
  }
  return words;
}

/// acc + kv * rows for operands of `type`, bf16 or f16.
template <class B, DType type>
TILEWAVE_DEVICE typename B::Accumulator mma_of(typename B::KvOperand kv, typename B::RowsOperand rows,
                                               typename B::Accumulator acc) {
  static_assert(type == DType::bf16 || type == DType::f16, "the atom multiplies bf16 or f16");
  if constexpr (type == DType::f16) {
    return B::mma_f16(kv, rows, acc);
  } else {
    return B::mma(kv, rows, acc);
  }
}

}  // namespace tilewave
