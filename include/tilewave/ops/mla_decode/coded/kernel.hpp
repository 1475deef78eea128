// SPDX-License-Identifier: MIT
// Decode of latent attention from fp8 codes, in rooms with products of wave groups.
//
// Grid: by the schedule of the policy (work.hpp), one block per multiprocessor at a time. Products have tokens, and
// then dimensions, as their 64 rows, and the block's query rows as columns, so that none of them multiplies rows that
// do not exist. Codes stay in shared memory as the copy engine brings them, three to five tiles of 64 tokens, and
// become left operands in registers twice: of scores, and transposed, of values. So 110 to 180 KB of a multiprocessor
// are under way, and nothing is written back. Two wave groups multiply, and four waves fetch. Bound: reads of the
// cache, or with 64 query rows that other blocks have beside them, matrix rate.
#pragma once

#include "tilewave/ops/mla_decode/coded/fetch.hpp"
#include "tilewave/ops/mla_decode/coded/few_group.hpp"
#include "tilewave/ops/mla_decode/coded/halves_group.hpp"
#include "tilewave/ops/mla_decode/tensor/base.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
using MlaDecodeCodedLayoutOf =
    std::conditional_t<(P.rows < 64), MlaDecodeCodedLayout<B, S, P>, MlaDecodeCodedHalvesLayout<B, S, P>>;

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeCoded : MlaDecodeTensorBase<B, MlaDecodeCodedLayoutOf<B, S, P>> {
  using Base = MlaDecodeTensorBase<B, MlaDecodeCodedLayoutOf<B, S, P>>;
  using typename Base::L, typename Base::Args, typename Base::Shared;
  // A multiprocessor has 512 registers for each lane of a group.
  static constexpr int fetching_registers = 24, multiplying_registers = 240;

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), group = wave / L::group_waves, of_group = wave % L::group_waves;
    if (wave == 0) L::begin(shared);
    Base::Inputs::touch(args, wave - L::groups * L::group_waves);
    if (group == L::groups) {
      B::template give_registers<fetching_registers>();
      MlaDecodeWork<L> work(args.of.attention);  // it reads lengths while wave 0 initialises barriers
      B::barrier();
      MlaDecodeCodedFetch<B, S, L> fetch(args, shared, of_group);
      for (; work.more(); work.next()) fetch.run(work.item(), work.table());
    } else {
      B::template take_registers<multiplying_registers>();
      if constexpr (P.rows < 64) {
        multiply<MlaDecodeCodedFewGroup<B, L>>(args, shared, group, of_group);
      } else if constexpr (L::wide_values) {
        if (group == 0) multiply<MlaDecodeCodedHalvesGroup<B, L, false>>(args, shared, 0, of_group);
        if (group == 1) multiply<MlaDecodeCodedHalvesGroup<B, L, true>>(args, shared, 1, of_group);
      } else {
        multiply<MlaDecodeCodedHalvesGroup<B, L, false>>(args, shared, group, of_group);
      }
    }
  }

 private:
  template <class WaveGroup>
  TILEWAVE_DEVICE static void multiply(const Args& args, Shared& shared, int group, int wave) {
    MlaDecodeWork<L> work(args.of.attention);
    B::barrier();
    WaveGroup of{{{args, shared, group, wave}, {shared, group, wave}}};
    for (; work.more(); work.next()) of.run(work.item());
  }
};

}  // namespace tilewave
