// SPDX-License-Identifier: MIT
// The sweep of bench_latent_cache_write: which configs it has, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/latent_cache_write/op.hpp"

namespace tilewave::bench {

/// DeepSeek-V3's 128 heads at 1 to 4096 tokens in bf16, then each layout without q and with 16 heads.
inline std::vector<LatentCacheWriteCase> LatentCacheWriteOp::default_sweep(ArchId arch) {
  std::vector<LatentCacheWriteCase> cases;
  const auto add = [&](const LatentCacheWriteSpec& spec, std::int32_t tokens, std::int32_t q_heads) {
    LatentCacheWriteCase c{.arch = arch, .spec = spec, .q_heads = q_heads, .config_rows = tokens};
    c.complete();
    cases.push_back(c);
  };
  const ValueList<LatentCacheWriteSpec> specs = latent_cache_write_specs(arch);
  for (const int tokens : {1, 16, 64, 256, 4096}) add(specs[0], tokens, 128);
  for (const LatentCacheWriteSpec& spec : specs) {
    add(spec, 64, 16);
    add(spec, 4096, 0);
  }
  return cases;
}

/// A step of decode of a model with latent heads.
inline std::vector<LatentCacheWriteCase> LatentCacheWriteOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<LatentCacheWriteCase> cases;
  if (!step.share.latent.any()) return cases;
  for (const int batch : step.batch) {
    LatentCacheWriteCase c{.arch = arch, .q_heads = step.share.q_heads, .config_rows = batch};
    c.complete();
    cases.push_back(c);
  }
  return cases;
}

}  // namespace tilewave::bench
