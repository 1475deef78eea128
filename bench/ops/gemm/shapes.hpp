// SPDX-License-Identifier: MIT
// The weights of models that bench_gemm's sweeps go through.
#pragma once

#include <array>
#include <cstdint>

namespace tilewave::bench {

/// The shape of a weight matrix.
struct GemmWeightShape {
  std::int32_t n, k;
};
inline constexpr std::array gemm_model_shapes{
    GemmWeightShape{106496, 16384}, GemmWeightShape{16384, 53248}, GemmWeightShape{18432, 16384},  // Llama 3 405B
    GemmWeightShape{16384, 16384},  GemmWeightShape{57344, 8192},  GemmWeightShape{8192, 28672},   // and 70B
    GemmWeightShape{10240, 8192},   GemmWeightShape{8192, 8192},   GemmWeightShape{28672, 4096},   // and 8B
    GemmWeightShape{4096, 14336},   GemmWeightShape{6144, 4096},   GemmWeightShape{4096, 4096},
    GemmWeightShape{32768, 5120},   GemmWeightShape{5120, 16384},  GemmWeightShape{16384, 5120},  // Llama 4 Maverick
    GemmWeightShape{5120, 8192},    GemmWeightShape{7168, 5120},   GemmWeightShape{5120, 5120},
    GemmWeightShape{9216, 4096},    GemmWeightShape{4096, 8192},                                // Qwen3-235B-A22B
    GemmWeightShape{5120, 2880},    GemmWeightShape{2880, 4096},                                // GPT-OSS 120B
    GemmWeightShape{128, 2880},     GemmWeightShape{128, 5120},    GemmWeightShape{128, 4096},  // routers
    GemmWeightShape{256, 7168}};
inline constexpr std::array gemm_deepseek_shapes{
    GemmWeightShape{36864, 7168}, GemmWeightShape{7168, 18432}, GemmWeightShape{4096, 7168},  // DeepSeek-R1
    GemmWeightShape{7168, 2048},  GemmWeightShape{2112, 7168},  GemmWeightShape{24576, 1536},
    GemmWeightShape{32768, 512},  GemmWeightShape{7168, 16384}, GemmWeightShape{12288, 1536},
    GemmWeightShape{16384, 512},  GemmWeightShape{7168, 8192}};  // Kimi-K2

}  // namespace tilewave::bench
