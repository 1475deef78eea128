// SPDX-License-Identifier: MIT
#include "model.hpp"

#include <algorithm>
#include <tilewave/core/dtype.hpp>
#include <tilewave/core/math.hpp>

namespace engine {

namespace {

using tilewave::hipMemcpyDeviceToHost;
using tilewave::hipMemcpyHostToDevice;

/// A tensor's elements as bf16; other floats are rounded to the nearest.
std::vector<std::uint16_t> as_bf16(const std::string& name, const TensorView& view) {
  std::vector<std::uint16_t> values;
  if (view.dtype == "BF16") {
    values.resize(view.bytes / 2);
    std::memcpy(values.data(), view.data, view.bytes);
  } else if (view.dtype == "F16") {
    values.resize(view.bytes / 2);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, view.data + 2 * i, 2);
      values[i] = tilewave::f32_to_bf16(tilewave::f16_to_f32(bits));
    }
  } else if (view.dtype == "F32") {
    values.resize(view.bytes / 4);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float value;
      std::memcpy(&value, view.data + 4 * i, 4);
      values[i] = tilewave::f32_to_bf16(value);
    }
  } else {
    throw Error(name + " is " + view.dtype + ", and the engine loads BF16, F16 and F32");
  }
  return values;
}

Buffer upload(const void* data, std::size_t bytes) {
  Buffer buffer(bytes);
  must(tilewave::hipMemcpy(buffer.data(), data, bytes, hipMemcpyHostToDevice), "copying weights to the device");
  return buffer;
}

std::size_t bf16_bytes(std::int64_t rows, std::int64_t columns) { return static_cast<std::size_t>(rows * columns) * 2; }

/// Bytes that a step's tables take at most: eleven of them with at most 80 bytes for a token, and the block table. Its
/// width is the pages of the longest sequence, rounded up to a power of two.
std::size_t table_bytes(const ModelConfig& c, const CacheShape& cache, std::int32_t tokens) {
  const std::int64_t pages = std::min(cache.pages, tilewave::ceil_div(c.max_positions, cache.page_tokens));
  const std::int64_t block_table = 4 * 2 * pages * std::min(tokens, most_logit_rows);
  return 16 * 256 + static_cast<std::size_t>(tokens) * 80 + static_cast<std::size_t>(block_table);
}

}  // namespace

Model::Model(const std::filesystem::path& folder, const CacheShape& cache, std::int32_t most_tokens)
    : config_(read_config(folder)),
      kernels_(config_, cache, nullptr),
      most_tokens_(most_tokens),
      tables_(table_bytes(config_, cache, most_tokens)) {
  const Safetensors weights(folder);
  const ModelConfig& c = config_;
  embeddings_ = load(weights, {{"model.embed_tokens.weight", {c.vocab, c.hidden}}});
  final_norm_ = load(weights, {{"model.norm.weight", {c.hidden}}});
  if (!c.tied_embeddings) output_ = load(weights, {{"lm_head.weight", {c.vocab, c.hidden}}});
  for (std::int32_t i = 0; i < c.layers; ++i) load_layer(weights, i, cache);
  const RopeTables rope = rope_tables(c);
  cos_ = upload(rope.cos.data(), rope.cos.size() * sizeof(float));
  sin_ = upload(rope.sin.data(), rope.sin.size() * sizeof(float));

  hidden_ = Buffer(bf16_bytes(most_tokens, c.hidden));
  normed_ = Buffer(bf16_bytes(most_tokens, c.hidden));
  qkv_ = Buffer(bf16_bytes(most_tokens, c.qkv_columns()));
  attention_ = Buffer(bf16_bytes(most_tokens, std::int64_t{c.q_heads} * c.head_size));
  gated_ = Buffer(bf16_bytes(most_tokens, c.intermediate));
  const std::int32_t rows = most_tokens < most_logit_rows ? most_tokens : most_logit_rows;
  logits_ = Buffer(static_cast<std::size_t>(rows) * c.vocab * sizeof(float));
  sampled_ = Buffer(rows * sizeof(std::int32_t));
  logprobs_ = Buffer(rows * sizeof(float));
}

/// Tensors of these shapes, one behind the other in one buffer.
Buffer Model::load(const Safetensors& weights, const std::vector<Named>& tensors) {
  std::vector<std::uint16_t> all;
  for (const Named& tensor : tensors) {
    const std::vector<std::uint16_t> values = as_bf16(tensor.name, weights.get(tensor.name, tensor.shape));
    all.insert(all.end(), values.begin(), values.end());
  }
  return upload(all.data(), all.size() * 2);
}

void Model::load_layer(const Safetensors& weights, std::int32_t index, const CacheShape& cache) {
  const ModelConfig& c = config_;
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const std::int64_t q_rows = std::int64_t{c.q_heads} * c.head_size, kv_rows = std::int64_t{c.kv_heads} * c.head_size;
  Layer layer;
  layer.attention_norm = load(weights, {{prefix + "input_layernorm.weight", {c.hidden}}});
  layer.mlp_norm = load(weights, {{prefix + "post_attention_layernorm.weight", {c.hidden}}});
  // One product makes q, k and v, and one makes gates and ups.
  layer.qkv = load(weights, {{attention + "q_proj.weight", {q_rows, c.hidden}},
                             {attention + "k_proj.weight", {kv_rows, c.hidden}},
                             {attention + "v_proj.weight", {kv_rows, c.hidden}}});
  if (c.qkv_bias)
    layer.qkv_bias = load(weights, {{attention + "q_proj.bias", {q_rows}},
                                    {attention + "k_proj.bias", {kv_rows}},
                                    {attention + "v_proj.bias", {kv_rows}}});
  if (c.qk_norm) {
    layer.q_norm = load(weights, {{attention + "q_norm.weight", {c.head_size}}});
    layer.k_norm = load(weights, {{attention + "k_norm.weight", {c.head_size}}});
  }
  layer.out = load(weights, {{attention + "o_proj.weight", {c.hidden, q_rows}}});
  layer.gate_up = load(weights, {{mlp + "gate_proj.weight", {c.intermediate, c.hidden}},
                                 {mlp + "up_proj.weight", {c.intermediate, c.hidden}}});
  layer.down = load(weights, {{mlp + "down_proj.weight", {c.hidden, c.intermediate}}});
  const std::size_t cache_bytes = bf16_bytes(std::int64_t{cache.pages} * cache.page_tokens, kv_rows);
  layer.k_cache = Buffer(cache_bytes);
  layer.v_cache = Buffer(cache_bytes);
  layers_.push_back(std::move(layer));
}

void Model::run_layer(const Layer& layer, const StepTables& step) {
  const ModelConfig& c = config_;
  const std::int32_t q_columns = c.q_heads * c.head_size;
  const Linear qkv{layer.qkv.data(), layer.qkv_bias.data(), c.qkv_columns(), c.hidden};
  const Linear out{layer.out.data(), nullptr, c.hidden, q_columns};
  const Linear gate_up{layer.gate_up.data(), nullptr, 2 * c.intermediate, c.hidden};
  const Linear down{layer.down.data(), nullptr, c.hidden, c.intermediate};

  kernels_.norm(hidden_.data(), layer.attention_norm.data(), normed_.data(), step.tokens);
  kernels_.linear(normed_.data(), qkv, nullptr, qkv_.data(), step.tokens);
  kernels_.rotate_and_cache(qkv_.data(), layer.q_norm.data(), layer.k_norm.data(), cos_.as<float>(), sin_.as<float>(),
                            layer.k_cache.data(), layer.v_cache.data(), step);
  kernels_.attend(qkv_.data(), layer.k_cache.data(), layer.v_cache.data(), attention_.data(), step);
  kernels_.linear(attention_.data(), out, hidden_.data(), hidden_.data(), step.tokens);
  kernels_.norm(hidden_.data(), layer.mlp_norm.data(), normed_.data(), step.tokens);
  kernels_.gated(normed_.data(), gate_up, gated_.data(), step.tokens);
  kernels_.linear(gated_.data(), down, hidden_.data(), hidden_.data(), step.tokens);
}

StepOutput Model::run(const StepInput& in) {
  const auto tokens = static_cast<std::int32_t>(in.ids.size()), rows = static_cast<std::int32_t>(in.sample_from.size());
  const auto sequences = static_cast<std::int32_t>(in.kv_lengths.size());
  if (tokens == 0) return {};
  if (tokens > most_tokens_ || rows > most_logit_rows)
    throw Error("a step has more tokens than the engine was made for");

  tables_.begin();
  StepTables step{.tokens = tokens, .sequences = sequences, .table_columns = in.table_columns};
  for (std::int32_t s = 0; s < sequences; ++s)
    step.most_queries = std::max(step.most_queries, in.q_starts[s + 1] - in.q_starts[s]);
  step.ids = tables_.add(in.ids), step.positions = tables_.add(in.positions), step.slots = tables_.add(in.slots);
  step.q_starts = tables_.add(in.q_starts), step.kv_lengths = tables_.add(in.kv_lengths);
  step.block_table = tables_.add(in.block_table);
  SampleTables sample{.rows = rows, .from = tables_.add(in.sample_from)};
  sample.temperature = tables_.add(in.temperature), sample.top_p = tables_.add(in.top_p);
  sample.top_k = tables_.add(in.top_k), sample.seed = tables_.add(in.seed), sample.offset = tables_.add(in.offset);
  tables_.send(nullptr);

  kernels_.gather_rows(embeddings_.data(), config_.vocab, step.ids, hidden_.data(), tokens);
  for (const Layer& layer : layers_) run_layer(layer, step);

  StepOutput out{std::vector<std::int32_t>(rows), std::vector<float>(rows)};
  logit_rows_ = rows;
  if (rows > 0) {  // only these tokens need logits: their rows are gathered into the idle projection's room
    const Linear output{config_.tied_embeddings ? embeddings_.data() : output_.data(), nullptr, config_.vocab,
                        config_.hidden};
    kernels_.gather_rows(hidden_.data(), tokens, sample.from, normed_.data(), rows);
    kernels_.norm(normed_.data(), final_norm_.data(), hidden_.data(), rows);
    kernels_.logits(hidden_.data(), output, logits_.as<float>(), rows);
    kernels_.sample(logits_.as<float>(), sample, sampled_.as<std::int32_t>(), logprobs_.as<float>());
    must(tilewave::hipMemcpy(out.tokens.data(), sampled_.data(), rows * sizeof(std::int32_t), hipMemcpyDeviceToHost),
         "reading tokens");
    must(tilewave::hipMemcpy(out.logprobs.data(), logprobs_.data(), rows * sizeof(float), hipMemcpyDeviceToHost),
         "reading log probabilities");
  } else {
    must(tilewave::hipStreamSynchronize(nullptr), "waiting for a step");
  }
  return out;
}

std::vector<float> Model::last_logits() const {
  std::vector<float> values(logit_rows_ * config_.vocab);
  must(tilewave::hipMemcpy(values.data(), logits_.data(), values.size() * sizeof(float), hipMemcpyDeviceToHost),
       "reading logits");
  return values;
}

}  // namespace engine
