// SPDX-License-Identifier: MIT
// The flash attention kernel of one spec that goes through LDS: the first of its policies. Compiled with
//   ROOM    gfx942 or gfx950
//   SPEC    the spec's index in flash_attention_specs
#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)
#include "tilewave/ops/flash_attention/registry.hpp"

namespace tilewave::ROOM {

constexpr FlashAttentionSpec spec = flash_attention_specs(Backend::facts.id)[SPEC];
constexpr FlashAttentionPolicy policy = flash_attention_policies(Backend::facts.id, spec)[0];
static_assert(policy.path == FlashAttentionPath::lds);

// Its name says which spec it has; test/isa_sim loads it by that name.
template <int s>
struct FlashAttentionEntryKernel : FlashAttentionLds<Backend, spec, policy> {};

// Naming a kernel on the host is what makes the device pass compile it.
extern const auto kernel = &entry<FlashAttentionEntryKernel<SPEC>>;

}  // namespace tilewave::ROOM
