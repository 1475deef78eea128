// SPDX-License-Identifier: MIT
// FlashInfer's ragged prefill of sm90 as a library for prefill_in_turns.py. Its plan is made before, as its users do.
// It is built beside the source: F is flashinfer, C CUTLASS. For causal calls with heads of 128:
//   nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr
//        -DCUTLASS_ENABLE_TENSOR_CORE_MMA=1 -IF/include -IC/include -IC/tools/util/include
//        -DHEAD=128 -DCAUSAL=1 -shared -Xcompiler -fPIC bench/peers/prefill_flashinfer.cu -lcuda -o flashinfer_128_1.so
#include <cutlass/numeric_types.h>

#include <cmath>
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/layout.cuh>
#include <flashinfer/math.cuh>
#include <vector>

#include "prefill_call.hpp"

namespace {

using Element = cutlass::bfloat16_t;
using Params = flashinfer::BatchPrefillRaggedParams<Element, Element, Element, std::int32_t>;
constexpr auto mask = IS_CAUSAL ? flashinfer::MaskMode::kCausal : flashinfer::MaskMode::kNone;

struct Plan {
  Params params;
  bool same_for_all_heads;
};

template <bool same>
cudaError_t run(Params& params, cudaStream_t stream) {
  return flashinfer::BatchPrefillWithRaggedKVCacheDispatched<HEAD, HEAD, mask, false, same,
                                                             flashinfer::StandardAttention>(params, false, stream);
}

}  // namespace

const char* prefill_prepare(const PrefillCall* call, void** plan) {
  const PrefillCall& c = *call;
  if (c.head_size != HEAD || c.fp8 || (c.causal != 0) != (IS_CAUSAL != 0))
    return "built for other heads, types or masks";
  if (c.table != nullptr) return "built without pages";
  if (c.window > 0) return "built without windows";
  constexpr std::size_t bytes = 16 << 20;
  void *ints = nullptr, *floats = nullptr, *pinned = nullptr;
  if (cudaMalloc(&ints, bytes) != cudaSuccess || cudaMalloc(&floats, bytes) != cudaSuccess ||
      cudaMallocHost(&pinned, bytes) != cudaSuccess)
    return "no memory";
  std::vector<std::int32_t> q_starts, kv_starts, kv_lengths(c.batch, c.kv_length);
  for (std::int32_t i = 0; i <= c.batch; ++i) q_starts.push_back(i * c.q_length), kv_starts.push_back(i * c.kv_length);
  flashinfer::PrefillPlanSM90Info info;
  if (flashinfer::PrefillSM90Plan<std::int32_t>(floats, bytes, ints, pinned, bytes, info, q_starts.data(),
                                                kv_starts.data(), kv_lengths.data(), q_starts.back(), c.batch,
                                                c.q_heads, c.kv_heads, HEAD, HEAD, 1, IS_CAUSAL, false, 2,
                                                nullptr) != cudaSuccess ||
      cudaDeviceSynchronize() != cudaSuccess)
    return "its plan failed";
  auto* made = new Plan{};
  Params& p = made->params;
  p.q_ptr = static_cast<Element*>(const_cast<void*>(c.q)), p.k_ptr = static_cast<Element*>(const_cast<void*>(c.k));
  p.v_ptr = static_cast<Element*>(const_cast<void*>(c.v)), p.o_ptr = static_cast<Element*>(c.out);
  p.q_stride_n = p.o_stride_n = c.q_heads * HEAD, p.k_stride_n = p.v_stride_n = c.kv_heads * HEAD;
  p.q_stride_h = p.o_stride_h = p.k_stride_h = p.v_stride_h = HEAD;
  p.nnz_qo = q_starts.back(), p.nnz_kv = kv_starts.back();
  p.num_qo_heads = c.q_heads, p.num_kv_heads = c.kv_heads, p.group_size = c.q_heads / c.kv_heads;
  p.window_left = -1, p.causal = IS_CAUSAL;
  const auto at = [&](std::int64_t offset) { return flashinfer::GetPtrFromBaseOffset<std::int32_t>(ints, offset); };
  p.qo_tile_indices = at(info.qo_tile_indices_offset), p.qo_indptr = at(info.qo_indptr_offset);
  p.kv_indptr = at(info.kv_indptr_offset), p.qo_lens = at(info.qo_len_offset), p.kv_lens = at(info.kv_len_offset);
  p.head_indices = at(info.head_indices_offset), p.work_indptr = at(info.work_indptr_offset);
  p.batch_indices = at(info.batch_indices_offset);
  p.additional_params.logits_soft_cap = 0.0f;
  p.additional_params.sm_scale = 1.0f / std::sqrt(static_cast<float>(HEAD));
  made->same_for_all_heads = info.same_schedule_for_all_heads;
  *plan = made;
  return nullptr;
}

const char* prefill_run(void* plan, void* stream) {
  auto& made = *static_cast<Plan*>(plan);
  const auto queue = static_cast<cudaStream_t>(stream);
  const cudaError_t error = made.same_for_all_heads ? run<true>(made.params, queue) : run<false>(made.params, queue);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

const char* prefill_name(void*) { return "BatchPrefillWithRaggedKVCache"; }
