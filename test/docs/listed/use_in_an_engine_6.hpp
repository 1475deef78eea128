// SPDX-License-Identifier: MIT
// Lists that have kernels of this program: gemm_grouped gemm_moe
#pragma once

#include <tilewave/arch/host/backend.hpp>
#include <tilewave/ops/moe/registry.hpp>

#include "test/listed_kernels.hpp"

namespace tilewave {

using LinkedRoom = host::Backend<ArchId::gfx950>;
#define LINKED_GEMM(spec) \
  LINKED_KERNELS(gemm_launch, (const GemmProblem&, int, hipStream_t), LinkedRoom, spec, gemm_policies)
LINKED_GEMM(moe_first_spec(MoeSpec{}))
LINKED_GEMM(moe_second_spec(MoeSpec{}))

}  // namespace tilewave
