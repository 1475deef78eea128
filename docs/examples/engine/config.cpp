// SPDX-License-Identifier: MIT
// Part 5 of the tutorial. Read read_config first, at the end: what families have in common, and where they differ.
#include "config.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "fields.hpp"

namespace engine {

namespace {

using tilewave::RopeFrequencies;
using tilewave::RopeScaling;

template <class T>
T positive(const Fields& fields, const char* name, T otherwise) {
  const T value = fields.get(name, otherwise);
  if (fields.has(name) && (!(value > 0) || !std::isfinite(value))) fields.refuse(name, "is not positive and finite");
  return value;
}

/// One token, or a list of them.
std::vector<std::int32_t> read_tokens(const Fields& fields, const char* name, std::int32_t vocab) {
  std::vector<std::int32_t> found;
  if (fields.is_list(name)) {
    found = fields.list<std::int32_t>(name);
  } else if (fields.has(name)) {
    found = {fields.get<std::int32_t>(name)};
  }
  for (const std::int32_t token : found)
    if (token < 0 || token >= vocab) fields.refuse(name, "has a token outside the vocabulary");
  return found;
}

/// `inner` has the type and its numbers; they may have theta, too.
RopeFrequencies read_rope(const Fields& inner, double theta) {
  RopeFrequencies rope;
  rope.theta = positive(inner, "rope_theta", theta);
  const std::string type = inner.get<std::string>("rope_type", inner.get<std::string>("type", "default"));
  if (type == "default") return rope;
  if (type != "linear" && type != "llama3" && type != "yarn")
    inner.refuse("rope_type", "'" + type + "' is none of default, linear, llama3, yarn");
  rope.factor = positive(inner, "factor", 1.0);
  rope.original_positions = positive(inner, "original_max_position_embeddings", rope.original_positions);
  if (type == "llama3") {
    rope.scaling = RopeScaling::llama3;
    rope.low_freq_factor = positive(inner, "low_freq_factor", rope.low_freq_factor);
    rope.high_freq_factor = positive(inner, "high_freq_factor", rope.high_freq_factor);
    if (rope.high_freq_factor <= rope.low_freq_factor) inner.refuse("high_freq_factor", "is not above low_freq_factor");
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    rope.beta_fast = positive(inner, "beta_fast", rope.beta_fast);
    rope.beta_slow = positive(inner, "beta_slow", rope.beta_slow);
    rope.truncate = inner.get("truncate", true);
    if (rope.theta == 1.0) inner.refuse("rope_theta", "is 1, which yarn has no wave lengths for");
    if (inner.has("mscale") || inner.has("mscale_all_dim")) inner.refuse("mscale", "is not served");
    // A longer context is attended more sharply.
    const double sharper = rope.factor > 1.0 ? 0.1 * std::log(rope.factor) + 1.0 : 1.0;
    rope.attention_factor = positive(inner, "attention_factor", sharper);
  }
  return rope;
}

/// Newer configs keep theta beside the scaling, in "rope_parameters".
RopeFrequencies read_rope(const Fields& fields) {
  const char* const scaling = fields.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const double theta = positive(fields, "rope_theta", RopeFrequencies{}.theta);
  if (fields.has(scaling)) return read_rope(fields.inner(scaling), theta);
  return {.theta = theta};
}

/// Which layers are local: as "layer_types" says, else all but every `pattern`-th.
void read_layer_types(const Fields& fields, std::int32_t pattern, ModelConfig& c) {
  for (std::int32_t i = 0; i < c.layers; ++i) c.local.push_back((i + 1) % pattern != 0);
  if (!fields.has("layer_types")) return;
  const std::vector<std::string> types = fields.list<std::string>("layer_types");
  if (types.size() != c.local.size()) fields.refuse("layer_types", "has not one entry for each layer");
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "sliding_attention" && types[i] != "full_attention")
      fields.refuse("layer_types", "has '" + types[i] + "', which is neither sliding_attention nor full_attention");
    c.local[i] = types[i] == "sliding_attention";
  }
}

/// All layers have experts.
void read_experts(const Fields& fields, bool mixtral, ModelConfig& c) {
  c.mixtral = mixtral;
  c.experts = fields.integer(mixtral || !fields.has("num_experts") ? "num_local_experts" : "num_experts", 1, 1024);
  c.experts_per_token = fields.integer("num_experts_per_tok", 1, 16);
  if (c.experts_per_token > c.experts) fields.refuse("num_experts_per_tok", "is more than there are experts");
  if (mixtral || c.gpt_oss) return;
  c.intermediate = fields.integer("moe_intermediate_size", 16, 1 << 18);
  c.renormalise = fields.get("norm_topk_prob", false);
  if (fields.integer("decoder_sparse_step", 1, 1 << 10, 1) != 1)
    fields.refuse("decoder_sparse_step", "is not 1: some layers are dense");
  if (!read_tokens(fields, "mlp_only_layers", 1 << 10).empty())
    fields.refuse("mlp_only_layers", "is not empty: some layers are dense");
}

/// Gemma's layers are local or see all tokens. Gemma 3 has another theta for local ones, and no scaling there.
void read_gemma(const Fields& fields, bool third, ModelConfig& c) {
  c.gemma = c.tied_embeddings = true;
  c.qk_norm = third;
  c.sliding_window = fields.integer("sliding_window", 2, 1 << 24, 4096);
  c.softmax_scale = static_cast<float>(1.0 / std::sqrt(positive(fields, "query_pre_attn_scalar", 256.0)));
  c.attention_cap = positive(fields, "attn_logit_softcapping", third ? 0.0f : 50.0f);
  c.logits_cap = positive(fields, "final_logit_softcapping", third ? 0.0f : 30.0f);
  const std::int32_t pattern = fields.integer("sliding_window_pattern", 1, 1 << 10, third ? 6 : 2);
  read_layer_types(fields, pattern, c);
  const bool nested = fields.has("rope_parameters") && fields.inner("rope_parameters").has("full_attention");
  if (nested) {
    const Fields ropes = fields.inner("rope_parameters");
    c.rope = read_rope(ropes.inner("full_attention"), third ? 1e6 : 1e4);
    c.local_rope = ropes.has("sliding_attention") ? read_rope(ropes.inner("sliding_attention"), 1e4) : c.rope;
  } else if (third) {
    c.local_rope.theta = positive(fields, "rope_local_base_freq", 1e4);
  }
}

/// Every other layer of gpt-oss is local, and all of them have experts of MXFP4.
void read_gpt_oss(const Fields& fields, ModelConfig& c) {
  c.sliding_window = fields.integer("sliding_window", 2, 1 << 24, 128);
  read_layer_types(fields, 2, c);
  c.swiglu_alpha = positive(fields, "swiglu_alpha", c.swiglu_alpha);
  c.swiglu_limit = positive(fields, "swiglu_limit", c.swiglu_limit);
  if (!fields.has("quantization_config") ||
      fields.inner("quantization_config").get<std::string>("quant_method", "") != "mxfp4")
    fields.refuse("quantization_config", "is not that of mxfp4: experts of other formats are not served");
  if (c.hidden % 32 != 0 || c.intermediate % 32 != 0)
    fields.refuse("hidden_size", "or intermediate_size is no multiple of 32, as MXFP4 needs it");
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& folder) {
  const std::string file = (folder / "config.json").string();
  std::ifstream stream(file);
  if (!stream) throw Error(file + ": cannot be read");
  const auto object = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  const Fields fields(file + ": ", object);

  const std::string family = fields.get<std::string>("model_type", "");
  const bool gemma = family == "gemma2" || family == "gemma3_text";
  constexpr const char* families[] = {"llama",       "mistral", "qwen2",     "qwen3",  "gemma2",
                                      "gemma3_text", "mixtral", "qwen3_moe", "gpt_oss"};
  if (std::find(std::begin(families), std::end(families), family) == std::end(families)) {
    std::string all;
    for (const char* known : families) all += (all.empty() ? "" : ", ") + std::string(known);
    fields.refuse("model_type", "'" + family + "' is none of " + all);
  }
  const char* const field = gemma ? "hidden_activation" : "hidden_act";
  const std::string activation = gemma ? "gelu_pytorch_tanh" : "silu";
  if (const std::string kind = fields.get<std::string>(field, activation); kind != activation)
    fields.refuse(field, "'" + kind + "' is not " + activation);
  if (fields.get("mlp_bias", false)) fields.refuse("mlp_bias", "is true, which the engine has no products for");

  ModelConfig c;
  c.vocab = fields.integer("vocab_size", 1, 1 << 18);
  c.hidden = fields.integer("hidden_size", 16, 1 << 16);
  c.intermediate = fields.integer("intermediate_size", 16, 1 << 18);
  c.layers = fields.integer("num_hidden_layers", 1, 1 << 10);
  c.q_heads = fields.integer("num_attention_heads", 1, 1 << 10);
  c.kv_heads = fields.integer("num_key_value_heads", 1, 1 << 10, c.q_heads);
  c.head_size = fields.integer("head_dim", 16, 256, c.hidden / c.q_heads);
  c.max_positions = fields.integer("max_position_embeddings", 1, 1 << 24, 2048);
  c.norm_eps = positive(fields, "rms_norm_eps", 1e-6f);
  c.tied_embeddings = fields.get("tie_word_embeddings", false);
  c.gpt_oss = family == "gpt_oss";
  c.out_bias = family != "qwen2" && fields.get("attention_bias", c.gpt_oss);
  c.qkv_bias = family == "qwen2" || c.out_bias;
  c.qk_norm = family == "qwen3" || family == "qwen3_moe";
  if (family == "mixtral" || family == "qwen3_moe" || c.gpt_oss) read_experts(fields, family == "mixtral", c);
  if (family == "mistral" || fields.get("use_sliding_window", false))
    c.sliding_window = fields.integer("sliding_window", 2, 1 << 24, 0);
  if (!gemma || !fields.has("rope_parameters") || !fields.inner("rope_parameters").has("full_attention"))
    c.rope = read_rope(fields);
  c.local_rope = c.rope;
  if (gemma) read_gemma(fields, family == "gemma3_text", c);
  if (c.gpt_oss) read_gpt_oss(fields, c);
  c.eos = read_tokens(fields, "eos_token_id", c.vocab);
  if (c.q_heads % c.kv_heads != 0) fields.refuse("num_attention_heads", "is no multiple of num_key_value_heads");
  if (gemma ? c.head_size != 256 : c.head_size != 64 && c.head_size != 128)
    fields.refuse("head_dim", gemma ? "is not 256" : "is neither 64 nor 128");
  if (c.hidden % 8 != 0 || c.intermediate % 8 != 0)
    fields.refuse("hidden_size", "or intermediate_size is no multiple of 8");
  return c;
}

}  // namespace engine
