// SPDX-License-Identifier: MIT
// Part 2 of the tutorial. Read queue_layer first: a layer of all families but Gemma is its first half.
#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <tilewave/core/dtype.hpp>
#include <tilewave/core/math.hpp>

namespace engine {

namespace {

constexpr std::size_t most_graphs = 256;

std::size_t bf16_bytes(std::int64_t rows, std::int64_t columns) { return static_cast<std::size_t>(rows * columns) * 2; }

/// Bytes that a step's tables take at most: eleven of them with at most 80 bytes for a token, and the block table. Its
/// width is the pages of the longest sequence, rounded up to a power of two.
std::size_t table_bytes(const ModelConfig& c, const CacheShape& cache, std::int32_t tokens) {
  const std::int64_t pages = std::min(cache.pages, ceil_div(c.max_positions, cache.page_tokens));
  const std::int64_t block_table = 4 * 2 * pages * std::min(tokens, most_logit_rows);
  return 16 * 256 + static_cast<std::size_t>(tokens) * 80 + static_cast<std::size_t>(block_table);
}

}  // namespace

Model::Model(const ModelConfig& config, ModelWeights weights, const CacheShape& cache, std::int32_t most_tokens,
             std::unique_ptr<Kernels> kernels)
    : config_(config),
      kernels_(kernels ? std::move(kernels) : make_kernels(config_, cache, stream_.get())),
      most_tokens_(most_tokens),
      weights_(std::move(weights)),
      tables_(table_bytes(config_, cache, most_tokens)) {
  const ModelConfig& c = config_;
  const auto angles = [&](const RopeFrequencies& rope, Buffer& cos, Buffer& sin) {
    const RopeTables tables = rope_tables(rope, c.head_size, c.max_positions);
    cos = on_device(tables.cos);
    sin = on_device(tables.sin);
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
  squares_ = Buffer(most_square_rows * static_cast<std::size_t>(c.hidden / 64) * sizeof(float));
  drawn_ = Buffer(rows * (sizeof(std::int32_t) + sizeof(float)));
}

static Linear linear_of(const Weight& weight, std::int32_t n, std::int32_t k) {
  Linear by{weight.data.data(), weight.scale.data(), weight.bias.data(), n, k, weight.format};
  by.norm_in_weight = weight.normed;
  return by;
}

/// Normalises the residual stream for the product `by`, and returns the rows that the product takes: the stream itself
/// where the product normalises them.
const void* Model::queue_norm(Kernels& kernels, const Buffer& weight, Linear& by, std::int32_t tokens) {
  by.squares = squares_ready_ ? squares_.as<float>() : nullptr;
  if (kernels.fuses(by, tokens).norm) {
    by.norm = weight.data();
    return hidden_.data();
  }
  kernels.norm(hidden_.data(), nullptr, weight.data(), normed_.data(), tokens);
  return normed_.data();
}

/// A product whose result joins the residual stream. It leaves the squares of its rows where the next product uses them.
void Model::queue_residual(Kernels& kernels, const void* x, Linear by, std::int32_t tokens) {
  squares_ready_ = config_.experts == 0 && kernels.fuses(by, tokens).squares;
  if (squares_ready_) by.squares_out = squares_.as<float>();
  kernels.linear(x, by, hidden_.data(), hidden_.data(), tokens);
}

/// From the residual stream, or (Gemma) from normed_, to attention_.
void Model::queue_attention(Kernels& kernels, std::int32_t index, const StepTables& step) {
  const ModelConfig& c = config_;
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const LayerCache& cache = caches_[static_cast<std::size_t>(index)];
  const bool local = c.is_local(index) && local_cos_.data() != nullptr;
  Linear qkv = linear_of(layer.qkv, c.qkv_columns(), c.hidden);
  const void* const rows = c.gemma ? normed_.data() : queue_norm(kernels, layer.attention_norm, qkv, step.tokens);
  const CacheWrite write{.q_norm = layer.q_norm.data(),
                         .k_norm = layer.k_norm.data(),
                         .cos = (local ? local_cos_ : cos_).as<float>(),
                         .sin = (local ? local_sin_ : sin_).as<float>(),
                         .k_cache = cache.k.data(),
                         .v_cache = cache.v.data(),
                         .step = step};
  if (kernels.fuses(qkv, step.tokens).cache) qkv.cache = &write;
  kernels.linear(rows, qkv, nullptr, qkv_.data(), step.tokens);
  if (qkv.cache == nullptr) kernels.rotate_and_cache(qkv_.data(), write);
  kernels.attend(qkv_.data(), cache.k.data(), cache.v.data(), c.window_of(index), layer.sinks.as<float>(),
                 attention_.data(), step);
}

void Model::queue_layer(Kernels& kernels, std::int32_t index, const StepTables& step) {
  const ModelConfig& c = config_;
  const LayerWeights& layer = weights_.layers[static_cast<std::size_t>(index)];
  const Linear out = linear_of(layer.out, c.hidden, c.q_heads * c.head_size);
  Linear gate_up = linear_of(layer.gate_up, 2 * c.intermediate, c.hidden);
  const Linear down = linear_of(layer.down, c.hidden, c.intermediate);
  const std::int32_t tokens = step.tokens;

  if (!c.gemma) {
    queue_attention(kernels, index, step);
    queue_residual(kernels, attention_.data(), out, tokens);
    if (c.experts > 0) {
      kernels.norm(hidden_.data(), nullptr, layer.mlp_norm.data(), normed_.data(), tokens);
      const Experts experts{.router = linear_of(layer.router, c.experts, c.hidden),
                            .gate_up = gate_up,
                            .down = down,
                            .chosen = c.experts_per_token,
                            .renormalise = c.renormalise};
      return kernels.experts(normed_.data(), experts, hidden_.data(), tokens);
    }
    const void* const rows = queue_norm(kernels, layer.mlp_norm, gate_up, tokens);
    kernels.gated(rows, gate_up, gated_.data(), tokens);
    queue_residual(kernels, gated_.data(), down, tokens);
    return;
  }
  // A branch is normalised before it joins the stream, which it does in the next norm.
  const auto norm = [&](const Buffer& x, void* sum, const Buffer& weight, const Buffer& out_rows) {
    kernels.norm(x.data(), sum, weight.data(), out_rows.data(), tokens);
  };
  norm(index == 0 ? hidden_ : branch_, index == 0 ? nullptr : hidden_.data(), layer.attention_norm, normed_);
  queue_attention(kernels, index, step);
  kernels.linear(attention_.data(), out, nullptr, branch_.data(), tokens);
  norm(branch_, nullptr, layer.attention_post_norm, branch_);
  norm(branch_, hidden_.data(), layer.mlp_norm, normed_);
  kernels.gated(normed_.data(), gate_up, gated_.data(), tokens);
  kernels.linear(gated_.data(), down, nullptr, branch_.data(), tokens);
  norm(branch_, nullptr, layer.mlp_post_norm, branch_);
}

void Model::queue(Kernels& kernels, const Step& step) {
  const StepTables& tables = step.tables;
  const ModelConfig& c = config_;
  const std::int32_t rows = step.sample.rows;
  // Gemma's factor is rounded as its activations are.
  const float scale = c.gemma ? bf16_to_f32(f32_to_bf16(std::sqrt(static_cast<float>(c.hidden)))) : 1.0f;
  kernels.gather_rows(weights_.embeddings.data(), c.vocab, tables.ids, scale, hidden_.data(), tables.tokens);
  squares_ready_ = false;
  for (std::int32_t i = 0; i < c.layers; ++i) queue_layer(kernels, i, tables);
  if (rows == 0) return;
  // Only some tokens need logits: their rows are gathered into the idle projection's room.
  const bool all = step.sample.all;
  const Buffer &stream = all ? hidden_ : normed_, &normed = all ? normed_ : hidden_;
  const Buffer& branch = all ? branch_ : branch_rows_;  // Gemma's last one joins the stream here
  const Buffer& output = c.tied_embeddings ? weights_.embeddings : weights_.output;
  const auto gather = [&](const Buffer& from, const Buffer& to) {
    if (!all) kernels.gather_rows(from.data(), tables.tokens, step.sample.from, 1.0f, to.data(), rows);
  };
  gather(hidden_, normed_);
  if (c.gemma) gather(branch_, branch_rows_);
  kernels.norm((c.gemma ? branch : stream).data(), c.gemma ? stream.data() : nullptr, weights_.final_norm.data(),
               normed.data(), rows);
  kernels.logits(normed.data(), {output.data(), nullptr, nullptr, c.vocab, c.hidden}, logits_.as<float>(), rows);
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
  sample.all = rows == tokens;
  for (std::int32_t i = 0; i < rows; ++i) sample.all = sample.all && in.sample_from[i] == i;
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
  const auto [at, first] = graphs_.try_emplace(
      {step.tables.sequences, step.tables.table_columns, step.sample.rows, step.sample.all}, std::nullopt);
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
  must(hipMemcpy(drawn.data(), drawn_.data(), drawn.size(), hipMemcpyDeviceToHost), "reading tokens");
  std::memcpy(out.tokens.data(), drawn.data(), rows * sizeof(std::int32_t));
  std::memcpy(out.logprobs.data(), drawn.data() + rows * sizeof(std::int32_t), rows * sizeof(float));
  return out;
}

std::vector<float> Model::logits(std::size_t rows) const {
  std::vector<float> values(rows * config_.vocab);
  must(hipMemcpy(values.data(), logits_.data(), values.size() * sizeof(float), hipMemcpyDeviceToHost),
       "reading logits");
  return values;
}

}  // namespace engine
