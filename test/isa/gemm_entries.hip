// SPDX-License-Identifier: MIT
// The GEMM kernels of one spec in one code object; each can be told by its name, which ends in the index of its policy.
// Compiled with
//   ROOM    gfx942 or gfx950
//   LIST    gemm, gemm_feature, gemm_gated, gemm_int4, gemm_moe or gemm_mx
//   SPEC    the spec's index in the list
#define STRING_OF(x) #x
#define JOINED(a, b) a##b
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#define SPECS_OF(list) JOINED(list, _specs)
#define POLICIES_OF(list) JOINED(list, _policies)
#include BACKEND_OF(ROOM)
#include <tuple>

#include "tilewave/ops/gemm/specs/gated.hpp"
#include "tilewave/ops/gemm/specs/int4.hpp"
#include "tilewave/ops/gemm/specs/moe.hpp"
#include "tilewave/ops/gemm/specs/mx.hpp"

namespace tilewave::ROOM {

constexpr GemmSpec spec = SPECS_OF(LIST)(Backend::facts.id)[SPEC];
constexpr GemmPolicies policies = POLICIES_OF(LIST)(Backend::facts.id, spec);

template <int p>
struct GemmEntryKernel : GemmKernel<Backend, spec, policies[p], GemmIdentity> {};

// Naming a kernel on the host is what makes the device pass compile it.
template <std::size_t... p>
constexpr auto kernels(std::index_sequence<p...>) {
  return std::tuple{&entry<GemmEntryKernel<p>>...};
}
extern const auto all = kernels(std::make_index_sequence<policies.count>{});

}  // namespace tilewave::ROOM
