// SPDX-License-Identifier: MIT
// DeepGEMM's grouped products of DeepSeek-V3's experts as a library for moe_in_turns.py, from its unchanged header
// sm90_fp8_gemm_1d2d.cuh, as its heuristics configure it for contiguous groups of 132 SMs: tiles of 128 x 192, four
// stages, clusters of two (one token's first product 128 x 128, its second 128 x 160, which are left out).
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr --expt-extended-lambda
//        -I../DeepGEMM/deep_gemm/include -I../cutlass/include -shared -Xcompiler -fPIC bench/peers/moe_deep_gemm.cu
//        -o deep_gemm.so
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh>

namespace {

constexpr int experts = 256, tile_rows = 128, tile_columns = 192, tile_k = 128, stages = 4, cluster = 2, sms = 132;
constexpr int threads = 384;

constexpr int up_to(int value, int unit) { return (value + unit - 1) / unit * unit; }
/// As DeepGEMM counts them: C, barriers, B's scales, and the stages.
constexpr int shared_bytes(int k) {
  return tile_rows * tile_columns * 2 + 16 * 8 * 2 + up_to(k / tile_k * 4 * 2, 8) +
         stages * (tile_rows * tile_k + tile_columns * tile_k + tile_rows * 4);
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
                            const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                            CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
Encode encode() {
  static const Encode function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<Encode>(found);
  }();
  return function;
}

bool map_of(CUtensorMap& map, const void* data, CUtensorMapDataType type, int size, std::int64_t inner,
            std::int64_t outer, int box_inner, int box_outer, bool swizzled) {
  const cuuint64_t extents[2] = {cuuint64_t(inner), cuuint64_t(outer)}, strides[1] = {cuuint64_t(inner * size)};
  const cuuint32_t box[2] = {cuuint32_t(box_inner), cuuint32_t(box_outer)}, steps[2] = {1, 1};
  return encode()(&map, type, 2, const_cast<void*>(data), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

template <int n, int k>
int product(const void* a, const void* a_scale, const void* b, void* b_scale, void* out, void* groups, int m,
            cudaStream_t stream) {
  auto* const kernel =
      &deep_gemm::sm90_fp8_gemm_1d2d_impl<cute::UMMA::Major::K, 0, n, k, experts, tile_rows, tile_columns, tile_k, 128,
                                          128, 128, stages, 128, 256, cluster, false, sms,
                                          deep_gemm::GemmType::MGroupedContiguous, cutlass::bfloat16_t,
                                          deep_gemm::epilogue::transform::EpilogueIdentity>;
  constexpr auto fp8 = CU_TENSOR_MAP_DATA_TYPE_UINT8;
  CUtensorMap of_a, of_b, of_out, of_scale;
  if (!map_of(of_a, a, fp8, 1, k, m, tile_k, tile_rows, true) ||
      !map_of(of_b, b, fp8, 1, k, std::int64_t{experts} * n, tile_k, tile_columns, true) ||
      !map_of(of_out, out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, n, m, 64, tile_rows, true) ||
      !map_of(of_scale, a_scale, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, up_to(m, 4), k / tile_k, tile_rows, 1, false))
    return -1;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes(k));
  cudaLaunchAttribute clusters;
  clusters.id = cudaLaunchAttributeClusterDimension;
  clusters.val.clusterDim = {cluster, 1, 1};
  const cudaLaunchConfig_t config{sms, threads, std::size_t(shared_bytes(k)), stream, &clusters, 1};
  return cudaLaunchKernelEx(&config, kernel, static_cast<float*>(b_scale), static_cast<int*>(groups), std::uint32_t(m),
                            std::uint32_t(n), std::uint32_t(k), of_a, of_b, of_out, of_scale);
}

}  // namespace

extern "C" int deep_gemm_first(const void* a, const void* a_scale, const void* b, void* b_scale, void* out,
                               void* groups, int m, void* stream) {
  return product<4096, 7168>(a, a_scale, b, b_scale, out, groups, m, static_cast<cudaStream_t>(stream));
}
extern "C" int deep_gemm_second(const void* a, const void* a_scale, const void* b, void* b_scale, void* out,
                                void* groups, int m, void* stream) {
  return product<7168, 2048>(a, a_scale, b, b_scale, out, groups, m, static_cast<cudaStream_t>(stream));
}
