// SPDX-License-Identifier: MIT
#include <array>

#include "served.hpp"

namespace tilewave_torch {

using namespace tilewave;

namespace {

template <PagedAttentionSpec spec>
Status attention_plan_of(const PagedAttentionProblem& p, PagedAttentionPlan& plan) {
  return paged_attention_plan<Room, spec>(p, plan);
}
using AttentionServed = Served<PagedAttentionSpec, PagedAttentionProblem, PagedAttentionPlan>;
constexpr PagedAttentionSpec decode{.head_size = 128, .values = ValueLayout::token_major};

constexpr FlashAttentionSpec prefill{};
using PrefillServed = Served<FlashAttentionSpec, FlashAttentionProblem, FlashAttentionPlan>;

constexpr AttentionCombineSpec from_bf16{.x = bf16}, from_f32{};
using CombineServed = Served<AttentionCombineSpec, AttentionCombineProblem, AttentionCombinePlan>;

constexpr KvCacheWriteSpec plain{};
using WriteServed = Served<KvCacheWriteSpec, KvCacheWriteProblem, KvCacheWritePlan>;

constexpr RopeSpec halves{.table = f32}, neighbours{.table = f32, .pairs = RopePairs::neighbours};
using RopeServed = Served<RopeSpec, RopeProblem, RopePlan>;

constexpr MqaLogitsSpec paged{.type = fp8};
using MqaServed = Served<MqaLogitsSpec, MqaLogitsProblem, MqaLogitsPlan>;

}  // namespace

Status run(const PagedAttentionProblem& p, const Call& call) {
  return serve(p, call, std::array{AttentionServed{decode, &attention_plan_of<decode>}});
}
Status run(const FlashAttentionProblem& p, const Call& call) {
  return serve(p, call, std::array{PrefillServed{prefill, flash_attention_plan<Room, prefill>}});
}
Status run(const AttentionCombineProblem& p, const Call& call) {
  return serve(p, call,
               std::array{CombineServed{from_bf16, attention_combine_plan<Room, from_bf16>},
                          CombineServed{from_f32, attention_combine_plan<Room, from_f32>}});
}
Status run(const KvCacheWriteProblem& p, const Call& call) {
  return serve(p, call, std::array{WriteServed{plain, kv_cache_write_plan<Room, plain>}});
}
Status run(const RopeProblem& p, const Call& call) {
  return serve(
      p, call,
      std::array{RopeServed{halves, rope_plan<Room, halves>}, RopeServed{neighbours, rope_plan<Room, neighbours>}});
}
Status run(const MqaLogitsProblem& p, const Call& call) {
  return serve(p, call, std::array{MqaServed{paged, mqa_logits_plan<Room, paged>}});
}

}  // namespace tilewave_torch
