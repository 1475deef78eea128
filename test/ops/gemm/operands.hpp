// SPDX-License-Identifier: MIT
// Operands of GEMM as tests set them: codes, preshuffled weights, and MX scales.
#pragma once

#include <cstring>

#include "test/ops/rows.hpp"
#include "tilewave/ops/gemm/fragments.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave::test {

/// Returns the part of a value that a type of operands can hold. For i8 and i4 it is a whole number.
inline float operand(DType type, float value) {
  return type == DType::i8 ? std::trunc(63 * value) : type == DType::i4 ? std::floor(4 * value) : value;
}

/// Returns element k of a row of values, as a tensor is set to it: for i8 a whole number, for fp4 and fp6 byte k of the
/// codes.
template <class ValueOf>
float operand(DType type, std::int64_t k, const ValueOf& value) {
  if (type == DType::fp4_e2m1)
    return static_cast<std::int8_t>(f32_to_fp4(value(2 * k)) | f32_to_fp4(value(2 * k + 1)) << 4);
  if (!is_fp6(type)) return operand(type, value(k));
  const std::int64_t first = 8 * k / 6;  // of the two codes in the byte
  const int codes = f32_to_fp6(type, value(first)) | f32_to_fp6(type, value(first + 1)) << 6;
  return static_cast<std::int8_t>(codes >> (8 * k - 6 * first));
}
/// Return the type of a tensor that is set to such elements, and how many of its elements make one of a type's.
inline DType stored(DType type) { return packing_of(type) >= 2 || type == DType::e8m0 ? DType::i8 : type; }
inline int stored_size(DType type) { return is_fp6(type) ? 3 : 1; }

/// Returns the weights of a layer of four bits, i4 or fp4, in an order. They are preshuffled in two steps, as for AITER:
/// first values lie as those of i8 weights do, then of each eight neighbours the last four go beside the first four.
template <class ValueOf>
std::vector<std::uint8_t> four_bit_weights(DType type, GemmWeights order, std::int32_t n, std::int32_t k,
                                           const ValueOf& value) {
  if (order == GemmWeights::fragments) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(n) * k / 8);
    for (std::int32_t row = 0; row < n; ++row) {
      for (std::int32_t i = 0; i < k; ++i) {
        const GemmFragment at = gemm_fragment(row, i, k);
        words[at.word] |= at.placed(f32_to_fp4(value(row, i)));
      }
    }
    std::vector<std::uint8_t> bytes(4 * words.size());
    std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
  }
  std::vector<int> shuffled;
  const auto code = [&](std::int32_t row, std::int32_t i) {
    const float v = value(row, i);
    return type == DType::fp4_e2m1 ? static_cast<int>(f32_to_fp4(v)) : static_cast<int>(operand(type, v));
  };
  for (std::int32_t sixteen = 0; sixteen < n; sixteen += 16)
    for (std::int32_t from = 0; from < k; from += 16)
      for (std::int32_t row = sixteen; row < sixteen + 16; ++row)
        for (std::int32_t i = from; i < from + 16; ++i) shuffled.push_back(code(row, i));
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < shuffled.size(); i += 8)
    for (std::size_t j = i; j < i + 4; ++j)
      bytes.push_back(static_cast<std::uint8_t>((shuffled[j] & 15) | (shuffled[j + 4] & 15) << 4));
  return bytes;
}

/// Returns the bytes of a layer's shuffled MX scales of rows of k values.
inline std::int32_t mx_scale_bytes(std::int32_t rows, std::int32_t k) {
  return align_up(rows, 32) * align_up(ceil_div(k, mx_group), 8);
}
/// Sets shuffled MX scales of layers to the powers of two below value(row of all layers, group). The padding stays NaN.
template <class ValueOf>
void set_mx_scales(Tensor& scales, std::int32_t layers, std::int32_t rows, std::int32_t k, const ValueOf& value) {
  const int eights = ceil_div(k, 8 * mx_group);
  scales.set(layers, mx_scale_bytes(rows, k),
             [&](int layer, int at) {  // tiles of 32 rows by 8 scales, words two by two
               const int tile = at / 256, in = at % 256, row = tile / eights * 32 + in / 4 % 16 + in % 2 * 16;
               const int group = tile % eights * 8 + in / 64 + in / 2 % 2 * 4;
               if (row >= rows || group >= k / mx_group) return -1;
               return static_cast<std::int8_t>(127 + std::ilogb(value(std::int64_t{layer} * rows + row, group))) + 0;
             });
}
/// Returns byte `at` of a layer of preshuffled weights that are not int4's, for Tensor::set. A row has `row_bytes`.
template <class ValueOf>
float preshuffled_byte(DType type, int at, int row_bytes, const ValueOf& value) {
  const int unit = 16 / size_of(type), unit_of_strip = at / (16 * unit), in = at % (16 * unit),
            units = row_bytes / unit;
  return operand(type, unit_of_strip % units * unit + in % unit,
                 [&](std::int64_t k) { return value(std::int64_t{unit_of_strip / units * 16 + in / unit}, k); });
}

}  // namespace tilewave::test
