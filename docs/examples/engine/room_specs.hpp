// SPDX-License-Identifier: MIT
// What the engine asks of tilewave, part 7 of the tutorial: the spec of every op, by the chip's Backend `R` where the chip
// matters.
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
#include <tilewave/tile/calls.hpp>

#include "config.hpp"
#include "device.hpp"

namespace engine {

inline constexpr EmbeddingSpec rows_spec{};
inline constexpr NormSpec norm_spec{.weight = DType::f32};
inline constexpr SamplingSpec sampling_spec{.x = DType::f32};
template <class R>
constexpr QuantSpec quant_spec{.out = R::facts.fp8, .scale = Scaling::per_token};
template <class R>
constexpr NormSpec norm_quant_spec{.weight = DType::f32, .out = R::facts.fp8, .scale = Scaling::per_token};

inline constexpr GemmSpec linear_spec{}, logits_spec{.out = DType::f32};
inline constexpr GemmSpec gated_spec{.activation = ActivationKind::silu, .gated = true};
/// Gemma's gate.
constexpr GemmSpec with_gelu(GemmSpec spec) {
  spec.activation = ActivationKind::gelu_tanh;
  return spec;
}
/// A product of weights of a format. fp8 weights have a scale for each of their rows, and activations one for each of
/// theirs. int4 weights have one for 128 k of a row.
template <class R>
constexpr GemmSpec with_weights(WeightFormat format, GemmSpec spec) {
  if (format == WeightFormat::fp8) spec.a = spec.b = R::facts.fp8, spec.scale = Scaling::per_row;
  if (format == WeightFormat::int4) {
    spec.b = DType::i4, spec.weights = GemmWeights::preshuffled;
    spec.scale = Scaling::per_group, spec.scale_k = 128;
  }
  return spec;
}
/// Experts of a format. MXFP4 are gpt-oss's, which lie on sm90 as its products take them.
template <class R>
constexpr MoeSpec experts_spec(WeightFormat format) {
  MoeSpec spec{.logits = DType::f32};
  if (format == WeightFormat::fp8) spec.weights = R::facts.fp8, spec.scale = Scaling::per_row;
  if (format == WeightFormat::int4) spec.weights = DType::i4, spec.scale = Scaling::per_group, spec.scale_k = 128;
  if (format == WeightFormat::mxfp4) {
    spec.weights = DType::fp4_e2m1, spec.scale = Scaling::per_group, spec.scale_k = 32;
    spec.activation = ActivationKind::swigluoai, spec.fragments = R::facts.matrix == Matrix::mma;
  }
  return spec;
}

/// Caches of bf16 have no scales, those of fp8 one for K and one for V.
constexpr Scaling scaling_of(DType kv) { return kv == DType::bf16 ? Scaling::none : Scaling::per_tensor; }
/// Writes into the cache, with and without norms of heads. What products of sm90 may write themselves has its pairs side
/// by side.
template <class R, bool norm, DType kv>
constexpr KvCacheWriteSpec write_spec{
    .kv = kv,
    .quant = scaling_of(kv),
    .fused = true,
    .norm = norm,
    .pairs = R::facts.matrix == Matrix::mma && !norm && kv == DType::bf16 ? RopePairs::neighbours : RopePairs::halves};
/// Decode and flash attention read one cache: pages of whole tokens.
constexpr PagedAttentionSpec decode_spec(int head_size, bool cap, DType kv) {
  return {
      .kv = kv, .quant = scaling_of(kv), .head_size = head_size, .values = ValueLayout::token_major, .soft_cap = cap};
}
constexpr FlashAttentionSpec mixed_spec(int head_size, bool cap, DType kv) {
  return {.kv = kv,
          .quant = scaling_of(kv),
          .head_size = head_size,
          .value_size = head_size,
          .storage = KvStorage::paged,
          .soft_cap = cap};
}

/// Plans of the ops that take long to compile. plans.hpp defines them, and plans.cpp instantiates them.
template <class R, WeightFormat weights>
Status plan_product(const GemmProblem& p, GemmPlan& plan);
template <class R, DType kv>
Status plan_decode(const PagedAttentionProblem& p, PagedAttentionPlan& plan);
template <class R, DType kv>
Status plan_mixed(const FlashAttentionProblem& p, FlashAttentionPlan& plan);
template <class R, WeightFormat weights>
Status plan_experts(const MoeProblem& p, MoePlan& plan);

}  // namespace engine
