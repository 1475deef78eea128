// SPDX-License-Identifier: MIT
// Dimensions of served models, from the config.json of the repository beside each (https://huggingface.co/NAME).
// `experts` is 0 where feed-forward layers are dense. Otherwise it is their number; each is `intermediate` wide, and a
// token goes to `experts_per_token` of them. In models whose first or every other layer is dense, the dimensions are
// those of the layers with experts.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tilewave::bench {

/// Attention whose cache holds one latent vector a token, with `kv` dimensions and `rope` rotated ones, and whose
/// queries come from `q` dimensions. A head's query has `nope` and `rope` dimensions. All are 0 where heads have keys
/// and values.
struct Latent {
  int q = 0, kv = 0, nope = 0, rope = 0;
  constexpr bool any() const { return kv > 0; }
};

/// The way in which a router chooses, beyond taking the largest softmax.
struct Router {
  bool sigmoid = false, bias = false;
  int groups = 1, kept_groups = 1;
};

struct Model {
  std::string_view name;
  int hidden, q_heads, kv_heads, head_size, intermediate, vocabulary;
  int experts = 0, experts_per_token = 0;
  int shared = 0;  // width of the expert that takes all tokens
  Latent latent{};
  Router router{};
  int gpus = 1;  // GPUs that divide the model among them

  /// Returns the columns of one GPU's projection to the vocabulary.
  int vocabulary_share() const { return (vocabulary + gpus - 1) / gpus; }
};

inline constexpr Latent deepseek_latent{1536, 512, 128, 64};

inline constexpr std::array models{
    Model{"llama3-8b", 4096, 32, 8, 128, 14336, 128256},               // meta-llama/Meta-Llama-3-8B
    Model{"llama3-70b", 8192, 64, 8, 128, 28672, 128256},              // meta-llama/Meta-Llama-3-70B
    Model{"llama3-405b", 16384, 128, 8, 128, 53248, 128256},           // meta-llama/Llama-3.1-405B
    Model{"mistral-7b", 4096, 32, 8, 128, 14336, 32768},               // mistralai/Mistral-7B-v0.3
    Model{"qwen3-8b", 4096, 32, 8, 128, 12288, 151936},                // Qwen/Qwen3-8B
    Model{"qwen3-32b", 5120, 64, 8, 128, 25600, 151936},               // Qwen/Qwen3-32B
    Model{"gpt-oss-20b", 2880, 64, 8, 64, 2880, 201088, 32, 4},        // openai/gpt-oss-20b
    Model{"gpt-oss-120b", 2880, 64, 8, 64, 2880, 201088, 128, 4},      // openai/gpt-oss-120b
    Model{"mixtral-8x7b", 4096, 32, 8, 128, 14336, 32000, 8, 2},       // mistralai/Mixtral-8x7B-v0.1
    Model{"qwen3-30b-a3b", 2048, 32, 4, 128, 768, 151936, 128, 8},     // Qwen/Qwen3-30B-A3B
    Model{"qwen3-235b-a22b", 4096, 64, 4, 128, 1536, 151936, 128, 8},  // Qwen/Qwen3-235B-A22B
    // The sources are meta-llama/Llama-4-Scout-17B-16E-Instruct and meta-llama/Llama-4-Maverick-17B-128E-Instruct.
    Model{"llama4-scout", 5120, 40, 8, 128, 8192, 202048, 16, 1, 8192, {}, {.sigmoid = true}},
    Model{"llama4-maverick", 5120, 40, 8, 128, 8192, 202048, 128, 1, 8192, {}, {.sigmoid = true}},
    // The sources are deepseek-ai/DeepSeek-V3 and moonshotai/Kimi-K2-Instruct.
    Model{"deepseek-v3", 7168, 128, 1, 128, 2048, 129280, 256, 8, 2048, deepseek_latent, {true, true, 8, 4}},
    Model{"kimi-k2", 7168, 64, 1, 128, 2048, 163840, 384, 8, 2048, deepseek_latent, {true, true}}};

/// Returns the part of a model that one of `tp` GPUs holds: whole heads, kv heads repeated where there are fewer than
/// GPUs, and columns of the feed-forward layers. Throws if they cannot be divided.
inline Model share_of(std::string_view name, int tp) {
  for (Model m : models) {
    if (m.name != name) continue;
    const bool heads = m.kv_heads % tp == 0 || tp % m.kv_heads == 0;
    if (m.q_heads % tp != 0 || m.intermediate % tp != 0 || m.shared % tp != 0 || !heads) {
      throw std::invalid_argument("--tp=" + std::to_string(tp) + ": " + std::string(name) + " has " +
                                  std::to_string(m.q_heads) + " heads on " + std::to_string(m.kv_heads) + " and " +
                                  std::to_string(m.intermediate) + " columns, which do not share out");
    }
    m.q_heads /= tp;
    m.kv_heads = m.kv_heads >= tp ? m.kv_heads / tp : 1;
    m.intermediate /= tp;
    m.shared /= tp;
    m.gpus = tp;
    return m;
  }
  throw std::invalid_argument("--model=" + std::string(name) + ": not known");
}

}  // namespace tilewave::bench
