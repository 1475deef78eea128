// SPDX-License-Identifier: MIT
// A model's weights on the device, and its forward pass: the eight launches of a layer, in order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "config.hpp"
#include "kernels.hpp"
#include "safetensors.hpp"

namespace engine {

/// What one step computes, on the host. Sequences' new tokens follow one another in `ids`.
struct StepInput {
  std::vector<std::int32_t> ids, positions;        // of each new token
  std::vector<std::int64_t> slots;                 // where its K and V go
  std::vector<std::int32_t> q_starts, kv_lengths;  // [sequences + 1], [sequences]
  std::vector<std::int32_t> block_table;           // [sequences, table_columns]
  std::int32_t table_columns = 0;
  std::vector<std::int32_t> sample_from;  // tokens after which one is drawn
  std::vector<float> temperature, top_p;  // of each of those
  std::vector<std::int32_t> top_k;
  std::vector<std::uint64_t> seed, offset;
};

struct StepOutput {
  std::vector<std::int32_t> tokens;  // of each row that was asked for
  std::vector<float> logprobs;
};

/// Rows of logits of a step, and so its sequences: 0.5 GB of a vocabulary of 128256.
inline constexpr std::int32_t most_logit_rows = 1024;

class Model {
 public:
  /// Loads config.json and *.safetensors. Throws Error with the file, field or tensor that is wrong. `most_tokens`: of a
  /// step, and so the size of its activations.
  Model(const std::filesystem::path& folder, const CacheShape& cache, std::int32_t most_tokens);

  const ModelConfig& config() const { return config_; }
  /// Runs one step and waits for its tokens.
  StepOutput run(const StepInput& in);
  /// The logits of the last run(), [rows, vocab]; for tests.
  std::vector<float> last_logits() const;

 private:
  struct Layer {
    Buffer attention_norm, qkv, qkv_bias, q_norm, k_norm, out, mlp_norm, gate_up, down;
    Buffer k_cache, v_cache;
  };
  struct Named {
    std::string name;
    std::vector<std::int64_t> shape;
  };
  static Buffer load(const Safetensors& weights, const std::vector<Named>& tensors);
  void load_layer(const Safetensors& weights, std::int32_t index, const CacheShape& cache);
  void run_layer(const Layer& layer, const StepTables& step);

  ModelConfig config_;
  Kernels kernels_;
  std::int32_t most_tokens_;
  std::vector<Layer> layers_;
  Buffer embeddings_, final_norm_, output_, cos_, sin_;
  // Activations of a step: the residual stream, its norm, projections, attention, the gated product; rows of logits.
  Buffer hidden_, normed_, qkv_, attention_, gated_, logits_, sampled_, logprobs_;
  TableUpload tables_;
  std::size_t logit_rows_ = 0;
};

}  // namespace engine
