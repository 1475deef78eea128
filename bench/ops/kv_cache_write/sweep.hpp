// SPDX-License-Identifier: MIT
// The sweep of bench_kv_cache_write: which configs it has, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/kv_cache_write/op.hpp"

namespace tilewave::bench {

/// Tokens of decode and of prefill. Fused writes come first, with the heads of Llama-3 8B: plain, into dim_major
/// caches, with everything in fp8, and with norms. Then come the heads of 70B, 405B, Qwen3-235B, which has the norms,
/// and GPT-OSS. Then come writes that are not fused, into each kind of cache. DeepSeek-V4's latent heads are last, of
/// which the last 64 dimensions are rotated, in 16 bits and as fp8 with scales of groups.
inline std::vector<KvCacheWriteCase> KvCacheWriteOp::default_sweep(ArchId arch) {
  std::vector<KvCacheWriteCase> cases;
  const DType fp8 = facts_of(arch).fp8;
  const auto add = [&](KvCacheWriteSpec spec, std::int32_t tokens, int q_heads, int kv_heads, int head_size,
                       bool dim_major = false) {
    const int q = spec.fused ? q_heads : 0;
    cases.push_back(
        {arch, spec, dim_major, q, kv_heads, head_size, 16, tokens, tokens, (q + 2 * kv_heads) * head_size});
  };
  const KvCacheWriteSpec fused{.fused = true}, norm{.fused = true, .norm = true};
  for (const int tokens : {1, 16, 32, 64, 128, 256, 4096}) add(fused, tokens, 32, 8, 128);
  for (const int tokens : {1, 64, 4096}) add(fused, tokens, 32, 8, 128, true);
  for (const int tokens : {1, 16, 32, 64, 128, 256, 4096}) {
    add({.kv = fp8, .quant = Scaling::per_head, .fused = true, .q_out = fp8}, tokens, 32, 8, 128);
  }
  for (const int tokens : {1, 16, 64, 256, 4096}) add(norm, tokens, 32, 8, 128);
  for (const int tokens : {1, 64, 4096}) {
    add(fused, tokens, 64, 8, 128);
    add(fused, tokens, 128, 8, 128);
    add(norm, tokens, 64, 4, 128);
    add(fused, tokens, 64, 8, 64);
  }
  add({.kv = fp8, .quant = Scaling::per_token, .fused = true, .norm = true}, 256, 32, 8, 128);
  for (const int tokens : {1, 256, 4096}) {
    for (const bool dim_major : {false, true}) {
      add({}, tokens, 0, 8, 128, dim_major);
      add({.kv = fp8, .quant = Scaling::per_token}, tokens, 0, 8, 128, dim_major);
    }
  }
  add({.kv = fp8, .quant = Scaling::per_tensor}, 256, 0, 8, 128);
  add({.x = DType::f16, .kv = DType::f16}, 256, 0, 8, 128);
  const auto latent = [&](KvCacheWriteSpec spec, std::int32_t tokens) {
    spec.fused = spec.norm = true;
    spec.pairs = RopePairs::neighbours;
    spec.table = DType::bf16;
    cases.push_back({arch, spec, false, 128, 1, 512, 64, tokens, tokens, 129 * 512, 64});
  };
  const KvCacheWriteSpec codes{.kv = fp8, .quant = Scaling::per_token, .q_out = fp8, .group = 128};
  KvCacheWriteSpec powers = codes;
  powers.group = 64;
  powers.e8m0 = true;
  for (const int tokens : {1, 64, 4096}) {
    for (const KvCacheWriteSpec& spec : {KvCacheWriteSpec{}, codes, powers}) latent(spec, tokens);
  }
  return cases;
}

/// One token of each sequence, in a fused write.
inline std::vector<KvCacheWriteCase> KvCacheWriteOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<KvCacheWriteCase> cases;
  const Model& m = step.share;
  if (m.latent.any()) return cases;  // heads have 512 dimensions at most
  for (const int batch : step.batch) {
    const int columns = (m.q_heads + 2 * m.kv_heads) * m.head_size;
    cases.push_back({arch, {.fused = true}, false, m.q_heads, m.kv_heads, m.head_size, 16, batch, batch, columns});
  }
  return cases;
}

}  // namespace tilewave::bench
