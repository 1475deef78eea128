// SPDX-License-Identifier: MIT
// The engine's kernels that the lists of entries have as well: its test links those, and compiles the rest. A spec whose
// list has a part of its policies has that part here.
#pragma once

#include "docs/examples/engine/room.hpp"
#include "docs/examples/engine/room_specs.hpp"
#include "test/listed_kernels.hpp"
#include "tilewave/ops/gemm/specs/gated.hpp"
#include "tilewave/ops/gemm/specs/grouped.hpp"
#include "tilewave/ops/gemm/specs/int4.hpp"
#include "tilewave/ops/gemm/specs/moe.hpp"
#include "tilewave/ops/paged_attention/specs/features.hpp"

namespace tilewave {

#define LISTED_GEMM(spec, list) \
  LISTED_KERNELS(gemm_launch, (const GemmProblem&, int, hipStream_t), engine::Room, spec, list##_specs, list##_policies)
LISTED_GEMM(engine::linear_spec, gemm)
LISTED_GEMM(engine::with_weights<engine::Room>(engine::WeightFormat::fp8, engine::linear_spec), gemm)
LISTED_GEMM(engine::gated_spec, gemm_gated)
LISTED_GEMM(engine::with_weights<engine::Room>(engine::WeightFormat::fp8, engine::gated_spec), gemm_gated)
LISTED_GEMM(engine::with_weights<engine::Room>(engine::WeightFormat::int4, engine::linear_spec), gemm_int4)
LISTED_GEMM(engine::with_weights<engine::Room>(engine::WeightFormat::int4, engine::gated_spec), gemm_int4)
LISTED_GEMM(moe_first_spec(engine::experts_spec<engine::Room>(engine::WeightFormat::bf16)), gemm_moe)
LISTED_KERNELS(gemm_launch, (const GemmProblem&, int, hipStream_t), engine::Room,
               moe_second_spec(engine::experts_spec<engine::Room>(engine::WeightFormat::bf16)), gemm_grouped_specs,
               gemm_policies)

#define LISTED_OP(op, Problem, spec) \
  LISTED_KERNELS(op##_launch, (const Problem&, hipStream_t), engine::Room, spec, op##_specs, op##_policies)
LISTED_OP(embedding, EmbeddingProblem, engine::rows_spec)
LISTED_OP(norm, NormProblem, engine::norm_quant_spec<engine::Room>)
LISTED_OP(quant, QuantProblem, engine::quant_spec<engine::Room>)
LISTED_OP(sampling, SamplingProblem, engine::sampling_spec)
LISTED_OP(topk_gating, TopkGatingProblem,
          TopkGatingSpec{engine::experts_spec<engine::Room>(engine::WeightFormat::bf16).logits})
LISTED_OP(moe_reduce, MoeReduceProblem,
          MoeReduceSpec{engine::experts_spec<engine::Room>(engine::WeightFormat::bf16).out})
LISTED_OP(kv_cache_write, KvCacheWriteProblem, (engine::write_spec<engine::Room, false, DType::bf16>))
LISTED_OP(kv_cache_write, KvCacheWriteProblem, (engine::write_spec<engine::Room, true, DType::bf16>))
LISTED_OP(kv_cache_write, KvCacheWriteProblem, (engine::write_spec<engine::Room, false, engine::Room::facts.fp8>))
LISTED_OP(flash_attention, FlashAttentionProblem, engine::mixed_spec(128, false, DType::bf16))

}  // namespace tilewave
