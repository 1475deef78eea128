// SPDX-License-Identifier: MIT
// What flash attention computes: changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/attention/cache.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave {

/// Where K and V lie. contiguous: a sequence's tokens at one stride, in a tensor of all sequences. paged: in pages of a
/// cache, which a block table names.
enum class KvStorage : int { contiguous, paged };

/// out[i, h, :] = sum over t of softmax_t(score) v[t, h / ratio, :] with score = softmax_scale * q[i, h, :] . k[t, h /
/// ratio, :], for every token i of a sequence's queries. Queries are the last tokens of their sequence: query i of m
/// stands at position n - m + i of n keys, which causal masks and windows count from.
///
/// Products of 16-bit floats are accumulated in f32, and probabilities are rounded to V's type for theirs. If q has 16
/// bits, K and V in fp8 are widened exactly. If q is fp8, products are of fp8 and probabilities may be rounded to it.
///
/// soft_cap: the score becomes cap * tanh(score / cap). alibi: then slope[h] * |t - position of query i| is taken away.
/// bit_mask: a bit for each query and key says whether it is seen, beside all other masks. Causal masks, windows, sinks
/// and lengths are run-time values of the Problem.
struct FlashAttentionSpec {
  DType q = DType::bf16;          // bf16, f16, or the architecture's fp8
  DType kv = DType::bf16;         // q's type, or the architecture's fp8
  DType out = DType::bf16;        // bf16 or f16, that of q if it has 16 bits; or the architecture's fp8, by one scale
  Scaling quant = Scaling::none;  // of fp8 K and V, and of fp8 q: per_tensor or per_head; of pages also per_token
  int head_size = 128;            // of q and K
  int value_size = 128;           // of V and out
  KvStorage storage = KvStorage::contiguous;
  ValueLayout values = ValueLayout::token_major;  // dim_major is for pages
  bool soft_cap = false;
  bool alibi = false;
  bool bit_mask = false;

  friend constexpr bool operator==(const FlashAttentionSpec&, const FlashAttentionSpec&) = default;

  constexpr bool paged() const { return storage == KvStorage::paged; }
  /// Elements of K or V in 16 bytes.
  TILEWAVE_HOST_DEVICE constexpr int unit() const { return 16 / size_of(kv); }
  /// The type in which K meets q where q has 16 bits or nothing multiplies fp8.
  constexpr DType wide_type() const { return q == DType::f16 ? DType::f16 : DType::bf16; }
};

/// Head sizes of K and V that are served where both are alike; 192 also goes with values of 128.
inline constexpr int flash_attention_head_sizes[] = {64, 72, 80, 96, 112, 128, 192, 256};

/// `bf16.h128`, `bf16.h192x128`, `bf16.kv_fp8_e4m3fn.per_head.h64.paged`, `fp8_e4m3fn.per_tensor.h128`, then
/// `.out_fp8_e4m3fn`, `.dim_major`, `.cap`, `.alibi` and `.mask` where they apply.
inline std::string name_of(const FlashAttentionSpec& s) {
  std::string name(name_of(s.q));
  if (s.kv != s.q) name += ".kv_" + std::string(name_of(s.kv));
  if (s.quant != Scaling::none) name += "." + std::string(name_of(s.quant));
  name += ".h" + std::to_string(s.head_size);
  if (s.value_size != s.head_size) name += "x" + std::to_string(s.value_size);
  if (s.out != (size_of(s.q) == 1 ? DType::bf16 : s.q)) name += ".out_" + std::string(name_of(s.out));
  if (s.paged()) name += ".paged";
  if (s.values == ValueLayout::dim_major) name += ".dim_major";
  return name + (s.soft_cap ? ".cap" : "") + (s.alibi ? ".alibi" : "") + (s.bit_mask ? ".mask" : "");
}

}  // namespace tilewave
