// SPDX-License-Identifier: MIT
// The decode kernel of a policy.
#pragma once

#include "tilewave/ops/paged_attention/bulk/decode.hpp"
#include "tilewave/ops/paged_attention/registers/decode.hpp"

namespace tilewave {

/// Decode of a policy: K and V straight to registers, or through stages in shared memory.
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionKernel {
  using type = PagedAttentionDecode<B, S, P>;
};
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
  requires(P.staged())
struct PagedAttentionKernel<B, S, P> {
  using type = PagedAttentionStagedDecode<B, S, P>;
};

}  // namespace tilewave
