// SPDX-License-Identifier: MIT
// A spec says what prefill of latent attention (MLA) computes. Changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/attention/latent_cache.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// The dimensions of a head: a query and a key have 128 that the up-projection makes and 64 that rope has rotated, and
/// a value has 128. DeepSeek-V2, DeepSeek-V3, Kimi and their kin have these.
inline constexpr int mla_nope_size = 128, mla_rope_size = 64, mla_value_size = 128;
inline constexpr int mla_head_size = mla_nope_size + mla_rope_size;

/// out[i, h, :] = sum over t of softmax_t(softmax_scale * q[i, h, :] . key[t, h, :]) value[t, h, :], for query tokens
/// i that are the last of their sequence, each of which sees itself and all tokens before it. Keys and values are made
/// from the rows of a latent cache: key[t, h, :128] = up[h, :128, :] row[t, :512], key[t, h, 128:] = row[t, 512:] and
/// value[t, h, :] = up[h, 128:, :] row[t, :512].
///
/// Rows become bf16 first: exactly those of bf16; codes times their scale, rounded. Keys, values, probabilities, and
/// the partial results that are merged where earlier tokens come in chunks, are rounded to bf16. Sums are f32.
struct MlaPrefillSpec {
  DType kv = DType::bf16;                     // of the cache: bf16, or the architecture's fp8
  LatentLayout layout = LatentLayout::plain;  // plain or groups_128

  friend constexpr bool operator==(const MlaPrefillSpec&, const MlaPrefillSpec&) = default;

  TILEWAVE_HOST_DEVICE constexpr LatentRow row() const { return {kv, layout, latent_value_size + mla_rope_size}; }
  /// Says whether one scale serves the whole cache.
  TILEWAVE_HOST_DEVICE constexpr bool has_scale() const { return is_fp8(kv) && layout == LatentLayout::plain; }
};

/// Returns the name of a spec, as `mla_prefill.bf16` or `mla_prefill.fp8_e4m3fn.groups_128`.
inline std::string name_of(const MlaPrefillSpec& s) {
  std::string name = "mla_prefill." + std::string(name_of(s.kv));
  return s.layout == LatentLayout::plain ? name : name + "." + name_of(s.layout);
}

}  // namespace tilewave
