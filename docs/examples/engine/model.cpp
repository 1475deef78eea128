// SPDX-License-Identifier: MIT
#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
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

Buffer on_device(const void* data, std::size_t bytes) {
  Buffer buffer(bytes);
  must(tilewave::hipMemcpy(buffer.data(), data, bytes, hipMemcpyHostToDevice), "copying weights to the device");
  return buffer;
}

constexpr std::size_t most_graphs = 256;

std::size_t bf16_bytes(std::int64_t rows, std::int64_t columns) { return static_cast<std::size_t>(rows * columns) * 2; }

/// Bytes that a step's tables take at most: eleven of them with at most 80 bytes for a token, and the block table. Its
/// width is the pages of the longest sequence, rounded up to a power of two.
std::size_t table_bytes(const ModelConfig& c, const CacheShape& cache, std::int32_t tokens) {
  const std::int64_t pages = std::min(cache.pages, tilewave::ceil_div(c.max_positions, cache.page_tokens));
  const std::int64_t block_table = 4 * 2 * pages * std::min(tokens, most_logit_rows);
  return 16 * 256 + static_cast<std::size_t>(tokens) * 80 + static_cast<std::size_t>(block_table);
}

/// A tensor of a file by its name, with the shape that it must have.
struct Named {
  std::string name;
  std::vector<std::int64_t> shape;

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
};
/// How a tensor lies on the device: as bf16, as f32, or as one more than what the file has, in either.
enum class Stored { bf16, bf16_plus_one, f32, f32_plus_one };
/// Where weights come from: gives tensors of these shapes, one behind the other in one buffer.
struct Source {
  std::function<Buffer(const std::vector<Named>&, Stored)> tensors;
  std::function<Weight(const std::vector<Named>&)> weight;  // of products in layers
};

/// Experts lie behind each other, and of each its gates before its ups.
void load_experts(const ModelConfig& c, const std::string& prefix, const Source& source, LayerWeights& layer) {
  std::vector<Named> gate_up, down;
  for (std::int32_t e = 0; e < c.experts; ++e) {
    const std::string expert = prefix + "experts." + std::to_string(e) + ".";
    gate_up.push_back({expert + (c.mixtral ? "w1.weight" : "gate_proj.weight"), {c.intermediate, c.hidden}});
    gate_up.push_back({expert + (c.mixtral ? "w3.weight" : "up_proj.weight"), {c.intermediate, c.hidden}});
    down.push_back({expert + (c.mixtral ? "w2.weight" : "down_proj.weight"), {c.hidden, c.intermediate}});
  }
  layer.router = source.tensors({{prefix + "gate.weight", {c.experts, c.hidden}}}, Stored::bf16);
  layer.gate_up.data = source.tensors(gate_up, Stored::bf16);
  layer.down.data = source.tensors(down, Stored::bf16);
}

/// One product makes q, k and v, and one makes gates and ups.
LayerWeights layer_of(const ModelConfig& c, std::int32_t index, const Source& source) {
  const auto& get = source.weight;
  const Stored norm = c.gemma ? Stored::f32_plus_one : Stored::f32,
               head_norm = c.gemma ? Stored::bf16_plus_one : Stored::bf16;
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const std::int64_t q_rows = std::int64_t{c.q_heads} * c.head_size, kv_rows = std::int64_t{c.kv_heads} * c.head_size;
  LayerWeights layer;
  const auto norm_of = [&](const char* name) {
    return source.tensors({{prefix + name + ".weight", {c.hidden}}}, norm);
  };
  layer.attention_norm = norm_of("input_layernorm");
  layer.mlp_norm = norm_of(c.gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm");
  if (c.gemma) {
    layer.attention_post_norm = norm_of("post_attention_layernorm");
    layer.mlp_post_norm = norm_of("post_feedforward_layernorm");
  }
  layer.qkv = get({{attention + "q_proj.weight", {q_rows, c.hidden}},
                   {attention + "k_proj.weight", {kv_rows, c.hidden}},
                   {attention + "v_proj.weight", {kv_rows, c.hidden}}});
  if (c.qkv_bias)
    layer.qkv_bias = source.tensors({{attention + "q_proj.bias", {q_rows}},
                                     {attention + "k_proj.bias", {kv_rows}},
                                     {attention + "v_proj.bias", {kv_rows}}},
                                    Stored::bf16);
  if (c.qk_norm) {
    layer.q_norm = source.tensors({{attention + "q_norm.weight", {c.head_size}}}, head_norm);
    layer.k_norm = source.tensors({{attention + "k_norm.weight", {c.head_size}}}, head_norm);
  }
  layer.out = get({{attention + "o_proj.weight", {c.hidden, q_rows}}});
  if (c.experts > 0) {
    load_experts(c, prefix + (c.mixtral ? "block_sparse_moe." : "mlp."), source, layer);
    return layer;
  }
  layer.gate_up = get(
      {{mlp + "gate_proj.weight", {c.intermediate, c.hidden}}, {mlp + "up_proj.weight", {c.intermediate, c.hidden}}});
  layer.down = get({{mlp + "down_proj.weight", {c.hidden, c.intermediate}}});
  return layer;
}

ModelWeights weights_of(const ModelConfig& c, const Source& source) {
  const auto& get = source.tensors;
  ModelWeights weights;
  weights.embeddings = get({{"model.embed_tokens.weight", {c.vocab, c.hidden}}}, Stored::bf16);
  weights.final_norm = get({{"model.norm.weight", {c.hidden}}}, c.gemma ? Stored::f32_plus_one : Stored::f32);
  if (!c.tied_embeddings) weights.output = get({{"lm_head.weight", {c.vocab, c.hidden}}}, Stored::bf16);
  for (std::int32_t i = 0; i < c.layers; ++i) weights.layers.push_back(layer_of(c, i, source));
  return weights;
}

/// Rows of k values as fp8, with the scale that brings a row's largest magnitude to the largest code.
Weight quantised(const std::vector<std::uint16_t>& values, std::size_t k, tilewave::DType fp8) {
  const float largest = tilewave::fp8_max(fp8);
  std::vector<std::uint8_t> codes(values.size());
  std::vector<float> scales(values.size() / k);
  for (std::size_t row = 0; row < scales.size(); ++row) {
    float most = 0.0f;
    for (std::size_t i = row * k; i < (row + 1) * k; ++i)
      most = std::fmax(most, std::fabs(tilewave::bf16_to_f32(values[i])));
    scales[row] = most > 0.0f ? most / largest : 1.0f;
    for (std::size_t i = row * k; i < (row + 1) * k; ++i)
      codes[i] = tilewave::f32_to_fp8(fp8, tilewave::bf16_to_f32(values[i]) / scales[row]);
  }
  return {on_device(codes.data(), codes.size()), on_device(scales.data(), scales.size() * sizeof(float))};
}

}  // namespace

ModelWeights load_weights(const ModelConfig& config, tilewave::DType fp8, const Safetensors& files) {
  const auto read = [&](const std::vector<Named>& tensors) {
    std::vector<std::uint16_t> all;
    for (const Named& tensor : tensors) {
      const std::vector<std::uint16_t> values = as_bf16(tensor.name, files.get(tensor.name, tensor.shape));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto stored = [&](const std::vector<Named>& tensors, Stored how) {
    std::vector<std::uint16_t> all = read(tensors);
    if (how == Stored::bf16) return on_device(all.data(), all.size() * 2);
    const float more = how == Stored::f32_plus_one || how == Stored::bf16_plus_one ? 1.0f : 0.0f;
    std::vector<float> floats(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) floats[i] = tilewave::bf16_to_f32(all[i]) + more;
    if (how != Stored::bf16_plus_one) return on_device(floats.data(), floats.size() * sizeof(float));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = tilewave::f32_to_bf16(floats[i]);
    return on_device(all.data(), all.size() * 2);
  };
  const auto weight = [&](const std::vector<Named>& tensors) -> Weight {
    if (!config.fp8_weights) return {stored(tensors, Stored::bf16), {}};
    return quantised(read(tensors), static_cast<std::size_t>(tensors.front().shape.back()), fp8);
  };
  return weights_of(config, {stored, weight});
}

ModelWeights random_weights(const ModelConfig& config) {
  // A pattern that is longer than any cache, repeated: products take as long as with weights that never repeat.
  std::vector<std::uint16_t> pattern(std::size_t{1} << 26);
  std::uint32_t state = 36;
  for (std::uint16_t& value : pattern) {
    state = state * 1664525u + 1013904223u;
    value = tilewave::f32_to_bf16((static_cast<float>(state >> 8) / 16777216.0f - 0.5f) * 0.06f);
  }
  const Buffer repeated = on_device(pattern.data(), pattern.size() * 2);
  const auto filled = [&](std::size_t bytes, const Buffer& with) {
    Buffer buffer(bytes);
    for (std::size_t at = 0; at < bytes; at += with.bytes())
      must(tilewave::hipMemcpy(buffer.as<std::byte>() + at, with.data(), std::min(with.bytes(), bytes - at),
                               tilewave::hipMemcpyDeviceToDevice),
           "filling weights");
    return buffer;
  };
  const auto elements_of = [](const std::vector<Named>& tensors) {
    std::size_t elements = 0;
    for (const Named& tensor : tensors) elements += static_cast<std::size_t>(tensor.elements());
    return elements;
  };
  const auto floats = [](std::size_t count, float value) {
    const std::vector<float> values(count, value);
    return on_device(values.data(), count * sizeof(float));
  };
  const auto tensors = [&](const std::vector<Named>& named, Stored how) {
    const bool wide = how == Stored::f32 || how == Stored::f32_plus_one;  // norms
    return wide ? floats(elements_of(named), 1.0f) : filled(elements_of(named) * 2, repeated);
  };
  // Codes of fp8 are finite where not all bits of exponent and fraction are set.
  for (std::uint16_t& value : pattern) value = static_cast<std::uint16_t>(value * 40503u & 0xb7b7u);
  const Buffer codes = config.fp8_weights ? on_device(pattern.data(), pattern.size() * 2) : Buffer();
  const auto weight = [&](const std::vector<Named>& named) -> Weight {
    const std::size_t elements = elements_of(named);
    if (!config.fp8_weights) return {filled(elements * 2, repeated), {}};
    return {filled(elements, codes), floats(elements / static_cast<std::size_t>(named.front().shape.back()), 0.01f)};
  };
  return weights_of(config, {tensors, weight});
}

Model::Model(const ModelConfig& config, ModelWeights weights, const CacheShape& cache, std::int32_t most_tokens)
    : config_(config),
      kernels_(make_kernels(config_, cache, stream_.get())),
      most_tokens_(most_tokens),
      weights_(std::move(weights)),
      tables_(table_bytes(config_, cache, most_tokens)) {
  const ModelConfig& c = config_;
  const auto angles = [&](const RopeConfig& rope, Buffer& cos, Buffer& sin) {
    const RopeTables tables = rope_tables(c, rope);
    cos = on_device(tables.cos.data(), tables.cos.size() * sizeof(float));
    sin = on_device(tables.sin.data(), tables.sin.size() * sizeof(float));
  };
  angles(c.rope, cos_, sin_);
  if (c.gemma) angles(c.local_rope, local_cos_, local_sin_);
  const std::size_t cache_bytes =
      bf16_bytes(std::int64_t{cache.pages} * cache.page_tokens, std::int64_t{c.kv_heads} * c.head_size) /
      (c.fp8_cache ? 2 : 1);
  for (std::int32_t i = 0; i < c.layers; ++i) caches_.push_back({Buffer(cache_bytes), Buffer(cache_bytes)});

  hidden_ = Buffer(bf16_bytes(most_tokens, c.hidden));
  normed_ = Buffer(bf16_bytes(most_tokens, c.hidden));
  qkv_ = Buffer(bf16_bytes(most_tokens, c.qkv_columns()));
  attention_ = Buffer(bf16_bytes(most_tokens, std::int64_t{c.q_heads} * c.head_size));
  gated_ = Buffer(bf16_bytes(most_tokens, c.intermediate));
  const std::int32_t rows = most_tokens < most_logit_rows ? most_tokens : most_logit_rows;
  if (c.gemma) branch_ = Buffer(bf16_bytes(most_tokens, c.hidden)), branch_rows_ = Buffer(bf16_bytes(rows, c.hidden));
  logits_ = Buffer(static_cast<std::size_t>(rows) * c.vocab * sizeof(float));
  drawn_ = Buffer(rows * (sizeof(std::int32_t) + sizeof(float)));
}

static Linear linear_of(const Weight& weight, std::int32_t n, std::int32_t k, const void* bias = nullptr) {
  return {weight.data.data(), weight.scale.data(), bias, n, k};
}

/// From normed_ to attention_.
void Model::queue_attention(Kernels& kernels, std::int32_t index, const StepTables& step) {
  const ModelConfig& c = config_;
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const LayerCache& cache = caches_[static_cast<std::size_t>(index)];
  const bool local = c.is_local(index) && local_cos_.data() != nullptr;
  const Linear qkv = linear_of(layer.qkv, c.qkv_columns(), c.hidden, layer.qkv_bias.data());
  kernels.linear(normed_.data(), qkv, nullptr, qkv_.data(), step.tokens);
  kernels.rotate_and_cache(qkv_.data(), layer.q_norm.data(), layer.k_norm.data(),
                           (local ? local_cos_ : cos_).as<float>(), (local ? local_sin_ : sin_).as<float>(),
                           cache.k.data(), cache.v.data(), step);
  kernels.attend(qkv_.data(), cache.k.data(), cache.v.data(), c.window_of(index), attention_.data(), step);
}

void Model::queue_layer(Kernels& kernels, std::int32_t index, const StepTables& step) {
  const ModelConfig& c = config_;
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const Linear out = linear_of(layer.out, c.hidden, c.q_heads * c.head_size);
  const Linear gate_up = linear_of(layer.gate_up, 2 * c.intermediate, c.hidden);
  const Linear down = linear_of(layer.down, c.hidden, c.intermediate);
  const std::int32_t tokens = step.tokens;

  if (!c.gemma) {
    kernels.norm(hidden_.data(), layer.attention_norm.data(), normed_.data(), tokens);
    queue_attention(kernels, index, step);
    kernels.linear(attention_.data(), out, hidden_.data(), hidden_.data(), tokens);
    kernels.norm(hidden_.data(), layer.mlp_norm.data(), normed_.data(), tokens);
    if (c.experts > 0) {
      const Experts experts{.router = layer.router.data(),
                            .gate_up = layer.gate_up.data.data(),
                            .down = layer.down.data.data(),
                            .experts = c.experts,
                            .chosen = c.experts_per_token,
                            .n = c.intermediate,
                            .k = c.hidden,
                            .renormalise = c.renormalise};
      return kernels.experts(normed_.data(), experts, hidden_.data(), tokens);
    }
    kernels.gated(normed_.data(), gate_up, gated_.data(), tokens);
    kernels.linear(gated_.data(), down, hidden_.data(), hidden_.data(), tokens);
    return;
  }
  // A branch is normalised before it joins the stream, which it does in the next norm.
  const auto next_norm = [&](bool first, const Buffer& weight) {
    first ? kernels.norm(hidden_.data(), weight.data(), normed_.data(), tokens)
          : kernels.add_norm(branch_.data(), hidden_.data(), weight.data(), normed_.data(), tokens);
  };
  next_norm(index == 0, layer.attention_norm);
  queue_attention(kernels, index, step);
  kernels.linear(attention_.data(), out, nullptr, branch_.data(), tokens);
  kernels.norm(branch_.data(), layer.attention_post_norm.data(), branch_.data(), tokens);
  next_norm(false, layer.mlp_norm);
  kernels.gated(normed_.data(), gate_up, gated_.data(), tokens);
  kernels.linear(gated_.data(), down, nullptr, branch_.data(), tokens);
  kernels.norm(branch_.data(), layer.mlp_post_norm.data(), branch_.data(), tokens);
}

void Model::queue(Kernels& kernels, const Step& step) {
  const StepTables& tables = step.tables;
  const ModelConfig& c = config_;
  const std::int32_t rows = step.sample.rows;
  // Gemma's factor is rounded as its activations are.
  const float scale =
      c.gemma ? tilewave::bf16_to_f32(tilewave::f32_to_bf16(std::sqrt(static_cast<float>(c.hidden)))) : 1.0f;
  kernels.gather_rows(weights_.embeddings.data(), c.vocab, tables.ids, scale, hidden_.data(), tables.tokens);
  for (std::int32_t i = 0; i < c.layers; ++i) queue_layer(kernels, i, tables);
  if (rows == 0) return;
  // Only these tokens need logits: their rows are gathered into the idle projection's room.
  const Buffer& output = c.tied_embeddings ? weights_.embeddings : weights_.output;
  const void* const final_norm = weights_.final_norm.data();
  kernels.gather_rows(hidden_.data(), tables.tokens, step.sample.from, 1.0f, normed_.data(), rows);
  if (c.gemma) {
    kernels.gather_rows(branch_.data(), tables.tokens, step.sample.from, 1.0f, branch_rows_.data(), rows);
    kernels.add_norm(branch_rows_.data(), normed_.data(), final_norm, hidden_.data(), rows);
  } else {
    kernels.norm(normed_.data(), final_norm, hidden_.data(), rows);
  }
  kernels.logits(hidden_.data(), {output.data(), nullptr, nullptr, c.vocab, c.hidden}, logits_.as<float>(), rows);
  kernels.sample(logits_.as<float>(), step.sample, drawn_.as<std::int32_t>(), drawn_.as<float>() + rows);
}

Model::Step Model::upload(const StepInput& in) {
  const auto tokens = static_cast<std::int32_t>(in.ids.size()), rows = static_cast<std::int32_t>(in.sample_from.size());
  const auto sequences = static_cast<std::int32_t>(in.kv_lengths.size());
  if (tokens > most_tokens_ || rows > most_logit_rows)
    throw Error("a step has more tokens than the engine was made for");
  tables_.begin();
  Step step{.tables = {.tokens = tokens, .sequences = sequences, .table_columns = in.table_columns},
            .sample = {.rows = rows}};
  StepTables& t = step.tables;
  for (std::int32_t s = 0; s < sequences; ++s)
    t.most_queries = std::max(t.most_queries, in.q_starts[s + 1] - in.q_starts[s]);
  t.ids = tables_.add(in.ids), t.positions = tables_.add(in.positions), t.slots = tables_.add(in.slots);
  t.q_starts = tables_.add(in.q_starts), t.kv_lengths = tables_.add(in.kv_lengths);
  t.block_table = tables_.add(in.block_table);
  SampleTables& sample = step.sample;
  sample.from = tables_.add(in.sample_from);
  sample.temperature = tables_.add(in.temperature), sample.top_p = tables_.add(in.top_p);
  sample.top_k = tables_.add(in.top_k), sample.seed = tables_.add(in.seed), sample.offset = tables_.add(in.offset);
  tables_.send(stream_.get());
  return step;
}

/// The tables of two steps of one shape lie at the same addresses, so a graph finds the new ones.
void Model::launch(const Step& step) {
  const auto eagerly = [&] { queue(*kernels_, step); };
  if (!use_graphs_ || step.tables.most_queries != 1) return eagerly();
  if (kernels_->workspace_moves() != workspace_moves_ || graphs_.size() > most_graphs) graphs_.clear();
  workspace_moves_ = kernels_->workspace_moves();
  const auto [at, first] =
      graphs_.try_emplace({step.tables.sequences, step.tables.table_columns, step.sample.rows}, std::nullopt);
  if (first) return eagerly();  // which makes plans, and may move the workspace
  if (!at->second) at->second.emplace(stream_, eagerly);
  at->second->launch(stream_.get());
}

StepOutput Model::run(const StepInput& in) {
  if (in.ids.empty()) return {};
  const Step step = upload(in);
  launch(step);
  const auto rows = static_cast<std::size_t>(step.sample.rows);
  logit_rows_ = rows;
  stream_.wait();
  StepOutput out{std::vector<std::int32_t>(rows), std::vector<float>(rows)};
  std::vector<std::byte> drawn(rows * (sizeof(std::int32_t) + sizeof(float)));
  if (rows == 0) return out;
  must(tilewave::hipMemcpy(drawn.data(), drawn_.data(), drawn.size(), hipMemcpyDeviceToHost), "reading tokens");
  std::memcpy(out.tokens.data(), drawn.data(), rows * sizeof(std::int32_t));
  std::memcpy(out.logprobs.data(), drawn.data() + rows * sizeof(std::int32_t), rows * sizeof(float));
  return out;
}

std::vector<float> Model::logits(std::size_t rows) const {
  std::vector<float> values(rows * config_.vocab);
  must(tilewave::hipMemcpy(values.data(), logits_.data(), values.size() * sizeof(float), hipMemcpyDeviceToHost),
       "reading logits");
  return values;
}

}  // namespace engine
