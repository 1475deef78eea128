// SPDX-License-Identifier: MIT
#include "bench/step/step.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "bench/harness/model_time.hpp"
#include "tilewave/arch/backend.hpp"

namespace tilewave::bench {

static ArchId chosen_arch{};  // of the next model

namespace {

constexpr int page_tokens = 64;

/// Lets the launches of one part through, and counts them.
class PartOnly final : public engine::Kernels {
 public:
  PartOnly(engine::Kernels& kernels, StepPart part) : kernels_(kernels), part_(part) {}
  int launches() const { return launches_; }

  void gather_rows(const void* table, std::int32_t table_rows, const std::int32_t* ids, float scale, void* out,
                   std::int32_t rows) override {
    if (wanted(StepPart::embedding)) kernels_.gather_rows(table, table_rows, ids, scale, out, rows);
  }
  void norm(const void* x, void* sum, const void* weight, void* out, std::int32_t rows) override {
    if (wanted(StepPart::norm)) kernels_.norm(x, sum, weight, out, rows);
  }
  engine::Fusions fuses(const engine::Linear& by, std::int32_t rows) const override { return kernels_.fuses(by, rows); }
  void linear(const void* x, const engine::Linear& by, const void* residual, void* out, std::int32_t rows) override {
    constexpr StepPart of_layer[] = {StepPart::qkv, StepPart::out, StepPart::down};
    if (wanted(of_layer[linears_++ % 3])) kernels_.linear(x, by, residual, out, rows);
  }
  void gated(const void* x, const engine::Linear& by, void* out, std::int32_t rows) override {
    if (wanted(StepPart::gate_up)) kernels_.gated(x, by, out, rows);
  }
  void experts(const void* x, const engine::Experts& by, void* sum, std::int32_t rows) override {
    if (wanted(StepPart::gate_up)) kernels_.experts(x, by, sum, rows);
  }
  void logits(const void* x, const engine::Linear& by, float* out, std::int32_t rows) override {
    if (wanted(StepPart::logits)) kernels_.logits(x, by, out, rows);
  }
  void rotate_and_cache(void* qkv, const engine::CacheWrite& write) override {
    if (wanted(StepPart::cache)) kernels_.rotate_and_cache(qkv, write);
  }
  void attend(const void* qkv, const void* k_cache, const void* v_cache, std::int32_t window, const float* sinks,
              void* out, const engine::StepTables& step) override {
    if (wanted(StepPart::attention)) kernels_.attend(qkv, k_cache, v_cache, window, sinks, out, step);
  }
  void sample(const float* logits, const engine::SampleTables& tables, std::int32_t* tokens, float* logprobs) override {
    if (wanted(StepPart::sampling)) kernels_.sample(logits, tables, tokens, logprobs);
  }
  std::uint64_t workspace_moves() const override { return kernels_.workspace_moves(); }

 private:
  bool wanted(StepPart part) {
    if (part_ != StepPart::step && part_ != part) return false;
    ++launches_;
    return true;
  }

  engine::Kernels& kernels_;
  StepPart part_;
  int launches_ = 0, linears_ = 0;
};

engine::ModelConfig config_of(const StepCase& c, int layers, bool cut) {
  const Model& m = share_of(c.model, 1);
  engine::ModelConfig config;
  config.vocab = cut ? 512 : m.vocabulary;
  config.hidden = cut ? 128 : m.hidden;
  config.intermediate = cut ? 256 : m.intermediate;
  config.layers = layers;
  config.q_heads = cut ? 2 * m.q_heads / m.kv_heads : m.q_heads;
  config.kv_heads = cut ? 2 : m.kv_heads;
  config.head_size = m.head_size;
  config.max_positions = c.context + page_tokens;
  config.weights = c.weights, config.fp8_cache = c.fp8_cache;
  config.qk_norm = c.model.starts_with("qwen3");
  config.rope.theta = 500000.0;
  return config;
}

/// K and V are as large as those of a model: heads of about unit size. They repeat every 8 MiB: a step of 64 sequences has
/// 64 such buffers.
void fill_cache(void* to, std::size_t bytes, DType type) {
  if (!fills(bytes)) return;
  std::vector<std::uint16_t> values(std::min(bytes, std::size_t{1} << 23) / 2);
  std::uint32_t state = 7;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  };
  for (std::uint16_t& value : values)
    value = type == DType::bf16 ? f32_to_bf16(next())
                                : static_cast<std::uint16_t>(f32_to_fp8(type, next()) << 8 | f32_to_fp8(type, next()));
  engine::must(hipMemcpy(to, values.data(), 2 * values.size(), hipMemcpyHostToDevice), "filling the cache");
  for (std::size_t at = 2 * values.size(); at < bytes; at += 2 * values.size())
    engine::must(hipMemcpy(static_cast<std::byte*>(to) + at, to, std::min(2 * values.size(), bytes - at),
                           hipMemcpyDeviceToDevice),
                 "filling the cache");
}

engine::StepInput input_of(const StepCase& c, const engine::ModelConfig& config, int pages) {
  engine::StepInput in;
  const int fresh = c.phase == StepPhase::decode ? 1 : c.context;
  in.table_columns = ceil_div(c.context, page_tokens);
  std::vector<std::int32_t> free(pages);
  for (int i = 0; i < pages; ++i) free[i] = i;
  std::uint32_t state = static_cast<std::uint32_t>(c.seed);
  for (int i = pages - 1; i > 0; --i) {  // pages lie where requests that came and went have left them
    state = state * 1664525u + 1013904223u;
    std::swap(free[i], free[(state >> 8) % static_cast<std::uint32_t>(i + 1)]);
  }
  in.q_starts.push_back(0);
  for (int s = 0; s < c.batch; ++s) {
    const std::int32_t* const own = free.data() + s * in.table_columns;
    in.block_table.insert(in.block_table.end(), own, own + in.table_columns);
    for (int i = c.context - fresh; i < c.context; ++i) {
      in.ids.push_back((7 * i + 13 * s) % config.vocab);
      in.positions.push_back(i);
      in.slots.push_back(std::int64_t{own[i / page_tokens]} * page_tokens + i % page_tokens);
    }
    in.q_starts.push_back(static_cast<std::int32_t>(in.ids.size()));
    in.kv_lengths.push_back(c.context);
    in.sample_from.push_back(in.q_starts.back() - 1);
    in.temperature.push_back(0.0f);
    in.top_p.push_back(1.0f);
    in.top_k.push_back(0);
    in.seed.push_back(c.seed);
    in.offset.push_back(static_cast<std::uint64_t>(c.context));
  }
  return in;
}

}  // namespace

int layers_of(const Model& model) {
  if (model.experts > 0 || model.latent.any())
    throw std::invalid_argument("--model=" + std::string(model.name) + ": the engine serves dense models");
  if (model.head_size != 64 && model.head_size != 128)
    throw std::invalid_argument("--model=" + std::string(model.name) + ": the engine serves heads of 64 and 128");
  constexpr std::pair<std::string_view, int> layers[] = {{"llama3-8b", 32},  {"llama3-70b", 80}, {"llama3-405b", 126},
                                                         {"mistral-7b", 32}, {"qwen3-8b", 36},   {"qwen3-32b", 64}};
  for (const auto& [name, count] : layers)
    if (name == model.name) return count;
  throw std::invalid_argument("--model=" + std::string(model.name) + ": its number of layers is not known here");
}

Work step_work(const engine::ModelConfig& m, const StepCase& c, StepPart part) {
  const std::int64_t rows = c.new_tokens(), sequences = c.batch, layers = m.layers;
  const std::int64_t q = std::int64_t{m.q_heads} * m.head_size, kv = 2 * std::int64_t{m.kv_heads} * m.head_size;
  const std::int64_t cache = m.fp8_cache ? 1 : 2;  // bytes of an element
  const std::int64_t of_128 = m.weights == engine::WeightFormat::fp8    ? 128
                              : m.weights == engine::WeightFormat::int4 ? 66
                                                                        : 256;  // bytes of weights
  const auto product = [&](std::int64_t n, std::int64_t k, std::int64_t of_rows) {
    return Work{.bytes = n * k / 128 * of_128, .flops = 2 * n * k * of_rows};
  };
  const auto times = [](Work w, std::int64_t n) { return Work{.bytes = w.bytes * n, .flops = w.flops * n}; };
  // A query of a prefill sees half of the keys on average.
  const std::int64_t seen = c.phase == StepPhase::decode ? c.context : (c.context + 1) / 2;
  switch (part) {
    case StepPart::embedding: return {.bytes = 4 * (rows + (c.gathers() - 1) * sequences) * m.hidden};
    case StepPart::norm: return {.bytes = 4 * (2 * layers * rows + sequences) * m.hidden};
    case StepPart::qkv: return times(product(m.qkv_columns(), m.hidden, rows), layers);
    case StepPart::cache: return {.bytes = layers * rows * 2 * (2 * q + 2 * kv)};
    case StepPart::attention:
      return {.bytes = layers * (cache * sequences * c.context * kv + 4 * rows * q),
              .flops = layers * 4 * rows * seen * q};
    case StepPart::out: return times(product(m.hidden, q, rows), layers);
    case StepPart::gate_up: return times(product(2 * std::int64_t{m.intermediate}, m.hidden, rows), layers);
    case StepPart::down: return times(product(m.hidden, m.intermediate, rows), layers);
    case StepPart::logits:
      return {.bytes = 2 * std::int64_t{m.vocab} * m.hidden, .flops = 2 * std::int64_t{m.vocab} * m.hidden * sequences};
    case StepPart::sampling: return {.bytes = 4 * sequences * m.vocab};
    case StepPart::gaps: return {};
    case StepPart::step: break;
  }
  Work all;
  for (const StepPart p : all_step_parts) {
    if (p == StepPart::step) continue;
    const Work w = step_work(m, c, p);
    all.bytes += w.bytes, all.flops += w.flops;
  }
  return all;
}

StepKernels& step_kernels() {
  static StepKernels all;
  return all;
}

StepModel::StepModel(const StepCase& c, int layers, bool cut) : config_(config_of(c, layers, cut)) {
  const int pages = c.batch * ceil_div(c.context, page_tokens);
  chosen_arch = c.arch;
  model_ =
      std::make_unique<engine::Model>(config_, engine::random_weights(config_, facts_of(c.arch).matrix == Matrix::mma),
                                      engine::CacheShape{pages, page_tokens}, c.new_tokens());
  for (std::int32_t i = 0; i < config_.layers; ++i)
    for (const bool values : {false, true}) {
      const engine::Buffer& cache = model_->cache(i, values);
      fill_cache(cache.data(), cache.bytes(), c.fp8_cache ? facts_of(c.arch).fp8 : DType::bf16);
    }
  step_ = model_->upload(input_of(c, config_, pages));
}

int StepModel::queue(StepPart part) {
  PartOnly kernels(model_->kernels(), part);
  model_->queue(kernels, step_);
  return kernels.launches();
}

int StepModel::capture(StepPart part) {
  int launches = 0;
  graph_.reset();
  graph_.emplace(model_->stream(), [&] { launches = queue(part); });
  return launches;
}

std::vector<float> StepModel::logits() const {
  model_->stream().wait();
  return model_->logits(static_cast<std::size_t>(step_.sample.rows));
}

const engine::Buffer* StepModel::tensor(int layer, std::string_view name) const {
  const engine::ModelWeights& weights = model_->weights();
  if (layer >= config_.layers) return nullptr;
  if (layer < 0) {
    return name == "embeddings"   ? &weights.embeddings
           : name == "final_norm" ? &weights.final_norm
           : name == "output"     ? &weights.output
           : name == "logits"     ? &model_->logits_buffer()
                                  : nullptr;
  }
  const engine::LayerWeights& of_layer = weights.layers[static_cast<std::size_t>(layer)];
  const std::pair<std::string_view, const engine::Buffer*> named[] = {{"attention_norm", &of_layer.attention_norm},
                                                                      {"qkv", &of_layer.qkv.data},
                                                                      {"out", &of_layer.out.data},
                                                                      {"mlp_norm", &of_layer.mlp_norm},
                                                                      {"gate_up", &of_layer.gate_up.data},
                                                                      {"down", &of_layer.down.data},
                                                                      {"k_cache", &model_->cache(layer, false)},
                                                                      {"v_cache", &model_->cache(layer, true)}};
  for (const auto& [word, buffer] : named)
    if (word == name) return buffer;
  return nullptr;
}

}  // namespace tilewave::bench

/// The engine asks for the kernels of its chip; here they are those of the row.
std::unique_ptr<engine::Kernels> engine::make_kernels(const ModelConfig& config, const CacheShape& cache,
                                                      tilewave::hipStream_t stream) {
  return tilewave::bench::step_kernels().at(tilewave::bench::chosen_arch)(config, cache, stream);
}
