// SPDX-License-Identifier: MIT
#include "kernels.hpp"

#include <array>
#include <map>
#include <tilewave/ops/embedding/registry.hpp>
#include <tilewave/ops/flash_attention/registry.hpp>
#include <tilewave/ops/gemm/registry.hpp>
#include <tilewave/ops/kv_cache_write/registry.hpp>
#include <tilewave/ops/norm/registry.hpp>
#include <tilewave/ops/paged_attention/registry.hpp>
#include <tilewave/ops/sampling/registry.hpp>

#include "room.hpp"

namespace engine {

using namespace tilewave;

namespace {

void served(const Status& status, const char* op) {
  if (!status.ok()) throw Error(std::string(op) + ": " + std::string(name_of(status.code)) + ": " + status.reason);
}

constexpr EmbeddingSpec rows_spec{};
constexpr NormSpec norm_spec{};
constexpr GemmSpec linear_spec{};
constexpr GemmSpec gated_spec{.activation = ActivationKind::silu, .gated = true};
constexpr GemmSpec logits_spec{.out = DType::f32};
constexpr KvCacheWriteSpec cache_spec{.fused = true};
constexpr KvCacheWriteSpec norm_cache_spec{.fused = true, .norm = true};
constexpr SamplingSpec sampling_spec{.x = DType::f32};

/// Decode and flash attention read one cache: pages of whole tokens.
template <int head_size>
constexpr PagedAttentionSpec decode_spec{.head_size = head_size, .values = ValueLayout::token_major};
template <int head_size>
constexpr FlashAttentionSpec mixed_spec{.head_size = head_size, .value_size = head_size, .storage = KvStorage::paged};

template <GemmSpec spec>
Status make_gemm(const GemmProblem& p, GemmPlan& plan) {
  return gemm_plan<Room, spec>(p, plan);
}

}  // namespace

/// Plans are kept by what they depend on: the op's spec is the map's name, extents are its key.
struct Kernels::Plans {
  using Shape = std::array<std::int32_t, 3>;

  ModelConfig config;
  CacheShape cache;
  hipStream_t stream;
  Buffer workspace{};
  std::map<std::int32_t, EmbeddingPlan> rows{};
  std::map<std::int32_t, NormPlan> norms{};
  std::map<std::array<std::int32_t, 4>, GemmPlan> linears{};
  std::map<Shape, GemmPlan> gates{}, logits{};
  std::map<std::int32_t, KvCacheWritePlan> writes{};
  std::map<Shape, PagedAttentionPlan> decodes{};
  std::map<std::array<std::int32_t, 4>, FlashAttentionPlan> mixed{};
  std::map<std::int32_t, SamplingPlan> samplings{};

  /// Makes the plan if the map has none yet, gives the call its workspace, and queues it.
  template <class Plan, class Problem, class Make>
  void launch(const char* op, Plan& plan, Problem p, const Make& make) {
    if (plan.entry == nullptr) served(make(p, plan), op);
    if constexpr (requires { p.workspace; }) {
      const std::size_t bytes = plan.workspace_bytes(p);
      if (bytes > workspace.bytes()) {
        must(hipStreamSynchronize(stream), op);  // kernels may still use the old one
        workspace = Buffer(bytes);
      }
      p.workspace = workspace.data(), p.workspace_bytes = workspace.bytes();
    }
    served(plan.launch(p, stream), op);
  }

  template <KvCacheWriteSpec spec>
  void write(KvCacheWriteProblem p) {
    p.spec = spec;
    launch("kv_cache_write", writes[p.tokens], p, kv_cache_write_plan<Room, spec>);
  }

  template <int head_size>
  void attend(const void* q, const void* k, const void* v, void* out, const StepTables& step) {
    const ModelConfig& c = config;
    const std::int64_t row = c.qkv_columns();
    const std::int32_t left = c.sliding_window > 0 ? c.sliding_window - 1 : 0;  // tokens before one's own
    if (step.most_queries == 1) {
      PagedAttentionProblem p{.q = q, .k = k, .v = v, .out = out};
      p.block_table = step.block_table, p.context_lengths = step.kv_lengths;
      p.spec = decode_spec<head_size>;
      p.sliding_window = left;
      p.batch = step.sequences, p.num_q_heads = c.q_heads, p.num_kv_heads = c.kv_heads;
      p.block_size = cache.page_tokens, p.table_columns = step.table_columns, p.num_pages = cache.pages;
      p = PagedAttentionProblem::nhd(p);
      p.q_row_stride = row;
      launch("paged_attention", decodes[{step.sequences, step.table_columns, 0}], p,
             paged_attention_plan<Room, decode_spec<head_size>>);
      return;
    }
    FlashAttentionProblem p{.q = q, .k = k, .v = v, .out = out};
    p.q_starts = step.q_starts, p.kv_lengths = step.kv_lengths, p.block_table = step.block_table;
    p.spec = mixed_spec<head_size>;
    p.causal = true;
    if (left > 0) p.window_left = left;
    p.batch = step.sequences, p.q_length = step.most_queries, p.total_q = step.tokens;
    p.q_heads = c.q_heads, p.kv_heads = c.kv_heads;
    p.block_size = cache.page_tokens, p.table_columns = step.table_columns, p.num_pages = cache.pages;
    p = FlashAttentionProblem::nhd(p);
    p.q_strides.token = row;
    launch("flash_attention", mixed[{step.sequences, step.tokens, step.most_queries, step.table_columns}], p,
           flash_attention_plan<Room, mixed_spec<head_size>>);
  }
};

Kernels::Kernels(const ModelConfig& config, const CacheShape& cache, hipStream_t stream)
    : plans_(new Plans{.config = config, .cache = cache, .stream = stream}) {}
Kernels::~Kernels() = default;

void Kernels::gather_rows(const void* table, std::int32_t table_rows, const std::int32_t* ids, void* out,
                          std::int32_t rows) {
  EmbeddingProblem p{.spec = rows_spec, .table = table, .ids = ids, .out = out};
  p.rows = rows, p.columns = plans_->config.hidden, p.vocab_rows = table_rows;
  p.table_stride = p.out_stride = p.columns;
  plans_->launch("embedding", plans_->rows[rows], p, embedding_plan<Room, rows_spec>);
}

void Kernels::norm(const void* x, const void* weight, void* out, std::int32_t rows) {
  NormProblem p{.spec = norm_spec, .x = x, .weight = weight, .out = out};
  p.eps = plans_->config.norm_eps;
  p.rows = rows, p.columns = plans_->config.hidden;
  p.x_strides = p.out_strides = {.outer = p.columns};
  plans_->launch("norm", plans_->norms[rows], p, norm_plan<Room, norm_spec>);
}

void Kernels::linear(const void* x, const Linear& by, const void* residual, void* out, std::int32_t rows) {
  GemmProblem p = GemmProblem::packed(linear_spec, x, by.weight, out, rows, by.n, by.k);
  if (by.bias != nullptr) p = p.with_bias(by.bias);
  if (residual != nullptr) p = p.with_residual(residual);
  const std::int32_t extras = (by.bias != nullptr ? 1 : 0) + (residual != nullptr ? 2 : 0);
  plans_->launch("gemm", plans_->linears[{rows, by.n, by.k, extras}], p, make_gemm<linear_spec>);
}

void Kernels::gated(const void* x, const Linear& by, void* out, std::int32_t rows) {
  const GemmProblem p = GemmProblem::packed(gated_spec, x, by.weight, out, rows, by.n, by.k);
  plans_->launch("gated gemm", plans_->gates[{rows, by.n, by.k}], p, make_gemm<gated_spec>);
}

void Kernels::logits(const void* x, const Linear& by, float* out, std::int32_t rows) {
  const GemmProblem p = GemmProblem::packed(logits_spec, x, by.weight, out, rows, by.n, by.k);
  plans_->launch("gemm of logits", plans_->logits[{rows, by.n, by.k}], p, make_gemm<logits_spec>);
}

void Kernels::rotate_and_cache(void* qkv, const void* q_norm, const void* k_norm, const float* cos, const float* sin,
                               void* k_cache, void* v_cache, const StepTables& step) {
  const ModelConfig& c = plans_->config;
  const std::int64_t q_columns = std::int64_t{c.q_heads} * c.head_size,
                     kv_columns = std::int64_t{c.kv_heads} * c.head_size;
  auto* const q = static_cast<std::uint16_t*>(qkv);
  KvCacheWriteProblem p{.k = q + q_columns, .v = q + q_columns + kv_columns, .k_cache = k_cache, .v_cache = v_cache};
  p.slots = step.slots, p.positions = step.positions;
  p.q = p.q_out = q;
  p.q_norm = q_norm, p.k_norm = k_norm, p.eps = c.norm_eps;
  p.cos = cos, p.sin = sin, p.table_rows = c.max_positions, p.table_stride = c.head_size / 2;
  p.tokens = step.tokens, p.q_heads = c.q_heads, p.kv_heads = c.kv_heads, p.head_size = p.rotary = c.head_size;
  p.block_size = plans_->cache.page_tokens, p.num_pages = plans_->cache.pages;
  p.q_strides = p.k_strides = p.v_strides = p.q_out_strides = {.token = c.qkv_columns(), .head = c.head_size};
  const PagedAttentionSpec reader{.head_size = c.head_size, .values = ValueLayout::token_major};
  p.k_cache_strides = nhd_key_strides(reader, c.kv_heads, p.block_size);
  p.v_cache_strides = nhd_value_strides(reader, c.kv_heads, p.block_size);
  c.qk_norm ? plans_->write<norm_cache_spec>(p) : plans_->write<cache_spec>(p);
}

void Kernels::attend(const void* qkv, const void* k_cache, const void* v_cache, void* out, const StepTables& step) {
  plans_->config.head_size == 64 ? plans_->attend<64>(qkv, k_cache, v_cache, out, step)
                                 : plans_->attend<128>(qkv, k_cache, v_cache, out, step);
}

void Kernels::sample(const float* logits, const SampleTables& tables, std::int32_t* tokens, float* logprobs) {
  SamplingProblem p{.spec = sampling_spec, .x = logits, .tokens = tokens, .logprobs = logprobs};
  p.temperature.data = tables.temperature, p.top_p.data = tables.top_p, p.top_k.data = tables.top_k;
  p.seed.data = tables.seed, p.offset.data = tables.offset;
  p.raw_logprobs = true;
  p.rows = tables.rows, p.columns = plans_->config.vocab, p.row_stride = p.columns;
  plans_->launch("sampling", plans_->samplings[p.rows], p, sampling_plan<Room, sampling_spec>);
}

}  // namespace engine
