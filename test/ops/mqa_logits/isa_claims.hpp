// SPDX-License-Identifier: MIT
// What the compiled code of an indexer's logits must hold, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/ops/mqa_logits/registry.hpp"

namespace tilewave::test {

/// Queries, weights and keys are loaded in whole chunks. Lanes exchange one sum for each query and tile. Only keys that
/// are arranged lie in LDS.
template <ArchId arch>
ordered_json row_claims(const MqaLogitsSpec& s, const MqaLogitsPolicy& p) {
  const bool fp4 = s.type == DType::fp4_e2m1;
  const int key = bytes_of(s.type, s.head_size) / 16 / 2;  // chunks of a lane
  const int query = s.heads / 32 * (key + 4);              // with its weights
  const int passes = 2 * p.stages - 1;                     // products in the code: the loop's and those behind it
  const int scales = 2 * p.stages * (fp4 ? key : 4) + (fp4 ? 4 * p.queries * s.heads / 32 : 0);
  const int pages = s.keys == MqaKeys::paged ? 2 * p.stages + 1 : 0;
  return {{"vector", true},
          {"bytes_in_flight", 0},
          {"wide_loads", 2 * p.stages * key + p.queries * query},
          {"wide_stores", 0},
          {"narrow_load_bytes", scales + 4 * pages},
          {"narrow_store_bytes", 4 * p.queries * (passes + 10)},  // unseen logits: two loops, unrolled by clang
          {"dpp", 0},
          {"exchanges", p.queries * passes},
          {"barriers", 0},
          {"wave_lds", p.arranged ? 2 * passes * key : 0},  // a write and a read of each chunk
          {"lds_bytes", p.arranged ? p.teams * 32 * bytes_of(s.type, s.head_size) : 4}};
}

}  // namespace tilewave::test
