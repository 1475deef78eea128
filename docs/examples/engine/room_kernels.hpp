// SPDX-License-Identifier: MIT
// The kernels of one chip, `R`: an installed tilewave's Backend. Compiled by the chip's compiler, or by any for the
// emulated device.
#pragma once

#include <array>
#include <map>

#include "kernels.hpp"
#include "room_specs.hpp"

namespace engine {

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
  /// Entries of sm90 divide a few rows by their root mean square (GemmProblem::rms_norm).
  static constexpr bool norms_in_weights = R::facts.matrix == Matrix::mma;
  /// They also turn heads and write them into caches of their type, if what turns together is side by side.
  static bool pairs_of_neighbours(const ModelConfig& c) {
    return write_spec<R, false, DType::bf16>.pairs == RopePairs::neighbours && !c.qk_norm && !c.fp8_cache;
  }

  RoomKernels(const ModelConfig& config, const CacheShape& cache, hipStream_t stream)
      : config_(config), cache_(cache), stream_(stream) {
    if (config.fp8_cache) cache_scales_ = on_device(std::vector<float>{1.0f, 1.0f});  // K and V are as they are
  }

  void gather_rows(const void* table, std::int32_t table_rows, const std::int32_t* ids, float scale, void* out,
                   std::int32_t rows) override {
    EmbeddingProblem p{.spec = rows_spec, .table = table, .ids = ids, .out = out};
    p.scale = scale;
    p.rows = rows, p.columns = config_.hidden, p.vocab_rows = table_rows;
    p.table_stride = p.out_stride = p.columns;
    launch("embedding", rows_[rows], p, embedding_plan<R, rows_spec>);
  }

  void norm(const void* x, void* sum, const void* weight, void* out, std::int32_t rows) override {
    NormProblem p{.spec = norm_spec, .x = x, .weight = weight, .residual = sum, .residual_out = sum};
    p.out = out, p.eps = config_.norm_eps;
    p.rows = rows, p.columns = config_.hidden;
    p.x_strides = p.out_strides = {.outer = p.columns};
    if (sum != nullptr) p.residual_strides = p.residual_out_strides = p.x_strides;
    launch_rows("norm", norms_[{rows, sum != nullptr ? 1 : 0}], p, norm_plan<R, norm_spec>);
  }

  bool normalises(const Linear& by, std::int32_t rows) const override {
    if (by.format == WeightFormat::fp8) return true;  // as they are quantised
    if (config_.batch_invariant) return false;        // more rows are normalised by a launch of their own
    return norms_in_weights && by.norm_in_weight && (rows <= 4 || by.squares != nullptr);
  }
  bool writes_squares(const Linear& by, std::int32_t rows) const override {
    return norms_in_weights && by.format == WeightFormat::bf16 && by.n % gemm_squares_columns == 0 && rows > 4 &&
           rows <= most_square_rows && !config_.batch_invariant;
  }
  /// Attention then begins while the product ends. That pays where its blocks are not in clusters, or in pairs of which
  /// each SM has two blocks, and costs up to 12 % of a step where they are few (2026-11-28-step-placement.md).
  bool caches(const Linear& by, std::int32_t rows) const override {
    const std::int32_t blocks = rows * config_.kv_heads;
    return pairs_of_neighbours(config_) && by.format == WeightFormat::bf16 && rows <= most_square_rows &&
           (blocks >= 256 || blocks == 128) && !config_.batch_invariant;
  }
  void linear(const void* x, const Linear& by, const void* residual, void* out, std::int32_t rows) override {
    auto p = product(spec_of(by, false), x, by, out, rows);
    if (by.bias != nullptr) p = p.with_bias(by.bias);
    if (residual != nullptr) p = p.with_residual(residual);
    p.out_squares = by.squares_out;
    KvCacheWriteProblem write;
    if (by.cache != nullptr) write = cache_problem(out, *by.cache), p.cache_write = &write;
    const std::int32_t extras = (by.bias != nullptr ? 1 : 0) + (residual != nullptr ? 2 : 0) + norm_of(by) +
                                (by.squares_out != nullptr ? 16 : 0) + (by.cache != nullptr ? 32 : 0);
    launch("gemm", linears_[{rows, by.n, by.k, extras}], p, plan_of(by));
  }

  void gated(const void* x, const Linear& by, void* out, std::int32_t rows) override {
    launch("gated gemm", gates_[{rows, by.n, by.k, norm_of(by)}], product(spec_of(by, true), x, by, out, rows),
           plan_of(by));
  }

  void experts(const void* x, const Experts& by, void* sum, std::int32_t rows) override {
    const std::int32_t experts = by.router.n;
    grow(router_logits_, static_cast<std::size_t>(rows) * experts * sizeof(float), "router");
    auto router = product(logits_spec, x, by.router, router_logits_.data(), rows);
    if (by.router.bias != nullptr) router = router.with_bias(by.router.bias);
    launch("router", routers_[rows], router, plan_product<R, WeightFormat::bf16>);
    MoeProblem p{.spec = experts_spec<R>(by.gate_up.format), .x = x, .residual = sum, .out = sum};
    const auto weights = [&](const Linear& of) {
      MoeWeights w = MoeWeights::packed(p.spec, of.weight, of.n, of.k);
      if (p.spec.quantised()) {
        w.scale = static_cast<const float*>(of.scale);
      } else {
        w.group_scale = of.scale;
      }
      return of.bias == nullptr ? w : w.with_bias(of.bias, of.n);
    };
    p.w1 = weights(by.gate_up), p.w2 = weights(by.down);
    p.swiglu_alpha = config_.swiglu_alpha, p.swiglu_limit = config_.swiglu_limit;
    p.logits = router_logits_.data(), p.renormalise = by.renormalise;
    p.batch_invariant = config_.batch_invariant;
    p.tokens = rows, p.hidden = by.gate_up.k, p.intermediate = by.down.k;
    p.experts = p.local_experts = experts, p.topk = by.chosen;
    p.x_stride = p.out_stride = p.residual_stride = p.hidden, p.logits_stride = experts;
    launch("moe", experts_[rows], p, plan_of(by));
  }

  void logits(const void* x, const Linear& by, float* out, std::int32_t rows) override {
    launch("gemm of logits", logits_[{rows, by.n, by.k}], product(logits_spec, x, by, out, rows),
           plan_product<R, WeightFormat::bf16>);
    if (config_.logits_cap == 0.0f) return;
    using Cap = CapKernel<R>;
    const std::int64_t count = std::int64_t{rows} * by.n;
    const LaunchShape shape{ceil_div(count, std::int64_t{Cap::block_threads}), Cap::block_threads};
    served(R::template launch<Cap>(shape, {out, count, config_.logits_cap}, stream_), "cap of logits");
  }

  void rotate_and_cache(void* qkv, const CacheWrite& write) override {
    const KvCacheWriteProblem p = cache_problem(qkv, write);
    with_write_spec(
        [&]<KvCacheWriteSpec spec>() { launch("kv_cache_write", writes_[p.tokens], p, kv_cache_write_plan<R, spec>); });
  }

  void attend(const void* qkv, const void* k_cache, const void* v_cache, std::int32_t window, const float* sinks,
              void* out, const StepTables& step) override {
    const ModelConfig& c = config_;
    const std::int32_t left = window > 0 ? window - 1 : 0;  // tokens before one's own
    const auto fill = [&](auto& p) {
      p.block_table = step.block_table, p.sinks = sinks;
      if (c.fp8_cache) p.k_scale = cache_scales_.as<float>(), p.v_scale = cache_scales_.as<float>() + 1;
      p.softmax_scale = c.softmax_scale, p.soft_cap = c.attention_cap;
      p.batch = step.sequences;
      p.block_size = cache_.page_tokens, p.table_columns = step.table_columns, p.num_pages = cache_.pages;
    };
    if (step.most_queries == 1 && !c.batch_invariant) {
      PagedAttentionProblem p{.q = qkv, .k = k_cache, .v = v_cache, .out = out};
      p.spec = decode_spec(c.head_size, c.attention_cap > 0, cache_type());
      fill(p);
      p.context_lengths = step.kv_lengths, p.sliding_window = left;
      p.tables_ready = true;  // they were there before the step's first kernel
      p.num_q_heads = c.q_heads, p.num_kv_heads = c.kv_heads;
      p = PagedAttentionProblem::nhd(p);
      p.q_row_stride = c.qkv_columns();
      launch("paged_attention", decodes_[{step.sequences, step.table_columns, left}], p,
             c.fp8_cache ? plan_decode<R, R::facts.fp8> : plan_decode<R, DType::bf16>);
      return;
    }
    FlashAttentionProblem p{.q = qkv, .k = k_cache, .v = v_cache, .out = out};
    p.spec = mixed_spec(c.head_size, c.attention_cap > 0, cache_type());
    fill(p);
    p.q_starts = step.q_starts, p.kv_lengths = step.kv_lengths;
    p.causal = true, p.batch_invariant = c.batch_invariant;
    if (left > 0) p.window_left = left;
    p.q_length = step.most_queries, p.total_q = step.tokens;
    p.q_heads = c.q_heads, p.kv_heads = c.kv_heads;
    p = FlashAttentionProblem::nhd(p);
    p.q_strides.token = c.qkv_columns();
    launch("flash_attention", mixed_[{step.sequences, step.tokens, step.most_queries, step.table_columns, left}], p,
           c.fp8_cache ? plan_mixed<R, R::facts.fp8> : plan_mixed<R, DType::bf16>);
  }

  void sample(const float* logits, const SampleTables& tables, std::int32_t* tokens, float* logprobs) override {
    SamplingProblem p{.spec = sampling_spec, .x = logits, .tokens = tokens, .logprobs = logprobs};
    p.temperature.data = tables.temperature, p.top_p.data = tables.top_p, p.top_k.data = tables.top_k;
    p.seed.data = tables.seed, p.offset.data = tables.offset;
    p.raw_logprobs = true;
    p.rows = tables.rows, p.columns = config_.vocab, p.row_stride = p.columns;
    launch_rows("sampling", samplings_[p.rows], p, sampling_plan<R, sampling_spec>);
  }

  std::uint64_t workspace_moves() const override { return workspace_moves_; }

 private:
  using Shape = std::array<std::int32_t, 3>;

  static void served(const Status& status, const char* op) {
    if (!status.ok()) throw Error(std::string(op) + ": " + std::string(name_of(status.code)) + ": " + status.reason);
  }
  void grow(Buffer& buffer, std::size_t bytes, const char* op) {
    if (bytes <= buffer.bytes()) return;
    must(hipStreamSynchronize(stream_), op);  // kernels may still use the old one
    buffer = Buffer(bytes);
    ++workspace_moves_;
  }

  /// Makes the plan of an op whose rows are reduced each for itself, and queues it. How a row is reduced follows from the
  /// entry, and the choice of that from the number of rows: batch-invariant calls have the entry of one row.
  template <class Plan, class Problem, class Make>
  void launch_rows(const char* op, Plan& plan, const Problem& p, const Make& make) {
    if (plan.entry == nullptr && config_.batch_invariant) {
      Problem one = p;
      one.rows = 1;
      served(make(one, plan), op);
    }
    launch(op, plan, p, make);
  }

  /// Makes the plan if the map has none yet, gives the call its workspace, and queues it.
  template <class Plan, class Problem, class Make>
  void launch(const char* op, Plan& plan, Problem p, const Make& make) {
    if (plan.entry == nullptr) served(make(p, plan), op);
    if constexpr (requires { p.workspace; }) {
      grow(workspace_, plan.workspace_bytes(p), op);
      p.workspace = workspace_.data(), p.workspace_bytes = workspace_.bytes();
    }
    served(plan.launch(p, stream_), op);
  }

  KvCacheWriteProblem cache_problem(void* qkv, const CacheWrite& write) const {
    const ModelConfig& c = config_;
    const std::int64_t q_columns = std::int64_t{c.q_heads} * c.head_size,
                       kv_columns = std::int64_t{c.kv_heads} * c.head_size;
    auto* const q = static_cast<std::uint16_t*>(qkv);
    KvCacheWriteProblem p{
        .k = q + q_columns, .v = q + q_columns + kv_columns, .k_cache = write.k_cache, .v_cache = write.v_cache};
    p.slots = write.step.slots, p.positions = write.step.positions, p.tables_ready = true;
    p.q = p.q_out = q;
    if (c.qk_norm) p.q_norm = write.q_norm, p.k_norm = write.k_norm, p.eps = c.norm_eps;
    p.cos = write.cos, p.sin = write.sin, p.table_rows = c.max_positions, p.table_stride = c.head_size / 2;
    p.tokens = write.step.tokens, p.q_heads = c.q_heads, p.kv_heads = c.kv_heads, p.head_size = p.rotary = c.head_size;
    p.block_size = cache_.page_tokens, p.num_pages = cache_.pages;
    p.q_strides = p.k_strides = p.v_strides = p.q_out_strides = {.token = c.qkv_columns(), .head = c.head_size};
    const PagedAttentionSpec reader = decode_spec(c.head_size, false, cache_type());
    p.k_cache_strides = nhd_key_strides(reader, c.kv_heads, p.block_size);
    p.v_cache_strides = nhd_value_strides(reader, c.kv_heads, p.block_size);
    if (c.fp8_cache) p.k_scale = cache_scales_.data(), p.v_scale = cache_scales_.as<float>() + 1;
    with_write_spec([&]<KvCacheWriteSpec spec>() { p.spec = spec; });
    return p;
  }
  /// Calls f<spec>() with that of the model's heads and cache.
  template <class F>
  void with_write_spec(const F& f) const {
    constexpr DType fp8 = R::facts.fp8, bf16 = DType::bf16;
    const bool norm = config_.qk_norm;
    if (config_.fp8_cache) {
      norm ? f.template operator()<write_spec<R, true, fp8>>() : f.template operator()<write_spec<R, false, fp8>>();
    } else {
      norm ? f.template operator()<write_spec<R, true, bf16>>() : f.template operator()<write_spec<R, false, bf16>>();
    }
  }

  /// What of a plan's key says how rows are normalised.
  static std::int32_t norm_of(const Linear& by) {
    return (by.norm != nullptr ? 4 : 0) + (by.norm != nullptr && by.squares != nullptr ? 8 : 0);
  }
  DType cache_type() const { return config_.fp8_cache ? R::facts.fp8 : DType::bf16; }
  GemmSpec spec_of(const Linear& by, bool gated) const {
    const GemmSpec spec = with_weights<R>(by.format, gated ? gated_spec : linear_spec);
    return gated && config_.gemma ? with_gelu(spec) : spec;
  }
  static auto plan_of(const Linear& by) {
    return by.format == WeightFormat::fp8    ? plan_product<R, WeightFormat::fp8>
           : by.format == WeightFormat::int4 ? plan_product<R, WeightFormat::int4>
                                             : plan_product<R, WeightFormat::bf16>;
  }
  static auto plan_of(const Experts& by) {
    return by.gate_up.format == WeightFormat::fp8     ? plan_experts<R, WeightFormat::fp8>
           : by.gate_up.format == WeightFormat::int4  ? plan_experts<R, WeightFormat::int4>
           : by.gate_up.format == WeightFormat::mxfp4 ? plan_experts<R, WeightFormat::mxfp4>
                                                      : plan_experts<R, WeightFormat::bf16>;
  }

  /// The product of rows with weights. Rows for fp8 weights are quantised first.
  GemmProblem product(const GemmSpec& spec, const void* x, const Linear& by, void* out, std::int32_t rows) {
    if (by.format != WeightFormat::fp8) {
      auto p = GemmProblem::packed(spec, x, by.weight, out, rows, by.n, by.k);
      p.batch_invariant = config_.batch_invariant;
      p.b_group_scale = by.scale, p.b_ready = true;
      if (by.norm != nullptr) p.rms_norm = true, p.norm_eps = config_.norm_eps, p.a_squares = by.squares;
      return p;
    }
    const std::size_t codes = static_cast<std::size_t>(rows) * by.k, bytes = codes + rows * sizeof(float);
    grow(quantised_, bytes, "quant");
    auto* const scales = reinterpret_cast<float*>(quantised_.as<std::byte>() + codes);  // k is a multiple of 16
    if (by.norm != nullptr) {
      NormProblem q{.spec = norm_quant_spec<R>, .x = x, .weight = by.norm};
      q.out = quantised_.data(), q.scale = scales, q.eps = config_.norm_eps;
      q.rows = rows, q.columns = by.k;
      q.x_strides = q.out_strides = {.outer = by.k};
      launch_rows("norm", norms_[{rows, 2}], q, norm_plan<R, norm_quant_spec<R>>);
    } else {
      QuantProblem q{.spec = quant_spec<R>, .x = x, .out = quantised_.data(), .scale = scales};
      q.rows = rows, q.columns = by.k;
      q.x_strides = q.out_strides = {.outer = by.k};
      launch_rows("quant", quants_[{rows, by.k}], q, quant_plan<R, quant_spec<R>>);
    }
    auto p = GemmProblem::packed(spec, quantised_.data(), by.weight, out, rows, by.n, by.k);
    p.a_scale = scales, p.b_scale = static_cast<const float*>(by.scale), p.b_ready = true;
    p.batch_invariant = config_.batch_invariant;
    return p;
  }

  ModelConfig config_;
  CacheShape cache_;
  hipStream_t stream_;
  Buffer workspace_{}, quantised_{}, router_logits_{}, cache_scales_{};
  std::uint64_t workspace_moves_ = 0;
  std::map<std::int32_t, EmbeddingPlan> rows_{};
  std::map<std::array<std::int32_t, 2>, NormPlan> norms_{};
  std::map<std::array<std::int32_t, 2>, QuantPlan> quants_{};
  std::map<std::array<std::int32_t, 4>, GemmPlan> linears_{};
  std::map<std::array<std::int32_t, 4>, GemmPlan> gates_{};
  std::map<Shape, GemmPlan> logits_{};
  std::map<std::int32_t, GemmPlan> routers_{};
  std::map<std::int32_t, MoePlan> experts_{};
  std::map<std::int32_t, KvCacheWritePlan> writes_{};
  std::map<Shape, PagedAttentionPlan> decodes_{};
  std::map<std::array<std::int32_t, 5>, FlashAttentionPlan> mixed_{};
  std::map<std::int32_t, SamplingPlan> samplings_{};
};

}  // namespace engine
