// SPDX-License-Identifier: MIT
#include "gemm.hpp"

namespace tilewave_torch {

using namespace tilewave;

static constexpr GemmSpec spec{.a = fp8, .b = fp8, .scale = Scaling::per_row};

std::span<const GemmServed> gemm_fp8_row() {
  static constexpr GemmServed list[] = {{spec, &gemm_plan_of<spec>}};
  return list;
}

}  // namespace tilewave_torch
