// SPDX-License-Identifier: MIT
#include "config.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>

#include "error.hpp"

namespace engine {

namespace {

using nlohmann::json;

/// Reads fields of one JSON object; every failure names the file and the field.
class Fields {
 public:
  Fields(std::string file, const json& object) : file_(std::move(file)), object_(object) {}

  [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
    throw Error(file_ + ": " + name + " " + why);
  }
  bool has(const char* name) const { return object_.contains(name) && !object_[name].is_null(); }

  std::int32_t integer(const char* name, std::int64_t least, std::int64_t most) const {
    if (!has(name)) refuse(name, "is missing");
    if (!object_[name].is_number_integer()) refuse(name, "is no integer");
    const auto value = object_[name].get<std::int64_t>();
    if (value < least || value > most) refuse(name, "is " + std::to_string(value) + ", outside its range");
    return static_cast<std::int32_t>(value);
  }
  std::int32_t integer_or(const char* name, std::int64_t least, std::int64_t most, std::int32_t otherwise) const {
    return has(name) ? integer(name, least, most) : otherwise;
  }
  double number_or(const char* name, double otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_[name].is_number()) refuse(name, "is no number");
    const auto value = object_[name].get<double>();
    if (!(value > 0.0) || !std::isfinite(value)) refuse(name, "is not positive and finite");
    return value;
  }
  bool flag_or(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_[name].is_boolean()) refuse(name, "is neither true nor false");
    return object_[name].get<bool>();
  }
  std::string text_or(const char* name, const std::string& otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_[name].is_string()) refuse(name, "is no text");
    return object_[name].get<std::string>();
  }
  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> found;
    if (!object_[name].is_array()) refuse(name, "is no list");
    for (const json& text : object_[name]) {
      if (!text.is_string()) refuse(name, "has an entry that is no text");
      found.push_back(text.get<std::string>());
    }
    return found;
  }
  Fields inner(const char* name) const {
    if (!object_[name].is_object()) refuse(name, "is no object");
    return {file_ + ": " + name, object_[name]};
  }
  std::vector<std::int32_t> tokens(const char* name, std::int32_t vocab) const {
    std::vector<std::int32_t> found;
    if (!has(name)) return found;
    const json list = object_[name].is_array() ? object_[name] : json::array({object_[name]});
    for (const json& token : list) {
      if (!token.is_number_integer()) refuse(name, "has an entry that is no integer");
      const auto id = token.get<std::int64_t>();
      if (id < 0 || id >= vocab) refuse(name, "has a token outside the vocabulary");
      found.push_back(static_cast<std::int32_t>(id));
    }
    return found;
  }

 private:
  std::string file_;
  const json& object_;
};

/// `inner` has the type and its numbers; they may have theta, too.
RopeConfig read_rope(const Fields& inner, double theta) {
  RopeConfig rope;
  rope.theta = theta;
  rope.theta = inner.number_or("rope_theta", rope.theta);
  const std::string type = inner.text_or("rope_type", inner.text_or("type", "default"));
  if (type == "default") return rope;
  if (type != "linear" && type != "llama3" && type != "yarn")
    inner.refuse("rope_type", "'" + type + "' is none of default, linear, llama3, yarn");
  rope.factor = inner.number_or("factor", 1.0);
  rope.original_positions = inner.number_or("original_max_position_embeddings", rope.original_positions);
  if (type == "llama3") {
    rope.scaling = RopeScaling::llama3;
    rope.low_freq_factor = inner.number_or("low_freq_factor", rope.low_freq_factor);
    rope.high_freq_factor = inner.number_or("high_freq_factor", rope.high_freq_factor);
    if (rope.high_freq_factor <= rope.low_freq_factor) inner.refuse("high_freq_factor", "is not above low_freq_factor");
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    rope.beta_fast = inner.number_or("beta_fast", rope.beta_fast);
    rope.beta_slow = inner.number_or("beta_slow", rope.beta_slow);
    rope.truncate = inner.flag_or("truncate", true);
    if (rope.theta == 1.0) inner.refuse("rope_theta", "is 1, which yarn has no wave lengths for");
    if (inner.has("mscale") || inner.has("mscale_all_dim")) inner.refuse("mscale", "is not served");
    // A longer context is attended more sharply.
    const double sharper = rope.factor > 1.0 ? 0.1 * std::log(rope.factor) + 1.0 : 1.0;
    rope.attention_factor = inner.number_or("attention_factor", sharper);
  }
  return rope;
}

/// Newer configs keep theta beside the scaling, in "rope_parameters".
RopeConfig read_rope(const Fields& fields) {
  const char* const scaling = fields.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const double theta = fields.number_or("rope_theta", RopeConfig{}.theta);
  if (fields.has(scaling)) return read_rope(fields.inner(scaling), theta);
  RopeConfig rope;
  rope.theta = theta;
  return rope;
}

/// Which layers are local: as "layer_types" says, else all but every `pattern`-th.
void read_layer_types(const Fields& fields, std::int32_t pattern, ModelConfig& c) {
  for (std::int32_t i = 0; i < c.layers; ++i) c.local.push_back((i + 1) % pattern != 0);
  if (!fields.has("layer_types")) return;
  const std::vector<std::string> types = fields.texts("layer_types");
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
  c.renormalise = fields.flag_or("norm_topk_prob", false);
  if (fields.integer_or("decoder_sparse_step", 1, 1 << 10, 1) != 1)
    fields.refuse("decoder_sparse_step", "is not 1: some layers are dense");
  if (!fields.tokens("mlp_only_layers", 1 << 10).empty())
    fields.refuse("mlp_only_layers", "is not empty: some layers are dense");
}

/// Gemma's layers are local or see all tokens. Gemma 3 has another theta for local ones, and no scaling there.
void read_gemma(const Fields& fields, bool third, ModelConfig& c) {
  c.gemma = c.tied_embeddings = true;
  c.qk_norm = third;
  c.sliding_window = fields.integer_or("sliding_window", 2, 1 << 24, 4096);
  c.softmax_scale = static_cast<float>(1.0 / std::sqrt(fields.number_or("query_pre_attn_scalar", 256.0)));
  c.attention_cap = static_cast<float>(fields.number_or("attn_logit_softcapping", third ? 0.0 : 50.0));
  c.logits_cap = static_cast<float>(fields.number_or("final_logit_softcapping", third ? 0.0 : 30.0));
  const std::int32_t pattern = fields.integer_or("sliding_window_pattern", 1, 1 << 10, third ? 6 : 2);
  read_layer_types(fields, pattern, c);
  const bool nested = fields.has("rope_parameters") && fields.inner("rope_parameters").has("full_attention");
  if (nested) {
    const Fields ropes = fields.inner("rope_parameters");
    c.rope = read_rope(ropes.inner("full_attention"), third ? 1e6 : 1e4);
    c.local_rope = ropes.has("sliding_attention") ? read_rope(ropes.inner("sliding_attention"), 1e4) : c.rope;
  } else if (third) {
    c.local_rope.theta = fields.number_or("rope_local_base_freq", 1e4);
  }
}

/// Every other layer of gpt-oss is local, and all of them have experts of MXFP4.
void read_gpt_oss(const Fields& fields, ModelConfig& c) {
  c.sliding_window = fields.integer_or("sliding_window", 2, 1 << 24, 128);
  read_layer_types(fields, 2, c);
  c.swiglu_alpha = static_cast<float>(fields.number_or("swiglu_alpha", c.swiglu_alpha));
  c.swiglu_limit = static_cast<float>(fields.number_or("swiglu_limit", c.swiglu_limit));
  if (!fields.has("quantization_config") || fields.inner("quantization_config").text_or("quant_method", "") != "mxfp4")
    fields.refuse("quantization_config", "is not that of mxfp4: experts of other formats are not served");
  if (c.hidden % 32 != 0 || c.intermediate % 32 != 0)
    fields.refuse("hidden_size", "or intermediate_size is no multiple of 32, as MXFP4 needs it");
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& folder) {
  const std::string file = (folder / "config.json").string();
  std::ifstream stream(file);
  if (!stream) throw Error(file + ": cannot be read");
  const json object = json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) throw Error(file + ": is no JSON object");
  const Fields fields(file, object);

  const std::string family = fields.text_or("model_type", "");
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
  if (const std::string kind = fields.text_or(field, activation); kind != activation)
    fields.refuse(field, "'" + kind + "' is not " + activation);
  if (fields.flag_or("mlp_bias", false)) fields.refuse("mlp_bias", "is true, which the engine has no products for");

  ModelConfig c;
  c.vocab = fields.integer("vocab_size", 1, 1 << 18);
  c.hidden = fields.integer("hidden_size", 16, 1 << 16);
  c.intermediate = fields.integer("intermediate_size", 16, 1 << 18);
  c.layers = fields.integer("num_hidden_layers", 1, 1 << 10);
  c.q_heads = fields.integer("num_attention_heads", 1, 1 << 10);
  c.kv_heads = fields.integer_or("num_key_value_heads", 1, 1 << 10, c.q_heads);
  c.head_size = fields.integer_or("head_dim", 16, 256, c.hidden / c.q_heads);
  c.max_positions = fields.integer_or("max_position_embeddings", 1, 1 << 24, 2048);
  c.norm_eps = static_cast<float>(fields.number_or("rms_norm_eps", 1e-6));
  c.tied_embeddings = fields.flag_or("tie_word_embeddings", false);
  c.gpt_oss = family == "gpt_oss";
  c.out_bias = family != "qwen2" && fields.flag_or("attention_bias", c.gpt_oss);
  c.qkv_bias = family == "qwen2" || c.out_bias;
  c.qk_norm = family == "qwen3" || family == "qwen3_moe";
  if (family == "mixtral" || family == "qwen3_moe" || c.gpt_oss) read_experts(fields, family == "mixtral", c);
  if (family == "mistral" || fields.flag_or("use_sliding_window", false))
    c.sliding_window = fields.integer_or("sliding_window", 2, 1 << 24, 0);
  if (!gemma || !fields.has("rope_parameters") || !fields.inner("rope_parameters").has("full_attention"))
    c.rope = read_rope(fields);
  c.local_rope = c.rope;
  if (gemma) read_gemma(fields, family == "gemma3_text", c);
  if (c.gpt_oss) read_gpt_oss(fields, c);
  c.eos = fields.tokens("eos_token_id", c.vocab);
  if (c.q_heads % c.kv_heads != 0) fields.refuse("num_attention_heads", "is no multiple of num_key_value_heads");
  if (gemma ? c.head_size != 256 : c.head_size != 64 && c.head_size != 128)
    fields.refuse("head_dim", gemma ? "is not 256" : "is neither 64 nor 128");
  if (c.hidden % 8 != 0 || c.intermediate % 8 != 0)
    fields.refuse("hidden_size", "or intermediate_size is no multiple of 8");
  return c;
}

/// The part of a frequency that stays undivided.
static double kept_of(const RopeConfig& rope, int head_size, int i, double frequency) {
  const auto ramp = [](double x, double none, double all) {
    return std::fmin(std::fmax((x - none) / (all - none), 0.0), 1.0);
  };
  const double full_turn = 2.0 * std::numbers::pi;
  if (rope.scaling == RopeScaling::llama3)
    return ramp(rope.original_positions * frequency / full_turn, rope.low_freq_factor, rope.high_freq_factor);
  if (rope.scaling == RopeScaling::linear) return 0.0;
  // The dimension whose wave turns so often in the original context.
  const auto dimension = [&](double turns) {
    return head_size * std::log(rope.original_positions / (turns * full_turn)) / (2.0 * std::log(rope.theta));
  };
  double fast = dimension(rope.beta_fast), slow = dimension(rope.beta_slow);
  if (rope.truncate) fast = std::floor(fast), slow = std::ceil(slow);
  fast = std::fmax(fast, 0.0), slow = std::fmin(slow, head_size - 1.0);
  return ramp(i, fast == slow ? slow + 0.001 : slow, fast);
}

RopeTables rope_tables(const ModelConfig& config, const RopeConfig& rope) {
  const int half = config.head_size / 2;
  RopeTables tables;
  tables.cos.resize(static_cast<std::size_t>(config.max_positions) * half);
  tables.sin.resize(tables.cos.size());
  for (int i = 0; i < half; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / config.head_size);
    const double kept = kept_of(rope, config.head_size, i, frequency);
    frequency *= kept + (1.0 - kept) / rope.factor;
    for (int position = 0; position < config.max_positions; ++position) {
      const auto at = static_cast<std::size_t>(position) * half + i;
      tables.cos[at] = static_cast<float>(std::cos(position * frequency) * rope.attention_factor);
      tables.sin[at] = static_cast<float>(std::sin(position * frequency) * rope.attention_factor);
    }
  }
  return tables;
}

}  // namespace engine
