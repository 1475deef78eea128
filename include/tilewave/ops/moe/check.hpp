// SPDX-License-Identifier: MIT
// The rules of a layer of experts that are its own. Those of its parts are checked by the parts.
#pragma once

#include "tilewave/ops/moe/calls.hpp"

namespace tilewave {

/// Which of a layer's launches to run.
enum class MoeLaunch : int { choose, gating, route, sort, quant_x, copy, first, quant_h, second, sum };
inline constexpr int moe_launches = 10;

constexpr const char* name_of(MoeLaunch l) {
  constexpr const char* names[] = {"choose", "gating", "route",   "sort",   "quant_x",
                                   "copy",   "first",  "quant_h", "second", "sum"};
  return names[static_cast<int>(l)];
}

/// Says whether a layer has a launch. What it has depends on the spec, of the problem on the experts that are local,
/// and of the policy on how rows come to the first product.
constexpr bool moe_has(const MoeProblem& p, const MoePolicy& policy, MoeLaunch l) {
  const MoeSpec& s = p.spec;
  const bool together = policy.choosing != MoeChoosing::apart;
  switch (l) {
    case MoeLaunch::choose: return together;
    case MoeLaunch::gating: return s.routing == MoeRouting::logits && !together;
    case MoeLaunch::route: return !s.masked() && p.routes() && !together;
    case MoeLaunch::sort: return !s.masked() && !together;
    case MoeLaunch::sum: return !s.masked();
    case MoeLaunch::quant_x: return s.quantises_x() && policy.choosing != MoeChoosing::beside_x;
    case MoeLaunch::copy: return policy.rows == MoeRows::copied;
    case MoeLaunch::quant_h: return moe_quantises_h(s, policy);
    case MoeLaunch::first:
    case MoeLaunch::second: return true;
  }
  return false;
}
/// Says whether a call has anything to do.
constexpr bool moe_is_empty(const MoeProblem& p) { return p.hidden == 0 || p.rows() == 0 || p.resident() == 0; }

namespace detail {

/// Checks where tokens lie by expert.
inline Status check_moe_places(const MoeProblem& p) {
  constexpr StatusCode extent = StatusCode::bad_extent;
  if (p.capacity < 0) return {extent, "capacity is negative"};
  if (p.spec.mx() && p.capacity % 32 != 0) return {extent, "with mx scales capacity is a multiple of 32"};
  if (std::int64_t{p.capacity} * p.local_experts > 1 << 30)
    return {extent, "capacity times local_experts must be 2^30 or less"};
  if (p.topk != 0 || p.experts != 0 || p.first_expert != 0 || p.expert_map != nullptr)
    return {StatusCode::bad_value, "topk, experts, first_expert and expert_map are for tokens that are routed here"};
  return {};
}
/// Checks how many experts and choices there are.
inline Status check_moe_choices(const MoeProblem& p) {
  constexpr StatusCode extent = StatusCode::bad_extent;
  if (p.capacity != 0 || p.expert_rows != nullptr)
    return {StatusCode::bad_value, "capacity and expert_rows are for tokens that lie by expert"};
  if (p.topk < 1 || p.topk > most_sorted_choices - p.spec.shared)
    return {extent, "topk must be 1 to 16, with the shared expert to 15"};
  if (p.experts < 1 || p.experts > most_sorted_experts) return {extent, "experts must be 1 to 1024"};
  if (p.local_experts > most_sorted_experts - p.spec.shared || p.resident() < 1)
    return {extent, "local_experts, with the shared one, must be 1 to 1024"};
  if (p.expert_map != nullptr ? p.first_expert != 0
                              : p.first_expert < 0 || p.first_expert > p.experts - p.local_experts)
    return {StatusCode::bad_value, "local experts lie beyond all experts, or expert_map comes with a first_expert"};
  if (std::int64_t{p.tokens} * p.slots() > 1 << 30) return {extent, "tokens times slots must be 2^30 or less"};
  return {};
}

inline Status check_moe_extents(const MoeProblem& p) {
  constexpr StatusCode extent = StatusCode::bad_extent;
  if (p.tokens < 0 || p.tokens >= 1 << sorted_token_bits) return {extent, "tokens must be 0 to 2^24 - 1"};
  if (p.hidden < 0 || p.intermediate < 1) return {extent, "hidden is negative, or intermediate below 1"};
  if (p.hidden > 1 << 30 || p.intermediate > (1 << 30) - 1)
    return {extent, "hidden must be 2^30 or less, and intermediate below 2^30 - 1"};
  if (p.local_experts < 0) return {extent, "local_experts is negative"};
  if (Status s = p.spec.masked() ? check_moe_places(p) : check_moe_choices(p); !s.ok()) return s;
  // The workspace has a few tensors of so many elements.
  const std::int64_t rows = std::int64_t{p.rows()} * (p.spec.masked() ? p.local_experts : 1);
  if (rows * max_of(p.hidden, p.intermediate) > std::int64_t{1} << 50)
    return {extent, "rows of all experts times hidden or intermediate must be 2^50 or less"};
  return {};
}

inline Status check_moe_pointers(const MoeProblem& p) {
  constexpr StatusCode null = StatusCode::null_pointer, useless = StatusCode::bad_value;
  const MoeSpec& s = p.spec;
  const auto scaled = [&](const float* scale) { return scale == nullptr || is_aligned(scale, 4); };
  if (p.x == nullptr || p.out == nullptr) return {null, "x or out is null"};
  if (p.w1.data == nullptr || p.w2.data == nullptr) return {null, "w1 or w2 is null"};
  const bool wants_x_scale = s.quantised() && (is_fp8(s.x) || s.scale == Scaling::per_tensor);
  if (wants_x_scale != (p.x_scale != nullptr))
    return {wants_x_scale ? null : useless, wants_x_scale ? "x_scale is null" : "the layer finds the scales of x"};
  const bool wants_h_scale = s.quantised() && s.scale == Scaling::per_tensor;
  if (wants_h_scale != (p.h_scale != nullptr))
    return {wants_h_scale ? null : useless, wants_h_scale ? "h_scale is null" : "h has no scale of the whole tensor"};
  const bool wants_x_mx = s.mx() && is_fp8(s.x);
  if (wants_x_mx != (p.x_mx_scale != nullptr))
    return {wants_x_mx ? null : useless, wants_x_mx ? "x_mx_scale is null" : "x_mx_scale is for x with mx scales"};
  if (!scaled(p.x_scale) || !scaled(p.h_scale)) return {StatusCode::misaligned, "scales need 4-byte alignment"};
  if ((s.routing == MoeRouting::logits) != (p.logits != nullptr))
    return {p.logits == nullptr ? null : useless, p.logits == nullptr
                                                      ? "logits is null: the layer chooses experts by them"
                                                      : "logits are for a layer that chooses experts"};
  const bool given = s.routing == MoeRouting::given;
  if (given != (p.topk_ids != nullptr) || given != (p.topk_weights != nullptr))
    return {given ? null : useless,
            given ? "topk_ids or topk_weights is null" : "topk_ids and topk_weights are for routing that is given"};
  if (s.routing != MoeRouting::logits && p.gating_bias != nullptr)
    return {useless, "gating_bias is for a layer that chooses experts"};
  if (s.masked() != (p.expert_rows != nullptr))
    return {s.masked() ? null : useless,
            s.masked() ? "expert_rows is null" : "expert_rows are for tokens that lie by expert"};
  for (const void* table : {static_cast<const void*>(p.expert_map), static_cast<const void*>(p.topk_ids),
                            static_cast<const void*>(p.topk_weights)}) {
    if (!is_aligned(table, 4)) return {StatusCode::misaligned, "ids, weights and expert_map need 4-byte alignment"};
  }
  if (s.masked() && p.residual != nullptr) return {useless, "residual is for sums of tokens"};
  return {};
}

/// Checks that values which this spec would not look at are as they were.
inline Status check_moe_values(const MoeProblem& p) {
  const MoeProblem usual;
  const bool as_they_were = p.score == usual.score && p.renormalise == usual.renormalise &&
                            p.weight_scale == usual.weight_scale && p.expert_groups == usual.expert_groups &&
                            p.kept_groups == usual.kept_groups && p.group_score == usual.group_score;
  if (p.spec.routing != MoeRouting::logits && !as_they_were)
    return {StatusCode::bad_value,
            "score, renormalise, weight_scale and expert groups are for a layer that chooses experts"};
  if (!p.spec.shared && p.shared_weight != usual.shared_weight)
    return {StatusCode::bad_value, "shared_weight is for a spec with a shared expert"};
  return {};
}

/// Checks that rows of ids and of weights that are given do not overlap: the workspace has none.
inline Status check_moe_strides(const MoeProblem& p) {
  if (p.spec.routing == MoeRouting::given && p.tokens > 1 && (p.ids_stride < p.topk || p.weights_stride < p.topk))
    return {StatusCode::bad_stride, "ids_stride or weights_stride is less than topk"};
  if (p.spec.routing != MoeRouting::given && (p.ids_stride != 0 || p.weights_stride != 0))
    return {StatusCode::bad_value, "ids_stride and weights_stride are for routing that is given"};
  if (!p.spec.masked() && (p.x_expert_stride != 0 || p.out_expert_stride != 0 || p.x_scale_expert_stride != 0))
    return {StatusCode::bad_value, "strides of experts are for tokens that lie by expert"};
  if (moe_second_spec(p.spec).in_strips()) return {};  // the products know how such weights lie
  const int size = size_of(p.spec.weights);
  const Region w1(p.w1.data, size, p.hidden,
                  {{p.resident(), p.w1.expert_stride, "w1.expert_stride is 0"},
                   {2 * p.intermediate, p.w1.stride, "w1.stride is 0"}});
  const Region w2(
      p.w2.data, size, p.intermediate,
      {{p.resident(), p.w2.expert_stride, "w2.expert_stride is 0"}, {p.hidden, p.w2.stride, "w2.stride is 0"}});
  for (const Region* w : {&w1, &w2}) {
    if (w->zero_stride() != nullptr) return {StatusCode::bad_stride, w->zero_stride()};
    if (w->overlaps_itself())
      return {StatusCode::bad_stride, w == &w1 ? "rows or experts of w1 overlap: it has 2 * intermediate rows an expert"
                                               : "rows or experts of w2 overlap: it has hidden rows an expert"};
  }
  return {};
}

/// Returns ok if h may leave the first product as a policy says, else no_matching_entry.
inline Status moe_h_status(const MoeProblem& p, const MoePolicy& policy) {
  if (policy.h == MoeH::f32 && p.w1.bias != nullptr)
    return {StatusCode::no_matching_entry, "h in f32 has no bias, which would be f32 as well"};
  return {};
}

/// Checks that neither out nor the workspace shares a byte with another tensor of the call. `calls`: with rows that are
/// gathered. `workspace`: empty where it is not there yet.
inline Status check_moe_overlap(const MoeProblem& p, const MoeCalls& calls, const Region& workspace) {
  const bool masked = p.spec.masked();
  const std::int32_t rows = masked ? p.capacity : p.tokens, layers = masked ? p.resident() : 1;
  const GemmRegions first(calls.first), second(calls.second);
  const Region x(p.x, size_of(p.spec.x), p.hidden,
                 {{rows, p.x_stride, "x_stride is 0"}, {layers, p.x_expert_stride, "x_expert_stride is 0"}});
  const Region out(p.out, size_of(p.spec.out), p.hidden,
                   {{rows, p.out_stride, "out_stride is 0"}, {layers, p.out_expert_stride, "out_expert_stride is 0"}});
  const Region residual(p.residual, size_of(p.spec.out), p.hidden, {{p.tokens, p.residual_stride}});
  const bool chooses = p.spec.routing == MoeRouting::logits, given = p.spec.routing == MoeRouting::given;
  const Region logits(p.logits, size_of(p.spec.logits), p.experts, {{chooses ? p.tokens : 0, p.logits_stride}});
  const Region ids(p.topk_ids, 4, p.topk, {{given ? p.tokens : 0, p.ids_stride}});
  const Region weights(p.topk_weights, 4, p.topk, {{given ? p.tokens : 0, p.weights_stride}});
  const auto words = [](const void* data, std::int64_t count) {
    return vector_region(data, DType::f32, data != nullptr ? count : 0);
  };
  const Region map = words(p.expert_map, p.experts), counts = words(p.expert_rows, p.local_experts);
  const Region x_scale = p.spec.quantises_x() ? words(p.x_scale, 1) : first.a_scale, h_scale = words(p.h_scale, 1);
  const Region bias = words(p.gating_bias, p.experts);
  for (const Region* written : {&out, &workspace}) {
    if (!clear_of(*written, {x, first.b, second.b, first.b_scale, second.b_scale, first.b_zero, second.b_zero,
                             first.bias, second.bias, x_scale, h_scale, logits, ids, weights, map, counts, bias})) {
      return {StatusCode::bad_value, written == &out ? "out overlaps an input" : "workspace overlaps an input"};
    }
  }
  if (!clear_of(workspace, {out, residual})) return {StatusCode::bad_value, "workspace overlaps out or residual"};
  return {};
}

}  // namespace detail

/// Checks all rules of a problem, also those of the ops that it consists of. Ids, weights and counts are on the device
/// and are not read. `base`: the workspace; bytes of the plan's entries.
/// Errors: those of moe_check_spec; a code and a reason for the first rule that is broken.
inline Status moe_check_calls(const MoeProblem& p, const MoePolicy& policy, const MoeCalls& calls,
                              const ArchFacts& facts) {
  const auto of = [&](MoeLaunch l, const auto& check) { return moe_has(p, policy, l) ? check() : Status{}; };
  for (const Status& status :
       {of(MoeLaunch::gating, [&] { return topk_gating_check(calls.gating, facts); }),
        of(MoeLaunch::choose, [&] { return topk_gating_check(calls.gating, facts); }),
        of(MoeLaunch::sort, [&] { return moe_sort_check(calls.sort, facts); }),
        p.spec.quantises_x() ? quant_check(calls.quant_x, facts) : Status{}, gemm_check(calls.first, facts),
        of(MoeLaunch::quant_h, [&] { return quant_check(calls.quant_h, facts); }), gemm_check(calls.second, facts),
        of(MoeLaunch::sum, [&] { return moe_reduce_check(calls.sum, facts); })}) {
    if (!status.ok()) return status;
  }
  return {};
}
/// Stands for a workspace where none is there yet: no tensor lies there.
inline void* moe_no_workspace() { return reinterpret_cast<void*>(std::uintptr_t{1} << 62); }
inline Status moe_check(const MoeProblem& p, const MoePolicy& policy, const ArchFacts& facts, void* base,
                        const MoeEntryBytes& bytes) {
  if (Status s = moe_check_spec(p.spec, facts); !s.ok()) return s;
  if (Status s = detail::check_moe_extents(p); !s.ok()) return s;
  if (moe_is_empty(p)) return {};
  if (Status s = detail::check_moe_pointers(p); !s.ok()) return s;
  if (Status s = detail::check_moe_values(p); !s.ok()) return s;
  if (Status s = detail::check_moe_strides(p); !s.ok()) return s;
  if (Status s = detail::moe_h_status(p, policy); !s.ok()) return s;
  const MoeCalls calls(p, policy, base, bytes);
  if (Status s = moe_check_calls(p, policy, calls, facts); !s.ok()) return s;
  const MoeCalls gathered(p, {policy.results}, base, bytes);  // its first product has x itself, which others copy
  if (Status s = gemm_check(gathered.first, facts); !s.ok()) return s;
  const auto needed = static_cast<std::int64_t>(calls.workspace_bytes);
  return detail::check_moe_overlap(p, gathered, Region(base, 1, base != moe_no_workspace() ? needed : 0, {}));
}
inline Status moe_check(const MoeProblem& p, const ArchFacts& facts) {
  return moe_check(p, {}, facts, moe_no_workspace(), {});
}

}  // namespace tilewave
