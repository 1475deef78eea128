// SPDX-License-Identifier: MIT
// What paged-attention decode computes: changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/attention/cache.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave {

/// out[b, i, h, :] = softmax_t(score) v[t, :] with score = softmax_scale * q[b, i, h, :] . k[t, :]. Products of 16-bit
/// floats are accumulated in f32: K is widened to q's type, V in fp8 to bf16, both exactly. On gfx942 bf16 q meets fp8
/// K in two fp8 terms instead, exact for elements down to 2^-10 of their row's largest; smaller ones are off by 2^-18
/// of that at most. native: products of fp8, to which q is rounded, each row times the power of two that brings its
/// largest element to [128, 256), and probabilities, which are also summed as rounded: less arithmetic, and an error of
/// 3.5 % of a row's norm if q and k have variance 1. Tokens below 2^-12 of the heaviest that a block has seen lose
/// bits, and below 2^-16 all weight: where many such add up beside one, as with attention sinks, native is not for
/// them. It has no batch-invariant calls. soft_cap: the score becomes cap * tanh(score / cap). alibi: then slope[h] *
/// (t - position of query i) is added. Masks (causal over the mtp tokens, sliding window) come last; they, and sinks,
/// are run-time values of the Problem.
struct PagedAttentionSpec {
  DType q = DType::bf16;    // or f16
  DType kv = DType::bf16;   // q's type, or the architecture's fp8
  DType out = DType::bf16;  // q's type
  Scaling quant = Scaling::none;
  int head_size = 128;
  ValueLayout values = ValueLayout::dim_major;
  bool any_block_size = false;  // pages of any number of tokens, with token_major; else of a multiple of 16
  bool soft_cap = false;
  bool alibi = false;
  bool native = false;  // with fp8 KV, scales of heads or tensors, and dim_major

  friend constexpr bool operator==(const PagedAttentionSpec&, const PagedAttentionSpec&) = default;

  /// Elements in the 16-byte unit both KV layouts are built from ("x" in the cache layouts).
  TILEWAVE_HOST_DEVICE constexpr int unit() const { return 16 / size_of(kv); }
  TILEWAVE_HOST_DEVICE constexpr ValueShape value_shape() const { return {size_of(kv), head_size, values}; }
  /// The type of V and of the probabilities in their product: f16 could not hold a probability times a token's scale.
  TILEWAVE_HOST_DEVICE constexpr DType value_type() const { return is_fp8(kv) ? DType::bf16 : kv; }
};

/// Whether there are native products of a spec, on an architecture that has any: a status with the reason if not.
constexpr Status paged_attention_check_native(const PagedAttentionSpec& s) {
  if (!is_fp8(s.kv) || (s.quant != Scaling::per_tensor && s.quant != Scaling::per_head)) {
    return {StatusCode::unsupported_scaling, "native products take fp8 KV with scales per_tensor or per_head"};
  }
  if (s.values != ValueLayout::dim_major) {
    return {StatusCode::unsupported_layout, "native products take dim_major values"};
  }
  if (s.head_size != 64 && s.head_size != 128) {
    return {StatusCode::unsupported_head_size, "native products take head_size 64 or 128"};
  }
  return {};
}

/// Head sizes that have entries or can be compiled in.
inline constexpr int paged_attention_head_sizes[] = {64, 80, 96, 112, 128, 192, 256};

/// `q_bf16.kv_fp8_e4m3fn.per_token.h128`, then `.token_major`, `.any_block`, `.cap`, `.alibi` and `.native` where they
/// apply: the same words in bench rows, test names and errors.
inline std::string name_of(const PagedAttentionSpec& s) {
  return "q_" + std::string(name_of(s.q)) + ".kv_" + std::string(name_of(s.kv)) + "." + std::string(name_of(s.quant)) +
         ".h" + std::to_string(s.head_size) + (s.values == ValueLayout::token_major ? ".token_major" : "") +
         (s.any_block_size ? ".any_block" : "") + (s.soft_cap ? ".cap" : "") + (s.alibi ? ".alibi" : "") +
         (s.native ? ".native" : "");
}

/// `h128.bf16`: a combine kernel, which depends on no more of a spec.
inline std::string combine_name(int head_size, DType out) {
  return "h" + std::to_string(head_size) + "." + std::string(name_of(out));
}

}  // namespace tilewave
