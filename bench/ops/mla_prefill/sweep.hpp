// SPDX-License-Identifier: MIT
// The sweep of bench_mla: which configs it has, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/mla_prefill/op.hpp"

namespace tilewave::bench {

/// DeepSeek-V3's 128 heads: prompts of 1K to 16K, chunks of a prompt on earlier tokens, by every layout of the cache,
/// and the launches of a prompt and of a chunk. Then the batched products beside decode, and whole layers: decode at
/// batches of 1 to 128, a prompt, and a chunk.
inline std::vector<MlaPrefillCase> MlaPrefillOp::default_sweep(ArchId arch) {
  std::vector<MlaPrefillCase> cases;
  const DType fp8 = facts_of(arch).fp8;
  const auto add = [&](MlaPrefillCase c) {
    c.arch = arch;
    c.complete();
    cases.push_back(c);
  };
  const auto at = [](std::int32_t batch, std::int32_t q_length, std::int32_t context, MlaStage stage) {
    return MlaPrefillCase{.batch = batch, .q_length = q_length, .context_length = context, .stage = stage};
  };
  for (const int length : {1024, 2048, 8192, 16384}) add(at(1, length, 0, MlaStage::prefill));
  add(at(8, 1024, 0, MlaStage::prefill));
  for (const auto& [own, earlier] : {std::pair{512, 8192}, {2048, 30720}, {8192, 57344}})
    add(at(1, own, earlier, MlaStage::prefill));
  for (const MlaLayout layout : {MlaLayout::plain, MlaLayout::groups_128}) {
    MlaPrefillCase c = at(1, 2048, 30720, MlaStage::prefill);
    c.kv = fp8, c.layout = layout;
    add(c);
  }
  MlaPrefillCase one = at(1, 2048, 30720, MlaStage::prefill);
  one.chunk_tokens = 30720;
  add(one);
  MlaPrefillCase few = at(1, 2048, 30720, MlaStage::prefill);
  few.q_heads = 16;
  add(few);
  for (const MlaStage stage : {MlaStage::gather, MlaStage::up, MlaStage::attend}) add(at(1, 8192, 0, stage));
  for (const MlaStage stage : {MlaStage::gather, MlaStage::up, MlaStage::attend, MlaStage::merge})
    add(at(1, 2048, 30720, stage));
  for (const MlaStage stage : {MlaStage::absorb_query, MlaStage::absorb_value})
    for (const int batch : {1, 16, 64, 128}) add(at(batch, 1, 0, stage));
  for (const int batch : {1, 16, 64, 128}) add(at(batch, 1, 8191, MlaStage::decode_layer));
  add(at(1, 8192, 0, MlaStage::layer));
  add(at(1, 2048, 30720, MlaStage::layer));
  return cases;
}

/// A layer of decode of a model with latent heads.
inline std::vector<MlaPrefillCase> MlaPrefillOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<MlaPrefillCase> cases;
  if (!step.share.latent.any()) return cases;
  for (const int batch : step.batch) {
    for (const int context : step.context) {
      MlaPrefillCase c{.arch = arch, .batch = batch, .q_heads = step.share.q_heads, .q_length = 1};
      c.context_length = context - 1, c.stage = MlaStage::decode_layer;
      c.complete();
      cases.push_back(c);
    }
  }
  return cases;
}

}  // namespace tilewave::bench
