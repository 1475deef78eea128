// SPDX-License-Identifier: MIT
// A model's config.json, as far as the engine needs it, part 5 of the tutorial. Families: Llama 2 and 3, Mistral, Qwen 2
// and 3, Gemma 2 and 3, Mixtral, Qwen 3 of experts, gpt-oss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <tilewave/ops/rope/tables.hpp>
#include <vector>

namespace engine {

/// How the weights of a product lie: fp8 with a scale for each row, int4 with one for 128 k of a row, both made while
/// loading; MXFP4 (fp4 with a power of two for 32 k of a row) as a checkpoint ships it.
enum class WeightFormat { bf16, fp8, int4, mxfp4 };

struct ModelConfig {
  std::int32_t vocab = 0, hidden = 0, intermediate = 0, layers = 0;
  std::int32_t q_heads = 0, kv_heads = 0, head_size = 0;
  std::int32_t max_positions = 0;
  std::int32_t sliding_window = 0;  // W > 0: a token of a local layer sees W tokens, itself included; 0: all before it
  std::vector<bool> local;          // of each layer: whether it has the window; empty: all have it
  float norm_eps = 1e-5f;
  bool tied_embeddings = false;  // the output layer is the embedding table
  bool qkv_bias = false;         // Qwen 2, gpt-oss
  bool out_bias = false;         // gpt-oss
  bool qk_norm = false;          // Qwen 3: an rmsnorm of each head of q and k
  // Gemma: norms multiply by 1 + weight and also follow attention and the MLP, before the residual stream is added. The
  // MLP's gate is gelu's approximation by tanh, and embeddings are multiplied by the root of `hidden`.
  bool gemma = false;
  float softmax_scale = 0.0f;                     // 0: 1 / sqrt(head_size)
  float attention_cap = 0.0f, logits_cap = 0.0f;  // cap > 0: x becomes cap * tanh(x / cap)
  // Experts: each is `intermediate` wide, and a token goes to some of them. 0: layers are dense.
  std::int32_t experts = 0, experts_per_token = 0;
  bool renormalise = true;  // the weights of a token's experts add up to 1
  bool mixtral = false;     // has its own names of tensors
  // gpt-oss: experts are MXFP4, have biases and bound what they multiply, and heads have sinks.
  bool gpt_oss = false;
  float swiglu_alpha = 1.702f, swiglu_limit = 7.0f;
  tilewave::RopeFrequencies rope, local_rope;  // of layers with and without all tokens
  // The user's choice: products of layers, and K and V.
  WeightFormat weights = WeightFormat::bf16;
  bool fp8_cache = false;
  bool batch_invariant = false;   // a token has the same bits whatever is beside it, and however its prompt was cut
  std::vector<std::int32_t> eos;  // tokens that end a request

  bool is_local(std::int32_t layer) const { return local.empty() || local[static_cast<std::size_t>(layer)]; }
  std::int32_t window_of(std::int32_t layer) const { return is_local(layer) ? sliding_window : 0; }
  /// Columns of the fused projection of q, k and v.
  std::int32_t qkv_columns() const { return (q_heads + 2 * kv_heads) * head_size; }
};

/// Reads config.json in a model's folder. Throws Error with the file and the field: a file that is missing or no JSON, a
/// field that is missing or out of its range, a family or a rope that the engine does not know.
ModelConfig read_config(const std::filesystem::path& folder);

}  // namespace engine
