// SPDX-License-Identifier: MIT
// The sweep of bench_topk_gating: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/topk_gating/op.hpp"

namespace tilewave::bench {

/// The shapes of the performance goals; those of FlyDSL's tests/kernels/test_topk_gating_softmax.py; DeepSeek-V3's choice
/// in groups; routers of Kimi-K2, Qwen3.5 and Kimi-K3, and of a step with 64 sequences.
inline std::vector<TopkGatingCase> TopkGatingOp::default_sweep(ArchId arch) {
  std::vector<TopkGatingCase> cases;
  const auto add = [&](DType x, std::int32_t tokens, std::int32_t experts, std::int32_t topk) -> TopkGatingCase& {
    TopkGatingCase c{.arch = arch, .spec = {x}, .columns = experts, .rows = tokens, .config_rows = tokens};
    c.topk = topk;
    return cases.emplace_back(c);
  };
  add(DType::bf16, 1024, 128, 6);
  add(DType::bf16, 16384, 256, 8);
  add(DType::bf16, 512, 64, 2);
  add(DType::f32, 256, 8, 2);
  add(DType::f16, 128, 128, 6);
  for (const std::int32_t tokens : {64, 16384}) {
    TopkGatingCase& c = add(DType::f32, tokens, 256, 8);
    c.score = GatingScore::sigmoid;
    c.bias = true;
    c.groups = 8;
    c.kept_groups = 4;
    c.group_score = GroupScore::two_best;
  }
  add(DType::bf16, 64, 128, 4);
  add(DType::f32, 4096, 384, 8).score = GatingScore::sigmoid;
  add(DType::bf16, 4096, 513, 9);
  add(DType::bf16, 4096, 896, 16);
  add(DType::bf16, 16384, 256, 8).renormalise = false;
  return cases;
}

/// The router of one layer.
inline std::vector<TopkGatingCase> TopkGatingOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<TopkGatingCase> cases;
  if (step.share.experts == 0) return cases;
  for (const int batch : step.batch) {
    TopkGatingCase c{.arch = arch, .columns = step.share.experts, .rows = batch, .config_rows = batch};
    c.topk = step.share.experts_per_token;
    const Router& router = step.share.router;
    if (router.sigmoid) c.score = GatingScore::sigmoid;
    c.bias = router.bias;
    c.groups = router.groups;
    c.kept_groups = router.kept_groups;
    if (router.groups > 1) c.group_score = GroupScore::two_best;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace tilewave::bench
