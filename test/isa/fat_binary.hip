// SPDX-License-Identifier: MIT
// Kernels of both AMD rooms in one source, as an engine built for both has them: every pass sees all of them, and its own
// are the ones with a body.
#include "tilewave/arch/gfx942/backend.hpp"
#include "tilewave/arch/gfx950/backend.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave {

template <class B>
using Kernel = PagedAttentionDecode<B, paged_attention_specs(B::facts.id)[0],
                                    paged_attention_policies(B::facts.id, paged_attention_specs(B::facts.id)[0])[0]>;
template __global__ void gfx942::entry<Kernel<gfx942::Backend>>(const PagedAttentionArgs);
template __global__ void gfx950::entry<Kernel<gfx950::Backend>>(const PagedAttentionArgs);

}  // namespace tilewave
