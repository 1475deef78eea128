// SPDX-License-Identifier: MIT
// What paged-attention decode computes: changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/attention/cache.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave {

/// out[b, i, h, :] = softmax_t(score) v[t, :] with score = softmax_scale * q[b, i, h, :] . k[t, :].
///
/// Products of 16-bit floats are accumulated in f32. fp8 K is widened to q's type and fp8 V to bf16, both exactly. On
/// gfx942 bf16 q meets fp8 K in two fp8 terms instead (SplitQuery). They are exact for elements of q down to 2^-10 of
/// their row's largest; smaller ones are off by at most 2^-18 of the largest.
///
/// Masks (causal over the query tokens, sliding window) come after soft_cap and alibi. They and sinks are run-time
/// values of the Problem.
///
/// native: both products are of fp8, which takes less arithmetic. Each row of q is multiplied by the power of two that
/// brings its largest element to [128, 256), and rounded to fp8. Probabilities are rounded to fp8 and summed as
/// rounded. If q and k have variance 1, the error is 3.5 % of a row's norm. Tokens below 2^-12 of the heaviest that a
/// block has seen lose bits, and below 2^-16 all weight. So native does not suit rows where many such tokens add up
/// beside a heavy one, as with attention sinks. It has no batch-invariant calls.
struct PagedAttentionSpec {
  DType q = DType::bf16;    // or f16
  DType kv = DType::bf16;   // q's type, or the architecture's fp8
  DType out = DType::bf16;  // q's type
  Scaling quant = Scaling::none;
  int head_size = 128;
  ValueLayout values = ValueLayout::dim_major;
  bool any_block_size = false;  // pages of any number of tokens, for token_major values; else multiples of 16
  bool soft_cap = false;        // the score becomes cap * tanh(score / cap)
  bool alibi = false;           // then slope[h] * (t - position of query i) is added
  bool native = false;          // for fp8 KV with scales of heads or tensors, dim_major values

  friend constexpr bool operator==(const PagedAttentionSpec&, const PagedAttentionSpec&) = default;

  /// Elements in a 16-byte unit, "x" in the cache layouts.
  TILEWAVE_HOST_DEVICE constexpr int unit() const { return 16 / size_of(kv); }
  TILEWAVE_HOST_DEVICE constexpr ValueShape value_shape() const { return {size_of(kv), head_size, values}; }
  /// The type of V and of the probabilities in their product. f16 could not hold a probability times a token's scale.
  TILEWAVE_HOST_DEVICE constexpr DType value_type() const { return is_fp8(kv) ? DType::bf16 : kv; }
};

/// Returns whether a spec has native products, on an architecture that has any. If not, the status says why.
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

/// Head sizes that have entries, or for which entries can be compiled in.
inline constexpr int paged_attention_head_sizes[] = {64, 80, 96, 112, 128, 192, 256};

/// `q_bf16.kv_fp8_e4m3fn.per_token.h128`, then `.token_major`, `.any_block`, `.cap`, `.alibi` and `.native` where they
/// apply. Benchmark rows, test names and errors use these words.
inline std::string name_of(const PagedAttentionSpec& s) {
  return "q_" + std::string(name_of(s.q)) + ".kv_" + std::string(name_of(s.kv)) + "." + std::string(name_of(s.quant)) +
         ".h" + std::to_string(s.head_size) + (s.values == ValueLayout::token_major ? ".token_major" : "") +
         (s.any_block_size ? ".any_block" : "") + (s.soft_cap ? ".cap" : "") + (s.alibi ? ".alibi" : "") +
         (s.native ? ".native" : "");
}

/// `h128.bf16` names a combine kernel, which depends on no more of a spec.
inline std::string combine_name(int head_size, DType out) {
  return "h" + std::to_string(head_size) + "." + std::string(name_of(out));
}

}  // namespace tilewave
