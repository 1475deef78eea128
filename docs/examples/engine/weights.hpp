// SPDX-License-Identifier: MIT
// A model's parameters on the device, part 6 of the tutorial: from files, or random ones for measurements.
#pragma once

#include <vector>

#include "config.hpp"
#include "device.hpp"
#include "kernels.hpp"
#include "safetensors.hpp"

namespace engine {

struct Weight {
  Buffer data{}, scale{}, bias{};  // see Linear; what a weight does not have is empty
  WeightFormat format = WeightFormat::bf16;
  bool normed = false;  // multiplied by the weights of the norm in front of it, which are ones in exchange
};
struct LayerWeights {
  Weight qkv, out, gate_up, down;
  Weight router;  // with experts: gate_up and down are those of all, one behind the other
  Buffer attention_norm, q_norm, k_norm, mlp_norm;
  Buffer attention_post_norm, mlp_post_norm;  // Gemma
  Buffer sinks;                               // gpt-oss
};
struct ModelWeights {
  std::vector<LayerWeights> layers;
  Buffer embeddings, final_norm, output;  // output is empty where it is the embeddings
};
/// Throws Error with the file or tensor that is wrong. Weights become what the config wants by what the chip says.
ModelWeights load_weights(const ModelConfig& config, const Loader& loader, const Safetensors& files);
/// Small random values, for measurements. `norms_in_weights`: see Loader.
ModelWeights random_weights(const ModelConfig& config, bool norms_in_weights);

}  // namespace engine
