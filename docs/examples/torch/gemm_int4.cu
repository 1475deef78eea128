// SPDX-License-Identifier: MIT
#include "gemm.hpp"

namespace tilewave_torch {

using namespace tilewave;

static constexpr GemmSpec spec{
    .b = DType::i4, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 128};

std::span<const GemmServed> gemm_int4() {
  static constexpr GemmServed list[] = {{spec, &gemm_plan_of<spec>}};
  return list;
}

}  // namespace tilewave_torch
