// SPDX-License-Identifier: MIT
// The kernels of one chip, `R`: an installed tilewave's Backend. Compiled by the chip's compiler, or by any for the
// emulated device.
#pragma once

#include <array>
#include <map>
#include <tilewave/ops/embedding/registry.hpp>
#include <tilewave/ops/flash_attention/registry.hpp>
#include <tilewave/ops/gemm/registry.hpp>
#include <tilewave/ops/kv_cache_write/registry.hpp>
#include <tilewave/ops/norm/registry.hpp>
#include <tilewave/ops/paged_attention/registry.hpp>
#include <tilewave/ops/sampling/registry.hpp>

#include "kernels.hpp"

namespace engine {

inline constexpr tilewave::EmbeddingSpec rows_spec{};
inline constexpr tilewave::NormSpec norm_spec{.weight = tilewave::DType::f32};
inline constexpr tilewave::GemmSpec linear_spec{};
inline constexpr tilewave::GemmSpec gated_spec{.activation = tilewave::ActivationKind::silu, .gated = true};
inline constexpr tilewave::GemmSpec gelu_spec{.activation = tilewave::ActivationKind::gelu_tanh, .gated = true};
inline constexpr tilewave::GemmSpec logits_spec{.out = tilewave::DType::f32};
inline constexpr tilewave::KvCacheWriteSpec cache_spec{.fused = true};
inline constexpr tilewave::KvCacheWriteSpec norm_cache_spec{.fused = true, .norm = true};
inline constexpr tilewave::SamplingSpec sampling_spec{.x = tilewave::DType::f32};

/// Decode and flash attention read one cache: pages of whole tokens.
template <int head_size, bool cap>
constexpr tilewave::PagedAttentionSpec decode_spec{
    .head_size = head_size, .values = tilewave::ValueLayout::token_major, .soft_cap = cap};
template <int head_size, bool cap>
constexpr tilewave::FlashAttentionSpec mixed_spec{
    .head_size = head_size, .value_size = head_size, .storage = tilewave::KvStorage::paged, .soft_cap = cap};

/// x = cap * tanh(x / cap), a kernel of the engine's own: one lane has one value.
template <class R>
struct CapKernel {
  using Room = R;
  struct Args {
    float* x;
    std::int64_t count;
    float cap;
  };
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int64_t i = std::int64_t{R::block_id()} * block_threads + R::block_lane_id();
    if (i >= a.count) return;
    const float e = R::exp2(R::load(a.x + i) * (2.0f * 1.44269504f / a.cap));  // tanh(y) = 1 - 2 / (e^2y + 1)
    R::store(a.x + i, a.cap * (1.0f - 2.0f * R::reciprocal(e + 1.0f)));
  }
};

/// Plans are kept by what they depend on: the op's spec is the map's name, extents are its key.
template <class R>
class RoomKernels final : public Kernels {
 public:
  RoomKernels(const ModelConfig& config, const CacheShape& cache, tilewave::hipStream_t stream)
      : config_(config), cache_(cache), stream_(stream) {}

  void gather_rows(const void* table, std::int32_t table_rows, const std::int32_t* ids, float scale, void* out,
                   std::int32_t rows) override {
    tilewave::EmbeddingProblem p{.spec = rows_spec, .table = table, .ids = ids, .out = out};
    p.scale = scale;
    p.rows = rows, p.columns = config_.hidden, p.vocab_rows = table_rows;
    p.table_stride = p.out_stride = p.columns;
    launch("embedding", rows_[rows], p, tilewave::embedding_plan<R, rows_spec>);
  }

  void norm(const void* x, const void* weight, void* out, std::int32_t rows) override {
    tilewave::NormProblem p{.spec = norm_spec, .x = x, .weight = weight, .out = out};
    p.eps = config_.norm_eps;
    p.rows = rows, p.columns = config_.hidden;
    p.x_strides = p.out_strides = {.outer = p.columns};
    launch("norm", norms_[{rows, 0}], p, tilewave::norm_plan<R, norm_spec>);
  }
  void add_norm(const void* x, void* sum, const void* weight, void* out, std::int32_t rows) override {
    tilewave::NormProblem p{.spec = norm_spec, .x = x, .weight = weight, .residual = sum, .residual_out = sum};
    p.out = out, p.eps = config_.norm_eps;
    p.rows = rows, p.columns = config_.hidden;
    p.x_strides = p.out_strides = p.residual_strides = p.residual_out_strides = {.outer = p.columns};
    launch("norm", norms_[{rows, 1}], p, tilewave::norm_plan<R, norm_spec>);
  }

  void linear(const void* x, const Linear& by, const void* residual, void* out, std::int32_t rows) override {
    auto p = tilewave::GemmProblem::packed(linear_spec, x, by.weight, out, rows, by.n, by.k);
    if (by.bias != nullptr) p = p.with_bias(by.bias);
    if (residual != nullptr) p = p.with_residual(residual);
    const std::int32_t extras = (by.bias != nullptr ? 1 : 0) + (residual != nullptr ? 2 : 0);
    launch("gemm", linears_[{rows, by.n, by.k, extras}], p, make_gemm<linear_spec>);
  }

  void gated(const void* x, const Linear& by, void* out, std::int32_t rows) override {
    const auto p =
        tilewave::GemmProblem::packed(config_.gemma ? gelu_spec : gated_spec, x, by.weight, out, rows, by.n, by.k);
    const auto make = config_.gemma ? make_gemm<gelu_spec> : make_gemm<gated_spec>;
    launch("gated gemm", gates_[{rows, by.n, by.k}], p, make);
  }

  void logits(const void* x, const Linear& by, float* out, std::int32_t rows) override {
    const auto p = tilewave::GemmProblem::packed(logits_spec, x, by.weight, out, rows, by.n, by.k);
    launch("gemm of logits", logits_[{rows, by.n, by.k}], p, make_gemm<logits_spec>);
    if (config_.logits_cap == 0.0f) return;
    using Cap = CapKernel<R>;
    const std::int64_t count = std::int64_t{rows} * by.n;
    const tilewave::LaunchShape shape{tilewave::ceil_div(count, std::int64_t{Cap::block_threads}), Cap::block_threads};
    served(R::template launch<Cap>(shape, {out, count, config_.logits_cap}, stream_), "cap of logits");
  }

  void rotate_and_cache(void* qkv, const void* q_norm, const void* k_norm, const float* cos, const float* sin,
                        void* k_cache, void* v_cache, const StepTables& step) override {
    const ModelConfig& c = config_;
    const std::int64_t q_columns = std::int64_t{c.q_heads} * c.head_size,
                       kv_columns = std::int64_t{c.kv_heads} * c.head_size;
    auto* const q = static_cast<std::uint16_t*>(qkv);
    tilewave::KvCacheWriteProblem p{
        .k = q + q_columns, .v = q + q_columns + kv_columns, .k_cache = k_cache, .v_cache = v_cache};
    p.slots = step.slots, p.positions = step.positions;
    p.q = p.q_out = q;
    if (c.qk_norm) p.q_norm = q_norm, p.k_norm = k_norm, p.eps = c.norm_eps;
    p.cos = cos, p.sin = sin, p.table_rows = c.max_positions, p.table_stride = c.head_size / 2;
    p.tokens = step.tokens, p.q_heads = c.q_heads, p.kv_heads = c.kv_heads, p.head_size = p.rotary = c.head_size;
    p.block_size = cache_.page_tokens, p.num_pages = cache_.pages;
    p.q_strides = p.k_strides = p.v_strides = p.q_out_strides = {.token = c.qkv_columns(), .head = c.head_size};
    const tilewave::PagedAttentionSpec reader{.head_size = c.head_size, .values = tilewave::ValueLayout::token_major};
    p.k_cache_strides = nhd_key_strides(reader, c.kv_heads, p.block_size);
    p.v_cache_strides = nhd_value_strides(reader, c.kv_heads, p.block_size);
    c.qk_norm ? write<norm_cache_spec>(p) : write<cache_spec>(p);
  }

  void attend(const void* qkv, const void* k_cache, const void* v_cache, std::int32_t window, void* out,
              const StepTables& step) override {
    const int head_size = config_.head_size;
    const auto by_size = head_size == 64              ? &RoomKernels::template attend_heads<64>
                         : head_size == 128           ? &RoomKernels::template attend_heads<128>
                         : config_.attention_cap == 0 ? &RoomKernels::template attend_heads<256>
                                                      : &RoomKernels::template attend_heads<256, true>;
    (this->*by_size)(qkv, k_cache, v_cache, window, out, step);
  }

  void sample(const float* logits, const SampleTables& tables, std::int32_t* tokens, float* logprobs) override {
    tilewave::SamplingProblem p{.spec = sampling_spec, .x = logits, .tokens = tokens, .logprobs = logprobs};
    p.temperature.data = tables.temperature, p.top_p.data = tables.top_p, p.top_k.data = tables.top_k;
    p.seed.data = tables.seed, p.offset.data = tables.offset;
    p.raw_logprobs = true;
    p.rows = tables.rows, p.columns = config_.vocab, p.row_stride = p.columns;
    launch("sampling", samplings_[p.rows], p, tilewave::sampling_plan<R, sampling_spec>);
  }

  std::uint64_t workspace_moves() const override { return workspace_moves_; }

 private:
  using Shape = std::array<std::int32_t, 3>;

  static void served(const tilewave::Status& status, const char* op) {
    if (!status.ok()) throw Error(std::string(op) + ": " + std::string(name_of(status.code)) + ": " + status.reason);
  }
  template <tilewave::GemmSpec spec>
  static tilewave::Status make_gemm(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan) {
    return tilewave::gemm_plan<R, spec>(p, plan);
  }

  /// Makes the plan if the map has none yet, gives the call its workspace, and queues it.
  template <class Plan, class Problem, class Make>
  void launch(const char* op, Plan& plan, Problem p, const Make& make) {
    if (plan.entry == nullptr) served(make(p, plan), op);
    if constexpr (requires { p.workspace; }) {
      const std::size_t bytes = plan.workspace_bytes(p);
      if (bytes > workspace_.bytes()) {
        must(tilewave::hipStreamSynchronize(stream_), op);  // kernels may still use the old one
        workspace_ = Buffer(bytes);
        ++workspace_moves_;
      }
      p.workspace = workspace_.data(), p.workspace_bytes = workspace_.bytes();
    }
    served(plan.launch(p, stream_), op);
  }

  template <tilewave::KvCacheWriteSpec spec>
  void write(tilewave::KvCacheWriteProblem p) {
    p.spec = spec;
    launch("kv_cache_write", writes_[p.tokens], p, tilewave::kv_cache_write_plan<R, spec>);
  }

  template <int head_size, bool cap = false>
  void attend_heads(const void* q, const void* k, const void* v, std::int32_t window, void* out,
                    const StepTables& step) {
    const ModelConfig& c = config_;
    const std::int64_t row = c.qkv_columns();
    const std::int32_t left = window > 0 ? window - 1 : 0;  // tokens before one's own
    if (step.most_queries == 1) {
      tilewave::PagedAttentionProblem p{.q = q, .k = k, .v = v, .out = out};
      p.block_table = step.block_table, p.context_lengths = step.kv_lengths;
      p.spec = decode_spec<head_size, cap>;
      p.sliding_window = left;
      p.softmax_scale = c.softmax_scale, p.soft_cap = c.attention_cap;
      p.batch = step.sequences, p.num_q_heads = c.q_heads, p.num_kv_heads = c.kv_heads;
      p.block_size = cache_.page_tokens, p.table_columns = step.table_columns, p.num_pages = cache_.pages;
      p = tilewave::PagedAttentionProblem::nhd(p);
      p.q_row_stride = row;
      launch("paged_attention", decodes_[{step.sequences, step.table_columns, left}], p,
             tilewave::paged_attention_plan<R, decode_spec<head_size, cap>>);
      return;
    }
    tilewave::FlashAttentionProblem p{.q = q, .k = k, .v = v, .out = out};
    p.q_starts = step.q_starts, p.kv_lengths = step.kv_lengths, p.block_table = step.block_table;
    p.spec = mixed_spec<head_size, cap>;
    p.causal = true;
    p.softmax_scale = c.softmax_scale, p.soft_cap = c.attention_cap;
    if (left > 0) p.window_left = left;
    p.batch = step.sequences, p.q_length = step.most_queries, p.total_q = step.tokens;
    p.q_heads = c.q_heads, p.kv_heads = c.kv_heads;
    p.block_size = cache_.page_tokens, p.table_columns = step.table_columns, p.num_pages = cache_.pages;
    p = tilewave::FlashAttentionProblem::nhd(p);
    p.q_strides.token = row;
    launch("flash_attention", mixed_[{step.sequences, step.tokens, step.most_queries, step.table_columns, left}], p,
           tilewave::flash_attention_plan<R, mixed_spec<head_size, cap>>);
  }

  ModelConfig config_;
  CacheShape cache_;
  tilewave::hipStream_t stream_;
  Buffer workspace_{};
  std::uint64_t workspace_moves_ = 0;
  std::map<std::int32_t, tilewave::EmbeddingPlan> rows_{};
  std::map<std::array<std::int32_t, 2>, tilewave::NormPlan> norms_{};
  std::map<std::array<std::int32_t, 4>, tilewave::GemmPlan> linears_{};
  std::map<Shape, tilewave::GemmPlan> gates_{}, logits_{};
  std::map<std::int32_t, tilewave::KvCacheWritePlan> writes_{};
  std::map<Shape, tilewave::PagedAttentionPlan> decodes_{};
  std::map<std::array<std::int32_t, 5>, tilewave::FlashAttentionPlan> mixed_{};
  std::map<std::int32_t, tilewave::SamplingPlan> samplings_{};
};

}  // namespace engine
