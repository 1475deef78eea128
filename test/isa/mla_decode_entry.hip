// SPDX-License-Identifier: MIT
// The kernel of latent decode of one spec and policy. Compiled with
//   ROOM           gfx942 or gfx950
//   SPEC, POLICY   the spec's index in mla_decode_specs, and the policy's in mla_decode_policies
#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)
#include "tilewave/ops/mla_decode/registry.hpp"

namespace tilewave::ROOM {

constexpr MlaDecodeSpec spec = mla_decode_specs(Backend::facts.id)[SPEC];
constexpr MlaDecodePolicy policy = mla_decode_policies(Backend::facts.id, spec)[POLICY];

// Naming a kernel on the host is what makes the device pass compile it.
extern const auto kernel = &entry<MlaDecodeKernel<Backend, spec, policy>::type>;

}  // namespace tilewave::ROOM
