// SPDX-License-Identifier: MIT
// FlashAttentionKernel names the kernel that a policy's path asks for.
#pragma once

#include "tilewave/ops/flash_attention/lds/kernel.hpp"
#include "tilewave/ops/flash_attention/registers/kernel.hpp"
#include "tilewave/ops/flash_attention/tensor/kernel.hpp"

namespace tilewave {

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
struct FlashAttentionKernel {
  using type = FlashAttentionRegisters<B, S, P>;
};
template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
requires(P.path == FlashAttentionPath::tensor) struct FlashAttentionKernel<B, S, P> {
  using type = FlashAttentionTensor<B, S, P>;
};

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
requires(P.path == FlashAttentionPath::lds) struct FlashAttentionKernel<B, S, P> {
  using type = FlashAttentionLds<B, S, P>;
};

}  // namespace tilewave
