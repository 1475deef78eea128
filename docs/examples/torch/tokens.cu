// SPDX-License-Identifier: MIT
#include <array>

#include "served.hpp"

namespace tilewave_torch {

using namespace tilewave;

namespace {

constexpr EmbeddingSpec table_bf16{};
using EmbeddingServed = Served<EmbeddingSpec, EmbeddingProblem, EmbeddingPlan>;
constexpr SamplingSpec logits_bf16{}, logits_f32{f32};
using SamplingServed = Served<SamplingSpec, SamplingProblem, SamplingPlan>;
constexpr TopkGatingSpec gating_bf16{}, gating_f32{f32};
using GatingServed = Served<TopkGatingSpec, TopkGatingProblem, TopkGatingPlan>;
constexpr MoeSortSpec by_expert{};
using SortServed = Served<MoeSortSpec, MoeSortProblem, MoeSortPlan>;
constexpr MoeReduceSpec reduce_bf16{};
using ReduceServed = Served<MoeReduceSpec, MoeReduceProblem, MoeReducePlan>;

}  // namespace

Status run(const EmbeddingProblem& p, const Call& call) {
  return serve(p, call, std::array{EmbeddingServed{table_bf16, embedding_plan<Room, table_bf16>}});
}
Status run(const SamplingProblem& p, const Call& call) {
  return serve(p, call,
               std::array{SamplingServed{logits_bf16, sampling_plan<Room, logits_bf16>},
                          SamplingServed{logits_f32, sampling_plan<Room, logits_f32>}});
}
Status run(const TopkGatingProblem& p, const Call& call) {
  return serve(p, call,
               std::array{GatingServed{gating_bf16, topk_gating_plan<Room, gating_bf16>},
                          GatingServed{gating_f32, topk_gating_plan<Room, gating_f32>}});
}
Status run(const MoeSortProblem& p, const Call& call) {
  return serve(p, call, std::array{SortServed{by_expert, moe_sort_plan<Room, by_expert>}});
}
Status run(const MoeReduceProblem& p, const Call& call) {
  return serve(p, call, std::array{ReduceServed{reduce_bf16, moe_reduce_plan<Room, reduce_bf16>}});
}

}  // namespace tilewave_torch
