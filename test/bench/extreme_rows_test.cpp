// SPDX-License-Identifier: MIT
#include "bench/shapes/activation.hpp"
#include "bench/shapes/attention_combine.hpp"
#include "bench/shapes/embedding.hpp"
#include "bench/shapes/kv_cache_write.hpp"
#include "bench/shapes/moe_reduce.hpp"
#include "bench/shapes/moe_sort.hpp"
#include "bench/shapes/mqa_logits.hpp"
#include "bench/shapes/norm.hpp"
#include "bench/shapes/quant.hpp"
#include "bench/shapes/sampling.hpp"
#include "bench/shapes/softmax.hpp"
#include "bench/shapes/topk_gating.hpp"
#include "test/bench/extremes.hpp"

namespace tilewave::bench {
namespace {

TEST_CASE("no word of a row operation's config ends a benchmark without a reason") {
  check_op<ActivationOp>();
  check_op<AttentionCombineOp>();
  check_op<EmbeddingOp>();
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
