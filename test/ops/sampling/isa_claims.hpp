// SPDX-License-Identifier: MIT
// The properties that the compiled code of samplings must have, for the gate of test/isa.
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
  constexpr int answer = 4 + 4;  // token and log probability; of no logits, of a first draw, of the last of several
  // The largest of words, or sums of them: the largest logit, the key that lanes reach, and all lanes do; two sums of
  // 64 bits, each of two words; where counters and a chunk's lanes pass a number, which also takes two running sums.
  // What a chunk weighs; of several waves also the first three over these, and where their sums pass.
  const int finds = alone ? 2 : 4, reductions = alone ? 3 + 4 + 2 * p.chunks : 2 * (3 + 4) + 2 + 2;
  return {{"vector", p.vec == 16},
          {"bytes_in_flight", p.held && p.vec == 16 ? p.chunks * p.vec : 0},
          {"wide_loads", p.chunks},
          {"wide_stores", 0},
          {"narrow_load_bytes", 64},  // parameters of a row: 4 of 4 bytes, 2 of 8
          {"narrow_store_bytes", 3 * answer},
          {"dpp", steps * (reductions + 3 * finds)},
          {"exchanges", 4 * finds},  // what is found: two words or four
          {"barriers", alone ? 1 : 6},
          {"lds_bytes", sizeof(SelectCounters<RowPolicy{}>) + (alone ? 0 : 2 * 16 * p.lanes / wave)}};
}

/// Claims for the launches over rows that blocks share. The first only weighs: it finds the largest logit and the key
/// that lanes reach, also over the waves; two sums of 64 bits; and where counters pass a number.
template <ArchId arch>
ordered_json shared_row_claims(const RowPolicy& p, bool weighs) {
  ordered_json claims = row_claims<arch>(SamplingSpec{}, p);
  if (weighs) {
    claims["wide_stores"] = 2;  // what a wave weighs
    claims["dpp"] = 6 * (2 * 2 + 4 + 3);
    claims["exchanges"] = 4;
    claims["barriers"] = 4;
  }
  return claims;
}

}  // namespace tilewave::test
