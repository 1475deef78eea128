// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include <cmath>

#include "tilewave/ops/topk_gating/kernel.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

namespace detail {

inline Status check_gating_extents(const TopkGatingProblem& p) {
  if (p.experts < 1 || p.experts > most_gating_experts) return {StatusCode::bad_extent, "experts must be 1 to 1024"};
  if (p.topk < 1 || p.topk > most_gating_choices) return {StatusCode::bad_extent, "topk must be 1 to 16"};
  if (p.topk > p.experts) return {StatusCode::bad_extent, "topk is more than there are experts"};
  if (p.groups < 1 || p.experts % p.groups != 0) {
    return {StatusCode::bad_extent, "experts must be a whole number of groups"};
  }
  if (p.kept_groups < 1 || p.kept_groups > p.groups) return {StatusCode::bad_extent, "kept_groups must be 1 to groups"};
  if (p.topk > p.experts / p.groups * p.kept_groups) {
    return {StatusCode::bad_extent, "topk is more than there are experts in kept_groups"};
  }
  if (p.groups > 1 && p.group_score == GroupScore::two_best && p.groups == p.experts) {
    return {StatusCode::bad_extent, "groups of one expert have no two best"};
  }
  return {};
}

inline Status check_gating_pointers(const TopkGatingProblem& p) {
  if (p.logits == nullptr) return {StatusCode::null_pointer, "logits are null"};
  if (p.weights == nullptr) return {StatusCode::null_pointer, "weights are null"};
  if (p.indices == nullptr) return {StatusCode::null_pointer, "indices are null"};
  if (!element_aligned(p.logits, p.spec.x)) return {StatusCode::misaligned, "logits are not aligned to their elements"};
  for (const void* words : {static_cast<const void*>(p.bias), static_cast<const void*>(p.weights),
                            static_cast<const void*>(p.indices), static_cast<const void*>(p.token_expert_indices)}) {
    if (!element_aligned(words, DType::f32)) {
      return {StatusCode::misaligned, "bias, weights and indices need 4-byte alignment"};
    }
  }
  return {};
}

inline Status check_gating_regions(const TopkGatingProblem& p) {
  const auto rows = [&](const void* data, DType type, std::int32_t columns, std::int64_t stride, const char* zero) {
    return Region(data, size_of(type), columns, {{p.tokens, stride, zero}});
  };
  const Region logits = rows(p.logits, p.spec.x, p.experts, p.logits_stride, "logits_stride is 0");
  const Region bias = vector_region(p.bias, DType::f32, p.experts);
  const Region weights = rows(p.weights, DType::f32, p.topk, p.weights_stride, "weights_stride is 0");
  const Region indices = rows(p.indices, DType::f32, p.topk, p.indices_stride, "indices_stride is 0");
  const Region pairs =
      rows(p.token_expert_indices, DType::f32, p.topk, p.token_expert_stride, "token_expert_stride is 0");
  for (const Status& status : {check_absent<"token_expert_indices">(p.token_expert_indices, {p.token_expert_stride}),
                               check_read<"logits">(logits, "logits_stride is 0"),
                               check_written<"weights">(weights, "rows of weights overlap"),
                               check_written<"indices">(indices, "rows of indices overlap"),
                               check_written<"token_expert_indices">(pairs, "rows of token_expert_indices overlap")}) {
    if (!status.ok()) return status;
  }
  if (!clear_of(weights, {logits, bias})) return {StatusCode::bad_value, "weights overlap another tensor"};
  if (!clear_of(indices, {logits, bias, weights})) return {StatusCode::bad_value, "indices overlap another tensor"};
  if (!clear_of(pairs, {logits, bias, weights, indices})) {
    return {StatusCode::bad_value, "token_expert_indices overlap another tensor"};
  }
  return {};
}

}  // namespace detail

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status topk_gating_check_spec(const TopkGatingSpec& s, const ArchFacts&) {
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "logits must be f32, f16 or bf16"};
  return {};
}

/// Checks every rule that a problem must satisfy.
inline Status topk_gating_check(const TopkGatingProblem& p, const ArchFacts& facts) {
  if (Status status = topk_gating_check_spec(p.spec, facts); !status.ok()) return status;
  if (p.score != GatingScore::softmax && p.score != GatingScore::sigmoid) {
    return {StatusCode::bad_value, "score is none of GatingScore"};
  }
  if (p.group_score != GroupScore::best && p.group_score != GroupScore::two_best) {
    return {StatusCode::bad_value, "group_score is none of GroupScore"};
  }
  if (!std::isfinite(p.scale)) return {StatusCode::bad_value, "scale must be finite"};
  if (Status s = check_row_extent(p.tokens, p.experts, 1); !s.ok()) return s;
  if (Status s = detail::check_gating_extents(p); !s.ok()) return s;
  if (p.tokens == 0) return {};  // nothing to read or write
  if (Status s = detail::check_gating_pointers(p); !s.ok()) return s;
  if (p.token_expert_indices != nullptr && std::int64_t{p.topk} * p.tokens > std::numeric_limits<std::int32_t>::max()) {
    return {StatusCode::bad_extent, "token_expert_indices reach beyond 2^31"};
  }
  return detail::check_gating_regions(p);
}

/// True if the kernels with 16-byte accesses can take the problem: the experts of one access lie in one group.
inline bool topk_gating_aligned(const TopkGatingProblem& p) {
  return rows_aligned(p.logits, {p.logits_stride, 0}, 1, p.spec.x) && is_aligned(p.bias, 16) &&
         (p.groups <= 1 || p.experts / p.groups % (16 / size_of(p.spec.x)) == 0);
}

/// True if an entry of this policy serves the problem.
inline bool topk_gating_takes(const TopkGatingPolicy& policy, const TopkGatingProblem& p) {
  return p.topk <= policy.keep && policy_takes(policy, p.spec.x, p.experts, topk_gating_aligned(p));
}

/// Returns the arguments of the kernels.
inline TopkGatingArgs topk_gating_args(const TopkGatingProblem& p, const TopkGatingPolicy& policy) {
  const bool softmax = p.score == GatingScore::softmax,
             two_best = p.groups > 1 && p.group_score == GroupScore::two_best;
  const bool by_score = p.bias != nullptr || two_best;
  return {.logits = p.logits,
          .bias = p.bias,
          .weights = p.weights,
          .indices = p.indices,
          .token_expert_indices = p.token_expert_indices,
          .extent = {p.tokens, p.experts, FastDiv::by(1)},
          .logits_stride = p.logits_stride,
          .weights_stride = p.weights_stride,
          .indices_stride = p.indices_stride,
          .token_expert_stride = p.token_expert_stride,
          .groups = {p.groups, p.kept_groups, FastDiv::by(p.experts / p.groups / (policy.vec / size_of(p.spec.x))),
                     two_best},
          .topk = p.topk,
          .sigmoid = !softmax,
          .renormalise = p.renormalise,
          .by_score = by_score,
          .sums_token = softmax && (by_score || !p.renormalise),  // otherwise factors common to all weights cancel
          .scale = p.scale};
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// topk_gating_check; no_matching_entry if the entry is of another spec or its policy does not take the problem;
/// launch_failed with the runtime's reason.
template <class B, TopkGatingSpec S, TopkGatingPolicy P>
Status topk_gating_launch(const TopkGatingProblem& p, hipStream_t stream) {
  if (Status s = check_row_launch(S, P, p, B::facts, topk_gating_check, topk_gating_aligned); !s.ok()) return s;
  if (!topk_gating_takes(P, p)) return {StatusCode::no_matching_entry, "the entry's policy keeps fewer than topk"};
  if (p.tokens == 0) return {};
  return B::template launch<TopkGating<B, S, P>>(row_grid(P, p.tokens), topk_gating_args(p, P), stream);
}

}  // namespace tilewave
