// SPDX-License-Identifier: MIT
// The sweep of bench_flash_attention: which configs it has, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/flash_attention/op.hpp"

namespace tilewave::bench {

/// Prompts first: five of the shapes in the benchmarks of FlashAttention-3, cuDNN and FlashInfer, with and without a
/// causal mask, in bf16 and fp8 with heads of 128 and in bf16 with heads of 64. Then come f16, DeepSeek-V3's heads of
/// 192 and 128 with the lse, heads of 256, keys of another sequence, and the heads of Llama-3 70B and Qwen3-235B. Then
/// come windows, ragged batches, chunks of 512 tokens on 8192 cached ones in pages of 16 and 64, and small ones on 32768.
inline std::vector<FlashAttentionCase> FlashAttentionOp::default_sweep(ArchId arch) {
  std::vector<FlashAttentionCase> cases;
  const DType fp8 = facts_of(arch).fp8;
  const auto add = [&](FlashAttentionCase c) {
    c.arch = arch;
    c.complete();
    cases.push_back(c);
  };
  const auto heads = [](int size) { return FlashAttentionSpec{.head_size = size, .value_size = size}; };
  const FlashAttentionSpec codes{.q = fp8, .kv = fp8, .quant = Scaling::per_tensor};
  struct Prompt {
    std::int32_t batch, q_heads, kv_heads, length;
  };
  constexpr Prompt prompts[] = {
      {1, 32, 32, 2048}, {4, 32, 32, 4096}, {1, 32, 8, 16384}, {16, 16, 16, 1024}, {2, 64, 8, 8192}};
  const auto prompt = [&](const FlashAttentionSpec& spec, const Prompt& p, bool causal) {
    return FlashAttentionCase{.spec = spec,
                              .batch = p.batch,
                              .q_heads = p.q_heads,
                              .kv_heads = p.kv_heads,
                              .q_length = p.length,
                              .kv_length = p.length,
                              .causal = causal};
  };
  for (const FlashAttentionSpec& spec : {heads(128), codes, heads(64)}) {
    for (const Prompt& p : prompts) {
      for (const bool causal : {true, false}) add(prompt(spec, p, causal));
    }
  }
  add(prompt({.q = DType::f16, .kv = DType::f16, .out = DType::f16}, {2, 64, 8, 8192}, true));
  FlashAttentionCase latent = prompt({.head_size = 192, .value_size = 128}, {1, 128, 128, 4096}, true);
  latent.lse = true;
  add(latent);
  add(prompt(heads(256), {1, 16, 8, 8192}, true));
  FlashAttentionCase other = prompt(heads(128), {4, 24, 24, 512}, false);
  other.q_length = 4096;
  add(other);
  add(prompt(heads(128), {1, 64, 8, 4096}, true));
  add(prompt(heads(128), {1, 64, 4, 4096}, true));

  for (const int size : {128, 64}) {
    FlashAttentionCase c = prompt(heads(size), {1, size == 128 ? 32 : 64, 8, 16384}, true);
    c.window = 1024;
    add(c);
  }
  for (const int size : {128, 64}) {
    FlashAttentionCase c = prompt(heads(size), {16, size == 128 ? 32 : 64, 8, 8192}, true);
    c.ragged = true;
    add(c);
  }
  for (const int block_size : {16, 64}) {
    for (const Prompt& p : {Prompt{1, 32, 8, 8704}, {4, 32, 8, 8704}, {16, 32, 8, 8704}, {16, 64, 8, 8704}}) {
      FlashAttentionCase c = prompt(heads(128), p, true);
      c.q_length = 512;
      c.block_size = block_size;
      add(c);
    }
  }
  for (const int queries : {32, 128}) {
    FlashAttentionCase c = prompt(heads(128), {1, 32, 8, 32768}, true);
    c.q_length = queries;
    c.block_size = 16;
    add(c);
  }
  FlashAttentionCase mixed = prompt(heads(128), {128, 32, 8, 4096 + 512}, true);
  mixed.q_length = 512;
  mixed.block_size = 16;
  mixed.decode_rows = 120;
  add(mixed);
  return cases;
}

/// Prompts of as many tokens as the context has. Latent heads have keys and values of their own, of all dimensions.
inline std::vector<FlashAttentionCase> FlashAttentionOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<FlashAttentionCase> cases;
  const Model& m = step.share;
  const Latent& latent = m.latent;
  for (const int batch : step.batch) {
    for (const int context : step.context) {
      FlashAttentionCase c{.arch = arch,
                           .batch = batch,
                           .q_heads = m.q_heads,
                           .kv_heads = latent.any() ? m.q_heads : m.kv_heads,
                           .q_length = context,
                           .kv_length = context,
                           .causal = true};
      c.spec.head_size = latent.any() ? latent.nope + latent.rope : m.head_size;
      c.spec.value_size = latent.any() ? latent.nope : m.head_size;
      c.complete();
      cases.push_back(c);
    }
  }
  return cases;
}

}  // namespace tilewave::bench
