// SPDX-License-Identifier: MIT
// Products of dense tiles of f32 or of ints, to which every matrix instruction of the host room is reduced.
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

// Elements of a vector: 32 bytes where the compiler may use such registers.
#if defined(__AVX2__)
inline constexpr int vector_width = 8;
#else
inline constexpr int vector_width = 4;
#endif

/// How a product joins its accumulator. Matrix instructions of one chip that differ in it give other bits on silicon,
/// and so they do here: a test that compares rows of both to the bit fails without a card, too.
enum class Join : std::uint8_t {
  chained,  // the accumulator is the first addend
  apart,    // the accumulator is added to the sum of the products
  fresh,    // the old accumulator does not count
};

/// Computes acc[r][c] += sum over i of left[r][i] * right[i][c] with ascending i, joined as `join` says.
/// right and acc are aligned to 16 bytes, and acc's rows lie `pitch` apart. Some rows are done at a time: their
/// accumulators stay in registers, vectorised along c. g++ ignores TILEWAVE_UNROLL, so the unrolling is explicit:
/// emulated kernels spend their time here.
template <int rows, int columns, int k, class T>
TILEWAVE_HOST_UNTRACKED inline void multiply_dense(const T* left, const T* right, T* acc, int pitch = columns,
                                                   Join join = Join::chained) {
  constexpr int width = vector_width, vectors = columns / width, step = vectors < 8 ? 8 / vectors : 1;
  typedef T Lanes __attribute__((vector_size(width * sizeof(T)), aligned(16)));
  static_assert(columns % width == 0 && rows % step == 0,
                "a dense product is a whole number of vectors, and of the rows taken at a time");
  const Lanes* const right_lanes = reinterpret_cast<const Lanes*>(right);
  for (int r = 0; r < rows; r += step, acc += step * pitch) {
    Lanes sum[step * vectors];
#pragma GCC unroll 16
    for (int i = 0; i < step * vectors; ++i) {
      sum[i] = join == Join::chained ? reinterpret_cast<const Lanes*>(acc + i / vectors * pitch)[i % vectors] : Lanes{};
    }
    for (int j = 0; j < k; ++j) {
#pragma GCC unroll 16
      for (int i = 0; i < step * vectors; ++i) {
        sum[i] += left[(r + i / vectors) * k + j] * right_lanes[j * vectors + i % vectors];
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < step * vectors; ++i) {
      Lanes& to = reinterpret_cast<Lanes*>(acc + i / vectors * pitch)[i % vectors];
      to = join == Join::apart ? to + sum[i] : sum[i];
    }
  }
}

/// Multiplies fp8 values as sm90's matrix unit does. An accumulator and the products of 32 k are aligned with the one
/// of the largest exponent. 13 bits below that are kept and the rest is cut off; their sum is cut to 14 bits. A
/// product's exponent is the sum of those of its factors.
template <int rows, int columns>
TILEWAVE_HOST_UNTRACKED inline void multiply_truncated(const float* left, const float* right, float* acc,
                                                       int pitch = columns, bool fresh = false) {
  constexpr int k = 32, width = vector_width, vectors = columns / width, kept = 13, nothing = -100, least = -6;
  typedef float Lanes __attribute__((vector_size(width * sizeof(float)), aligned(16)));
  typedef std::int32_t Ints __attribute__((vector_size(width * sizeof(float)), aligned(16)));
  const auto larger = [](Ints a, Ints b) { return a > b ? a : b; };
  const auto exponent_of = [&](Lanes v, int floor) {
    const Ints bits = reinterpret_cast<Ints>(v) & 0x7fffffff, exponent = (bits >> 23) - 127;
    return bits == 0 ? Ints{} + nothing : larger(exponent, Ints{} + floor);
  };
  const auto power_of = [](Ints exponent) { return reinterpret_cast<Lanes>((exponent + 127) << 23); };
  const Lanes* const right_lanes = reinterpret_cast<const Lanes*>(right);
  Ints of_right[k * vectors];
  for (int i = 0; i < k * vectors; ++i) of_right[i] = exponent_of(right_lanes[i], least);
  for (int r = 0; r < rows; ++r, acc += pitch, left += k) {
    Ints of_left[k];
    for (int j = 0; j < k; ++j) of_left[j] = exponent_of(Lanes{} + left[j], least);
    for (int v = 0; v < vectors; ++v) {
      Lanes& to = reinterpret_cast<Lanes*>(acc)[v];
      const Lanes before = fresh ? Lanes{} : to;
      Ints most = exponent_of(before, nothing);
      for (int j = 0; j < k; ++j) most = larger(most, of_left[j] + of_right[j * vectors + v]);
      const Lanes up = power_of(kept - most), down = power_of(most - kept);
      Ints sum = __builtin_convertvector(before * up, Ints);
      Lanes whole{};
      for (int j = 0; j < k; ++j) {
        const Lanes product = left[j] * right_lanes[j * vectors + v];
        whole += product;
        sum += __builtin_convertvector(product * up, Ints);
      }
      const Ints beyond = larger(exponent_of(__builtin_convertvector(sum, Lanes), 0) - kept, Ints{});
      const Ints cut = sum < 0 ? -(-sum >> beyond << beyond) : sum >> beyond << beyond;
      const Lanes result = most <= nothing ? Lanes{} : __builtin_convertvector(cut, Lanes) * down;
      const Lanes plain = before + whole;
      to = plain - plain == 0.0f ? result : plain;  // NaN and infinity stay as they are
    }
  }
}

/// Returns the value of each code of a flavour of fp8. Looking it up takes a fraction of decoding it.
TILEWAVE_HOST_UNTRACKED inline const float* fp8_values(DType type) {
  static constexpr auto tables = [] {
    std::array<std::array<float, 256>, 2> values{};
    for (int code = 0; code < 256; ++code) {
      values[0][code] = fp8_to_f32(DType::fp8_e4m3fn, static_cast<std::uint8_t>(code));
      values[1][code] = fp8_to_f32(DType::fp8_e4m3fnuz, static_cast<std::uint8_t>(code));
    }
    return values;
  }();
  return tables[type == DType::fp8_e4m3fnuz].data();
}

/// Widens the elements of 16 bytes to f32, exactly: 8 of bf16 or f16, or 16 of the fp8 flavour `type`. Returns how
/// many.
TILEWAVE_HOST_UNTRACKED inline int widen(DType type, const void* from, float* to) {
  if (is_fp8(type)) {
    const float* const table = fp8_values(type);
    for (int i = 0; i < 16; ++i) to[i] = table[static_cast<const std::uint8_t*>(from)[i]];
    return 16;
  }
  std::uint16_t bits[8];
  std::memcpy(bits, from, sizeof(bits));
  for (int i = 0; i < 8; ++i) to[i] = type == DType::f16 ? f16_to_f32(bits[i]) : bf16_to_f32(bits[i]);
  return 8;
}
/// Widens 16 elements of i8.
TILEWAVE_HOST_UNTRACKED inline int widen(DType, const void* from, std::int32_t* to) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<const std::int8_t*>(from)[i];
  return 16;
}

}  // namespace tilewave::host::detail

#endif  // !TILEWAVE_ON_GPU_COMPILER
