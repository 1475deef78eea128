// SPDX-License-Identifier: MIT
// FlashAttention-3's forward kernels as a library for prefill_in_turns.py, with the tiles and the scheduler that it
// chooses. It is built beside the source: F is flash-attention's folder hopper, C CUTLASS. For heads of 128 in bf16:
//   nvcc -std=c++17 -O3 --use_fast_math -DNDEBUG -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED --expt-relaxed-constexpr
//        --expt-extended-lambda -DCUTLASS_ENABLE_GDC_FOR_SM90 -gencode=arch=compute_90a,code=sm_90a -IF -IC/include
//        -DFLASHATTENTION_DISABLE_LOCAL -DFLASHATTENTION_DISABLE_VARLEN -DFLASHATTENTION_DISABLE_PAGEDKV
//        -DFLASHATTENTION_DISABLE_APPENDKV -DFLASHATTENTION_DISABLE_SOFTCAP -DFLASHATTENTION_DISABLE_SPLIT
//        -DFLASHATTENTION_DISABLE_PACKGQA -DFLASHATTENTION_DISABLE_SM8x -DFLASHATTENTION_DISABLE_BACKWARD
//        -DHEAD=128 -DFP8=0 -shared -Xcompiler -fPIC bench/peers/prefill_fa3.cu -o fa3_128.so
// Causal calls clear the word by which its blocks take tiles, and that is timed with them, as in its own interface.
#include <cstring>
#include <string>

#include "flash_fwd_launch_template.h"
#include "prefill_call.hpp"

#if FP8
using Element = cutlass::float_e4m3_t;
#else
using Element = cutlass::bfloat16_t;
#endif

// It belongs to calls of packed sequences, which are left out.
void prepare_varlen_num_blocks(Flash_fwd_params&, cudaStream_t, bool, int, int, bool) {}

namespace {

struct Plan {
  Flash_fwd_params params;
  int* tile_counter;
};

}  // namespace

const char* prefill_prepare(const PrefillCall* call, void** plan) {
  const PrefillCall& c = *call;
  if (c.head_size != HEAD || c.fp8 != FP8) return "built for other heads or types";
  if (c.table != nullptr) return "built without pages";
  if (c.window > 0) return "built without windows";
  auto* made = new Plan;
  Flash_fwd_params& p = made->params;
  std::memset(&p, 0, sizeof(p));
  float* lse = nullptr;
  if (cudaMalloc(&lse, sizeof(float) * c.batch * c.q_heads * c.q_length) != cudaSuccess ||
      cudaMalloc(&made->tile_counter, sizeof(int)) != cudaSuccess ||
      cudaMemset(made->tile_counter, 0, sizeof(int)) != cudaSuccess)
    return "no memory";
  p.q_ptr = const_cast<void*>(c.q), p.k_ptr = const_cast<void*>(c.k), p.v_ptr = const_cast<void*>(c.v);
  p.o_ptr = c.out, p.softmax_lse_ptr = lse;
  p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = HEAD;
  p.q_row_stride = p.o_row_stride = std::int64_t{c.q_heads} * HEAD;
  p.k_row_stride = p.v_row_stride = std::int64_t{c.kv_heads} * HEAD;
  p.q_batch_stride = p.o_batch_stride = c.q_length * p.q_row_stride;
  p.k_batch_stride = p.v_batch_stride = c.kv_length * p.k_row_stride;
  p.v_dim_stride = 1;
  p.b = p.b_k = c.batch, p.h = c.q_heads, p.h_k = c.kv_heads, p.seqlen_q = c.q_length, p.seqlen_k = c.kv_length;
  p.d = p.dv = p.d_rounded = p.dv_rounded = HEAD;
  p.seqlen_q_rounded = (c.q_length + 127) / 128 * 128, p.seqlen_k_rounded = (c.kv_length + 127) / 128 * 128;
  p.total_q = c.batch * c.q_length, p.total_k = c.batch * c.kv_length;
  p.scale_softmax = 1.0f / std::sqrt(static_cast<float>(HEAD));
  p.p_dropout = p.rp_dropout = 1, p.p_dropout_in_uint8_t = 255;
  p.is_causal = c.causal != 0, p.window_size_left = -1, p.window_size_right = c.causal ? 0 : -1;
  p.is_bf16 = !FP8, p.is_e4m3 = FP8;
  if (FP8) p.q_descale_ptr = p.k_descale_ptr = p.v_descale_ptr = const_cast<float*>(c.one);
  p.num_splits = 1, p.arch = 90, p.tile_count_semaphore = made->tile_counter;
  int device = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&p.num_sm, cudaDevAttrMultiProcessorCount, device);
  *plan = made;
  return nullptr;
}

const char* prefill_run(void* plan, void* stream) {
  auto& made = *static_cast<Plan*>(plan);
  const auto queue = static_cast<cudaStream_t>(stream);
  if (made.params.is_causal && cudaMemsetAsync(made.tile_counter, 0, sizeof(int), queue) != cudaSuccess)
    return "clearing its counter failed";
  run_mha_fwd_<90, Element, HEAD, HEAD, false, false, false, false>(made.params, queue);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

const char* prefill_name(void*) { return "run_mha_fwd_"; }
