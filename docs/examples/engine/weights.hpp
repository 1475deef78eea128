// SPDX-License-Identifier: MIT
// A model's parameters: from files, or random ones for measurements.
#pragma once

#include <vector>

#include "config.hpp"
#include "device.hpp"
#include "kernels.hpp"
#include "safetensors.hpp"

namespace engine {

/// A model's parameters on the device.
struct Weight {
  Buffer data, scale;  // scale: of each row of fp8
};
struct LayerWeights {
  Weight qkv, out, gate_up, down;
  Buffer attention_norm, qkv_bias, q_norm, k_norm, mlp_norm;
  Buffer router;                              // with experts: gate_up and down are those of all, one behind the other
  Buffer attention_post_norm, mlp_post_norm;  // Gemma
};
struct ModelWeights {
  std::vector<LayerWeights> layers;
  Buffer embeddings, final_norm, output;  // output is empty where it is the embeddings
};
/// Throws Error with the file or tensor that is wrong. `fp8`: the chip's, for the weights that the config wants so.
ModelWeights load_weights(const ModelConfig& config, tilewave::DType fp8, const Safetensors& files);
/// Small random values, for measurements.
ModelWeights random_weights(const ModelConfig& config);

}  // namespace engine
