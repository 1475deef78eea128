// SPDX-License-Identifier: MIT
// What the tests of row operations share: tensors on the device with gaps between rows, and the entries to run.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "bench/harness/device.hpp"
#include "bench/harness/random.hpp"
#include "test/catch_compat.hpp"
#include "tilewave/reference/rows.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave::test {

inline std::uint32_t encode(DType type, float value) {
  switch (type) {
    case DType::f32: return __builtin_bit_cast(std::uint32_t, value);
    case DType::f16: return f32_to_f16(value);
    case DType::bf16: return f32_to_bf16(value);
    case DType::i8: return static_cast<std::uint8_t>(static_cast<std::int8_t>(value));
    default: return f32_to_fp8(type, value);
  }
}

/// Rows of elements with the same bytes on host and device; it ends exactly where its last element does. What is not
/// set is 0xff bytes: NaN in every float type.
class Tensor {
 public:
  Tensor(DType type, std::int32_t rows, std::int32_t columns, std::int32_t inner_rows, const RowStrides& strides)
      : type_(type), inner_rows_(inner_rows), strides_(strides) {
    std::int64_t last = 0;
    for (std::int32_t r = 0; r < rows; ++r)
      last = std::max(last, reference::row_offset(r, inner_rows, strides) + columns);
    bytes_.assign(static_cast<std::size_t>(last) * size_of(type), 0xff);
    device_ = bench::DeviceBuffer(bytes_.size());
    upload();
  }
  /// One row without gaps.
  Tensor(DType type, std::int32_t columns) : Tensor(type, 1, columns, 1, {columns, 0}) {}

  template <class F>
  void set(std::int32_t rows, std::int32_t columns, const F& f) {
    for (std::int32_t r = 0; r < rows; ++r)
      for (std::int32_t c = 0; c < columns; ++c) {
        const std::uint32_t bits = encode(type_, f(r, c));
        std::memcpy(&bytes_[index(r, c) * size_of(type_)], &bits, size_of(type_));
      }
    upload();
  }
  void download() {
    if (!bytes_.empty()) {
      bench::check_hip(hipMemcpy(bytes_.data(), device_.data(), bytes_.size(), hipMemcpyDeviceToHost), "copying back");
    }
  }
  double at(std::int32_t row, std::int32_t column) const {
    return reference::element(type_, host(), index(row, column));
  }
  /// Bytes that belong to no element of the rows still hold what they held.
  bool gaps_kept(std::int32_t rows, std::int32_t columns) const {
    std::vector<bool> used(bytes_.size());
    for (std::int32_t r = 0; r < rows; ++r)
      std::fill_n(used.begin() + index(r, 0) * size_of(type_), std::int64_t{columns} * size_of(type_), true);
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (!used[i] && bytes_[i] != 0xff) return false;
    return true;
  }
  const void* host() const { return bytes_.data(); }
  void* device() const { return device_.data(); }

 private:
  void upload() {
    if (!bytes_.empty()) {
      bench::check_hip(hipMemcpy(device_.data(), bytes_.data(), bytes_.size(), hipMemcpyHostToDevice), "copying over");
    }
  }
  std::int64_t index(std::int32_t row, std::int32_t column) const {
    return reference::row_offset(row, inner_rows_, strides_) + column;
  }
  DType type_;
  std::int32_t inner_rows_;
  RowStrides strides_;
  std::vector<std::uint8_t> bytes_;
  bench::DeviceBuffer device_;
};

/// A value in [-2, 2) drawn from a name and a place.
inline float drawn(char name, std::int64_t row, std::int64_t column) {
  return 2.0f * bench::random_uniform(bench::random_bits({7, std::uint64_t(name), std::uint64_t(row)}), column);
}

/// Half a step of a type at a value: what rounding to nearest may be off by.
inline double half_step(DType type, double value) {
  const int bits = type == DType::f32 ? 24 : type == DType::f16 ? 11 : type == DType::bf16 ? 8 : 4;
  const double smallest = type == DType::f16            ? 0x1p-25
                          : type == DType::fp8_e4m3fn   ? 0x1p-10
                          : type == DType::fp8_e4m3fnuz ? 0x1p-11
                                                        : 0;
  if (value == 0 || !std::isfinite(value)) return smallest;
  return std::max(smallest, std::ldexp(1.0, std::ilogb(value) - bits));
}

}  // namespace tilewave::test
