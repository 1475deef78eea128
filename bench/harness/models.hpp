// SPDX-License-Identifier: MIT
// Dimensions of served models, as their configurations on the Hugging Face hub give them; `experts` 0 where feed-forward
// layers are dense, else as many, `intermediate` wide each, of which a token goes to `experts_per_token`.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tilewave::bench {

struct Model {
  std::string_view name;
  int hidden, q_heads, kv_heads, head_size, intermediate, vocabulary;
  int experts = 0, experts_per_token = 0;
  int gpus = 1;  // that share it

  /// Columns of the projection to the vocabulary.
  int vocabulary_share() const { return (vocabulary + gpus - 1) / gpus; }
};

inline constexpr std::array models{Model{"llama3-8b", 4096, 32, 8, 128, 14336, 128256},
                                   Model{"llama3-70b", 8192, 64, 8, 128, 28672, 128256},
                                   Model{"llama3-405b", 16384, 128, 8, 128, 53248, 128256},
                                   Model{"mistral-7b", 4096, 32, 8, 128, 14336, 32768},
                                   Model{"qwen3-8b", 4096, 32, 8, 128, 12288, 151936},
                                   Model{"qwen3-32b", 5120, 64, 8, 128, 25600, 151936},
                                   Model{"gpt-oss-20b", 2880, 64, 8, 64, 2880, 201088, 32, 4},
                                   Model{"gpt-oss-120b", 2880, 64, 8, 64, 2880, 201088, 128, 4}};

/// What one of `tp` GPUs holds of a model: whole heads, kv heads repeated where there are fewer than GPUs, columns of the
/// feed-forward layers. Throws if they cannot be shared out.
inline Model share_of(std::string_view name, int tp) {
  for (Model m : models) {
    if (m.name != name) continue;
    const bool heads = m.kv_heads % tp == 0 || tp % m.kv_heads == 0;
    if (m.q_heads % tp != 0 || m.intermediate % tp != 0 || !heads) {
      throw std::invalid_argument("--tp=" + std::to_string(tp) + ": " + std::string(name) + " has " +
                                  std::to_string(m.q_heads) + " heads on " + std::to_string(m.kv_heads) + " and " +
                                  std::to_string(m.intermediate) + " columns, which do not share out");
    }
    m.q_heads /= tp;
    m.kv_heads = m.kv_heads >= tp ? m.kv_heads / tp : 1;
    m.intermediate /= tp;
    m.gpus = tp;
    return m;
  }
  throw std::invalid_argument("--model=" + std::string(name) + ": not known");
}

}  // namespace tilewave::bench
