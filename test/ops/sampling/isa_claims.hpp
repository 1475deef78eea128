// SPDX-License-Identifier: MIT
// What the compiled code of samplings must hold, for the gate of test/isa.
#pragma once

#include "test/isa/row_claims.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/sampling/registry.hpp"

namespace tilewave::test {

template <ArchId arch>
ordered_json row_claims(const SamplingSpec&, const RowPolicy& p) {
  constexpr int wave = facts_of(arch).wave_lanes;
  constexpr int steps = 6;  // of a reduction, or of a running sum, over the lanes of a wave
  const bool alone = p.lanes == wave;
  // Words summed, or the largest of: the range of the logits, two sums of 64 bits; what a chunk weighs; where the counters
  // and the chunk's lanes pass a number. Of several waves also over these: the first three; where their sums pass a number
  // and where their pieces of one stretch do, or what those weigh in all.
  const int reductions = alone ? 6 + 2 * p.chunks + 2 : 2 * 6 + 2 + 2 + 4;
  // Running sums of 64 bits with two or, of waves, four words of what is found; the token and its key.
  const int exchanges = alone ? 2 * (2 * steps + 2) + 2 : 4 * (2 * steps + 2) + 2 + 2;
  return {{"vector", p.vec == 16},
          {"bytes_in_flight", p.held && p.vec == 16 ? p.chunks * p.vec : 0},
          {"wide_loads", p.chunks},
          {"wide_stores", 0},
          {"narrow_load_bytes", 64},  // parameters of a row: 4 of 4 bytes, 2 of 8
          {"narrow_store_bytes", 16},
          {"dpp", steps * reductions},
          {"exchanges", exchanges},
          {"barriers", alone ? 1 : 6},
          {"lds_bytes", sizeof(SelectCounters<RowPolicy{}>) + (alone ? 0 : 2 * 16 * p.lanes / wave)}};
}

}  // namespace tilewave::test
