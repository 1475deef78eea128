// SPDX-License-Identifier: MIT
// The sweep of bench_moe_sort: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/moe_sort/op.hpp"

namespace tilewave::bench {

/// The shape of the performance goal; those of FlyDSL's tests/kernels/test_moe_sorting.py, every model once by one block
/// and once by many, with the masks of expert parallelism; units of 128 rows, and none.
inline std::vector<MoeSortCase> MoeSortOp::default_sweep(ArchId arch) {
  std::vector<MoeSortCase> cases;
  const auto add = [&](std::int32_t tokens, std::int32_t experts, std::int32_t topk) -> MoeSortCase& {
    MoeSortCase c{.arch = arch, .columns = topk, .rows = tokens, .config_rows = tokens};
    c.experts = experts;
    return cases.emplace_back(c);
  };
  add(4096, 256, 8);
  for (const std::int32_t tokens : {1, 16, 64, 128, 512, 2048, 16384}) add(tokens, 256, 8);
  add(7, 32, 5);
  add(31, 64, 6);
  add(1, 8, 2);
  add(1, 128, 4);
  add(16, 257, 9);
  add(16384, 257, 9);
  add(16, 385, 7);
  add(1024, 385, 7);
  add(16, 513, 9);
  add(16384, 513, 9);
  add(16, 129, 7);
  add(16, 161, 7);
  for (const std::int32_t local : {50, 0}) add(64, 256, 8).local = local;
  add(2048, 256, 8).local = 50;
  add(1024, 513, 9).local = 50;
  for (const std::int32_t unit : {128, 1}) add(4096, 256, 8).unit = unit;
  add(16384, 896, 16).unit = 16;
  return cases;
}

/// Of one layer.
inline std::vector<MoeSortCase> MoeSortOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<MoeSortCase> cases;
  if (step.share.experts == 0) return cases;
  for (const int batch : step.batch) {
    MoeSortCase c{.arch = arch, .columns = step.share.experts_per_token, .rows = batch, .config_rows = batch};
    c.experts = step.share.experts;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace tilewave::bench
