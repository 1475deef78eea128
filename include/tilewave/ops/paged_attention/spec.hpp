// SPDX-License-Identifier: MIT
// What paged-attention decode computes: changing a field changes the answer.
#pragma once

#include <string>
#include <string_view>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// How fp8 K and V were scaled. none: values as stored (bf16 KV).
enum class QuantMode : int { none, per_tensor, per_token, per_head };

constexpr std::string_view name_of(QuantMode mode) {
  switch (mode) {
    case QuantMode::none: return "none";
    case QuantMode::per_tensor: return "per_tensor";
    case QuantMode::per_token: return "per_token";
    case QuantMode::per_head: return "per_head";
  }
  return "unknown";
}

/// out[b, i, h, :] = softmax_t(score) v[t, :] with score = softmax_scale * q[b, i, h, :] . k[t, :]. K and V are
/// dequantised to bf16, products accumulated in f32. soft_cap: the score becomes cap * tanh(score / cap). alibi: then
/// slope[h] * (t - position of query i) is added. Masks (causal over the mtp tokens, sliding window) come last; they,
/// and sinks, are run-time values of the Problem.
struct PagedAttentionSpec {
  DType q = DType::bf16;
  DType kv = DType::bf16;
  DType out = DType::bf16;
  QuantMode quant = QuantMode::none;
  int head_size = 128;
  bool soft_cap = false;
  bool alibi = false;

  friend constexpr bool operator==(const PagedAttentionSpec&, const PagedAttentionSpec&) = default;

  /// Elements in the 16-byte unit both KV layouts are built from ("x" in the cache layouts).
  TILEWAVE_HOST_DEVICE constexpr int unit() const { return 16 / size_of(kv); }
};

/// `q_bf16.kv_fp8_e4m3fn.per_token.h128`, then `.cap` and `.alibi` of specs with those: the same words in bench rows,
/// test names and errors.
inline std::string name_of(const PagedAttentionSpec& s) {
  return "q_" + std::string(name_of(s.q)) + ".kv_" + std::string(name_of(s.kv)) + "." + std::string(name_of(s.quant)) +
         ".h" + std::to_string(s.head_size) + (s.soft_cap ? ".cap" : "") + (s.alibi ? ".alibi" : "");
}

}  // namespace tilewave
