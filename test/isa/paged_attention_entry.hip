// SPDX-License-Identifier: MIT
// One paged-attention kernel per code object, so that each can be read, gated and shipped alone. Compiled with
//   ROOM             gfx942 or gfx950
//   ENTRY            index in the architecture's entries (specs outermost), or
//   FEATURE          index in its feature specs, or
//   SCORE            index in its score specs, or
//   COMBINE, OUT     head size and output type of a combine kernel, or
//   BALANCED         index of a spec, for the combine of its balanced entry

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)
#include "tilewave/ops/paged_attention/specs/features.hpp"
#include "tilewave/ops/paged_attention/specs/scores.hpp"

namespace tilewave::ROOM {

constexpr ArchId arch = Backend::facts.id;

struct Entry {
  PagedAttentionSpec spec{};
  PagedAttentionPolicy policy{};
};
constexpr Entry entry_at(int index) {
  Entry found;
  for (const PagedAttentionSpec& spec : paged_attention_specs(arch)) {
    for (const PagedAttentionPolicy& policy : paged_attention_policies(arch, spec)) {
      if (index-- == 0) {
        found.spec = spec;
        found.policy = policy;
      }
    }
  }
  return found;
}

constexpr PagedAttentionPolicy balanced_policy(const PagedAttentionSpec& spec) {
  PagedAttentionPolicy found;
  for (const PagedAttentionPolicy& policy : paged_attention_policies(arch, spec)) {
    if (policy.balanced()) found = policy;
  }
  return found;
}

#if defined(ENTRY)
constexpr Entry chosen = entry_at(ENTRY);
using Kernel = PagedAttentionDecode<Backend, chosen.spec, chosen.policy>;
#elif defined(FEATURE)
constexpr PagedAttentionSpec spec = paged_attention_feature_specs(arch)[FEATURE];
constexpr PagedAttentionPolicy policy = paged_attention_other_policy(arch, spec);
using Kernel = PagedAttentionDecode<Backend, spec, policy>;
#elif defined(SCORE)
constexpr PagedAttentionSpec spec = paged_attention_score_specs(arch)[SCORE];
constexpr PagedAttentionPolicy policy = paged_attention_policies(arch, spec)[0];
using Kernel = PagedAttentionDecode<Backend, spec, policy>;
#elif defined(BALANCED)
constexpr PagedAttentionSpec spec = paged_attention_specs(arch)[BALANCED];
constexpr PagedAttentionPolicy policy = balanced_policy(spec);
using Kernel = PagedAttentionBalancedCombine<Backend, spec, policy>;
#else
using Kernel = PagedAttentionCombine<Backend, COMBINE, DType::OUT>;
#endif
template __global__ void entry<Kernel>(const Kernel::Args);

}  // namespace tilewave::ROOM
