// SPDX-License-Identifier: MIT
// Which kernels of row operations are in code objects that gate every change. An op's registry.hpp is included in front of
// ROW_CODE_OBJECTS(op, its kernel), which stands in tilewave::test.
#pragma once

#include "test/isa/row_objects.hpp"
#include "test/isa_sim/code_objects.hpp"

namespace tilewave::test {

template <class Specs, class Policies, class Spec, class Policy>
constexpr ObjectKernel row_object_kernel(ArchId arch, const char* op, const Specs& specs, Policies policies_of,
                                         const Spec& spec, const Policy& policy) {
  for (std::size_t s = 0; s < specs.size(); ++s) {
    if (!(specs[s] == spec)) continue;
    const auto policies = policies_of(arch, spec);
    for (std::size_t p = 0; p < policies.size(); ++p) {
      const std::size_t object = row_object(s, p, specs.size());
      if (policies[p] == policy && in_slice(arch, op, op, object))
        return {op, static_cast<int>(object), "RowEntryKernel", {static_cast<int>(s), static_cast<int>(p)}};
    }
  }
  return {};
}

}  // namespace tilewave::test

#define ROW_CODE_OBJECTS(op, Op)                                       \
  template <class B, Op##Spec S, Op##Policy P>                         \
  inline constexpr ObjectKernel object_kernel<tilewave::Op<B, S, P>> = \
      row_object_kernel(B::facts.id, #op, op##_specs(B::facts.id), op##_policies, S, P);
