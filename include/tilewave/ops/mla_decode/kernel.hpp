// SPDX-License-Identifier: MIT
// MlaDecodeKernel names the kernel that a policy's path asks for.
#pragma once

#include "tilewave/ops/mla_decode/coded/kernel.hpp"
#include "tilewave/ops/mla_decode/lds/kernel.hpp"
#include "tilewave/ops/mla_decode/registers/kernel.hpp"
#include "tilewave/ops/mla_decode/specialised/kernel.hpp"
#include "tilewave/ops/mla_decode/swapped/kernel.hpp"
#include "tilewave/ops/mla_decode/tensor/kernel.hpp"
#include "tilewave/ops/mla_decode/token_waves/kernel.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeKernel {
  using type = MlaDecodeRegisters<B, S, P>;
};
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
requires(P.path == MlaDecodePath::tensor) struct MlaDecodeKernel<B, S, P> {
  using type = std::conditional_t<
      P.waves == 12, MlaDecodeSpecialised<B, S, P>,
      std::conditional_t<mla_decode_copies(S, P), MlaDecodeCoded<B, S, P>,
                         std::conditional_t<(P.rows < 64), MlaDecodeSwapped<B, S, P>, MlaDecodeTensor<B, S, P>>>>;
};
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
requires(P.path == MlaDecodePath::lds) struct MlaDecodeKernel<B, S, P> {
  using type = MlaDecodeLds<B, S, P>;
};
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
requires(P.path == MlaDecodePath::token_waves) struct MlaDecodeKernel<B, S, P> {
  using type = MlaDecodeTokenWaves<B, S, P>;
};

}  // namespace tilewave
