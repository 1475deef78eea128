// SPDX-License-Identifier: MIT
// The decode kernel of a policy.
#pragma once

#include "tilewave/ops/paged_attention/bulk/decode.hpp"
#include "tilewave/ops/paged_attention/registers/decode.hpp"

namespace tilewave {

/// K and V go straight to registers, or through stages in shared memory, as the policy says.
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionKernel {
  using type = PagedAttentionDecode<B, S, P>;
};
template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
requires(P.bulk()) struct PagedAttentionKernel<B, S, P> {
  using type = PagedAttentionBulkDecode<B, S, P>;
};

}  // namespace tilewave
