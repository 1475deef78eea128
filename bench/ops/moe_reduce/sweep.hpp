// SPDX-License-Identifier: MIT
// The sweep of bench_moe_reduce: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/moe_reduce/op.hpp"

namespace tilewave::bench {

/// FlyDSL's tests/kernels/test_moe_reduce.py (f16, plain and masked); then as engines have it, weighted and from sorted
/// rows: DeepSeek-V3, GPT-OSS and Mixtral; a residual; f32.
inline std::vector<MoeReduceCase> MoeReduceOp::default_sweep(ArchId arch) {
  std::vector<MoeReduceCase> cases;
  const auto add = [&](DType x, std::int32_t rows, std::int32_t topk, std::int32_t columns, bool weighted = false,
                       bool table = false, bool masked = false, bool residual = false) {
    cases.push_back({arch, {x}, columns, rows, rows, topk, weighted, table, masked, residual});
  };
  const DType f16 = DType::f16, bf16 = DType::bf16;
  add(f16, 16384, 8, 7168);
  for (const int rows : {1, 5, 65, 32769}) add(f16, rows, 8, 7168);
  for (const int rows : {1, 5, 65, 16384}) add(f16, rows, 6, 5120);
  add(f16, 129, 8, 7168, false, false, true);
  add(f16, 129, 6, 5120, false, false, true);
  for (const int rows : {1, 64, 4096, 16384}) add(bf16, rows, 8, 7168, true, true);
  add(bf16, 4096, 8, 7168, true, true, true);
  add(bf16, 16384, 4, 2880, true, true);
  add(bf16, 16384, 2, 4096, true, true);
  add(bf16, 4096, 8, 7168, true, true, false, true);
  add(DType::f32, 4096, 8, 7168, true);
  return cases;
}

/// Of a step's tokens, from sorted rows.
inline std::vector<MoeReduceCase> MoeReduceOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<MoeReduceCase> cases;
  if (step.share.experts == 0) return cases;
  for (const int batch : step.batch) {
    cases.push_back({arch, {}, step.share.hidden, batch, batch, step.share.experts_per_token, true, true});
  }
  return cases;
}

}  // namespace tilewave::bench
