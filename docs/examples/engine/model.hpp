// SPDX-License-Identifier: MIT
// A model's weights on the device, and its forward pass, part 2 of the tutorial: the eight launches of a layer, in order.
// A decode step is captured as one graph when its shape comes a second time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "config.hpp"
#include "kernels.hpp"
#include "weights.hpp"

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
  /// `most_tokens`: of a step, and so the size of its activations. `kernels`: others than the chip's, for tests.
  Model(const ModelConfig& config, ModelWeights weights, const CacheShape& cache, std::int32_t most_tokens,
        std::unique_ptr<Kernels> kernels = nullptr);

  const ModelConfig& config() const { return config_; }
  Kernels& kernels() { return *kernels_; }
  const Stream& stream() const { return stream_; }
  /// Decode steps of a shape that has been seen before are launched as one graph, unless this is false.
  void use_graphs(bool use) { use_graphs_ = use; }
  /// Runs one step and waits for its tokens.
  StepOutput run(const StepInput& in);
  /// Sends a step's tables to the device. queue() may then be called any number of times.
  struct Step {
    StepTables tables;
    SampleTables sample;
  };
  Step upload(const StepInput& in);
  /// Queues all launches of a step by `kernels`, which are the model's own, or watch over them.
  void queue(Kernels& kernels, const Step& step);
  /// The logits of the last run(), or of a step that was queued, [rows, vocab]; for tests.
  std::vector<float> last_logits() const { return logits(logit_rows_); }
  std::vector<float> logits(std::size_t rows) const;
  const ModelWeights& weights() const { return weights_; }
  const Buffer& logits_buffer() const { return logits_; }
  const Buffer& cache(std::int32_t layer, bool values) const {
    const LayerCache& cache = caches_[static_cast<std::size_t>(layer)];
    return values ? cache.v : cache.k;
  }
  std::size_t graphs() const { return graphs_.size(); }

 private:
  struct LayerCache {
    Buffer k, v;
  };
  void queue_layer(Kernels& kernels, std::int32_t index, const StepTables& step);
  void queue_attention(Kernels& kernels, std::int32_t index, const StepTables& step);
  const void* queue_norm(Kernels& kernels, const Buffer& weight, Linear& by, std::int32_t tokens);
  void queue_residual(Kernels& kernels, const void* x, Linear by, std::int32_t tokens);
  void launch(const Step& step);

  ModelConfig config_;
  Stream stream_;  // first, as all others are used on it
  std::unique_ptr<Kernels> kernels_;
  std::int32_t most_tokens_;
  ModelWeights weights_;
  std::vector<LayerCache> caches_;
  Buffer cos_, sin_, local_cos_, local_sin_;  // the latter are empty where all layers turn alike
  // Activations of a step: the residual stream, its norm, projections, attention, the gated product; rows of logits,
  // and their tokens with log probabilities behind them.
  // Gemma: what a branch adds to the stream, and its rows.
  Buffer hidden_, normed_, qkv_, attention_, gated_, logits_, drawn_, branch_, branch_rows_, squares_;
  bool squares_ready_ = false;  // of the stream as it is at this point of a step
  TableUpload tables_;
  std::size_t logit_rows_ = 0;
  // Decode steps by all that their launches depend on: sequences, columns of the block table, rows of logits, and
  // whether these are all tokens in their order.
  bool use_graphs_ = true;
  std::map<std::array<std::int32_t, 4>, std::optional<Graph>> graphs_;  // empty: the shape was seen once
  std::uint64_t workspace_moves_ = 0;                                   // when the graphs were captured
};

}  // namespace engine
