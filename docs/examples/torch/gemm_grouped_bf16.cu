// SPDX-License-Identifier: MIT
#include "gemm.hpp"

namespace tilewave_torch {

using namespace tilewave;

static constexpr GemmSpec contiguous{.groups = GemmGroups::contiguous};
static constexpr GemmSpec masked{.groups = GemmGroups::masked};

std::span<const GemmServed> gemm_grouped_bf16() {
  static constexpr GemmServed list[] = {{contiguous, &gemm_plan_of<contiguous>}, {masked, &gemm_plan_of<masked>}};
  return list;
}

}  // namespace tilewave_torch
