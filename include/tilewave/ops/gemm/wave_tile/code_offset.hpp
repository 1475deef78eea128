// SPDX-License-Identifier: MIT
// Where preshuffled codes of four bits lie.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"

namespace tilewave {

/// Returns where the codes of a row of B lie from k on, in bytes: sixteen rows by sixteen k are 128 of them, and a
/// strip of sixteen rows has `strip_bytes`. `k` is a multiple of 8.
TILEWAVE_HOST_DEVICE constexpr std::uint32_t gemm_code_offset(std::int32_t row, std::int32_t k,
                                                              std::int64_t strip_bytes) {
  return static_cast<std::uint32_t>(row / 16 * strip_bytes + k / 16 * 128 + row % 16 * 8 + k % 16 / 2);
}

}  // namespace tilewave
