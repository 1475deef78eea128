// SPDX-License-Identifier: MIT
// Every row kernel of some specs in one code object, since a code object of one would be mostly headers;
// each can be told by its name, which ends in the indices of its spec and its policy. Compiled with
//   ROOM             gfx942 or gfx950
//   LIST, OP, NAME, HEADER   norm_wide, norm, Norm, wide_specs: ops/<OP>/<HEADER>.hpp with <LIST>_specs and <OP>_policies, and
//                    the kernel <NAME>
//   FIRST, STEP      the specs: every STEP-th of the architecture's from FIRST on
//   HALF             of their policies the first half or the second, 0 or 1, as row_objects.hpp has it

#define STRING_OF(x) #x
#define JOINED(a, b) a##b
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
#define HEADER_OF(op, header) STRING_OF(tilewave/ops/op/header.hpp)
// clang-format on
#define SPECS_OF(list) JOINED(list, _specs)
#define POLICIES_OF(op) JOINED(op, _policies)
#include BACKEND_OF(ROOM)
#include HEADER_OF(OP, HEADER)

#include <tuple>

#include "row_objects.hpp"

namespace tilewave::ROOM {

constexpr auto specs = SPECS_OF(LIST)(Backend::facts.id);
template <int s>
constexpr auto policies = POLICIES_OF(OP)(Backend::facts.id, specs[s]);

template <int s>
constexpr std::size_t first_policy = test::half_of(s, HALF);
template <int s>
constexpr std::size_t policies_here = (policies<s>.size() + 1 - first_policy<s>) / 2;

template <int s, int p>
struct RowEntryKernel : NAME<Backend, specs[s], policies<s>[p]> {};

// Naming a kernel on the host is what makes the device pass compile it.
template <int s, std::size_t... turn>
constexpr auto of_spec(std::index_sequence<turn...>) {
  return std::tuple{&entry<RowEntryKernel<s, first_policy<s> + 2 * turn>>...};
}
template <std::size_t... s>
constexpr auto of_specs(std::index_sequence<s...>) {
  return std::tuple{of_spec<FIRST + s * STEP>(std::make_index_sequence<policies_here<FIRST + s * STEP>>{})...};
}
extern const auto all = of_specs(std::make_index_sequence<(specs.size() - FIRST + STEP - 1) / STEP>{});

}  // namespace tilewave::ROOM
