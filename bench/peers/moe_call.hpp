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
///   interleaved, biases in bf16. The library repacks them for itself.
struct MoeCall {
  const void *x, *logits, *w1, *w2, *w1_scale, *w2_scale, *bias1, *bias2;
  void* out;
  std::int32_t tokens, hidden, intermediate, experts, topk;
  std::int32_t weights;  // 0 bf16, 1 fp8 blocks, 2 MXFP4
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
