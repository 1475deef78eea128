// SPDX-License-Identifier: MIT
// What is written into a paged KV cache, and what is done to it before. Changing a field changes the answer.
#pragma once

#include <string>

#include "tilewave/attention/cache.hpp"
#include "tilewave/ops/rope/spec.hpp"

namespace tilewave {

/// K and V of new tokens go where paged attention of the same kv and quant reads them. All is computed in f32 and
/// rounded once.
///
/// per_tensor and per_head divide by the scales of the caches, which are read. per_token finds a scale for each head of
/// a token and writes it beside: its largest magnitude over the largest code, or 1 if that magnitude is below
/// smallest_amax.
///
/// fused: heads of q and k are rotated first, as rope does it, and q goes to q_out. With `norm` an rmsnorm comes
/// before.
///
/// group: q_out and K have a scale for each group of a head's dimensions, found before they are rotated. It is sqrt(2)
/// times the group's largest magnitude over the largest code. An e8m0 scale is the power of two that leaves codes below
/// 2^7.6. There is no V then.
struct KvCacheWriteSpec {
  DType x = DType::bf16;   // of q, k and v: bf16 or f16
  DType kv = DType::bf16;  // of the caches: x, or the architecture's fp8
  Scaling quant = Scaling::none;
  bool fused = false;
  // for fused specs only
  bool norm = false;
  DType q_out = DType::bf16;  // x, or the architecture's fp8 with one scale for the tensor
  RopePairs pairs = RopePairs::halves;
  DType table = DType::f32;  // of cos and sin: x or f32
  int group = 0;             // 0, or dimensions that share a scale: 32, 64, 128, 256, 512
  bool e8m0 = false;         // scales of groups are e8m0, else f32

  friend constexpr bool operator==(const KvCacheWriteSpec&, const KvCacheWriteSpec&) = default;

  constexpr RopeSpec rope() const { return {x, table, pairs}; }
  /// Elements in 16 bytes of the caches.
  TILEWAVE_HOST_DEVICE constexpr int unit() const { return 16 / size_of(kv); }
};

/// The spec whose kernel computes this one. Scales of heads are scales of tensors with a stride.
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
