// SPDX-License-Identifier: MIT
// Every row kernel of one spec in one code object; each can be told by its name, which ends in its policy's index.
// Compiled with
//   ROOM             gfx942 or gfx950
//   OP, NAME         norm and Norm: ops/<OP>/registry.hpp with <OP>_specs, <OP>_policies, and the kernel <NAME>
//   SPEC             index in the architecture's specs

#define STRING_OF(x) #x
#define JOINED(a, b) a##b
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
#define REGISTRY_OF(op) STRING_OF(tilewave/ops/op/registry.hpp)
// clang-format on
#define SPECS_OF(op) JOINED(op, _specs)
#define POLICIES_OF(op) JOINED(op, _policies)
#include BACKEND_OF(ROOM)
#include REGISTRY_OF(OP)

namespace tilewave::ROOM {

constexpr auto spec = SPECS_OF(OP)(Backend::facts.id)[SPEC];
constexpr RowPolicies policies = POLICIES_OF(OP)(Backend::facts.id, spec);

template <int index>
struct RowEntryKernel : NAME<Backend, spec, policies.list[index]> {};

template <std::size_t... i>
constexpr auto kernels(std::index_sequence<i...>) {
  return std::array{&entry<RowEntryKernel<i>>...};
}
// Naming a kernel on the host is what makes the device pass compile it.
extern const auto all = kernels(std::make_index_sequence<policies.count>{});

}  // namespace tilewave::ROOM
