// SPDX-License-Identifier: MIT
// How a paged cache of latent attention (MLA) lies in memory: one head, whose keys are whole rows and whose values are
// the first 512 dimensions of the same rows. Decode and cache writes share it.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/math.hpp"

namespace tilewave {

/// plain: head_size elements of one type. If that is fp8, one scale serves the whole cache.
/// groups_128: 656 bytes a token (DeepSeek-V3.2). 512 fp8 codes come first, then four f32 scales, each of 128 of these
/// dimensions, then 64 bf16 dimensions that rope has rotated.
/// groups_64: 584 bytes a token (DeepSeek-V4). A page first has 576 bytes of each token, 448 fp8 codes and 64 bf16
/// dimensions that rope has rotated. Then come eight bytes of each token: seven e8m0 scales, each of 64 of the codes,
/// and one that is not used.
enum class LatentLayout : int { plain, groups_128, groups_64 };

constexpr const char* name_of(LatentLayout l) {
  constexpr const char* names[] = {"plain", "groups_128", "groups_64"};
  return l >= LatentLayout::plain && l <= LatentLayout::groups_64 ? names[static_cast<int>(l)] : "unknown";
}

/// The dimensions of a value: the first ones of a row.
inline constexpr int latent_value_size = 512;

/// The row of a token. `kv` is the type of the elements that are not bf16 by the layout.
struct LatentRow {
  DType kv;
  LatentLayout layout;
  int head_size;

  friend constexpr bool operator==(const LatentRow&, const LatentRow&) = default;

  /// Returns the number of leading dimensions that are fp8 codes.
  TILEWAVE_HOST_DEVICE constexpr int codes() const {
    if (layout == LatentLayout::groups_128) return 512;
    if (layout == LatentLayout::groups_64) return 448;
    return size_of(kv) == 1 ? head_size : 0;
  }
  /// Returns the number of codes that share a scale of their own; 0 if there are none.
  TILEWAVE_HOST_DEVICE constexpr int group() const {
    return layout == LatentLayout::groups_128 ? 128 : layout == LatentLayout::groups_64 ? 64 : 0;
  }
  TILEWAVE_HOST_DEVICE constexpr int scales() const { return group() > 0 ? codes() / group() : 0; }
  /// Returns the bytes from a token to the next in a page without gaps, without the scales that lie apart.
  TILEWAVE_HOST_DEVICE constexpr int token_bytes() const {
    return layout == LatentLayout::groups_128 ? 656 : layout == LatentLayout::groups_64 ? 576 : head_size * size_of(kv);
  }
  /// Returns the byte of a token's row where its scales begin. Those of groups_64 lie behind all rows of the page.
  TILEWAVE_HOST_DEVICE constexpr int scale_byte() const { return 512; }
  TILEWAVE_HOST_DEVICE constexpr bool scales_apart() const { return layout == LatentLayout::groups_64; }
  static constexpr int apart_bytes = 8;  // of a token's scales behind the rows of its page
  /// Returns the byte of a token's row where its 16-bit dimensions begin.
  TILEWAVE_HOST_DEVICE constexpr int wide_byte() const {
    return layout == LatentLayout::groups_128 ? 528 : layout == LatentLayout::groups_64 ? 448 : 0;
  }
  /// Returns the bytes of a page without gaps. Those of groups_64 are a multiple of 576.
  constexpr std::int64_t page_bytes(std::int64_t block_size) const {
    if (scales_apart()) return align_up<std::int64_t>((token_bytes() + apart_bytes) * block_size, token_bytes());
    return token_bytes() * block_size;
  }
  /// Returns the bytes that are read of a token.
  constexpr int read_bytes() const { return scales_apart() ? 576 + scales() : token_bytes(); }
};

}  // namespace tilewave
