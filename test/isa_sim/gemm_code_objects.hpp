// SPDX-License-Identifier: MIT
// Which kernels of GEMM are in code objects that gate every change.
#pragma once

#include <type_traits>

#include "test/isa/gemm_slice.hpp"
#include "test/isa_sim/code_objects.hpp"
#include "tilewave/ops/gemm/specs/gated.hpp"
#include "tilewave/ops/gemm/specs/int4.hpp"
#include "tilewave/ops/gemm/specs/moe.hpp"
#include "tilewave/ops/gemm/specs/mx.hpp"

namespace tilewave::test {

template <class Specs, class Objects>
constexpr ObjectKernel gemm_object_kernel(ArchId arch, const char* list, const Specs& specs, const Objects& objects,
                                          GemmPolicies (*policies_of)(ArchId, const GemmSpec&), const GemmSpec& spec,
                                          const GemmPolicy& policy) {
  for (std::size_t place = 0; place < objects.size(); ++place) {
    if (!has_turn(arch, place) || !(specs[objects[place]] == spec)) continue;
    const GemmPolicies policies = policies_of(arch, spec);
    for (int i = 0; i < policies.count; ++i)
      if (policies[i] == policy) return {list, objects[place], "GemmEntryKernel", {i, -1}};
  }
  return {};
}

template <template <class, GemmSpec, GemmPolicy, class> class Kernel, class B, GemmSpec S, GemmPolicy P>
requires std::is_same_v<Kernel<B, S, P, GemmIdentity>, GemmKernel<B, S, P, GemmIdentity>>
inline constexpr ObjectKernel object_kernel<Kernel<B, S, P, GemmIdentity>> = [] {
  constexpr ArchId arch = B::facts.id;
  ObjectKernel found;
#define FIND_IN(name)                                 \
  if (found.list == nullptr && has_list(arch, #name)) \
    found = gemm_object_kernel(arch, #name, name##_specs(arch), name##_objects, &name##_policies, S, P);
  GEMM_LISTS(FIND_IN)
#undef FIND_IN
  return found;
}();

}  // namespace tilewave::test
