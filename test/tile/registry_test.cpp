// SPDX-License-Identifier: MIT
// A plan can be compiled for a spec that the chip does not serve, and then says which rule the spec breaks.
#include "tilewave/tile/registry.hpp"

#include <string>

#include "test/catch_compat.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/tilewave.hpp"

namespace tilewave::test {
namespace {

template <ArchId id>
using Room = host::Backend<id>;
using Gfx942 = Room<ArchId::gfx942>;
using Gfx950 = Room<ArchId::gfx950>;

/// What a plan says that is compiled for a spec.
template <class Registry, class B, typename Registry::Spec S>
std::string answer() {
  OpPlan<Registry> plan;
  typename Registry::Problem p;
  p.spec = S;
  const Status s = plan_entry<Registry, B, S>(p, plan);
  CHECK(plan.entry == nullptr);
  CHECK(plan.candidates.empty());
  p.spec = {};
  CHECK(plan_entry<Registry, B, S>(p, plan).code == s.code);  // whatever is asked of it
  return std::string(name_of(s.code)) + ": " + s.reason;
}

/// True if every spec of a list is served.
template <class Registry, class List>
bool all_served(const List& specs, ArchId arch) {
  for (const auto& spec : specs)
    if (!Registry::check_spec(spec, facts_of(arch)).ok()) return false;
  return true;
}

TEST_CASE("a plan of rows says why no kernel has its spec") {
  constexpr DType i8 = DType::i8, bf16 = DType::bf16, ocp = DType::fp8_e4m3fn, fnuz = DType::fp8_e4m3fnuz;
  CHECK(answer<VecAddRegistry, Gfx950, VecAddSpec{i8}>() == "unsupported_dtype: a, b and out must be f32, f16 or bf16");
  CHECK(answer<SoftmaxRegistry, Gfx950, SoftmaxSpec{SoftmaxKind(7), bf16}>() ==
        "bad_value: the kind is none of SoftmaxKind");
  CHECK(answer<SoftmaxRegistry, Gfx950, SoftmaxSpec{SoftmaxKind::softmax, i8}>() ==
        "unsupported_dtype: x must be f32, f16 or bf16");
  CHECK(answer<NormRegistry, Gfx950, NormSpec{.weight = DType::f16}>() ==
        "unsupported_dtype: weight must be x's type or f32");
  CHECK(answer<NormRegistry, Gfx942, NormSpec{.out = ocp, .scale = Scaling::per_token}>() ==
        "unsupported_dtype: fp8 flavour of the output is not this architecture's");
  CHECK(answer<ActivationRegistry, Gfx950, ActivationSpec{.gating = Gating(9)}>() ==
        "bad_value: the gating is none of Gating");
  CHECK(answer<QuantRegistry, Gfx942, QuantSpec{.x = ocp, .out = bf16, .scale = Scaling::per_tensor}>() ==
        "unsupported_dtype: fp8 flavour of x is not this architecture's");
  CHECK(answer<QuantRegistry, Gfx942, QuantSpec{.x = bf16, .out = fnuz, .scale = Scaling::mx}>() ==
        "unsupported_scaling: mx scales are for gfx950 only");
  CHECK(answer<RopeRegistry, Gfx950, RopeSpec{.pairs = RopePairs(3)}>() == "bad_value: pairs is none of RopePairs");
  CHECK(answer<EmbeddingRegistry, Gfx950, EmbeddingSpec{i8}>() ==
        "unsupported_dtype: the table must be f32, f16 or bf16");
  CHECK(answer<SamplingRegistry, Gfx950, SamplingSpec{i8}>() == "unsupported_dtype: x must be f32, f16 or bf16");
  CHECK(answer<TopkGatingRegistry, Gfx950, TopkGatingSpec{i8}>() ==
        "unsupported_dtype: logits must be f32, f16 or bf16");
  CHECK(answer<MoeReduceRegistry, Gfx950, MoeReduceSpec{i8}>() == "unsupported_dtype: x must be f32, f16 or bf16");
  CHECK(answer<AttentionCombineRegistry, Gfx950, AttentionCombineSpec{.out = i8}>() ==
        "unsupported_dtype: out must be f32, f16 or bf16");
}

TEST_CASE("a plan of attention or of a cache says why no kernel has its spec") {
  constexpr DType bf16 = DType::bf16, ocp = DType::fp8_e4m3fn;
  CHECK(answer<FlashAttentionRegistry, Gfx942, FlashAttentionSpec{.q = ocp, .kv = ocp}>() ==
        "unsupported_dtype: spec.q must be bf16, f16 or this architecture's fp8");
  CHECK(answer<FlashAttentionRegistry, Gfx950, FlashAttentionSpec{.head_size = 100, .value_size = 100}>() ==
        "unsupported_head_size: head_size must be 64, 72, 80, 96, 112, 128, 192 or 256 and value_size the same, or 192 "
        "with 128");
  CHECK(answer<MlaDecodeRegistry, Gfx950, MlaDecodeSpec{.head_size = 128}>() ==
        "unsupported_head_size: head_size must be 576 or 512");
  CHECK(answer<MqaLogitsRegistry, Gfx942, MqaLogitsSpec{.type = DType::fp4_e2m1}>() ==
        "unsupported_dtype: fp4 is for gfx950 only");
  CHECK(answer<LatentCacheWriteRegistry, Gfx942, LatentCacheWriteSpec{.kv = ocp}>() ==
        "unsupported_dtype: spec.kv must be bf16 or this architecture's fp8");
  CHECK(answer<KvCacheWriteRegistry, Gfx950, KvCacheWriteSpec{.kv = DType::i8}>() ==
        "unsupported_dtype: caches must be of x's type or fp8");
  CHECK(answer<KvCacheWriteRegistry, Gfx950, KvCacheWriteSpec{.fused = true, .pairs = RopePairs(3)}>() ==
        "bad_value: pairs is none of RopePairs");
  PagedAttentionPlan plan;
  PagedAttentionProblem p;
  constexpr PagedAttentionSpec odd{.q = bf16, .kv = bf16, .head_size = 100};
  p.spec = odd;
  CHECK(paged_attention_plan<Gfx950, odd>(p, plan).code == StatusCode::unsupported_head_size);
  CHECK(plan.entry == nullptr);
}

TEST_CASE("every spec of a list is served") {
  for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950, ArchId::sm90}) {
    INFO(name_of(arch));
    CHECK(all_served<VecAddRegistry>(vec_add_specs(arch), arch));
    CHECK(all_served<SoftmaxRegistry>(softmax_specs(arch), arch));
    CHECK(all_served<NormRegistry>(norm_specs(arch), arch));
    CHECK(all_served<ActivationRegistry>(activation_specs(arch), arch));
    CHECK(all_served<QuantRegistry>(quant_specs(arch), arch));
    CHECK(all_served<RopeRegistry>(rope_specs(arch), arch));
    CHECK(all_served<EmbeddingRegistry>(embedding_specs(arch), arch));
    CHECK(all_served<SamplingRegistry>(sampling_specs(arch), arch));
    CHECK(all_served<TopkGatingRegistry>(topk_gating_specs(arch), arch));
    CHECK(all_served<MoeReduceRegistry>(moe_reduce_specs(arch), arch));
    CHECK(all_served<MoeSortRegistry>(moe_sort_specs(arch), arch));
    CHECK(all_served<AttentionCombineRegistry>(attention_combine_specs(arch), arch));
    CHECK(all_served<FlashAttentionRegistry>(flash_attention_specs(arch), arch));
    CHECK(all_served<MlaDecodeRegistry>(mla_decode_specs(arch), arch));
    CHECK(all_served<MqaLogitsRegistry>(mqa_logits_specs(arch), arch));
    CHECK(all_served<LatentCacheWriteRegistry>(latent_cache_write_specs(arch), arch));
    CHECK(all_served<KvCacheWriteRegistry>(kv_cache_write_specs(arch), arch));
  }
}

}  // namespace
}  // namespace tilewave::test
