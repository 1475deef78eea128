// SPDX-License-Identifier: MIT
// The sweep of bench_moe: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/moe/op.hpp"

namespace tilewave::bench {

/// The weights of layers: bf16, the chip's fp8 with scales of blocks, or MXFP4, which sm90 alone has.
enum class MoeKind : int { bf16, blocks, mxfp4 };

/// Returns a layer of so many tokens.
inline MoeCase moe_case(ArchId arch, MoeKind kind, std::int32_t hidden, std::int32_t intermediate, std::int32_t experts,
                        std::int32_t topk, std::int32_t tokens) {
  MoeCase c{.arch = arch, .columns = hidden, .rows = tokens, .config_rows = tokens};
  c.intermediate = intermediate, c.experts = experts, c.topk = topk;
  if (kind == MoeKind::blocks) c.spec.weights = facts_of(arch).fp8, c.spec.scale = Scaling::per_block;
  if (kind == MoeKind::mxfp4) c.spec.weights = DType::fp4_e2m1, c.spec.scale = Scaling::per_group;
  c.complete();
  return c;
}

/// Whole layers of models at tokens of decode and of prefill, with every load from 128 tokens on, and the stages of
/// DeepSeek-V3. The emulated device takes hours for those: it has small layers of the same kinds.
inline std::vector<MoeCase> MoeOp::default_sweep(ArchId arch) {
  std::vector<MoeCase> cases;
  const auto add = [&](MoeKind kind, std::int32_t hidden, std::int32_t intermediate, std::int32_t experts,
                       std::int32_t topk, const std::vector<std::int32_t>& tokens, bool stages) {
    for (const std::int32_t t : tokens) {
      MoeCase c = moe_case(arch, kind, hidden, intermediate, experts, topk, t);
      for (const MoeLoad load : {MoeLoad::random, MoeLoad::balanced, MoeLoad::zipf, MoeLoad::one}) {
        if (load != MoeLoad::random && t != tokens[tokens.size() / 2] && t != tokens.back()) continue;
        c.load = load;
        cases.push_back(c);
      }
      if (!stages) continue;
      c.load = MoeLoad::random;
      for (const MoeStage stage :
           {MoeStage::gating, MoeStage::sort, MoeStage::quant_x, MoeStage::first, MoeStage::second, MoeStage::sum}) {
        c.stage = stage;
        if (stage != MoeStage::quant_x || kind == MoeKind::blocks) cases.push_back(c);
      }
    }
  };
  if (cuts_configs()) {
    add(MoeKind::blocks, 256, 128, 8, 2, {1, 9, 48}, true);
    add(MoeKind::bf16, 256, 128, 16, 4, {1, 9, 48}, false);
    if (arch == ArchId::sm90) add(MoeKind::mxfp4, 256, 128, 8, 2, {9}, false);
    return cases;
  }
  const std::vector<std::int32_t> tokens{1, 4, 16, 64, 128, 256, 1024, 4096};
  add(MoeKind::blocks, 7168, 2048, 256, 8, tokens, true);  // DeepSeek-V3
  add(MoeKind::bf16, 4096, 14336, 8, 2, tokens, false);    // Mixtral 8x7B
  add(MoeKind::bf16, 4096, 1536, 128, 8, tokens, false);   // Qwen3-235B
  add(MoeKind::blocks, 4096, 1536, 128, 8, tokens, false);
  if (arch == ArchId::sm90) add(MoeKind::mxfp4, 2880, 2880, 128, 4, tokens, true);  // gpt-oss-120b
  return cases;
}

/// One layer: DeepSeek-V3 and Kimi-K2 with fp8 blocks, gpt-oss in MXFP4 on sm90, others in bf16. Models whose layers this
/// op does not have as they are shipped have none.
inline std::vector<MoeCase> MoeOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<MoeCase> cases;
  const Model& m = step.share;
  const bool gpt_oss = m.name.starts_with("gpt-oss");
  if (m.experts == 0 || (gpt_oss && arch != ArchId::sm90) || m.name.starts_with("llama4")) return cases;
  const MoeKind kind = gpt_oss ? MoeKind::mxfp4 : m.latent.any() ? MoeKind::blocks : MoeKind::bf16;
  for (const int batch : step.batch)
    cases.push_back(moe_case(arch, kind, m.hidden, m.intermediate, m.experts, m.experts_per_token, batch));
  return cases;
}

}  // namespace tilewave::bench
