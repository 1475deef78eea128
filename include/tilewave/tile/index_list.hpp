// SPDX-License-Identifier: MIT
// A list of indices (positions, slots, ...) that the device holds as i32 or i64. Kernels read either without a branch.
#pragma once

#include <cstdint>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/region.hpp"

namespace tilewave {

enum class IndexType : int { i32, i64 };

constexpr bool is_index_type(IndexType t) { return t == IndexType::i32 || t == IndexType::i64; }
constexpr int size_of(IndexType t) { return t == IndexType::i64 ? 8 : 4; }
constexpr const char* name_of(IndexType t) { return t == IndexType::i64 ? "i64" : "i32"; }

/// The list as kernels take it. They load the low word and the last word of each index, which are the same word for
/// i32.
struct IndexList {
  const std::uint32_t* words;
  std::int32_t words_each;

  static IndexList of(const void* data, IndexType type) {
    return {static_cast<const std::uint32_t*>(data), size_of(type) / 4};
  }
  template <class B>
  TILEWAVE_DEVICE Vec<std::uint32_t, 2> load(std::int32_t i) const {
    const std::uint32_t* low = words + std::int64_t{i} * words_each;
    return {{B::load(low), B::load(low + words_each - 1)}};
  }
  /// True if the index is in [0, limit). Its low word is then the whole index.
  TILEWAVE_DEVICE bool below(const Vec<std::uint32_t, 2>& index, std::int32_t limit) const {
    const std::uint32_t beyond = words_each == 1 ? 0 : index[1];
    return (index[0] < static_cast<std::uint32_t>(limit)) & (beyond == 0);  // && would be a branch
  }
  /// Returns the index itself, which may be negative.
  TILEWAVE_DEVICE std::int64_t value(const Vec<std::uint32_t, 2>& index) const {
    const auto low = static_cast<std::int32_t>(index[0]);
    const auto high = words_each == 1 ? low >> 31 : static_cast<std::int32_t>(index[1]);
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32 | index[0]);
  }
};

inline Region index_region(const void* data, IndexType type, std::int64_t count) {
  return Region(data, size_of(type), count, {});
}

}  // namespace tilewave
