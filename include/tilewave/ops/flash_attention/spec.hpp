// SPDX-License-Identifier: MIT
// A spec says what flash attention computes. Changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/attention/cache.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave {

/// The storage of K and V. contiguous: a sequence's tokens lie at one stride, in a tensor of all sequences. paged: they
/// lie in pages of a cache, which a block table names.
enum class KvStorage : int { contiguous, paged };

/// out[i, h, :] = sum over t of softmax_t(score) v[t, h / ratio, :] with score = softmax_scale * q[i, h, :] . k[t, h /
/// ratio, :], for every token i of a sequence's queries. Queries are the last tokens of their sequence: query i of m
/// has position n - m + i among n keys, from which causal masks and windows count.
///
/// Products of 16-bit floats are accumulated in f32, and probabilities are rounded to V's type before theirs. If q has
/// 16 bits, K and V in fp8 are widened exactly. If q is fp8, operands are fp8 and probabilities may be rounded to it.
///
/// soft_cap: the score becomes cap * tanh(score / cap). alibi: then slope[h] * |t - position of query i| is subtracted.
/// bit_mask: a bit for each query and key says whether the key is seen, in addition to all other masks. Causal masks,
/// windows, sinks and lengths are run-time values of the Problem.
struct FlashAttentionSpec {
  DType q = DType::bf16;    // bf16, f16, or the architecture's fp8
  DType kv = DType::bf16;   // q's type, or the architecture's fp8
  DType out = DType::bf16;  // q's type if it has 16 bits, else bf16 or f16; or the architecture's fp8, by one scale
  Scaling quant = Scaling::none;  // fp8 K, V and q have per_tensor or per_head scales; pages may have per_token ones
  int head_size = 128;            // elements of a head of q and K
  int value_size = 128;           // elements of a head of V and out
  KvStorage storage = KvStorage::contiguous;
  ValueLayout values = ValueLayout::token_major;  // dim_major is for pages
  bool soft_cap = false;
  bool alibi = false;
  bool bit_mask = false;

  friend constexpr bool operator==(const FlashAttentionSpec&, const FlashAttentionSpec&) = default;

  constexpr bool paged() const { return storage == KvStorage::paged; }
  /// Returns the number of elements of K or V in 16 bytes.
  TILEWAVE_HOST_DEVICE constexpr int unit() const { return 16 / size_of(kv); }
  /// Returns the type of q and K in their product if q has 16 bits, or if no product of fp8 is used.
  constexpr DType wide_type() const { return q == DType::f16 ? DType::f16 : DType::bf16; }
};

/// The head sizes that are served with a value size alike. A head size of 192 also goes with values of 128.
inline constexpr int flash_attention_head_sizes[] = {64, 72, 80, 96, 112, 128, 192, 256};

/// Returns the name of a spec, as `bf16.h128`, `bf16.h192x128`, `bf16.kv_fp8_e4m3fn.per_head.h64.paged` or
/// `fp8_e4m3fn.per_tensor.h128`. `.out_fp8_e4m3fn`, `.dim_major`, `.cap`, `.alibi` and `.mask` follow where they apply.
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
