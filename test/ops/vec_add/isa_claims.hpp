// SPDX-License-Identifier: MIT
// The properties that the compiled code of additions must have, for the gate of test/isa.
#pragma once

#include <nlohmann/json.hpp>

#include "tilewave/ops/vec_add/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
nlohmann::ordered_json row_claims(const VecAddSpec& s, const VecAddPolicy& p) {
  return {{"vector", p.vec == 16},
          {"bytes_in_flight", p.stream ? 2 * p.chunks * p.vec : 0},  // the others are not told from other loads
          {"wide_loads", 2 * p.chunks},
          {"wide_stores", p.chunks},
          {"narrow_load_bytes", 2 * size_of(s.x)},  // at the ends, where tiles are not whole
          {"narrow_store_bytes", size_of(s.x)},
          {"dpp", 0},
          {"barriers", 0},
          {"lds_bytes", 0}};
}

}  // namespace tilewave::test
