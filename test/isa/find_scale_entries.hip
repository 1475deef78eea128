// SPDX-License-Identifier: MIT
// The two kernels before a quantisation that finds the scale of the tensor: every policy of the first, and the second, which
// has one. Of bf16 rows and the room's fp8. Compiled with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)
#include <array>

#include "tilewave/ops/quant/registry.hpp"

namespace tilewave::ROOM {

constexpr DType codes = Backend::facts.fp8;
constexpr QuantSpec spec{.out = codes, .scale = Scaling::per_tensor};
constexpr auto policies = quant_policies(Backend::facts.id, spec);

template <std::size_t p>
struct AmaxEntryKernel : QuantAmax<Backend, spec, policies[p]> {};
struct ScaleEntryKernel : QuantScale<Backend, codes> {};

// Naming a kernel on the host is what makes the device pass compile it.
template <std::size_t... p>
constexpr auto of_policies(std::index_sequence<p...>) {
  return std::array{&entry<AmaxEntryKernel<p>>...};
}
extern const auto amax = of_policies(std::make_index_sequence<policies.size()>{});
template __global__ void entry<ScaleEntryKernel>(const ScaleEntryKernel::Args);

}  // namespace tilewave::ROOM
