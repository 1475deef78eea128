// SPDX-License-Identifier: MIT
// Products of dense tiles of f32 or of ints, which every matrix instruction of the host room comes down to.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tilewave/arch/host/fiber.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave::host::detail {

/// acc[r][c] += sum over i of left[r][i] * right[i][c], i ascending; right and acc aligned to 16 bytes, acc's rows
/// `pitch` apart; without what acc holds if `fresh`. Some rows at a time: their accumulators stay in registers,
/// vectorised along c. (Not TILEWAVE_UNROLL, which g++ leaves alone: this is where emulated kernels spend their time.)
template <int rows, int columns, int k, class T>
TILEWAVE_HOST_UNTRACKED inline void multiply_dense(const T* left, const T* right, T* acc, int pitch = columns,
                                                   bool fresh = false) {
  constexpr int width = 4, vectors = columns / width, step = vectors < 8 ? 8 / vectors : 1;
  typedef T Lanes __attribute__((vector_size(width * sizeof(T))));
  static_assert(columns % width == 0 && rows % step == 0);
  const Lanes* const right_lanes = reinterpret_cast<const Lanes*>(right);
  for (int r = 0; r < rows; r += step, acc += step * pitch) {
    Lanes sum[step * vectors];
#pragma GCC unroll 16
    for (int i = 0; i < step * vectors; ++i) {
      sum[i] = fresh ? Lanes{} : reinterpret_cast<const Lanes*>(acc + i / vectors * pitch)[i % vectors];
    }
    for (int j = 0; j < k; ++j) {
#pragma GCC unroll 16
      for (int i = 0; i < step * vectors; ++i) {
        sum[i] += left[(r + i / vectors) * k + j] * right_lanes[j * vectors + i % vectors];
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < step * vectors; ++i) {
      reinterpret_cast<Lanes*>(acc + i / vectors * pitch)[i % vectors] = sum[i];
    }
  }
}

/// The elements of 16 bytes as f32, exactly: 8 of bf16 or f16, 16 of the fp8 flavour `type`. Returns how many.
TILEWAVE_HOST_UNTRACKED inline int widen(DType type, const void* from, float* to) {
  if (is_fp8(type)) {
    static constexpr auto tables = [] {
      std::array<std::array<float, 256>, 2> values{};
      for (int code = 0; code < 256; ++code) {
        values[0][code] = fp8_to_f32(DType::fp8_e4m3fn, static_cast<std::uint8_t>(code));
        values[1][code] = fp8_to_f32(DType::fp8_e4m3fnuz, static_cast<std::uint8_t>(code));
      }
      return values;
    }();
    const std::array<float, 256>& table = tables[type == DType::fp8_e4m3fnuz];
    for (int i = 0; i < 16; ++i) to[i] = table[static_cast<const std::uint8_t*>(from)[i]];
    return 16;
  }
  std::uint16_t bits[8];
  std::memcpy(bits, from, sizeof(bits));
  for (int i = 0; i < 8; ++i) to[i] = type == DType::f16 ? f16_to_f32(bits[i]) : bf16_to_f32(bits[i]);
  return 8;
}
/// 16 elements of i8.
TILEWAVE_HOST_UNTRACKED inline int widen(DType, const void* from, std::int32_t* to) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<const std::int8_t*>(from)[i];
  return 16;
}

}  // namespace tilewave::host::detail

#endif  // !TILEWAVE_ON_GPU_COMPILER
