// SPDX-License-Identifier: MIT
// What the engine asks of tilewave: the specs that it compiles in, and the plans of the ops that take long to compile.
#pragma once

#include <tilewave/ops/embedding/registry.hpp>
#include <tilewave/ops/flash_attention/registry.hpp>
#include <tilewave/ops/gemm/registry.hpp>
#include <tilewave/ops/kv_cache_write/registry.hpp>
#include <tilewave/ops/moe/registry.hpp>
#include <tilewave/ops/norm/registry.hpp>
#include <tilewave/ops/paged_attention/registry.hpp>
#include <tilewave/ops/quant/registry.hpp>
#include <tilewave/ops/sampling/registry.hpp>

namespace engine {

inline constexpr tilewave::EmbeddingSpec rows_spec{};
inline constexpr tilewave::NormSpec norm_spec{.weight = tilewave::DType::f32};
inline constexpr tilewave::SamplingSpec sampling_spec{.x = tilewave::DType::f32};
inline constexpr tilewave::GemmSpec linear_spec{};
inline constexpr tilewave::GemmSpec gated_spec{.activation = tilewave::ActivationKind::silu, .gated = true};
/// Gemma's gate.
constexpr tilewave::GemmSpec with_gelu(tilewave::GemmSpec spec) {
  spec.activation = tilewave::ActivationKind::gelu_tanh;
  return spec;
}
inline constexpr tilewave::GemmSpec gelu_spec = with_gelu(gated_spec);
inline constexpr tilewave::GemmSpec logits_spec{.out = tilewave::DType::f32};
inline constexpr tilewave::MoeSpec experts_spec{.logits = tilewave::DType::f32};
/// int4 weights have a scale for 128 k of a row.
inline constexpr tilewave::GemmSpec int4_linear_spec{.b = tilewave::DType::i4,
                                                     .scale = tilewave::Scaling::per_group,
                                                     .weights = tilewave::GemmWeights::preshuffled,
                                                     .scale_k = 128};
inline constexpr tilewave::GemmSpec int4_gated_spec{.b = tilewave::DType::i4,
                                                    .scale = tilewave::Scaling::per_group,
                                                    .weights = tilewave::GemmWeights::preshuffled,
                                                    .activation = tilewave::ActivationKind::silu,
                                                    .gated = true,
                                                    .scale_k = 128};
inline constexpr tilewave::GemmSpec int4_gelu_spec = with_gelu(int4_gated_spec);
inline constexpr tilewave::MoeSpec int4_experts_spec{.weights = tilewave::DType::i4,
                                                     .scale = tilewave::Scaling::per_group,
                                                     .scale_k = 128,
                                                     .logits = tilewave::DType::f32};
template <class R>
constexpr tilewave::MoeSpec fp8_experts_spec{
    .weights = R::facts.fp8, .scale = tilewave::Scaling::per_row, .logits = tilewave::DType::f32};
/// Experts of gpt-oss are MXFP4, which lie on sm90 as its products take them.
template <class R>
constexpr tilewave::MoeSpec mxfp4_experts_spec{.weights = tilewave::DType::fp4_e2m1,
                                               .scale = tilewave::Scaling::per_group,
                                               .scale_k = 32,
                                               .activation = tilewave::ActivationKind::swigluoai,
                                               .logits = tilewave::DType::f32,
                                               .fragments = R::facts.matrix == tilewave::Matrix::mma};
/// fp8 weights have a scale for each of their rows, and activations one for each of theirs.
template <class R>
constexpr tilewave::GemmSpec fp8_linear_spec{.a = R::facts.fp8, .b = R::facts.fp8, .scale = tilewave::Scaling::per_row};
template <class R>
constexpr tilewave::GemmSpec fp8_gated_spec{.a = R::facts.fp8,
                                            .b = R::facts.fp8,
                                            .scale = tilewave::Scaling::per_row,
                                            .activation = tilewave::ActivationKind::silu,
                                            .gated = true};
template <class R>
constexpr tilewave::GemmSpec fp8_gelu_spec = with_gelu(fp8_gated_spec<R>);
template <class R>
constexpr tilewave::QuantSpec quant_spec{.out = R::facts.fp8, .scale = tilewave::Scaling::per_token};
template <class R>
constexpr tilewave::NormSpec norm_quant_spec{
    .weight = tilewave::DType::f32, .out = R::facts.fp8, .scale = tilewave::Scaling::per_token};

/// Writes into the cache, with and without norms of heads, of bf16 and of fp8. What products of sm90 may write
/// themselves has its pairs side by side.
template <class R, bool norm, bool fp8>
constexpr tilewave::KvCacheWriteSpec write_spec{.kv = fp8 ? R::facts.fp8 : tilewave::DType::bf16,
                                                .quant = fp8 ? tilewave::Scaling::per_tensor : tilewave::Scaling::none,
                                                .fused = true,
                                                .norm = norm,
                                                .pairs = R::facts.matrix == tilewave::Matrix::mma && !norm && !fp8
                                                             ? tilewave::RopePairs::neighbours
                                                             : tilewave::RopePairs::halves};
/// Decode and flash attention read one cache: pages of whole tokens.
constexpr tilewave::PagedAttentionSpec decode_spec(int head_size, bool cap, tilewave::DType kv) {
  const bool fp8 = kv != tilewave::DType::bf16;
  return {.kv = kv,
          .quant = fp8 ? tilewave::Scaling::per_tensor : tilewave::Scaling::none,
          .head_size = head_size,
          .values = tilewave::ValueLayout::token_major,
          .soft_cap = cap};
}
constexpr tilewave::FlashAttentionSpec mixed_spec(int head_size, bool cap, tilewave::DType kv) {
  const bool fp8 = kv != tilewave::DType::bf16;
  return {.kv = kv,
          .quant = fp8 ? tilewave::Scaling::per_tensor : tilewave::Scaling::none,
          .head_size = head_size,
          .value_size = head_size,
          .storage = tilewave::KvStorage::paged,
          .soft_cap = cap};
}

/// Plans of the ops that take long to compile, in files of their own: plans_gemm.hpp, plans_attention.hpp, plans_moe.hpp,
/// plans_fp8.hpp and plans_int4.hpp define them, and a file for each chip instantiates them.
template <class R>
struct GemmPlans {
  static tilewave::Status plan(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan);
};
template <class R>
struct AttentionPlans {
  static tilewave::Status decode(const tilewave::PagedAttentionProblem& p, tilewave::PagedAttentionPlan& plan);
  static tilewave::Status mixed(const tilewave::FlashAttentionProblem& p, tilewave::FlashAttentionPlan& plan);
};
template <class R>
struct MoePlans {
  static tilewave::Status plan(const tilewave::MoeProblem& p, tilewave::MoePlan& plan);
  static tilewave::Status quantised(const tilewave::MoeProblem& p, tilewave::MoePlan& plan);
};
template <class R>
struct Fp8Plans {
  static tilewave::Status product(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan);
  static tilewave::Status decode(const tilewave::PagedAttentionProblem& p, tilewave::PagedAttentionPlan& plan);
  static tilewave::Status mixed(const tilewave::FlashAttentionProblem& p, tilewave::FlashAttentionPlan& plan);
};
template <class R>
struct Int4Plans {
  static tilewave::Status plan(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan);
};
/// The answer to a spec that none of these was compiled for.
inline constexpr tilewave::Status not_compiled{tilewave::StatusCode::no_matching_entry,
                                               "the engine was compiled without this spec"};

}  // namespace engine
