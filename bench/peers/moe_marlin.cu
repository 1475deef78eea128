// SPDX-License-Identifier: MIT
// vLLM's Marlin of experts for MXFP4 under bf16 as a library for moe_in_turns.py. Its kernel and the choice of its
// tiles are vLLM's, unchanged: the host's part is cut where PyTorch's tensors begin. In vLLM's folder csrc, with PyTorch's
// headers (of which TORCH_CHECK alone is used):
//   python3 moe/marlin_moe_wna16/generate_kernels.py 9.0
//   sed '/^torch::Tensor/,$d; /core\/registration.h/d' moe/marlin_moe_wna16/ops.cu > moe/marlin_moe_wna16/host.inc
//   nvcc -std=c++17 -O3 --expt-relaxed-constexpr -static-global-template-stub=false -gencode=arch=compute_90,code=sm_90
//        -I. -Imoe/marlin_moe_wna16 -shared -Xcompiler -fPIC
//        .../bench/peers/moe_marlin.cu -o marlin.so
// The generator's list QUANT_CONFIGS may be cut to MXFP4 first, which saves most of the time. VLLM_TYPES is the
// namespace of scalar types, which forks rename.
// The host's part needs both, so the order stays.
// clang-format off
#include "moe/marlin_moe_wna16/kernel.h"
#include "moe/marlin_moe_wna16/marlin_template.h"
#include "moe/marlin_moe_wna16/host.inc"
// clang-format on

#ifndef VLLM_TYPES
#define VLLM_TYPES vllm
#endif

/// Queues a product of all experts: a [m, k], b as Marlin packs it, out [m top_k, n]. Returns an error of CUDA, or 0.
extern "C" int marlin_moe(const void* a, const void* b, void* out, void* partials, void* bias, void* scales,
                          void* sorted_ids, void* expert_ids, void* post_padded, void* weights, int block, int experts,
                          int top_k, int weigh, int m, int n, int k, int groups, int group_size, void* locks, int sms,
                          void* stream) {
  MARLIN_NAMESPACE_NAME::marlin_mm(
      a, b, out, partials, bias, nullptr, scales, nullptr, nullptr, nullptr, nullptr, nullptr, sorted_ids, expert_ids,
      post_padded, weights, block, experts, top_k, weigh != 0, m, n, k, locks, VLLM_TYPES::kBFloat16,
      VLLM_TYPES::kFE2M1f, VLLM_TYPES::kBFloat16, VLLM_TYPES::kFE8M0fnu, true, false, true, false, groups, group_size,
      0, static_cast<cudaStream_t>(stream), -1, -1, sms, -1, false, true, false);
  return static_cast<int>(cudaGetLastError());
}
