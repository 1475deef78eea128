// SPDX-License-Identifier: MIT
// A whole attention layer with latent heads, as DeepSeek-V3 has it: projections, norms, rotation, cache write, attention
// and output. Every launch is an entry of an op. The test of the layer and the benchmark run it.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/harness/device.hpp"
#include "entries/attention_combine.hpp"
#include "entries/flash_attention.hpp"
#include "entries/gemm.hpp"
#include "entries/latent_cache_write.hpp"
#include "entries/mla_decode.hpp"
#include "entries/mla_prefill.hpp"
#include "entries/norm.hpp"

namespace tilewave::bench {

/// How many tokens a call of the layer has, and what they attend.
struct MlaLayerShape {
  std::int32_t hidden = 7168, q_rank = 1536, heads = 128;
  std::int32_t batch = 1, tokens = 1;                 // sequences, and new tokens of all of them
  std::int32_t query_tokens = 0;                      // decode: new tokens of every sequence; 0: prefill, with q_starts
  std::int32_t q_length = 0;                          // prefill: the most new tokens of a sequence
  std::int32_t context_tokens = 0, chunk_tokens = 0;  // prefill, see MlaPrefillProblem
  std::int32_t block_size = 64, table_columns = 0, table_rows = 0;
  std::int64_t num_pages = 0;
  float softmax_scale = 0.1147f, eps = 1e-6f;

  constexpr bool decodes() const { return query_tokens > 0; }
  /// Returns the columns of the first projection: latent queries, then a row of the cache before its norm and rotation.
  constexpr std::int32_t first_columns() const { return q_rank + latent_value_size + mla_rope_size; }
};

/// Tensors on the device, without gaps. Weights and activations are bf16.
struct MlaLayerTensors {
  const void* x = nullptr;                    // [tokens, hidden]
  const void* first = nullptr;                // [q_rank + 576, hidden]
  const void* q_norm = nullptr;               // [q_rank]
  const void* kv_norm = nullptr;              // [512]
  const void* query = nullptr;                // [heads * 192, q_rank]
  const void* up = nullptr;                   // [heads * 256, 512], see MlaPrefillProblem
  const void* output = nullptr;               // [hidden, heads * 128]
  const void *cos = nullptr, *sin = nullptr;  // [table_rows, 32] f32
  void* kv = nullptr;                         // the cache
  const float* kv_scale = nullptr;            // for fp8 rows of the plain layout
  const std::int32_t* positions = nullptr;    // [tokens]
  const std::int64_t* slots = nullptr;        // [tokens]
  const std::int32_t* q_starts = nullptr;     // [batch + 1], prefill
  const std::int32_t* lengths = nullptr;      // [batch], new tokens included
  const std::int32_t* block_table = nullptr;  // [batch, table_columns]
  void* out = nullptr;                        // [tokens, hidden]
};

class MlaLayer {
 public:
  /// Chooses an entry for every launch. Throws if an op refuses its part, or has no entry for it.
  MlaLayer(ArchId arch, const LatentRow& row, const MlaLayerShape& shape, const MlaLayerTensors& tensors)
      : arch_(arch), row_(row), s_(shape), t_(tensors) {
    const std::int64_t tokens = s_.tokens, heads = s_.heads;
    const auto buffer = [&](std::int64_t elements) {
      buffers_.emplace_back(static_cast<std::size_t>(elements * 2));
      buffers_.back().fill(0xff);
      return static_cast<std::uint16_t*>(buffers_.back().data());
    };
    first_ = buffer(tokens * s_.first_columns());
    q_latent_ = buffer(tokens * s_.q_rank), latent_ = buffer(tokens * latent_value_size);
    q_ = buffer(tokens * heads * mla_head_size), heads_out_ = buffer(tokens * heads * mla_value_size);
    multiply("first", product(t_.x, t_.first, first_, s_.tokens, s_.first_columns(), s_.hidden));
    normalise("q_norm", t_.q_norm, 0, q_latent_, s_.q_rank);
    normalise("kv_norm", t_.kv_norm, s_.q_rank, latent_, latent_value_size);
    multiply("query", product(q_latent_, t_.query, q_, s_.tokens, s_.heads * mla_head_size, s_.q_rank));
    if (s_.decodes()) {
      absorbed_ = buffer(tokens * heads * 576), latent_out_ = buffer(tokens * heads * latent_value_size);
      absorb_query();
      write();
      decode();
      absorb_value();
    } else {
      write();
      prefill();
    }
    multiply("output", product(heads_out_, t_.output, t_.out, s_.tokens, s_.hidden, s_.heads * mla_value_size));
  }

  /// A launch, or those of one op, and the entry that it runs.
  struct Step {
    std::string what, entry;
    std::function<Status(hipStream_t)> launch;
  };
  const std::vector<Step>& steps() const { return steps_; }

  /// Queues all launches on the stream; they may be captured in a graph.
  Status launch(hipStream_t stream) const {
    for (const Step& step : steps_)
      if (Status status = step.launch(stream); !status.ok()) return status;
    return {};
  }

 private:
  const ArchFacts& facts() const { return facts_of(arch_); }
  static void require(const Status& status, const std::string& what) {
    if (!status.ok()) throw std::runtime_error(what + ": " + std::string(name_of(status.code)) + ": " + status.reason);
  }
  void* workspace(std::size_t bytes) {
    buffers_.emplace_back(bytes);
    buffers_.back().fill(0xff);
    return buffers_.back().data();
  }

  static GemmProblem product(const void* a, const void* b, void* out, std::int32_t m, std::int32_t n, std::int32_t k) {
    return GemmProblem::packed({}, a, b, out, m, n, k);
  }
  void multiply(const std::string& what, GemmProblem p) {
    GemmPlan plan;
    const auto entries = p.spec.layout == GemmLayout::nn ? all_gemm_feature_entries() : all_gemm_entries();
    require(gemm_select(p, entries, facts(), plan), what);
    p.workspace_bytes = plan.workspace_bytes(p);
    if (p.workspace_bytes > 0) p.workspace = workspace(p.workspace_bytes);
    steps_.push_back({what, plan.name(), [=](hipStream_t stream) { return plan.launch(p, stream); }});
  }
  void normalise(const std::string& what, const void* weight, std::int32_t column, void* out, std::int32_t columns) {
    NormProblem p;
    p.x = first_ + column, p.weight = weight, p.out = out, p.eps = s_.eps;
    p.rows = s_.tokens, p.columns = columns;
    p.x_strides = {s_.first_columns(), 0}, p.out_strides = {columns, 0};
    const NormEntry* entry = nullptr;
    require(norm_select(p, all_norm_entries(), facts(), entry), what);
    steps_.push_back({what, name_of(entry->policy), [=](hipStream_t stream) { return entry->launch(p, stream); }});
  }
  /// The heads' queries times the rows of `up` that make keys: then they meet rows of the cache as these are.
  void absorb_query() {
    GemmProblem p;
    p.spec.layout = GemmLayout::nn;
    p.a = q_, p.b = t_.up, p.out = absorbed_;
    p.m = s_.tokens, p.n = latent_value_size, p.k = mla_nope_size, p.batch = s_.heads;
    p.a_stride = std::int64_t{s_.heads} * mla_head_size, p.a_batch_stride = mla_head_size;
    p.b_stride = latent_value_size, p.b_batch_stride = std::int64_t{2} * mla_nope_size * latent_value_size;
    p.out_stride = std::int64_t{s_.heads} * 576, p.out_batch_stride = 576;
    multiply("absorb_query", p);
  }
  /// Sums of rows times the rows of `up` that make values.
  void absorb_value() {
    GemmProblem p;
    p.a = latent_out_, p.b = static_cast<const std::uint16_t*>(t_.up) + mla_nope_size * latent_value_size;
    p.out = heads_out_;
    p.m = s_.tokens, p.n = mla_value_size, p.k = latent_value_size, p.batch = s_.heads;
    p.a_stride = std::int64_t{s_.heads} * latent_value_size, p.a_batch_stride = latent_value_size;
    p.b_stride = latent_value_size, p.b_batch_stride = std::int64_t{2} * mla_nope_size * latent_value_size;
    p.out_stride = std::int64_t{s_.heads} * mla_value_size, p.out_batch_stride = mla_value_size;
    multiply("absorb_value", p);
  }
  /// Rows of the new tokens go into the cache, and the ends of the heads' queries are rotated: in place, or to the ends
  /// of the absorbed queries.
  void write() {
    LatentCacheWriteProblem p;
    p.spec.kv = row_.kv, p.spec.layout = row_.layout;
    p.tokens = s_.tokens, p.q_heads = s_.heads, p.block_size = s_.block_size, p.num_pages = s_.num_pages;
    p.cos = t_.cos, p.sin = t_.sin, p.positions = t_.positions, p.table_rows = s_.table_rows;
    p = LatentCacheWriteProblem::dense(p);
    p.latent = latent_, p.rope = first_ + s_.q_rank + latent_value_size, p.rope_stride = s_.first_columns();
    p.kv = t_.kv, p.kv_scale = t_.kv_scale, p.slots = t_.slots;
    p.q = p.q_out = q_ + mla_nope_size;
    p.q_strides = p.q_out_strides = {std::int64_t{s_.heads} * mla_head_size, mla_head_size};
    if (s_.decodes()) {
      p.q_out = absorbed_ + latent_value_size;
      p.q_out_strides = {std::int64_t{s_.heads} * 576, 576};
    }
    const LatentCacheWriteEntry* entry = nullptr;
    require(latent_cache_write_select(p, all_latent_cache_write_entries(), facts(), entry), "write");
    steps_.push_back({"write", name_of(entry->policy), [=](hipStream_t stream) { return entry->launch(p, stream); }});
  }
  void decode() {
    MlaDecodeProblem p;
    p.spec = {.kv = row_.kv, .layout = row_.layout};
    p.softmax_scale = s_.softmax_scale;
    p.batch = s_.batch, p.query_tokens = s_.query_tokens, p.num_q_heads = s_.heads, p.block_size = s_.block_size;
    p.table_columns = s_.table_columns, p.num_pages = s_.num_pages;
    p = MlaDecodeProblem::dense(p);
    p.q = absorbed_, p.kv = t_.kv, p.out = latent_out_, p.kv_scale = t_.kv_scale;
    p.block_table = t_.block_table, p.context_lengths = t_.lengths;
    const MlaDecodeEntry* entry = nullptr;
    require(mla_decode_select(p, all_mla_decode_entries(), facts(), entry), "decode");
    p.workspace_bytes = mla_decode_workspace_size(p, entry->policy, facts());
    if (p.workspace_bytes > 0) p.workspace = workspace(p.workspace_bytes);
    steps_.push_back({"decode", name_of(entry->policy), [=](hipStream_t stream) { return entry->launch(p, stream); }});
  }
  void prefill() {
    MlaPrefillProblem p;
    p.spec = {row_.kv, row_.layout};
    p.softmax_scale = s_.softmax_scale;
    p.batch = s_.batch, p.total_q = s_.tokens, p.q_length = s_.q_length, p.q_heads = s_.heads;
    p.context_tokens = s_.context_tokens, p.chunk_tokens = s_.chunk_tokens;
    p.block_size = s_.block_size, p.table_columns = s_.table_columns, p.num_pages = s_.num_pages;
    p = MlaPrefillProblem::dense(p);
    p.lse_head_stride = 0;
    p.q = q_, p.kv = t_.kv, p.up = t_.up, p.out = heads_out_, p.kv_scale = t_.kv_scale;
    p.q_starts = t_.q_starts, p.kv_lengths = t_.lengths, p.block_table = t_.block_table;
    MlaPrefillPlan plan;
    const MlaPrefillParts parts{all_mla_prefill_entries(), all_gemm_grouped_entries(), all_flash_attention_entries(),
                                all_attention_combine_entries()};
    require(mla_prefill_select(p, parts, facts(), plan), "prefill");
    p.workspace_bytes = plan.workspace_bytes(p);
    if (p.workspace_bytes > 0) p.workspace = workspace(p.workspace_bytes);
    steps_.push_back({"prefill", plan.name(), [=](hipStream_t stream) { return plan.launch(p, stream); }});
  }

  ArchId arch_;
  LatentRow row_;
  MlaLayerShape s_;
  MlaLayerTensors t_;
  std::vector<DeviceBuffer> buffers_;
  std::uint16_t *first_ = nullptr, *q_latent_ = nullptr, *latent_ = nullptr, *q_ = nullptr, *heads_out_ = nullptr;
  std::uint16_t *absorbed_ = nullptr, *latent_out_ = nullptr;
  std::vector<Step> steps_;
};

}  // namespace tilewave::bench
