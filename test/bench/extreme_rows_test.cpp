// SPDX-License-Identifier: MIT
#include "bench/ops/activation/sweep.hpp"
#include "bench/ops/attention_combine/sweep.hpp"
#include "bench/ops/embedding/sweep.hpp"
#include "bench/ops/flash_attention/sweep.hpp"
#include "bench/ops/kv_cache_write/sweep.hpp"
#include "bench/ops/moe_reduce/sweep.hpp"
#include "bench/ops/moe_sort/sweep.hpp"
#include "bench/ops/mqa_logits/sweep.hpp"
#include "bench/ops/norm/sweep.hpp"
#include "bench/ops/quant/sweep.hpp"
#include "bench/ops/sampling/sweep.hpp"
#include "bench/ops/softmax/sweep.hpp"
#include "bench/ops/topk_gating/sweep.hpp"
#include "test/bench/extremes.hpp"

namespace tilewave::bench {
namespace {

TEST_CASE("no word of a row operation's config ends a benchmark without a reason") {
  check_op<ActivationOp>();
  check_op<AttentionCombineOp>();
  check_op<EmbeddingOp>();
  check_op<FlashAttentionOp>();
  check_op<KvCacheWriteOp>();
  check_op<MoeReduceOp>();
  check_op<MoeSortOp>();
  check_op<MqaLogitsOp>();
  check_op<NormOp>();
  check_op<QuantOp>();
  check_op<SamplingOp>();
  check_op<SoftmaxOp>();
  check_op<TopkGatingOp>();
}

}  // namespace
}  // namespace tilewave::bench
