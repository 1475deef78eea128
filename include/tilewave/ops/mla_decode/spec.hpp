// SPDX-License-Identifier: MIT
// A spec says what decode of latent attention (MLA) computes. Changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/attention/latent_cache.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// out[i, h, :] = sum over t of softmax_t(softmax_scale * q[i, h, :] . row[t, :]) row[t, :512], for the last query
/// tokens of each sequence. All heads share the rows of the cache. With an absorbed up-projection, q and rows are 512
/// latent dimensions and then 64 that rope has rotated (head_size 576). With head_size 512 they are 448 and 64, and a
/// value is the whole row.
///
/// Products of 16-bit floats are accumulated in f32, and probabilities are rounded to bf16. fp8 codes are widened
/// exactly, but products may take those of fp8 q and of its cache as they are, and probabilities rounded to fp8. Codes
/// with scales of groups become bf16 times their scale, or f16 times their scale over a power of two of their token,
/// rounded: exactly, if the scale is a power of two.
struct MlaDecodeSpec {
  DType q = DType::bf16;   // bf16, or the architecture's fp8 with one scale for a cache of the same
  DType kv = DType::bf16;  // bf16, or the architecture's fp8
  LatentLayout layout = LatentLayout::plain;
  int head_size = 576;  // of q and of rows: 576, or 512

  friend constexpr bool operator==(const MlaDecodeSpec&, const MlaDecodeSpec&) = default;

  TILEWAVE_HOST_DEVICE constexpr LatentRow row() const { return {kv, layout, head_size}; }
};

/// Returns whether one scale serves the whole cache.
TILEWAVE_HOST_DEVICE constexpr bool mla_one_scale(const MlaDecodeSpec& s) {
  return is_fp8(s.kv) && s.layout == LatentLayout::plain;
}

/// Returns the name of a spec, as `mla.bf16.h576`, `mla.bf16.kv_fp8_e4m3fn.groups_128.h576` or `mla.fp8_e4m3fn.h576`.
inline std::string name_of(const MlaDecodeSpec& s) {
  std::string name = "mla." + std::string(name_of(s.q));
  if (s.kv != s.q) name += ".kv_" + std::string(name_of(s.kv));
  if (s.layout != LatentLayout::plain) name += "." + std::string(name_of(s.layout));
  return name + ".h" + std::to_string(s.head_size);
}

}  // namespace tilewave
