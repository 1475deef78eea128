// SPDX-License-Identifier: MIT
// The layer of experts that moe_in_turns.py hands to a library of ours. A library makes a plan of a layer, and runs it as
// often as it is asked to.
#pragma once

#include <cstdint>

/// x and out [tokens, hidden] and logits [tokens, experts] in bf16, of which a token's best choices are renormalised.
/// Weights w1 [experts, 2 intermediate, hidden] and w2 [experts, hidden, intermediate] are
/// - bf16;
/// - fp8 with f32 scales of blocks of 128 by 128;
/// - MXFP4 as gpt-oss is shipped: codes [.., columns / 2] and e8m0 scales [.., columns / 32], gates and ups of w1
///   interleaved, biases in bf16;
/// - int4 as GPTQ ships it (GemmShipped::gptq), with bf16 scales of `scale_k` columns and zero points, or without these.
/// The library repacks weights of four bits for itself, and does not read them again.
struct MoeCall {
  const void *x, *logits, *w1, *w2, *w1_scale, *w2_scale, *w1_zero, *w2_zero, *bias1, *bias2;
  void* out;
  std::int32_t tokens, hidden, intermediate, experts, topk;
  std::int32_t weights;  // 0 bf16, 1 fp8 blocks, 2 MXFP4, 3 int4
  std::int32_t scale_k;  // of int4, else 0
};

extern "C" {
/// Makes *plan of a layer. Returns why the library does not take it, or null.
const char* moe_prepare(const MoeCall* call, void** plan);
/// Queues a plan on a stream. Returns what went wrong, or null.
const char* moe_run(void* plan, void* stream);
/// Returns what a plan runs: the names of the layer's policy and of both products' entries.
const char* moe_name(void* plan);
/// Ends a plan, and frees what it holds.
void moe_free(void* plan);
}
