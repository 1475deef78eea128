// SPDX-License-Identifier: MIT
// Lists that have kernels of this program: flash_attention gemm_grouped mla_decode
#pragma once

#include <tilewave/arch/host/backend.hpp>
#include <tilewave/ops/mla_decode/registry.hpp>
#include <tilewave/ops/mla_prefill/registry.hpp>

#include "test/listed_kernels.hpp"

namespace tilewave {

using LinkedRoom = host::Backend<ArchId::gfx950>;
LINKED_KERNELS(gemm_launch, (const GemmProblem&, int, hipStream_t), LinkedRoom, mla_prefill_up_spec(), gemm_policies)
LINKED_KERNELS(flash_attention_launch, (const FlashAttentionProblem&, hipStream_t), LinkedRoom,
               mla_prefill_attention_spec(), flash_attention_policies)
LINKED_KERNELS(mla_decode_launch, (const MlaDecodeProblem&, hipStream_t), LinkedRoom, MlaDecodeSpec{},
               mla_decode_policies)

}  // namespace tilewave
