// SPDX-License-Identifier: MIT
#include "gemm.hpp"

namespace tilewave_torch {

using namespace tilewave;

static constexpr GemmSpec contiguous{.a = fp8, .b = fp8, .scale = Scaling::per_block, .groups = GemmGroups::contiguous};
static constexpr GemmSpec masked{.a = fp8, .b = fp8, .scale = Scaling::per_block, .groups = GemmGroups::masked};

std::span<const GemmServed> gemm_grouped_fp8() {
  static constexpr GemmServed list[] = {{contiguous, &gemm_plan_of<contiguous>}, {masked, &gemm_plan_of<masked>}};
  return list;
}

}  // namespace tilewave_torch
