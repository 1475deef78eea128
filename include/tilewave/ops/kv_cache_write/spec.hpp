// SPDX-License-Identifier: MIT
// What is written into a paged KV cache, and what becomes of it before: changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/attention/cache.hpp"
#include "tilewave/ops/rope/spec.hpp"

namespace tilewave {

/// K and V of new tokens go where paged attention of the same kv and quant reads them. per_tensor and per_head
/// divide by the caches' scales, which are read; per_token finds the scale of each head of a token, its largest
/// magnitude over the largest code (1 where that is below smallest_amax), and writes it beside. fused: heads of q
/// and k are turned before, as rope does it; with `norm` an rmsnorm comes first; and q goes to q_out. All in f32,
/// rounded once. With `group` q_out and K have scales of groups of a head's dimensions, found before they turn: sqrt(2)
/// times the group's largest magnitude over the largest code, or e8m0, to a power of two that leaves codes below 2^7.6.
/// There is no V then.
struct KvCacheWriteSpec {
  DType x = DType::bf16;   // of q, k and v: bf16 or f16
  DType kv = DType::bf16;  // of the caches: x, or the architecture's fp8
  Scaling quant = Scaling::none;
  bool fused = false;
  // of fused alone
  bool norm = false;
  DType q_out = DType::bf16;  // x, or the architecture's fp8 with a scale for the tensor
  RopePairs pairs = RopePairs::halves;
  DType table = DType::f32;  // of cos and sin: x or f32
  int group = 0;             // 0, or dimensions with a scale: 32, 64, 128, 256, 512
  bool e8m0 = false;         // scales of groups are e8m0, else f32

  friend constexpr bool operator==(const KvCacheWriteSpec&, const KvCacheWriteSpec&) = default;

  constexpr RopeSpec rope() const { return {x, table, pairs}; }
  /// Elements in 16 bytes of the caches.
  TILEWAVE_HOST_DEVICE constexpr int unit() const { return 16 / size_of(kv); }
};

/// The spec whose kernel computes this one: scales of heads are those of tensors with a stride.
constexpr KvCacheWriteSpec kernel_spec(KvCacheWriteSpec s) {
  if (s.quant == Scaling::per_head) s.quant = Scaling::per_tensor;
  return s;
}

/// `kv_cache_write.bf16.fp8_e4m3fn.per_token`; `.fused.norm.halves.table_f32.q_bf16`.
inline std::string name_of(const KvCacheWriteSpec& s) {
  const std::string name = "kv_cache_write." + std::string(name_of(s.x)) + "." + std::string(name_of(s.kv)) + "." +
                           std::string(name_of(s.quant));
  if (!s.fused) return name;
  return name + ".fused" + (s.norm ? ".norm" : "") + "." + std::string(name_of(s.pairs)) + ".table_" +
         std::string(name_of(s.table)) + ".q_" + std::string(name_of(s.q_out)) +
         (s.group > 0 ? ".g" + std::to_string(s.group) + (s.e8m0 ? ".e8m0" : "") : "");
}

}  // namespace tilewave
