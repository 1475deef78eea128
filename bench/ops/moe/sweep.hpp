// SPDX-License-Identifier: MIT
// The sweep of bench_moe: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/moe/op.hpp"

namespace tilewave::bench {

/// The weights of layers: bf16, the chip's fp8 with scales of blocks, or MXFP4. int4: with scales of 32 columns, as
/// Kimi-K2-Thinking has its experts; awq: int4 with scales and zero points of 128. In strips: preshuffled, on CDNA.
enum class MoeKind : int { bf16, blocks, mxfp4, int4, awq, bf16_in_strips, blocks_in_strips };

/// Returns a layer of so many tokens.
inline MoeCase moe_case(ArchId arch, MoeKind kind, std::int32_t hidden, std::int32_t intermediate, std::int32_t experts,
                        std::int32_t topk, std::int32_t tokens) {
  MoeCase c{.arch = arch, .columns = hidden, .rows = tokens, .config_rows = tokens};
  c.intermediate = intermediate, c.experts = experts, c.topk = topk;
  if (kind == MoeKind::blocks || kind == MoeKind::blocks_in_strips)
    c.spec.weights = facts_of(arch).fp8, c.spec.scale = Scaling::per_block;
  if (kind == MoeKind::mxfp4) c.spec.weights = DType::fp4_e2m1, c.spec.scale = Scaling::per_group;
  if (kind == MoeKind::int4 || kind == MoeKind::awq) {
    c.spec.weights = DType::i4, c.spec.scale = Scaling::per_group;
    c.spec.scale_k = kind == MoeKind::awq ? 128 : 32, c.spec.zero_points = kind == MoeKind::awq;
  }
  c.spec.preshuffled = kind == MoeKind::bf16_in_strips || kind == MoeKind::blocks_in_strips;
  c.complete();
  return c;
}

/// Layers of models that have no step here: zai-org/GLM-4.5 and GLM-4.5-Air, MiniMaxAI/MiniMax-M2, all in fp8 blocks.
struct MoeShape {
  std::int32_t hidden, intermediate, experts, topk;
};
inline constexpr std::array moe_other_models{MoeShape{5120, 1536, 160, 8}, MoeShape{4096, 1408, 128, 8},
                                             MoeShape{3072, 1536, 256, 8}};

/// Returns a model's layer. gpt-oss has MXFP4, which sm90 alone has in a list. Llama 4 is in bf16 here, with weights of
/// inputs.
inline std::vector<MoeCase> moe_cases(ArchId arch, const Model& m, const std::vector<std::int32_t>& tokens) {
  const bool gpt_oss = m.name.starts_with("gpt-oss");
  std::vector<MoeCase> cases;
  if (m.experts == 0 || (gpt_oss && arch != ArchId::sm90)) return cases;
  const MoeKind kind = gpt_oss ? MoeKind::mxfp4 : m.latent.any() ? MoeKind::blocks : MoeKind::bf16;
  for (const std::int32_t t : tokens)
    cases.push_back(moe_case(arch, kind, m.hidden, m.intermediate, m.experts, m.experts_per_token, t));
  if (m.name.starts_with("llama4"))
    for (MoeCase& c : cases) c.spec.weight = MoeWeight::input;
  return cases;
}

/// Returns the kinds of the wide list, which bench_moe_wide has.
inline std::vector<MoeKind> moe_wide_kinds(ArchId arch) {
  if (!moe_lists().wide) return {};
  if (arch == ArchId::sm90) return {MoeKind::int4, MoeKind::awq};
  return {MoeKind::int4, MoeKind::awq, MoeKind::mxfp4, MoeKind::bf16_in_strips, MoeKind::blocks_in_strips};
}
/// Returns the models that are shipped, or are run, in a kind of the wide list.
inline std::vector<std::string_view> moe_models_of(MoeKind kind) {
  switch (kind) {
    case MoeKind::int4: return {"kimi-k2"};  // Kimi-K2-Thinking
    case MoeKind::awq: return {"qwen3-30b-a3b", "qwen3-235b-a22b"};
    case MoeKind::mxfp4: return {"gpt-oss-120b", "gpt-oss-20b"};
    case MoeKind::bf16_in_strips: return {"mixtral-8x7b", "qwen3-235b-a22b"};
    case MoeKind::blocks_in_strips: return {"deepseek-v3"};
    case MoeKind::bf16:
    case MoeKind::blocks: return {};
  }
  return {};
}

/// Whole layers of models at tokens of decode and of prefill, with every load from 128 tokens on, and the stages of
/// DeepSeek-V3 and of gpt-oss; with the wide list its layers behind them. The emulated device takes hours for those: it
/// has small layers of the same kinds.
inline std::vector<MoeCase> MoeOp::default_sweep(ArchId arch) {
  std::vector<MoeCase> cases;
  const auto add = [&](const std::vector<MoeCase>& layers, bool stages) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      MoeCase c = layers[i];
      for (const MoeLoad load : {MoeLoad::random, MoeLoad::balanced, MoeLoad::zipf, MoeLoad::one}) {
        if (load != MoeLoad::random && i != layers.size() / 2 && i + 1 != layers.size()) continue;
        c.load = load;
        cases.push_back(c);
      }
      if (!stages) continue;
      c.load = MoeLoad::random;
      for (const MoeStage stage :
           {MoeStage::gating, MoeStage::sort, MoeStage::quant_x, MoeStage::first, MoeStage::second, MoeStage::sum}) {
        c.stage = stage;
        if (stage != MoeStage::quant_x || c.spec.quantises_x()) cases.push_back(c);
      }
    }
  };
  if (cuts_configs()) {
    const auto small = [&](MoeKind kind, std::int32_t experts, std::int32_t topk, std::vector<std::int32_t> tokens) {
      std::vector<MoeCase> layers;
      for (const std::int32_t t : tokens) layers.push_back(moe_case(arch, kind, 256, 128, experts, topk, t));
      return layers;
    };
    add(small(MoeKind::blocks, 8, 2, {1, 9, 48}), true);
    add(small(MoeKind::bf16, 16, 4, {1, 9, 48}), false);
    if (arch == ArchId::sm90) add(small(MoeKind::mxfp4, 8, 2, {9}), false);
    for (const MoeKind kind : moe_wide_kinds(arch)) add(small(kind, 8, 2, {1, 9, 48}), false);
    return cases;
  }
  const std::vector<std::int32_t> tokens{1, 4, 16, 64, 128, 256, 1024, 4096};
  for (const std::string_view model : {"deepseek-v3", "mixtral-8x7b", "qwen3-235b-a22b", "qwen3-30b-a3b", "kimi-k2",
                                       "gpt-oss-120b", "gpt-oss-20b", "llama4-maverick"})
    add(moe_cases(arch, share_of(model, 1), tokens), model == "deepseek-v3" || model == "gpt-oss-120b");
  const auto add_blocks = [&](const MoeShape& s) {
    std::vector<MoeCase> layers;
    for (const std::int32_t t : tokens)
      layers.push_back(moe_case(arch, MoeKind::blocks, s.hidden, s.intermediate, s.experts, s.topk, t));
    add(layers, false);
  };
  const Model qwen = share_of("qwen3-235b-a22b", 1);  // as it is shipped in fp8, too
  add_blocks({qwen.hidden, qwen.intermediate, qwen.experts, qwen.experts_per_token});
  for (const MoeShape& s : moe_other_models) add_blocks(s);
  for (const MoeKind kind : moe_wide_kinds(arch)) {
    const bool stages = kind == MoeKind::int4 || kind == MoeKind::blocks_in_strips;
    for (const std::string_view model : moe_models_of(kind)) {
      const Model m = share_of(model, 1);
      std::vector<MoeCase> layers;
      for (const std::int32_t t : tokens)
        layers.push_back(moe_case(arch, kind, m.hidden, m.intermediate, m.experts, m.experts_per_token, t));
      add(layers, stages);
    }
  }
  return cases;
}

/// One layer, see moe_cases.
inline std::vector<MoeCase> MoeOp::model_cases(ArchId arch, const ModelStep& step) {
  return moe_cases(arch, step.share, {step.batch.begin(), step.batch.end()});
}

}  // namespace tilewave::bench
