// SPDX-License-Identifier: MIT
// Latent prefill, the batched products beside latent decode, and whole layers for the harness of row operations.
#pragma once

#include "bench/harness/shapes.hpp"
#include "bench/ops/mla_prefill/verify.hpp"

namespace tilewave::bench {

/// The column of a policy; without one it is 0.
template <class Visit>
void each_column(const MlaPrefillPolicy* policy, Visit& visit) {
  visit("gather_tokens", policy != nullptr ? policy->tokens : 0);
}

/// An entry as the harness launches it. Stages that are no part of the op take any entry of their cache.
struct MlaTimedEntry : MlaPrefillEntry {
  static MlaPrefillParts parts(std::span<const MlaPrefillEntry* const> layers) {
    return {layers, all_gemm_grouped_entries(), all_flash_attention_entries(), all_attention_combine_entries()};
  }
  static Status product(const GemmProblem& p, const ArchFacts& facts, GemmPlan& plan) {
    return gemm_select(p, p.spec.layout == GemmLayout::nn ? all_gemm_feature_entries() : all_gemm_entries(), facts,
                       plan);
  }

  Status launch(const MlaTimedProblem& timed, hipStream_t stream) const {
    MlaTimedProblem::Made& made = *timed.made;
    const ArchFacts& facts = facts_of(arch);
    const auto lend = [&](std::size_t bytes) {
      made.workspace = DeviceBuffer(std::max<std::size_t>(16, bytes));
      made.workspace.fill(0xff);
    };
    switch (timed.stage) {
      case MlaStage::absorb_query:
      case MlaStage::absorb_value: {
        GemmProblem p = mla_absorbed_product(timed);
        if (made.product.entry == nullptr) {
          if (Status s = product(p, facts, made.product); !s.ok()) return s;
          lend(made.product.workspace_bytes(p));
        }
        p.workspace = made.workspace.data(), p.workspace_bytes = made.product.workspace_bytes(p);
        if (p.workspace_bytes == 0) p.workspace = nullptr;
        return made.product.launch(p, stream);
      }
      case MlaStage::layer:
      case MlaStage::decode_layer:
        if (made.layer == nullptr) made.layer = std::make_unique<MlaLayer>(arch, spec.row(), timed.shape, timed.layer);
        return made.layer->launch(stream);
      default: break;
    }
    MlaPrefillProblem p = timed.prefill;
    const bool first = made.plan.entry == nullptr;
    if (first) {
      const MlaPrefillEntry* const only = this;
      if (Status s = mla_prefill_select(p, parts({&only, 1}), facts, made.plan); !s.ok()) return s;
      lend(made.plan.workspace_bytes(p));
    }
    p.workspace = made.workspace.data(), p.workspace_bytes = made.workspace.bytes();
    if (first || timed.stage == MlaStage::prefill) {
      if (Status s = made.plan.launch(p, stream); !s.ok() || timed.stage == MlaStage::prefill) return s;
    }
    const std::int32_t part = p.chunks() > 0 ? 1 : 0;
    switch (timed.stage) {
      case MlaStage::gather: return made.plan.launch_one(p, MlaPrefillLaunch::gather, part, stream);
      case MlaStage::up: return made.plan.launch_one(p, MlaPrefillLaunch::up, part, stream);
      case MlaStage::attend: return made.plan.launch_one(p, MlaPrefillLaunch::attend, part, stream);
      default: return made.plan.launch_one(p, MlaPrefillLaunch::merge, 0, stream);
    }
  }
};

struct MlaPrefillOp {
  using Case = MlaPrefillCase;
  using Problem = MlaTimedProblem;
  using Entry = MlaTimedEntry;
  using Tensors = MlaPrefillTensors;

  static std::span<const Entry* const> entries() { return timed_entries<Entry>(all_mla_prefill_entries()); }
  static Status select(const Problem& timed, std::span<const Entry* const> candidates, const ArchFacts& facts,
                       const Entry*& entry) {
    entry = nullptr;
    const std::vector<const MlaPrefillEntry*> layers(candidates.begin(), candidates.end());
    MlaPrefillPlan plan;
    if (const Status s = mla_prefill_select(timed.prefill, MlaTimedEntry::parts(layers), facts, plan); !s.ok())
      return s;
    for (const Entry* e : candidates)
      if (static_cast<const MlaPrefillEntry*>(e) == plan.entry) entry = e;
    return {};
  }
  static constexpr bool indexes_by_results = true;      // rows are gathered by what the first launch counts
  static std::vector<Case> default_sweep(ArchId arch);  // bench/ops/mla_prefill/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    return mla_problem_of(c, t, address);
  }
  static Tensors fill(const Case& c, int threads) { return mla_fill(c, threads); }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) {
    if (t.x.bytes() == 0) return {&t.out};
    return {&t.out, &t.kv};  // a layer writes rows of its tokens
  }

  /// Bytes, once each: what a stage reads and writes. Operations: 2 for a product of two values. The tokens of a part
  /// are those of a chunk of earlier ones, or without any the new ones.
  static Work work_of(const Case& c) {
    const std::int64_t batch = c.launched_batch(), own = c.launched_queries(), earlier = c.launched_context();
    const std::int64_t heads = c.launched_heads(), rows = batch * own, tokens = batch * (own + earlier);
    const std::int64_t chunk = min_of<std::int64_t>(c.launched_chunk(), batch * earlier);
    const std::int64_t part = earlier > 0 ? chunk : rows, seen = batch * (own * earlier + own * (own + 1) / 2);
    const std::int64_t pairs = earlier > 0 ? part * own : batch * own * (own + 1) / 2;  // of the part
    const std::int64_t up = heads * 256 * 512, row = c.spec().row().read_bytes();
    const std::int64_t lists = 4 * (2 * batch + 1 + batch * c.table_columns()) + 4 * c.spec().has_scale();
    const std::int64_t parts = 1 + (earlier > 0 ? ceil_div<std::int64_t>(batch * earlier, chunk) : 0);
    const std::int64_t q = rows * heads * 192, out = rows * heads * 128;
    const double rate = matrix_flops(facts_of(c.arch), DType::bf16);
    const auto work = [&](std::int64_t read, std::int64_t written, std::int64_t flops) {
      return Work{.bytes = read + written, .written = written, .flops = flops, .flops_per_second = rate};
    };
    const std::int64_t hidden = c.hidden(), rank = c.q_rank();
    const std::int64_t weights = hidden * (rank + 576) + rank + 512 + rank * heads * 192 + up + hidden * heads * 128;
    const std::int64_t projections = 2 * rows * (hidden * (rank + 576) + rank * heads * 192 + hidden * heads * 128);
    switch (c.stage) {
      case MlaStage::prefill:
        return work(2 * q + 2 * up + tokens * row + lists, 2 * out, 2 * tokens * up + 640 * heads * seen);
      case MlaStage::gather: return work(part * row + lists, part * (1024 + heads * 128), part * 576);
      case MlaStage::up: return work(part * 1024 + 2 * up, part * heads * 512, 2 * part * up);
      case MlaStage::attend: return work(2 * q + part * heads * 640, 2 * out, 640 * heads * pairs);
      case MlaStage::merge: return work(parts * rows * heads * 260, 2 * out, 2 * parts * out);
      case MlaStage::absorb_query: return work(rows * heads * 256 + up, rows * heads * 1024, rows * up);
      case MlaStage::absorb_value: return work(rows * heads * 1024 + up, 2 * out, rows * up);
      case MlaStage::layer:
        return work(2 * weights + 2 * rows * hidden + tokens * row + lists, 2 * rows * hidden + rows * row,
                    projections + 2 * tokens * up + 640 * heads * seen);
      case MlaStage::decode_layer:
        return work(2 * weights + 2 * rows * hidden + tokens * row + lists, 2 * rows * hidden + rows * row,
                    projections + 2 * rows * up + 2176 * heads * seen);
    }
    return {};
  }

  static void verify_row(const Problem& timed, std::int32_t row, RowErrors& errors) {
    if (timed.stage == MlaStage::layer || timed.stage == MlaStage::decode_layer) {
      verify_layer(timed, row, errors);
    } else if (timed.stage == MlaStage::absorb_query || timed.stage == MlaStage::absorb_value) {
      verify_absorbed(timed, row, errors);
    } else {
      verify_prefill(timed.prefill, row, errors);
    }
  }
};

}  // namespace tilewave::bench
