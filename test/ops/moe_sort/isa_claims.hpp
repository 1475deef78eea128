// SPDX-License-Identifier: MIT
// The properties that the compiled code of sorts must have, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/moe_sort/registry.hpp"

namespace tilewave::test {

/// Choices are read as they come, 4 bytes a lane; lanes exchange nothing through LDS but by barriers.
template <ArchId arch>
ordered_json row_claims(const MoeSortSpec&, const MoeSortPolicy&) {
  constexpr MoeSortPolicy policy = moe_sort_policies(arch, {})[0];
  return {{"vector", false},
          {"bytes_in_flight", 0},
          {"dpp", 4 * 6},    // two sums over a wave, two over the waves
          {"exchanges", 2},  // what waves before have
          {"barriers", 4},   // clear counts; counts; sums of waves; where experts are
          {"lds_bytes", sizeof(typename MoeSort<host::Backend<arch>, MoeSortSpec{}, policy>::Shared)}};
}

}  // namespace tilewave::test
