// SPDX-License-Identifier: MIT
// One call of a layer of experts: raw pointers, extents, and 64-bit strides in elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tilewave/ops/gemm/problem.hpp"
#include "tilewave/ops/moe/spec.hpp"
#include "tilewave/ops/topk_gating/spec.hpp"

namespace tilewave {

/// The weights of one product of all local experts, and last of the shared one. Those that are preshuffled, as all of
/// four bits are, have no stride. Block scales count 128 rows by 128 columns, scales of rows one row. GemmProblem has
/// their layouts.
struct MoeWeights {
  const void* data = nullptr;         // w1 [experts][2 intermediate, hidden], w2 [experts][hidden, intermediate]
  const float* scale = nullptr;       // fp8: per_tensor [1], per_row [experts][rows], per_block by its strides
  const void* group_scale = nullptr;  // per_group: [experts][columns / scale_k, rows]; mx: as GemmProblem::b_mx_scale
  const std::int8_t* group_zero = nullptr;  // zero_points: as group_scale, see GemmProblem::b_zero
  const void* bias = nullptr;               // optional [experts][rows], of out's type

  std::int64_t stride = 0, expert_stride = 0;  // from a row and from an expert to the next
  std::int64_t scale_stride = 0, scale_k_stride = 0, scale_expert_stride = 0, bias_expert_stride = 0;

  /// Returns weights without gaps.
  static constexpr MoeWeights packed(const MoeSpec& s, const void* data, std::int32_t rows, std::int32_t columns) {
    const GemmProblem p = GemmProblem::packed(moe_second_spec(s), nullptr, data, nullptr, 1, rows, columns);
    MoeWeights w;
    w.data = data;
    w.stride = p.b_stride, w.expert_stride = p.b_batch_stride;
    w.scale_stride = p.b_scale_stride, w.scale_k_stride = p.b_scale_k_stride;
    w.scale_expert_stride = p.b_scale_batch_stride;
    return w;
  }
  constexpr MoeWeights with_bias(const void* values, std::int32_t rows) const {
    MoeWeights w = *this;
    w.bias = values, w.bias_expert_stride = rows;
    return w;
  }
};

/// Rows of x are whole 16 bytes, and so are their addresses and strides. No tensor overlaps out or the workspace, but
/// residual may be out itself, with the same stride.
///
/// Ids that name no expert of the layer count for nothing, and so do experts that are not local: those outside
/// [first_expert, first_expert + local_experts), or whose place in expert_map is outside [0, local_experts). An expert
/// that a token has twice counts twice. A weight that is NaN makes its token NaN.
struct MoeProblem {
  MoeSpec spec{};

  // tensors on the device; columns contiguous
  const void* x = nullptr;         // [tokens, hidden]; masked [local_experts][capacity, hidden]
  const float* x_scale = nullptr;  // fp8: per_tensor [1], also for x that the layer quantises; x that comes quantised:
                                   // per_row [tokens], per_block by its strides
  const std::uint8_t* x_mx_scale = nullptr;  // mx: as GemmProblem::a_mx_scale, where x comes so; masked [local_experts]
  const float* h_scale = nullptr;            // per_tensor: [1], of h
  const void* residual = nullptr;            // optional [tokens, hidden], of out's type
  void* out = nullptr;                       // [tokens, hidden]; masked [local_experts][capacity, hidden]

  MoeWeights w1{}, w2{};
  bool interleaved = false;  // rows of w1 are gate, up, gate, up; otherwise all gates come first
  float swiglu_alpha = 1.702f, swiglu_limit = 7.0f;  // for swigluoai

  // MoeRouting::logits, see TopkGatingProblem
  const void* logits = nullptr;        // [tokens, experts]
  const float* gating_bias = nullptr;  // optional [experts]
  GatingScore score = GatingScore::softmax;
  bool renormalise = false;
  float weight_scale = 1.0f;
  std::int32_t expert_groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::best;
  // MoeRouting::given
  const std::int32_t* topk_ids = nullptr;  // [tokens, topk]
  const float* topk_weights = nullptr;     // [tokens, topk]
  // MoeRouting::masked: the rows of each local expert; a number above capacity counts as capacity, a negative one as 0
  const std::int32_t* expert_rows = nullptr;  // [local_experts]

  const std::int32_t* expert_map = nullptr;  // optional [experts]: the local place of an expert, or a negative number
  float shared_weight = 1.0f;                // of the shared expert

  std::int32_t tokens = 0;  // from 0, below 2^24; masked: the rows that experts have on average, 0 if not known
  std::int32_t hidden = 0, intermediate = 0;
  std::int32_t experts = 0, topk = 0;  // of all devices, up to 1024; choices, up to 16 with the shared one
  std::int32_t first_expert = 0, local_experts = 0;  // of this device; with expert_map first_expert is 0
  std::int32_t capacity = 0;                         // masked: rows of an expert; mx: a multiple of 32

  std::int64_t x_stride = 0, out_stride = 0, residual_stride = 0;
  std::int64_t x_expert_stride = 0, out_expert_stride = 0;  // masked
  std::int64_t x_scale_stride = 0, x_scale_k_stride = 0, x_scale_expert_stride = 0;
  std::int64_t logits_stride = 0, ids_stride = 0, weights_stride = 0;

  /// The bits of a token's row do not depend on the tokens beside it.
  bool batch_invariant = false;

  void* workspace = nullptr;  // plan.workspace_bytes(problem) bytes, aligned to 16, with any contents
  std::size_t workspace_bytes = 0;

  /// Returns the problem with the strides of tokens, scales, logits, ids and weights without gaps. Those of w1 and w2
  /// are MoeWeights::packed's.
  static constexpr MoeProblem dense(MoeProblem p) {
    const std::int64_t places = p.spec.masked() ? p.capacity : 0;
    p.x_stride = p.out_stride = p.hidden;
    if (p.residual != nullptr) p.residual_stride = p.hidden;
    p.x_expert_stride = p.out_expert_stride = places * p.hidden;
    if (p.spec.routing == MoeRouting::logits) p.logits_stride = p.experts;
    if (p.spec.routing == MoeRouting::given) p.ids_stride = p.weights_stride = p.topk;
    if (p.x_scale != nullptr && p.spec.scale == Scaling::per_block) {
      p.x_scale_stride = ceil_div<std::int64_t>(p.hidden, 128), p.x_scale_k_stride = 1;
      p.x_scale_expert_stride = places * p.x_scale_stride;
    }
    return p;
  }

  /// Returns the slots of a token: its choices, and the shared expert.
  constexpr std::int32_t slots() const { return topk + spec.shared; }
  /// Returns the experts whose weights are here.
  constexpr std::int32_t resident() const { return local_experts + spec.shared; }
  /// Returns the rows of the products: the choices of all tokens, or all places of all experts.
  constexpr std::int32_t rows() const { return spec.masked() ? capacity : tokens * slots(); }
  /// Says whether ids have to be made local, or ids and weights that are given be packed.
  constexpr bool routes() const {
    return spec.shared || expert_map != nullptr || first_expert != 0 || local_experts != experts ||
           (spec.routing == MoeRouting::given && (weights_stride != topk || ids_stride != topk) && tokens > 1);
  }
};

}  // namespace tilewave
