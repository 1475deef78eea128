// SPDX-License-Identifier: MIT
// Part 6 of the tutorial, in three steps, from the bottom up: what a tensor of a file looks like on the device (Source, FileSource, RandomSource),
// which tensors a layer of each family has (layer_of and its helpers), and the model (weights_of).
#include "weights.hpp"

#include <algorithm>
#include <tilewave/core/dtype.hpp>

namespace engine {

namespace {

using Bf16s = std::vector<std::uint16_t>;

/// A tensor of a file by its name, with the shape that it must have.
struct Named {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int32_t turned = 0;  // q and k: the rows of a head, of which row i shall lie beside row i + turned / 2
};
std::size_t elements_of(const std::vector<Named>& tensors) {
  std::size_t all = 0;
  for (const Named& tensor : tensors) {
    std::size_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= static_cast<std::size_t>(extent);
    all += count;
  }
  return all;
}
/// How a small tensor lies on the device. Gemma multiplies by 1 + weight: `plus` is what is added to each element.
struct Stored {
  DType type = DType::bf16;
  float plus = 0.0f;
};
/// Experts in MXFP4 [experts, n, k] as gpt-oss ships them. Interleaved: rows are gate, up, gate, up.
struct ShippedExperts {
  std::string name;
  std::int32_t experts, n, k;
  bool interleaved;
};

/// Where weights come from. Tensors that are asked for together lie one behind the other in one buffer.
class Source {
 public:
  virtual ~Source() = default;
  virtual Buffer tensors(const std::vector<Named>& named, Stored how) const = 0;
  /// Weights of products in layers, or of as many experts. norm: the one before it, or null.
  virtual Weight weight(const std::vector<Named>& named, const Named* norm = nullptr,
                        std::int32_t experts = 1) const = 0;
  virtual Weight mxfp4(const ShippedExperts& of) const = 0;
  virtual bool pairs_of_neighbours() const { return false; }  // see Loader
};

/// Room for weights of a format, in rows of k.
Weight empty_weight(WeightFormat format, std::size_t elements, std::size_t k) {
  const auto buffers = [&](std::size_t data, std::size_t scale) {
    return Weight{.data = Buffer(data), .scale = Buffer(scale), .format = format};
  };
  switch (format) {
    case WeightFormat::fp8: return buffers(elements, 4 * elements / k);
    case WeightFormat::int4: return buffers(elements / 2, 2 * elements / 128);
    case WeightFormat::mxfp4: return buffers(elements / 2, elements / 32);
    case WeightFormat::bf16: break;
  }
  return buffers(2 * elements, 0);
}

/// The files of a model. Products' weights are quantised while they are loaded, where the config says so.
class FileSource final : public Source {
 public:
  FileSource(const ModelConfig& config, const Loader& loader, const Safetensors& files)
      : config_(config), loader_(loader), files_(files) {}

  Buffer tensors(const std::vector<Named>& named, Stored how) const override {
    Bf16s all = read(named);
    if (how.type == DType::bf16 && how.plus == 0.0f) return on_device(all);
    std::vector<float> floats(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) floats[i] = bf16_to_f32(all[i]) + how.plus;
    if (how.type == DType::f32) return on_device(floats);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = f32_to_bf16(floats[i]);
    return on_device(all);
  }

  Weight weight(const std::vector<Named>& named, const Named* norm, std::int32_t experts) const override {
    Bf16s values = read(named);
    const auto k = static_cast<std::size_t>(named.front().shape.back()), rows = values.size() / k;
    const bool bf16 = config_.weights == WeightFormat::bf16, normed = bf16 && norm && loader_.norms_in_weights;
    if (normed) {
      const Bf16s factors = read({*norm});
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = f32_to_bf16(bf16_to_f32(values[i]) * bf16_to_f32(factors[i % k]));
    }
    if (bf16) return {.data = on_device(values), .normed = normed};
    Weight weight = empty_weight(config_.weights, values.size(), k);
    loader_.quantise(values, experts, static_cast<std::int32_t>(rows) / experts, static_cast<std::int32_t>(k),
                     config_.weights, weight.data, weight.scale);
    return weight;
  }

  Weight mxfp4(const ShippedExperts& of) const override {
    const TensorView& shipped = files_.get(of.name + "_blocks", {of.experts, of.n, of.k / 32, 16});
    const TensorView& shipped_scales = files_.get(of.name + "_scales", {of.experts, of.n, of.k / 32});
    const Buffer codes = on_device(shipped.data, shipped.bytes);
    const Buffer scales = on_device(shipped_scales.data, shipped_scales.bytes);
    const Buffer bias = tensors({{of.name + "_bias", {of.experts, of.n}}}, {});
    Weight weight = empty_weight(WeightFormat::mxfp4, 2 * shipped.bytes, static_cast<std::size_t>(of.k));
    weight.bias = Buffer(bias.bytes());
    GemmRepackProblem p{.codes = codes.data(), .scales = scales.data(), .bias = bias.data()};
    p.out_codes = weight.data.data(), p.out_scales = weight.scale.data(), p.out_bias = weight.bias.data();
    p.layers = of.experts, p.n = of.n, p.k = of.k, p.interleaved = of.interleaved;
    loader_.repack(p);
    return weight;
  }
  bool pairs_of_neighbours() const override { return loader_.pairs_of_neighbours(config_); }

 private:
  Bf16s read(const std::vector<Named>& named) const {
    Bf16s all;
    for (const Named& tensor : named) {
      const Bf16s values = as_bf16(tensor.name, files_.get(tensor.name, tensor.shape));
      const std::size_t columns = values.size() / static_cast<std::size_t>(tensor.shape.front());
      const auto turned = static_cast<std::size_t>(tensor.turned);
      if (turned == 0) all.insert(all.end(), values.begin(), values.end());
      for (std::size_t row = 0; turned > 0 && row < values.size() / columns; ++row) {
        const std::size_t dim = row % turned, from = row - dim + dim / 2 + dim % 2 * (turned / 2);
        all.insert(all.end(), values.begin() + from * columns, values.begin() + (from + 1) * columns);
      }
    }
    return all;
  }
  /// A tensor's elements as bf16; other floats are rounded to the nearest.
  static Bf16s as_bf16(const std::string& name, const TensorView& view) {
    const auto rounded = [&]<class T>(T, const auto& round) {
      Bf16s values(view.bytes / sizeof(T));
      for (std::size_t i = 0; i < values.size(); ++i) {
        T value;
        std::memcpy(&value, view.data + sizeof(T) * i, sizeof(T));
        values[i] = round(value);
      }
      return values;
    };
    if (view.dtype == "BF16") return rounded(std::uint16_t{}, [](std::uint16_t bits) { return bits; });
    if (view.dtype == "F16")
      return rounded(std::uint16_t{}, [](std::uint16_t bits) { return f32_to_bf16(f16_to_f32(bits)); });
    if (view.dtype == "F32") return rounded(float{}, [](float value) { return f32_to_bf16(value); });
    throw Error(name + " is " + view.dtype + ", and the engine loads BF16, F16 and F32");
  }

  const ModelConfig& config_;
  const Loader& loader_;
  const Safetensors& files_;
};

/// Patterns that are longer than any cache, repeated: products take as long as with weights that never repeat.
class RandomSource final : public Source {
 public:
  RandomSource(WeightFormat format, bool norms_in_weights) : format_(format), norms_in_weights_(norms_in_weights) {
    Bf16s values(std::size_t{1} << 26), codes(values.size());
    std::uint32_t state = 36;
    for (std::size_t i = 0; i < values.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      values[i] = f32_to_bf16((static_cast<float>(state >> 8) / 16777216.0f - 0.5f) * 0.06f);
      // Codes of fp8 are finite where not all bits of exponent and fraction are set. Any are right as codes of four bits.
      codes[i] = static_cast<std::uint16_t>(values[i] * 40503u & 0xb7b7u);
    }
    values_ = on_device(values), codes_ = on_device(codes);
  }

  Buffer tensors(const std::vector<Named>& named, Stored how) const override {
    const std::size_t elements = elements_of(named);
    return how.type == DType::f32 ? of_byte(Buffer(4 * elements), 0x3f) : filled(Buffer(2 * elements), values_);
  }
  Weight weight(const std::vector<Named>& named, const Named* norm, std::int32_t) const override {
    const bool bf16 = format_ == WeightFormat::bf16;
    Weight weight = empty_weight(format_, elements_of(named), static_cast<std::size_t>(named.front().shape.back()));
    weight.data = filled(std::move(weight.data), bf16 ? values_ : codes_);
    weight.scale = of_byte(std::move(weight.scale), 0x3c);  // 0.011 as f32 and as bf16
    weight.normed = bf16 && norm != nullptr && norms_in_weights_;
    return weight;
  }
  Weight mxfp4(const ShippedExperts& of) const override {
    const std::size_t rows = static_cast<std::size_t>(of.experts) * of.n, k = static_cast<std::size_t>(of.k);
    Weight weight = empty_weight(WeightFormat::mxfp4, rows * k, k);
    weight.data = filled(std::move(weight.data), codes_);
    weight.scale = of_byte(std::move(weight.scale), 120);  // 2^-7
    weight.bias = filled(Buffer(2 * rows), values_);
    return weight;
  }

 private:
  static Buffer filled(Buffer buffer, const Buffer& with) {
    for (std::size_t at = 0; at < buffer.bytes(); at += with.bytes())
      must(hipMemcpy(buffer.as<std::byte>() + at, with.data(), std::min(with.bytes(), buffer.bytes() - at),
                     hipMemcpyDeviceToDevice),
           "filling weights");
    return buffer;
  }
  static Buffer of_byte(Buffer buffer, int byte) {
    if (buffer.bytes() > 0) must(hipMemset(buffer.data(), byte, buffer.bytes()), "filling weights");
    return buffer;
  }

  WeightFormat format_;
  bool norms_in_weights_;
  Buffer values_, codes_;
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
  layer.router.data = source.tensors({{prefix + "gate.weight", {c.experts, c.hidden}}}, {});
  layer.gate_up = source.weight(gate_up, nullptr, c.experts);
  layer.down = source.weight(down, nullptr, c.experts);
}

void load_gpt_oss(const ModelConfig& c, const std::string& prefix, const Source& source, LayerWeights& layer) {
  layer.sinks = source.tensors({{prefix + "self_attn.sinks", {c.q_heads}}}, {DType::f32});
  layer.router.data = source.tensors({{prefix + "mlp.router.weight", {c.experts, c.hidden}}}, {});
  layer.router.bias = source.tensors({{prefix + "mlp.router.bias", {c.experts}}}, {DType::f32});
  const std::string experts = prefix + "mlp.experts.";
  layer.gate_up = source.mxfp4({experts + "gate_up_proj", c.experts, 2 * c.intermediate, c.hidden, true});
  layer.down = source.mxfp4({experts + "down_proj", c.experts, c.hidden, c.intermediate, false});
}

/// One product makes q, k and v, and one makes gates and ups.
LayerWeights layer_of(const ModelConfig& c, std::int32_t index, const Source& source) {
  const Stored norm{DType::f32, c.gemma ? 1.0f : 0.0f}, head_norm{DType::bf16, norm.plus};
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const std::int32_t turned = source.pairs_of_neighbours() ? c.head_size : 0;
  const std::int64_t q_rows = std::int64_t{c.q_heads} * c.head_size, kv_rows = std::int64_t{c.kv_heads} * c.head_size;
  LayerWeights layer;
  const auto norm_named = [&](const char* name) { return Named{prefix + name + ".weight", {c.hidden}}; };
  const auto norm_of = [&](const char* name) { return source.tensors({norm_named(name)}, norm); };
  /// A product behind a norm. Gemma's norms also add to the residual stream, and stay launches of their own.
  const auto behind_norm = [&](const char* name, const std::vector<Named>& tensors, Buffer& norm_weights) {
    const Named named = norm_named(name);
    Weight weight = source.weight(tensors, c.gemma ? nullptr : &named);
    const std::vector<float> ones(static_cast<std::size_t>(c.hidden), 1.0f);
    norm_weights = weight.normed ? on_device(ones) : norm_of(name);
    return weight;
  };
  if (c.gemma) {
    layer.attention_post_norm = norm_of("post_attention_layernorm");
    layer.mlp_post_norm = norm_of("post_feedforward_layernorm");
  }
  layer.qkv = behind_norm("input_layernorm",
                          {{attention + "q_proj.weight", {q_rows, c.hidden}, turned},
                           {attention + "k_proj.weight", {kv_rows, c.hidden}, turned},
                           {attention + "v_proj.weight", {kv_rows, c.hidden}}},
                          layer.attention_norm);
  if (c.qkv_bias)
    layer.qkv.bias = source.tensors({{attention + "q_proj.bias", {q_rows}, turned},
                                     {attention + "k_proj.bias", {kv_rows}, turned},
                                     {attention + "v_proj.bias", {kv_rows}}},
                                    {});
  if (c.qk_norm) {
    layer.q_norm = source.tensors({{attention + "q_norm.weight", {c.head_size}}}, head_norm);
    layer.k_norm = source.tensors({{attention + "k_norm.weight", {c.head_size}}}, head_norm);
  }
  layer.out = source.weight({{attention + "o_proj.weight", {c.hidden, q_rows}}});
  if (c.out_bias) layer.out.bias = source.tensors({{attention + "o_proj.bias", {c.hidden}}}, {});
  const char* const mlp_norm = c.gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  if (c.experts == 0) {
    layer.gate_up = behind_norm(
        mlp_norm,
        {{mlp + "gate_proj.weight", {c.intermediate, c.hidden}}, {mlp + "up_proj.weight", {c.intermediate, c.hidden}}},
        layer.mlp_norm);
    layer.down = source.weight({{mlp + "down_proj.weight", {c.hidden, c.intermediate}}});
    return layer;
  }
  layer.mlp_norm = norm_of(mlp_norm);
  if (c.gpt_oss) {
    load_gpt_oss(c, prefix, source, layer);
  } else {
    load_experts(c, c.mixtral ? prefix + "block_sparse_moe." : mlp, source, layer);
  }
  return layer;
}

ModelWeights weights_of(const ModelConfig& c, const Source& source) {
  ModelWeights weights;
  weights.embeddings = source.tensors({{"model.embed_tokens.weight", {c.vocab, c.hidden}}}, {});
  weights.final_norm = source.tensors({{"model.norm.weight", {c.hidden}}}, {DType::f32, c.gemma ? 1.0f : 0.0f});
  if (!c.tied_embeddings) weights.output = source.tensors({{"lm_head.weight", {c.vocab, c.hidden}}}, {});
  for (std::int32_t i = 0; i < c.layers; ++i) weights.layers.push_back(layer_of(c, i, source));
  return weights;
}

}  // namespace

ModelWeights load_weights(const ModelConfig& config, const Loader& loader, const Safetensors& files) {
  return weights_of(config, FileSource(config, loader, files));
}

ModelWeights random_weights(const ModelConfig& config, bool norms_in_weights) {
  return weights_of(config, RandomSource(config.weights, norms_in_weights));
}

}  // namespace engine
