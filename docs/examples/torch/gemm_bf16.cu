// SPDX-License-Identifier: MIT
#include "gemm.hpp"

namespace tilewave_torch {

using namespace tilewave;

static constexpr GemmSpec spec{};

std::span<const GemmServed> gemm_bf16() {
  static constexpr GemmServed list[] = {{spec, &gemm_plan_of<spec>}};
  return list;
}

}  // namespace tilewave_torch
