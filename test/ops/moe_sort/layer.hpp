// SPDX-License-Identifier: MIT
// A layer of experts out of ops of the library: choices, their sort, rows gathered in its order, a grouped product, and sums
// of what each token's experts say. Nothing but the launches lies between; the answer is that of plain loops.
#pragma once

#include <functional>
#include <memory>

#include "entries/embedding.hpp"
#include "entries/gemm.hpp"
#include "entries/moe_reduce.hpp"
#include "entries/moe_sort.hpp"
#include "entries/topk_gating.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/reference/topk_gating.hpp"

namespace tilewave::test {

struct LayerShape {
  std::int32_t tokens = 5, experts = 8, topk = 2, unit = 16;
  std::function<bool(int expert)> local = nullptr;  // a mask: the others' results are of another device
};

/// All tensors of a layer of 64 inputs and 48 outputs.
class Layer {
 public:
  static constexpr std::int32_t inputs = 64, outputs = 48;

  explicit Layer(const LayerShape& s)
      : s_(s),
        locals_(s.experts),
        capacity_(capacity_of(s)),
        logits_(DType::bf16, s.tokens, s.experts, 1, {s.experts, 0}),
        x_(DType::bf16, s.tokens, inputs, 1, {inputs, 0}),
        weights_(DType::f32, s.tokens, s.topk, 1, {s.topk, 0}),
        experts_(DType::f32, s.tokens, s.topk, 1, {s.topk, 0}),
        mask_(DType::f32, s.experts),
        sorted_(DType::f32, capacity_),
        units_(DType::f32, capacity_),
        post_pad_(DType::f32, 2),
        row_tokens_(DType::f32, capacity_),
        offsets_(DType::f32, s.experts + 1),
        rows_(DType::f32, s.tokens, s.topk, 1, {s.topk, 0}),
        gathered_(DType::bf16, capacity_, inputs, 1, {inputs, 0}),
        results_(DType::bf16, capacity_, outputs, 1, {outputs, 0}),
        out_(DType::bf16, s.tokens, outputs, 1, {outputs, 0}) {
    set(0);
    mask_.set(1, s.experts, [&](int, int e) { return is_local(e) ? 1.0f : 0.0f; });  // of words: 0 is 0
    locals_ = 0;
    for (int e = 0; e < s.experts; ++e) locals_ += is_local(e);
    b_ = std::make_unique<Tensor>(DType::bf16, locals_ * outputs, inputs, 1, RowStrides{inputs, 0});
    b_->set(locals_ * outputs, inputs, [](int row, int k) { return drawn('b', row, k); });
  }

  /// Other logits and tokens.
  void set(int seed) {
    logits_.set(s_.tokens, s_.experts, [=](int t, int e) { return 2 * drawn('l', t + 1000 * seed, e); });
    x_.set(s_.tokens, inputs, [=](int t, int c) { return drawn('x', t + 1000 * seed, c); });
  }

  /// Chooses entries, and has memory for them. Empty, or what was refused.
  std::string prepare(const ArchFacts& facts) {
    gating_.spec = {DType::bf16};
    gating_.logits = logits_.device();
    gating_.weights = static_cast<float*>(weights_.device());
    gating_.indices = words(experts_);
    gating_.renormalise = true;
    gating_.tokens = s_.tokens, gating_.experts = s_.experts, gating_.topk = s_.topk;
    gating_.logits_stride = s_.experts;
    gating_.weights_stride = gating_.indices_stride = s_.topk;

    sort_.topk_ids = words(experts_);
    sort_.expert_mask = s_.local ? words(mask_) : nullptr;
    sort_.sorted_ids = words(sorted_);
    sort_.sorted_expert_ids = words(units_);
    sort_.num_tokens_post_pad = words(post_pad_);
    sort_.row_tokens = words(row_tokens_);
    sort_.group_offsets = words(offsets_);
    sort_.rows = words(rows_);
    sort_.tokens = s_.tokens, sort_.topk = s_.topk, sort_.experts = s_.experts, sort_.unit = s_.unit;
    sort_.capacity = capacity_;
    sort_.ids_stride = sort_.rows_stride = s_.topk;

    gather_.spec = {DType::bf16};
    gather_.table = x_.device();
    gather_.ids = row_tokens_.device();
    gather_.out = gathered_.device();
    gather_.rows = capacity_, gather_.columns = inputs, gather_.vocab_rows = s_.tokens;
    gather_.table_stride = gather_.out_stride = inputs;

    product_.spec = {.groups = GemmGroups::contiguous};
    product_.a = gathered_.device();
    product_.b = b_->device();
    product_.out = results_.device();
    product_.group_offsets = words(offsets_);
    product_.groups = locals_;
    product_.m = capacity_, product_.n = outputs, product_.k = inputs;
    product_.a_stride = product_.b_stride = inputs, product_.out_stride = outputs;
    product_.b_batch_stride = std::int64_t{outputs} * inputs;

    sum_.spec = {DType::bf16};
    sum_.x = results_.device();
    sum_.slots = words(rows_);
    sum_.weights = static_cast<const float*>(weights_.device());
    sum_.out = out_.device();
    sum_.rows = s_.tokens, sum_.columns = outputs, sum_.topk = s_.topk, sum_.x_rows = capacity_;
    sum_.x_stride = sum_.out_stride = outputs;

    Status status = topk_gating_select(gating_, all_topk_gating_entries(), facts, gating_entry_);
    if (status.ok()) status = moe_sort_select(sort_, all_moe_sort_entries(), facts, sort_entry_);
    if (status.ok()) status = embedding_select(gather_, all_embedding_entries(), facts, gather_entry_);
    if (status.ok()) status = gemm_select(product_, all_gemm_grouped_entries(), facts, plan_);
    if (status.ok()) status = moe_reduce_select(sum_, all_moe_reduce_entries(), facts, sum_entry_);
    if (!status.ok()) return std::string("not selected: ") + status.reason;
    sort_.workspace_bytes = moe_sort_workspace_size(sort_, sort_entry_->policy);
    product_.workspace_bytes = plan_.workspace_bytes(product_);
    of_sort_ = bench::DeviceBuffer(static_cast<std::size_t>(sort_.workspace_bytes));
    of_product_ = bench::DeviceBuffer(static_cast<std::size_t>(product_.workspace_bytes));
    sort_.workspace = of_sort_.data(), product_.workspace = of_product_.data();
    return "";
  }
  /// Queues all five.
  Status launch(hipStream_t stream) const {
    Status status = gating_entry_->launch(gating_, stream);
    if (status.ok()) status = sort_entry_->launch(sort_, stream);
    if (status.ok()) status = gather_entry_->launch(gather_, stream);
    if (status.ok()) status = plan_.launch(product_, stream);
    if (status.ok()) status = sum_entry_->launch(sum_, stream);
    return status;
  }

  /// Waits. The first thing that plain loops say otherwise.
  std::string wrong() {
    bench::check_hip(hipDeviceSynchronize(), "running a layer");
    for (Tensor* t : {&row_tokens_, &gathered_, &out_}) t->download();
    const auto* const tokens = static_cast<const std::int32_t*>(row_tokens_.host());
    std::int32_t rows = 0;
    for (std::int32_t row = 0; row < capacity_; ++row) {
      rows += tokens[row] >= 0;
      for (int c = 0; c < inputs; ++c)
        if (gathered_.at(row, c) != (tokens[row] >= 0 ? x_.at(tokens[row], c) : 0)) return "gathered row";
    }
    TopkGatingProblem gating;
    gating.logits = logits_.host();
    gating.logits_stride = s_.experts;
    gating.renormalise = true;
    gating.tokens = s_.tokens, gating.experts = s_.experts, gating.topk = s_.topk;
    std::int32_t choices = 0;
    for (int t = 0; t < s_.tokens; ++t) {
      const reference::GatedToken chosen = reference::gated_token(gating, t);
      for (int slot = 0; slot < s_.topk; ++slot) choices += is_local(chosen.chosen[slot]);
      for (int column = 0; column < outputs; ++column) {
        double want = 0, magnitude = 0;
        for (int slot = 0; slot < s_.topk; ++slot) {
          const int expert = chosen.chosen[slot];
          if (!is_local(expert)) continue;
          double result = 0;
          for (int k = 0; k < inputs; ++k) {
            const double term = x_.at(t, k) * b_->at(group_of(expert) * outputs + column, k);
            result += term;
            magnitude += chosen.weights[slot] * std::abs(term);
          }
          want += chosen.weights[slot] * result;
        }
        // A result and the sum are rounded to 8 bits.
        const double got = out_.at(t, column);
        if (!(std::abs(got - want) <= 0x1p-8 * std::abs(want) + 0x1p-9 * magnitude)) {
          return "token " + std::to_string(t) + ", column " + std::to_string(column) + ": " + std::to_string(got) +
                 ", not " + std::to_string(want);
        }
      }
    }
    return rows == choices ? "" : std::to_string(rows) + " rows of " + std::to_string(choices) + " choices";
  }

 private:
  bool is_local(int expert) const { return !s_.local || s_.local(expert); }
  int group_of(int expert) const {
    int before = 0;
    for (int e = 0; e < expert; ++e) before += is_local(e);
    return before;
  }
  static std::int32_t capacity_of(const LayerShape& s) {
    MoeSortProblem p;
    p.tokens = s.tokens, p.topk = s.topk, p.experts = s.experts, p.unit = s.unit;
    return static_cast<std::int32_t>(moe_sort_capacity(p));
  }
  static std::int32_t* words(const Tensor& t) { return static_cast<std::int32_t*>(t.device()); }

  LayerShape s_;
  std::int32_t locals_, capacity_;
  Tensor logits_, x_, weights_, experts_, mask_, sorted_, units_, post_pad_, row_tokens_, offsets_, rows_, gathered_,
      results_, out_;
  std::unique_ptr<Tensor> b_;
  TopkGatingProblem gating_;
  MoeSortProblem sort_;
  EmbeddingProblem gather_;
  GemmProblem product_;
  MoeReduceProblem sum_;
  const TopkGatingEntry* gating_entry_ = nullptr;
  const MoeSortEntry* sort_entry_ = nullptr;
  const EmbeddingEntry* gather_entry_ = nullptr;
  const MoeReduceEntry* sum_entry_ = nullptr;
  GemmPlan plan_;
  bench::DeviceBuffer of_sort_, of_product_;
};

}  // namespace tilewave::test
