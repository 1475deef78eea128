// SPDX-License-Identifier: MIT
// The sweep of bench_mqa_logits: which configs it has, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/mqa_logits/op.hpp"

namespace tilewave::bench {

/// Decode of the reference measurements (batch 8, 4 and 32 of FlyDSL's examples/pa_mqa_logits_fp4), also with lengths
/// that vary and with few keys. Then come two queries a sequence, as in speculative decode, the prefill of
/// DeepSeek-V3.2, and decode in fp4.
inline std::vector<MqaLogitsCase> MqaLogitsOp::default_sweep(ArchId arch) {
  std::vector<MqaLogitsCase> cases;
  const auto add = [&](MqaKeys keys, std::int32_t queries, std::int32_t context, std::int32_t rows) {
    MqaLogitsCase c{.arch = arch, .queries = queries, .columns = context, .rows = rows, .config_rows = rows};
    c.spec = {facts_of(arch).fp8, keys};
    cases.push_back(c);
  };
  add(MqaKeys::paged, 1, 1024, 1);
  for (const int batch : {1, 4, 64, 256}) add(MqaKeys::paged, 1, 8192, batch);
  for (const int batch : {8, 32}) add(MqaKeys::paged, 1, 131072, batch);
  add(MqaKeys::paged, 2, 32768, 32);
  add(MqaKeys::paged, 4, 8192, 64);
  add(MqaKeys::ranges, 2048, 8192, 2048);
  add(MqaKeys::ranges, 4096, 4096, 4096);
  add(MqaKeys::ranges, 2048, 65536, 2048);
  if (facts_of(arch).mx) {
    for (const int batch : {8, 32}) add(MqaKeys::paged, 1, 131072, batch);
    add(MqaKeys::paged, 1, 8192, 1);
    add(MqaKeys::paged, 2, 32768, 32);
    for (auto c = cases.end() - 4; c != cases.end(); ++c) c->spec.type = DType::fp4_e2m1;
  }
  return cases;
}

/// It has no configs of models, since no model of the harness has an indexer.
inline std::vector<MqaLogitsCase> MqaLogitsOp::model_cases(ArchId, const ModelStep&) { return {}; }

}  // namespace tilewave::bench
