// SPDX-License-Identifier: MIT
// Lists that have kernels of this program: gemm_grouped gemm_int4
#pragma once

#include <tilewave/arch/host/backend.hpp>
#include <tilewave/ops/gemm/registry.hpp>

#include "test/listed_kernels.hpp"

namespace tilewave {

#define LINKED_GEMM(spec)                                                                                  \
  LINKED_KERNELS(gemm_launch, (const GemmProblem&, int, hipStream_t), host::Backend<ArchId::gfx950>, spec, \
                 gemm_policies)
LINKED_GEMM((GemmSpec{.groups = GemmGroups::masked}))
LINKED_GEMM((GemmSpec{
    .b = DType::i4, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 128}))

}  // namespace tilewave
