// SPDX-License-Identifier: MIT
// The two kernels of a sampling whose rows blocks share, for every policy that takes them. Of bf16 logits. Compiled with
// ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)
#include <array>

#include "tilewave/ops/sampling/registry.hpp"

namespace tilewave::ROOM {

constexpr SamplingSpec spec{};
constexpr auto policies = sampling_policies(Backend::facts.id, spec);

// The first policy holds rows, in a wave each.
template <std::size_t p>
struct WeighEntryKernel : Sampling<Backend, spec, policies[p + 1], SamplingLaunch::weigh> {};
template <std::size_t p>
struct DrawEntryKernel : Sampling<Backend, spec, policies[p + 1], SamplingLaunch::draw> {};

// Naming a kernel on the host is what makes the device pass compile it.
template <std::size_t... p>
constexpr auto of_policies(std::index_sequence<p...>) {
  return std::array{&entry<WeighEntryKernel<p>>..., &entry<DrawEntryKernel<p>>...};
}
extern const auto all = of_policies(std::make_index_sequence<policies.size() - 1>{});

}  // namespace tilewave::ROOM
