// SPDX-License-Identifier: MIT
// The kernels of one chip, `R`: an installed tilewave's Backend. Part 7 of the tutorial: a problem is filled in from plain
// extents, its plan is made or found, and it is launched. Compiled by the chip's compiler, or by any for the emulated
// device.
#pragma once

#include "kernels.hpp"
#include "room_specs.hpp"

namespace engine {

inline void served(const Status& status, const char* op) {
  if (!status.ok()) throw Error(std::string(op) + ": " + std::string(name_of(status.code)) + ": " + status.reason);
}

/// Rows in fp8, with a scale for each.
template <class R>
QuantProblem quant_problem(const void* x, void* out, void* scale, std::int32_t rows, std::int32_t columns) {
  QuantProblem p{.spec = quant_spec<R>, .x = x, .out = out, .scale = scale};
  p.rows = rows, p.columns = columns;
  p.x_strides = p.out_strides = {.outer = columns};
  return p;
}

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
      : config_(config), cache_(cache), stream_(stream), calls_(stream) {
    if (config.fp8_cache) cache_scales_ = on_device(std::vector<float>{1.0f, 1.0f});  // K and V are as they are
  }

  void gather_rows(const void* table, std::int32_t table_rows, const std::int32_t* ids, float scale, void* out,
                   std::int32_t rows) override {
    EmbeddingProblem p{.spec = rows_spec, .table = table, .ids = ids, .out = out};
    p.scale = scale;
    p.rows = rows, p.columns = config_.hidden, p.vocab_rows = table_rows;
    p.table_stride = p.out_stride = p.columns;
    launch<EmbeddingPlan>("embedding", {rows}, p, embedding_plan<R, rows_spec>);
  }

  void norm(const void* x, void* sum, const void* weight, void* out, std::int32_t rows) override {
    NormProblem p{.spec = norm_spec, .x = x, .weight = weight, .residual = sum, .residual_out = sum};
    p.out = out, p.eps = config_.norm_eps;
    p.rows = rows, p.columns = config_.hidden;
    p.x_strides = p.out_strides = {.outer = p.columns};
    if (sum != nullptr) p.residual_strides = p.residual_out_strides = p.x_strides;
    launch_rows<NormPlan>("norm", {rows, sum != nullptr ? 1 : 0}, p, norm_plan<R, norm_spec>);
  }

  /// fp8 products have their rows normalised as they are quantised. What a row is added up by follows from the number of
  /// rows elsewhere, so batch-invariant products take over nothing.
  ///
  /// Where the product writes the cache, attention begins while it ends. That pays where attention's blocks are not in
  /// clusters, or in pairs of which each SM has two blocks, and costs up to 12 % of a step where they are few
  /// (2026-11-28-step-placement.md).
  Fusions fuses(const Linear& by, std::int32_t rows) const override {
    if (by.format == WeightFormat::fp8) return {.norm = true};
    if (config_.batch_invariant || rows > most_square_rows) return {};
    const bool bf16 = by.format == WeightFormat::bf16;
    const std::int32_t blocks = rows * config_.kv_heads;
    return {.norm = norms_in_weights && by.norm_in_weight && (rows <= 4 || by.squares != nullptr),
            .squares = norms_in_weights && bf16 && by.n % gemm_squares_columns == 0 && rows > 4,
            .cache = pairs_of_neighbours(config_) && bf16 && (blocks >= 256 || blocks == 128)};
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
    launch<GemmPlan>("gemm", {0, rows, by.n, by.k, extras}, p, plan_of(by));
  }

  void gated(const void* x, const Linear& by, void* out, std::int32_t rows) override {
    launch<GemmPlan>("gated gemm", {1, rows, by.n, by.k, norm_of(by)}, product(spec_of(by, true), x, by, out, rows),
                     plan_of(by));
  }

  void experts(const void* x, const Experts& by, void* sum, std::int32_t rows) override {
    const std::int32_t experts = by.router.n;
    grow(router_logits_, static_cast<std::size_t>(rows) * experts * sizeof(float), "router");
    auto router = product(logits_spec, x, by.router, router_logits_.data(), rows);
    if (by.router.bias != nullptr) router = router.with_bias(by.router.bias);
    launch<GemmPlan>("router", {2, rows}, router, plan_product<R, WeightFormat::bf16>);
    MoeProblem p{.spec = experts_spec<R>(by.gate_up.format), .x = x, .residual = sum, .out = sum};
    const auto weights = [&](const Linear& of) {
      MoeWeights w = MoeWeights::packed(p.spec, of.weight, of.n, of.k);
      w.group_scale = of.scale;
      if (p.spec.quantised()) w.scale = static_cast<const float*>(of.scale), w.group_scale = nullptr;
      return of.bias == nullptr ? w : w.with_bias(of.bias, of.n);
    };
    p.w1 = weights(by.gate_up), p.w2 = weights(by.down);
    p.swiglu_alpha = config_.swiglu_alpha, p.swiglu_limit = config_.swiglu_limit;
    p.logits = router_logits_.data(), p.renormalise = by.renormalise;
    p.batch_invariant = config_.batch_invariant;
    p.tokens = rows, p.hidden = by.gate_up.k, p.intermediate = by.down.k;
    p.experts = p.local_experts = experts, p.topk = by.chosen;
    launch<MoePlan>("moe", {rows}, MoeProblem::dense(p), plan_of(by));
  }

  void logits(const void* x, const Linear& by, float* out, std::int32_t rows) override {
    launch<GemmPlan>("gemm of logits", {3, rows}, product(logits_spec, x, by, out, rows),
                     plan_product<R, WeightFormat::bf16>);
    if (config_.logits_cap == 0.0f) return;
    using Cap = CapKernel<R>;
    const std::int64_t count = std::int64_t{rows} * by.n;
    const LaunchShape shape{ceil_div(count, std::int64_t{Cap::block_threads}), Cap::block_threads};
    served(R::template launch<Cap>(shape, {out, count, config_.logits_cap}, stream_), "cap of logits");
  }

  void rotate_and_cache(void* qkv, const CacheWrite& write) override {
    const KvCacheWriteProblem p = cache_problem(qkv, write);
    launch<KvCacheWritePlan>("kv_cache_write", {p.tokens}, p, [](const KvCacheWriteProblem& q, KvCacheWritePlan& plan) {
      return plan_among<WriteMaker, write_spec<R, false, DType::bf16>, write_spec<R, true, DType::bf16>,
                        write_spec<R, false, fp8>, write_spec<R, true, fp8>>(q, plan);
    });
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
      return launch<PagedAttentionPlan>("paged_attention", {step.sequences, step.table_columns, left}, p,
                                        c.fp8_cache ? plan_decode<R, fp8> : plan_decode<R, DType::bf16>);
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
    launch<FlashAttentionPlan>("flash_attention",
                               {step.sequences, step.tokens, step.most_queries, step.table_columns, left}, p,
                               c.fp8_cache ? plan_mixed<R, fp8> : plan_mixed<R, DType::bf16>);
  }

  void sample(const float* logits, const SampleTables& tables, std::int32_t* tokens, float* logprobs) override {
    SamplingProblem p{.spec = sampling_spec, .x = logits, .tokens = tokens, .logprobs = logprobs};
    p.temperature.data = tables.temperature, p.top_p.data = tables.top_p, p.top_k.data = tables.top_k;
    p.seed.data = tables.seed, p.offset.data = tables.offset;
    p.raw_logprobs = true;
    p.rows = tables.rows, p.columns = config_.vocab, p.row_stride = p.columns;
    launch_rows<SamplingPlan>("sampling", {p.rows}, p, sampling_plan<R, sampling_spec>);
  }

  std::uint64_t workspace_moves() const override { return calls_.workspace_moves() + buffer_moves_; }

 private:
  static constexpr DType fp8 = R::facts.fp8;
  using Calls = StreamCalls<EmbeddingPlan, NormPlan, QuantPlan, GemmPlan, MoePlan, KvCacheWritePlan, PagedAttentionPlan,
                            FlashAttentionPlan, SamplingPlan>;
  struct WriteMaker {
    template <KvCacheWriteSpec spec>
    static Status plan(const KvCacheWriteProblem& p, KvCacheWritePlan& plan) {
      return kv_cache_write_plan<R, spec>(p, plan);
    }
  };

  /// Queues a call whose plan depends on the model and `shape`.
  template <class Plan, class Problem, class Make>
  void launch(const char* op, const typename Calls::Shape& shape, const Problem& p, const Make& make) {
    served(calls_.template launch<Plan>(shape, p, make), op);
  }
  /// The same of an op whose rows are reduced each for itself. How a row is reduced follows from the entry, and the choice
  /// of that from the number of rows: batch-invariant calls have the entry of one row.
  template <class Plan, class Problem, class Make>
  void launch_rows(const char* op, const typename Calls::Shape& shape, const Problem& p, const Make& make) {
    launch<Plan>(op, shape, p, [&](Problem like, Plan& plan) {
      if (config_.batch_invariant) like.rows = 1;
      return make(like, plan);
    });
  }
  /// Makes a buffer at least as large.
  void grow(Buffer& buffer, std::size_t bytes, const char* op) {
    if (bytes <= buffer.bytes()) return;
    must(hipStreamSynchronize(stream_), op);  // kernels may still use the old one
    buffer = Buffer(bytes);
    ++buffer_moves_;
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
    p.spec = c.fp8_cache ? (c.qk_norm ? write_spec<R, true, fp8> : write_spec<R, false, fp8>)
                         : (c.qk_norm ? write_spec<R, true, DType::bf16> : write_spec<R, false, DType::bf16>);
    return p;
  }
  /// What of a plan's key says how rows are normalised.
  static std::int32_t norm_of(const Linear& by) {
    return (by.norm != nullptr ? 4 : 0) + (by.norm != nullptr && by.squares != nullptr ? 8 : 0);
  }
  DType cache_type() const { return config_.fp8_cache ? fp8 : DType::bf16; }
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

  /// The product of rows with weights.
  GemmProblem product(const GemmSpec& spec, const void* x, const Linear& by, void* out, std::int32_t rows) {
    const bool quantised = by.format == WeightFormat::fp8;
    const std::size_t codes = static_cast<std::size_t>(rows) * by.k;  // a multiple of 16: scales lie behind them
    if (quantised) {
      grow(quantised_, codes + rows * sizeof(float), "quant");
      quantise_rows(x, by, quantised_.as<std::byte>() + codes, rows);
    }
    auto p = GemmProblem::packed(spec, quantised ? quantised_.data() : x, by.weight, out, rows, by.n, by.k);
    p.batch_invariant = config_.batch_invariant;
    p.b_ready = true;  // nobody writes weights once they are loaded
    if (quantised) {
      p.a_scale = reinterpret_cast<const float*>(quantised_.as<std::byte>() + codes);
      p.b_scale = static_cast<const float*>(by.scale);
    } else {
      p.b_group_scale = by.scale;
      if (by.norm != nullptr) p.rms_norm = true, p.norm_eps = config_.norm_eps, p.a_squares = by.squares;
    }
    return p;
  }
  /// Rows for fp8 weights are quantised in front of the product, and normalised on the way.
  void quantise_rows(const void* x, const Linear& by, void* scales, std::int32_t rows) {
    const QuantProblem q = quant_problem<R>(x, quantised_.data(), scales, rows, by.k);
    if (by.norm == nullptr) return launch_rows<QuantPlan>("quant", {rows, by.k}, q, quant_plan<R, quant_spec<R>>);
    NormProblem p{.spec = norm_quant_spec<R>, .x = x, .weight = by.norm};
    p.out = q.out, p.scale = static_cast<float*>(scales), p.eps = config_.norm_eps;
    p.rows = rows, p.columns = by.k;
    p.x_strides = p.out_strides = q.x_strides;
    launch_rows<NormPlan>("norm", {rows, 2}, p, norm_plan<R, norm_quant_spec<R>>);
  }

  ModelConfig config_;
  CacheShape cache_;
  hipStream_t stream_;
  Calls calls_;
  Buffer quantised_{}, router_logits_{}, cache_scales_{};
  std::uint64_t buffer_moves_ = 0;
};

}  // namespace engine
