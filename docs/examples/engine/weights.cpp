// SPDX-License-Identifier: MIT
#include "weights.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <tilewave/core/dtype.hpp>

namespace engine {

namespace {

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

}  // namespace engine
