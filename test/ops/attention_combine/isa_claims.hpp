// SPDX-License-Identifier: MIT
// What the compiled code of combines must hold, for the gate of test/isa.
#pragma once

#include <bit>
#include <nlohmann/json.hpp>

#include "tilewave/core/math.hpp"
#include "tilewave/ops/attention_combine/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
nlohmann::ordered_json row_claims(const AttentionCombineSpec& s, const RowPolicy& p) {
  constexpr int batch = 8;  // partials that are read before the first is needed
  const int unit = p.vec / size_of(s.x), piece = min_of(unit, 16 / size_of(s.out)), bytes = piece * size_of(s.out);
  const int stores = p.chunks * unit / piece, held = ceil_div(max_partials, p.lanes);
  const int steps = std::bit_width(static_cast<unsigned>(p.lanes)) - 1;
  return {{"vector", p.vec == 16},
          {"bytes_in_flight", 0},  // partials may be read again: not told from other loads
          {"wide_loads", held * batch * p.chunks},
          {"wide_stores", bytes == 16 ? stores : 0},
          {"narrow_load_bytes", 4 * held},                                 // lse of a lane's partials
          {"narrow_store_bytes", 4 + (bytes == 16 ? 0 : stores * bytes)},  // lse, and what is no whole 16 bytes of out
          {"dpp", 2 * steps},
          {"exchanges", held * batch},  // of weights
          {"barriers", 0},
          {"lds_bytes", 0}};
}

}  // namespace tilewave::test
