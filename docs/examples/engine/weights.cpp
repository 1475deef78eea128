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
  const auto read = [&]<class T>(T, const auto& rounded) {
    values.resize(view.bytes / sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, view.data + sizeof(T) * i, sizeof(T));
      values[i] = rounded(value);
    }
  };
  if (view.dtype == "BF16") {
    values.resize(view.bytes / 2);
    std::memcpy(values.data(), view.data, view.bytes);
  } else if (view.dtype == "F16") {
    read(std::uint16_t{}, [](std::uint16_t bits) { return f32_to_bf16(f16_to_f32(bits)); });
  } else if (view.dtype == "F32") {
    read(float{}, [](float value) { return f32_to_bf16(value); });
  } else {
    throw Error(name + " is " + view.dtype + ", and the engine loads BF16, F16 and F32");
  }
  return values;
}

/// A tensor of a file by its name, with the shape that it must have.
struct Named {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int32_t turned = 0;  // q and k: the rows of a head, of which row i shall lie beside row i + turned / 2

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
};
/// How a tensor lies on the device: as bf16, as f32, or as one more than what the file has, in either.
enum class Stored { bf16, bf16_plus_one, f32, f32_plus_one };
/// Experts in MXFP4 [experts, n, k] as gpt-oss ships them. Interleaved: rows are gate, up, gate, up.
struct ShippedExperts {
  std::string name;
  std::int32_t experts, n, k;
  bool interleaved;
};
/// Where weights come from: gives tensors of these shapes, one behind the other in one buffer.
struct Source {
  std::function<Buffer(const std::vector<Named>&, Stored)> tensors;
  /// Weights of products in layers, or of as many experts. norm: the one before it, or null.
  std::function<Weight(const std::vector<Named>&, const Named* norm, std::int32_t experts)> weight;
  std::function<Weight(const ShippedExperts&)> mxfp4;
  bool pairs_of_neighbours = false;  // see Loader
};

/// Puts rows of heads in the order in which pairs that are turned together are neighbours.
std::vector<std::uint16_t> in_pairs(const std::vector<std::uint16_t>& values, const Named& tensor) {
  const auto turned = static_cast<std::size_t>(tensor.turned);
  const std::size_t rows = static_cast<std::size_t>(tensor.shape.front()), columns = values.size() / rows;
  std::vector<std::uint16_t> all;
  all.reserve(values.size());
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t dim = row % turned, from = row - dim + dim / 2 + dim % 2 * (turned / 2);
    all.insert(all.end(), values.begin() + from * columns, values.begin() + (from + 1) * columns);
  }
  return all;
}

/// Experts lie behind each other, and of each its gates before its ups.
void load_experts(const ModelConfig& c, const std::string& prefix, const Source& source, LayerWeights& layer) {
  std::vector<Named> gate_up, down;
  for (std::int32_t e = 0; e < c.experts; ++e) {
    const std::string expert = prefix + "experts." + std::to_string(e) + ".";
    gate_up.push_back({expert + (c.mixtral ? "w1.weight" : "gate_proj.weight"), {c.intermediate, c.hidden}});
    gate_up.push_back({expert + (c.mixtral ? "w3.weight" : "up_proj.weight"), {c.intermediate, c.hidden}});
    down.push_back({expert + (c.mixtral ? "w2.weight" : "down_proj.weight"), {c.hidden, c.intermediate}});
  }
  layer.router.data = source.tensors({{prefix + "gate.weight", {c.experts, c.hidden}}}, Stored::bf16);
  layer.gate_up = source.weight(gate_up, nullptr, c.experts);
  layer.down = source.weight(down, nullptr, c.experts);
}

void load_gpt_oss(const ModelConfig& c, const std::string& prefix, const Source& source, LayerWeights& layer) {
  layer.sinks = source.tensors({{prefix + "self_attn.sinks", {c.q_heads}}}, Stored::f32);
  layer.router.data = source.tensors({{prefix + "mlp.router.weight", {c.experts, c.hidden}}}, Stored::bf16);
  layer.router.bias = source.tensors({{prefix + "mlp.router.bias", {c.experts}}}, Stored::f32);
  const std::string experts = prefix + "mlp.experts.";
  layer.gate_up = source.mxfp4({experts + "gate_up_proj", c.experts, 2 * c.intermediate, c.hidden, true});
  layer.down = source.mxfp4({experts + "down_proj", c.experts, c.hidden, c.intermediate, false});
}

/// One product makes q, k and v, and one makes gates and ups.
LayerWeights layer_of(const ModelConfig& c, std::int32_t index, const Source& source) {
  const auto get = [&](const Named& tensor) { return source.weight({tensor}, nullptr, 1); };
  const Stored norm = c.gemma ? Stored::f32_plus_one : Stored::f32,
               head_norm = c.gemma ? Stored::bf16_plus_one : Stored::bf16;
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  const std::int32_t turned = source.pairs_of_neighbours ? c.head_size : 0;
  const std::int64_t q_rows = std::int64_t{c.q_heads} * c.head_size, kv_rows = std::int64_t{c.kv_heads} * c.head_size;
  LayerWeights layer;
  const auto norm_named = [&](const char* name) { return Named{prefix + name + ".weight", {c.hidden}}; };
  const auto norm_of = [&](const char* name) { return source.tensors({norm_named(name)}, norm); };
  /// A product behind a norm. Gemma's norms also add to the residual stream, and stay launches of their own.
  const auto behind_norm = [&](const char* name, const std::vector<Named>& tensors, Buffer& norm_weights) {
    const Named named = norm_named(name);
    Weight weight = source.weight(tensors, c.gemma ? nullptr : &named, 1);
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
                                    Stored::bf16);
  if (c.qk_norm) {
    layer.q_norm = source.tensors({{attention + "q_norm.weight", {c.head_size}}}, head_norm);
    layer.k_norm = source.tensors({{attention + "k_norm.weight", {c.head_size}}}, head_norm);
  }
  layer.out = get({attention + "o_proj.weight", {c.hidden, q_rows}});
  if (c.out_bias) layer.out.bias = source.tensors({{attention + "o_proj.bias", {c.hidden}}}, Stored::bf16);
  const char* const mlp_norm = c.gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm";
  if (c.experts > 0) layer.mlp_norm = norm_of(mlp_norm);
  if (c.gpt_oss) {
    load_gpt_oss(c, prefix, source, layer);
    return layer;
  }
  if (c.experts > 0) {
    load_experts(c, prefix + (c.mixtral ? "block_sparse_moe." : "mlp."), source, layer);
    return layer;
  }
  layer.gate_up = behind_norm(
      mlp_norm,
      {{mlp + "gate_proj.weight", {c.intermediate, c.hidden}}, {mlp + "up_proj.weight", {c.intermediate, c.hidden}}},
      layer.mlp_norm);
  layer.down = get({mlp + "down_proj.weight", {c.hidden, c.intermediate}});
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
Weight quantised(const std::vector<std::uint16_t>& values, std::size_t k, DType fp8) {
  const float largest = fp8_max(fp8);
  std::vector<std::uint8_t> codes(values.size());
  std::vector<float> scales(values.size() / k);
  for (std::size_t row = 0; row < scales.size(); ++row) {
    float most = 0.0f;
    for (std::size_t i = row * k; i < (row + 1) * k; ++i) most = std::fmax(most, std::fabs(bf16_to_f32(values[i])));
    scales[row] = most > 0.0f ? most / largest : 1.0f;
    for (std::size_t i = row * k; i < (row + 1) * k; ++i)
      codes[i] = f32_to_fp8(fp8, bf16_to_f32(values[i]) / scales[row]);
  }
  return {.data = on_device(codes), .scale = on_device(scales), .format = WeightFormat::fp8};
}

/// Has weights of four bits put as products read them: codes and scales of the problem are on the host, of as many bytes.
Weight repacked(GemmRepackProblem p, std::size_t code_bytes, std::size_t scale_bytes, const Loader& loader,
                WeightFormat format) {
  const Buffer codes = on_device(p.codes, code_bytes), scales = on_device(p.scales, scale_bytes);
  const Buffer bias = p.bias == nullptr ? Buffer() : on_device(p.bias, std::size_t{2} * p.layers * p.n);
  Weight weight{
      .data = Buffer(code_bytes), .scale = Buffer(scale_bytes), .bias = Buffer(bias.bytes()), .format = format};
  p.codes = codes.data(), p.scales = scales.data(), p.bias = bias.data();
  p.out_codes = weight.data.data(), p.out_scales = weight.scale.data(), p.out_bias = weight.bias.data();
  loader.repack(p);
  return weight;
}

/// Rows of k values as int4 in groups of 128 k, with the scale that brings a group's largest magnitude to 7. They lie as
/// GPTQ's checkpoints have them, and are repacked as these are.
Weight int4(const std::vector<std::uint16_t>& values, std::size_t k, std::size_t experts, const Loader& loader) {
  constexpr std::size_t group = 128;
  const std::size_t n = values.size() / k / experts;
  std::vector<std::uint32_t> words(values.size() / 8);       // [experts][k / 8, n] of eight k, each with 8 added
  std::vector<std::uint16_t> scales(values.size() / group);  // [experts][k / 128, n]
  for (std::size_t all = 0; all < experts * n; ++all) {
    const std::size_t expert = all / n, row = all % n;
    for (std::size_t first = 0; first < k; first += group) {
      const std::uint16_t* const from = values.data() + all * k + first;
      float most = 0.0f;
      for (std::size_t i = 0; i < group; ++i) most = std::fmax(most, std::fabs(bf16_to_f32(from[i])));
      const std::uint16_t rounded = f32_to_bf16(most > 0.0f ? most / 7.0f : 1.0f);
      scales[(expert * k + first) / group * n + row] = rounded;
      const float scale = bf16_to_f32(rounded);
      for (std::size_t i = 0; i < group; ++i) {
        const long code = std::clamp(std::lround(bf16_to_f32(from[i]) / scale), -8L, 7L);
        words[(expert * k + first + i) / 8 * n + row] |= static_cast<std::uint32_t>(code + 8) << 4 * (i % 8);
      }
    }
  }
  GemmRepackProblem p{.shipped = GemmShipped::gptq, .codes = words.data(), .scales = scales.data()};
  p.layers = static_cast<std::int32_t>(experts);
  p.n = static_cast<std::int32_t>(n), p.k = static_cast<std::int32_t>(k);
  p.scale_k = group, p.scale = p.out_scale = DType::bf16;
  return repacked(p, 4 * words.size(), 2 * scales.size(), loader, WeightFormat::int4);
}

}  // namespace

ModelWeights load_weights(const ModelConfig& config, const Loader& loader, const Safetensors& files) {
  const auto read = [&](const std::vector<Named>& tensors) {
    std::vector<std::uint16_t> all;
    for (const Named& tensor : tensors) {
      std::vector<std::uint16_t> values = as_bf16(tensor.name, files.get(tensor.name, tensor.shape));
      if (tensor.turned > 0) values = in_pairs(values, tensor);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto stored = [&](const std::vector<Named>& tensors, Stored how) {
    std::vector<std::uint16_t> all = read(tensors);
    if (how == Stored::bf16) return on_device(all);
    const float more = how == Stored::f32_plus_one || how == Stored::bf16_plus_one ? 1.0f : 0.0f;
    std::vector<float> floats(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) floats[i] = bf16_to_f32(all[i]) + more;
    if (how != Stored::bf16_plus_one) return on_device(floats);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = f32_to_bf16(floats[i]);
    return on_device(all);
  };
  const auto weight = [&](const std::vector<Named>& tensors, const Named* norm, std::int32_t experts) -> Weight {
    const auto k = static_cast<std::size_t>(tensors.front().shape.back());
    if (config.weights == WeightFormat::fp8) return quantised(read(tensors), k, loader.fp8);
    if (config.weights == WeightFormat::int4) return int4(read(tensors), k, experts, loader);
    if (norm == nullptr || !loader.norms_in_weights) return {.data = stored(tensors, Stored::bf16)};
    std::vector<std::uint16_t> all = read(tensors);
    const std::vector<std::uint16_t> factors = read({*norm});
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = f32_to_bf16(bf16_to_f32(all[i]) * bf16_to_f32(factors[i % k]));
    return {.data = on_device(all), .normed = true};
  };
  const auto mxfp4 = [&](const ShippedExperts& e) {
    const auto bytes_of = [&](const char* what, const std::vector<std::int64_t>& shape) -> const TensorView& {
      const TensorView& view = files.get(e.name + what, shape);
      if (view.dtype != "U8") throw Error(e.name + what + " is " + view.dtype + ", and not U8");
      return view;
    };
    const TensorView& codes = bytes_of("_blocks", {e.experts, e.n, e.k / 32, 16});
    const TensorView& scales = bytes_of("_scales", {e.experts, e.n, e.k / 32});
    const std::vector<std::uint16_t> bias = read({{e.name + "_bias", {e.experts, e.n}}});
    GemmRepackProblem p{.codes = codes.data, .scales = scales.data, .bias = bias.data()};
    p.layers = e.experts, p.n = e.n, p.k = e.k, p.interleaved = e.interleaved;
    return repacked(p, codes.bytes, scales.bytes, loader, WeightFormat::mxfp4);
  };
  return weights_of(config, {stored, weight, mxfp4, loader.pairs_of_neighbours(config)});
}

ModelWeights random_weights(const ModelConfig& config, bool norms_in_weights) {
  // Patterns that are longer than any cache, repeated: products take as long as with weights that never repeat. Codes of
  // fp8 are finite where not all bits of exponent and fraction are set. Any are right as codes of four bits.
  std::vector<std::uint16_t> values(std::size_t{1} << 26), codes(values.size());
  std::uint32_t state = 36;
  for (std::size_t i = 0; i < values.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = f32_to_bf16((static_cast<float>(state >> 8) / 16777216.0f - 0.5f) * 0.06f);
    codes[i] = static_cast<std::uint16_t>(values[i] * 40503u & 0xb7b7u);
  }
  const Buffer all_values = on_device(values), all_codes = on_device(codes);
  const auto filled = [](std::size_t bytes, const Buffer& with) {
    Buffer buffer(bytes);
    for (std::size_t at = 0; at < bytes; at += with.bytes())
      must(hipMemcpy(buffer.as<std::byte>() + at, with.data(), std::min(with.bytes(), bytes - at),
                     hipMemcpyDeviceToDevice),
           "filling weights");
    return buffer;
  };
  const auto of_byte = [](std::size_t bytes, int byte) {
    Buffer buffer(bytes);
    must(hipMemset(buffer.data(), byte, bytes), "filling weights");
    return buffer;
  };
  constexpr int some = 0x3c;  // 0.011 as f32 and as bf16
  const auto elements_of = [](const std::vector<Named>& tensors) {
    std::size_t elements = 0;
    for (const Named& tensor : tensors) elements += static_cast<std::size_t>(tensor.elements());
    return elements;
  };
  const auto tensors = [&](const std::vector<Named>& named, Stored how) {
    const bool norm = how == Stored::f32 || how == Stored::f32_plus_one;
    return norm ? of_byte(4 * elements_of(named), 0x3f) : filled(2 * elements_of(named), all_values);
  };
  const auto weight = [&](const std::vector<Named>& named, const Named* norm, std::int32_t) -> Weight {
    const std::size_t elements = elements_of(named), k = static_cast<std::size_t>(named.front().shape.back());
    if (config.weights == WeightFormat::bf16)
      return {.data = filled(2 * elements, all_values), .normed = norm != nullptr && norms_in_weights};
    const bool fp8 = config.weights == WeightFormat::fp8;
    return {.data = filled(fp8 ? elements : elements / 2, all_codes),
            .scale = of_byte(fp8 ? 4 * elements / k : 2 * elements / 128, some),
            .format = config.weights};
  };
  const auto mxfp4 = [&](const ShippedExperts& e) -> Weight {
    const std::size_t rows = static_cast<std::size_t>(e.experts) * e.n;
    return {.data = filled(rows * (e.k / 2), all_codes),
            .scale = of_byte(rows * (e.k / 32), 120),  // 2^-7
            .bias = filled(2 * rows, all_values),
            .format = WeightFormat::mxfp4};
  };
  return weights_of(config, {tensors, weight, mxfp4});
}

}  // namespace engine
