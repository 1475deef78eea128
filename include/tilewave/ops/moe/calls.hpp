// SPDX-License-Identifier: MIT
// The calls of other ops that a layer of experts consists of, and the workspace between them.
#pragma once

#include "tilewave/ops/gemm/registry.hpp"
#include "tilewave/ops/moe/kernel.hpp"
#include "tilewave/ops/moe/policy.hpp"
#include "tilewave/ops/moe/problem.hpp"
#include "tilewave/ops/moe_reduce/registry.hpp"
#include "tilewave/ops/moe_sort/registry.hpp"
#include "tilewave/ops/quant/registry.hpp"
#include "tilewave/ops/topk_gating/registry.hpp"

namespace tilewave {

/// Bytes of workspace that the entries of a plan ask for themselves.
struct MoeEntryBytes {
  std::size_t sort = 0, quant = 0, first = 0, second = 0;
};

/// The calls in the order in which they are launched. Those that a layer does not need are not filled in.
struct MoeCalls {
  TopkGatingProblem gating{};
  MoeRouteArgs route{};
  MoeSortProblem sort{};
  QuantProblem quant_x{}, quant_h{};
  MoeCopyArgs copy{};
  GemmProblem first{}, second{};
  MoeReduceProblem sum{};
  std::size_t workspace_bytes = 0;

  /// `base`: the workspace, or an address at which nothing lies, for the choice of entries.
  MoeCalls(const MoeProblem& p, const MoePolicy& policy, void* base, const MoeEntryBytes& bytes)
      : next_(reinterpret_cast<std::uintptr_t>(base)) {
    const std::uintptr_t begin = next_;
    if (!p.spec.masked()) choose_and_sort(p, policy, bytes);
    multiply(p, policy, bytes);
    workspace_bytes = static_cast<std::size_t>(next_ - begin);
  }

 private:
  template <class T>
  T* take(std::int64_t count, std::int64_t size = sizeof(T)) {
    T* const at = reinterpret_cast<T*>(next_);
    next_ += static_cast<std::uintptr_t>(align_up<std::int64_t>(count * size, 256));
    return at;
  }

  /// Experts of all tokens and their weights, chosen by the caller, the gating or the routing.
  struct Choices {
    const std::int32_t* ids;
    const float* weights;
    std::int64_t ids_stride, weights_stride;
  };

  void choose_and_sort(const MoeProblem& p, const MoePolicy& policy, const MoeEntryBytes& bytes) {
    const Choices given = p.spec.routing == MoeRouting::logits
                              ? choose(p)
                              : Choices{p.topk_ids, p.topk_weights, p.ids_stride, p.weights_stride};
    const Choices local = make_local(p, given);
    sort_choices(p, bytes, local);
    add_up(p, policy, local);
  }

  Choices choose(const MoeProblem& p) {
    gating.spec = {p.spec.logits};
    gating.logits = p.logits, gating.bias = p.gating_bias;
    gating.weights = take<float>(std::int64_t{p.tokens} * p.topk);
    gating.indices = take<std::int32_t>(std::int64_t{p.tokens} * p.topk);
    gating.score = p.score, gating.renormalise = p.renormalise, gating.scale = p.weight_scale;
    gating.tokens = p.tokens, gating.experts = p.experts, gating.topk = p.topk;
    gating.groups = p.expert_groups, gating.kept_groups = p.kept_groups, gating.group_score = p.group_score;
    gating.logits_stride = p.logits_stride, gating.weights_stride = gating.indices_stride = p.topk;
    return {gating.indices, gating.weights, p.topk, p.topk};
  }

  /// Fills in how ids become local. Where they are local as they are, the arguments serve MoeChoose alone.
  Choices make_local(const MoeProblem& p, const Choices& given) {
    const std::int32_t slots = p.slots(), rows = p.rows();
    route = {.ids = given.ids,
             .weights = given.weights,
             .expert_map = p.expert_map,
             .local_ids = nullptr,
             .slot_weights = nullptr,
             .ids_stride = given.ids_stride,
             .weights_stride = given.weights_stride,
             .count = rows,
             .slots = FastDiv::by(max_of(1, slots)),
             .topk = p.topk,
             .experts = p.experts,
             .first_expert = p.first_expert,
             .local_experts = p.local_experts,
             .shared_weight = p.shared_weight};
    if (!p.routes()) return given;
    route.local_ids = take<std::int32_t>(rows);
    route.slot_weights = take<float>(rows);
    return {route.local_ids, route.slot_weights, slots, slots};
  }

  void sort_choices(const MoeProblem& p, const MoeEntryBytes& bytes, const Choices& local) {
    const std::int32_t slots = p.slots(), rows = p.rows();
    sort.topk_ids = local.ids, sort.ids_stride = local.ids_stride;
    if (p.spec.weight == MoeWeight::input) {
      sort.topk_weights = local.weights, sort.weights_stride = local.weights_stride;
      sort.sorted_weights = take<float>(rows);
    }
    sort.sorted_ids = take<std::int32_t>(rows);
    sort.sorted_expert_ids = take<std::int32_t>(rows);
    sort.num_tokens_post_pad = take<std::int32_t>(2);
    sort.group_offsets = take<std::int32_t>(p.resident() + 1);
    sort.rows = take<std::int32_t>(rows), sort.rows_stride = slots;
    sort.tokens = p.tokens, sort.topk = slots, sort.experts = p.resident();
    sort.capacity = rows;
    sort.workspace = take<char>(static_cast<std::int64_t>(bytes.sort)), sort.workspace_bytes = bytes.sort;
  }

  /// Fills in what adds up the results of each token's experts. Their rows are multiplied later.
  void add_up(const MoeProblem& p, const MoePolicy& policy, const Choices& local) {
    const std::int32_t slots = p.slots();
    sum.spec = {p.spec.out};
    sum.weights = p.spec.weight == MoeWeight::input ? nullptr : local.weights;
    sum.residual = p.residual, sum.out = p.out;
    sum.rows = p.tokens, sum.columns = p.hidden, sum.topk = slots;
    if (policy.results == MoeResults::rows) {
      sum.slots = sort.rows, sum.x_rows = p.rows();
      sum.x_stride = p.hidden;
    } else {  // An expert that a choice is of has a count: it serves as the mask of experts that are local.
      sort.group_counts = take<std::int32_t>(p.resident());
      sum.topk_ids = local.ids, sum.expert_mask = sort.group_counts, sum.experts = p.resident();
      sum.x_stride = std::int64_t{p.hidden} * slots, sum.x_slot_stride = p.hidden;
    }
    sum.residual_stride = p.residual_stride, sum.out_stride = p.out_stride;
  }

  /// Fills in what quantises rows to the operand of a product, and that operand.
  void quantise(const MoeProblem& p, QuantProblem& quant, GemmProblem& product, DType type, const void* x,
                std::int64_t x_stride, std::int32_t rows, std::int32_t columns, const float* given,
                const MoeEntryBytes& bytes) {
    const MoeSpec& s = p.spec;
    const Scaling scaling = moe_quant_scaling(s);
    const std::int64_t groups = ceil_div(columns, scale_group), stride = align_up(columns, 16);
    quant.spec = {type, s.operand(), scaling};
    quant.x = x, quant.x_strides = {x_stride, 0};
    quant.out = take<char>(rows * stride), quant.out_strides = {stride, 0};
    quant.rows = rows, quant.columns = columns;
    if (scaling == Scaling::per_tensor) {
      quant.scale = const_cast<float*>(given);
    } else if (scaling == Scaling::per_token) {
      quant.scale = take<float>(rows);
    } else if (scaling == Scaling::mx) {
      const std::int64_t row_scales = align_up(ceil_div(columns, mx_group), 8);
      auto* const codes = take<std::uint8_t>(align_up(rows, 32) * row_scales);
      quant.scale = codes, quant.scale_layout = ScaleLayout::shuffled;
      product.a_mx_scale = codes, product.a_scale_batch_stride = s.masked() ? p.capacity * row_scales : 0;
    } else {
      quant.scale = take<float>(rows * groups), quant.scale_stride = groups;
      product.a_scale_stride = groups, product.a_scale_k_stride = 1;
    }
    quant.workspace = bytes.quant > 0 ? take<char>(static_cast<std::int64_t>(bytes.quant)) : nullptr;
    quant.workspace_bytes = bytes.quant;
    product.a = quant.out, product.a_stride = stride;
    if (scaling != Scaling::mx) product.a_scale = static_cast<const float*>(quant.scale);
  }

  static void set_weights(const MoeProblem& p, const MoeWeights& w, GemmProblem& g) {
    g.b = w.data, g.b_scale = w.scale, g.bias = w.bias;
    if (p.spec.mx()) {
      g.b_mx_scale = static_cast<const std::uint8_t*>(w.group_scale);
    } else {
      g.b_group_scale = w.group_scale, g.b_zero = w.group_zero;
    }
    g.b_stride = w.stride, g.b_batch_stride = w.expert_stride;
    g.b_scale_stride = w.scale_stride, g.b_scale_k_stride = w.scale_k_stride;
    g.b_scale_batch_stride = w.scale_expert_stride, g.bias_batch_stride = w.bias_expert_stride;
    g.m = p.rows(), g.groups = p.resident();
    if (p.spec.masked()) g.expected_group_rows = min_of(p.tokens, p.capacity);
    g.batch_invariant = p.batch_invariant;
  }

  /// Fills in what copies the rows of the first product, and block scales of theirs, into the order of experts.
  void copy_rows(const MoeProblem& p) {
    const std::int64_t unit = elements_of_unit(first.spec.a), rows = p.rows();
    const std::int64_t chunks = ceil_div<std::int64_t>(p.hidden, unit);
    const bool scaled = p.spec.quantised();
    copy = {.x = static_cast<const Chunk*>(first.a),
            .out = take<Chunk>(rows * chunks),
            .scale = first.a_scale,
            .out_scale = nullptr,
            .rows = sort.rows,
            .x_stride = first.a_stride / unit,
            .out_stride = chunks,
            .scale_stride = first.a_scale_stride,
            .scale_group_stride = first.a_scale_k_stride,
            .parts = {},
            .tokens = p.tokens,
            .slots = p.slots(),
            .chunks = static_cast<std::int32_t>(chunks),
            .groups = scaled ? ceil_div(p.hidden, scale_group) : 0};
    copy.out_scale = take<float>(rows * copy.groups);
    first.a = copy.out, first.a_stride = unit * chunks;
    if (!scaled) return;
    first.a_scale = copy.out_scale, first.a_scale_stride = copy.groups, first.a_scale_k_stride = 1;
  }

  void multiply(const MoeProblem& p, const MoePolicy& policy, const MoeEntryBytes& bytes) {
    const MoeSpec& s = p.spec;
    const std::int64_t layers = s.masked() ? p.resident() : 1, rows = p.rows() * layers;
    first.spec = moe_first_spec(s, policy), second.spec = moe_second_spec(s, policy);
    set_weights(p, p.w1, first);
    set_weights(p, p.w2, second);
    first.n = 2 * p.intermediate, first.k = p.hidden;
    second.n = p.hidden, second.k = p.intermediate;
    first.interleaved = p.interleaved;
    if (s.activation == ActivationKind::swigluoai)
      first.swiglu_alpha = p.swiglu_alpha, first.swiglu_limit = p.swiglu_limit;
    if (s.quantises_x()) {
      quantise(p, quant_x, first, s.x, p.x, p.x_stride, p.tokens, p.hidden, p.x_scale, bytes);
    } else {
      first.a = p.x, first.a_stride = p.x_stride, first.a_batch_stride = p.x_expert_stride;
      first.a_mx_scale = p.x_mx_scale;
      first.a_scale = p.x_scale, first.a_scale_stride = p.x_scale_stride, first.a_scale_k_stride = p.x_scale_k_stride;
      first.a_scale_batch_stride = p.x_scale_expert_stride;
    }
    if (policy.rows == MoeRows::copied) copy_rows(p);
    // h: of the second operand's type, or in 16 bits.
    const DType h = first.spec.out;
    const std::int64_t h_stride = align_up<std::int64_t>(p.intermediate, 16), groups = ceil_div(p.intermediate, 128);
    first.out = take<char>(rows * h_stride, size_of(h)), first.out_stride = h_stride;
    second.a = first.out, second.a_stride = h_stride;
    if (first.spec.out_scale == Scaling::per_group) {
      first.out_scale = take<float>(rows * groups), first.out_scale_stride = groups;
      second.a_scale = first.out_scale, second.a_scale_stride = groups, second.a_scale_k_stride = 1;
    } else if (first.spec.out_scale == Scaling::per_tensor) {
      first.out_scale = const_cast<float*>(p.h_scale), second.a_scale = p.h_scale;
    } else if (moe_quantises_h(s, policy)) {
      quantise(p, quant_h, second, h, first.out, h_stride, static_cast<std::int32_t>(rows), p.intermediate, p.h_scale,
               bytes);
    }
    if (s.masked()) {
      first.group_rows = second.group_rows = p.expert_rows;
      first.out_batch_stride = second.a_batch_stride = p.capacity * h_stride;
      if (first.spec.out_scale == Scaling::per_group)
        first.out_scale_batch_stride = second.a_scale_batch_stride = p.capacity * groups;
      second.out = p.out, second.out_stride = p.out_stride, second.out_batch_stride = p.out_expert_stride;
    } else {
      first.group_offsets = second.group_offsets = sort.group_offsets;
      if (first.spec.gathered)
        first.row_ids = sort.sorted_ids, first.row_weights = sort.sorted_weights, first.tokens = p.tokens;
      sum.x = take<char>(rows * p.hidden, size_of(s.out));
      second.out = const_cast<void*>(sum.x), second.out_stride = p.hidden;
      if (second.spec.scattered) second.row_ids = sort.sorted_ids, second.tokens = p.tokens, second.topk = p.slots();
    }
    // Products follow each other, so they have one workspace.
    void* const shared = take<char>(static_cast<std::int64_t>(max_of(bytes.first, bytes.second)));
    if (bytes.first > 0) first.workspace = shared, first.workspace_bytes = bytes.first;
    if (bytes.second > 0) second.workspace = shared, second.workspace_bytes = bytes.second;
  }

  std::uintptr_t next_;  // no pointer: from a bad address it may wrap, before a check says so
};

}  // namespace tilewave
