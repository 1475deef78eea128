// SPDX-License-Identifier: MIT
// Decode of latent attention from bf16 in rooms with products of wave groups.
//
// Grid: by the schedule of the policy (work.hpp), one block per multiprocessor at a time. A block has 64 query rows,
// query tokens times heads. One wave group has q in its registers and makes scores and probabilities of tiles of 64
// tokens. Two wave groups have the sums of 256 columns each, and multiply values. Four waves fetch q and tiles. While
// probabilities of a tile are made, values of the tile before are multiplied. Products that have q in registers read
// half as much of shared memory, whose bandwidth would bound them otherwise. Bound: matrix rate, or reads of the cache
// if there are few rows.
//
//   scores   S(1)  softmax of S(1)     S(2)  softmax of S(2)     S(3)
//   values         O += P(0) V(0)            O += P(1) V(1)           O += P(2) V(2)
//   unit     [S(1)][P(0) V(0) of both ][S(2)][P(1) V(1) of both ][S(3)]
#pragma once

#include "tilewave/ops/mla_decode/specialised/fetch.hpp"
#include "tilewave/ops/mla_decode/specialised/scores.hpp"
#include "tilewave/ops/mla_decode/specialised/values.hpp"
#include "tilewave/ops/mla_decode/tensor/base.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeSpecialised : MlaDecodeTensorBase<B, MlaDecodeSpecialisedLayout<B, S, P>> {
  using Base = MlaDecodeTensorBase<B, MlaDecodeSpecialisedLayout<B, S, P>>;
  using typename Base::L, typename Base::Args, typename Base::Shared, typename Base::Item;
  // A multiprocessor has 512 registers for each lane of a group. Sums take 128; q 96, and scores 32.
  static constexpr int fetching_registers = 24, score_registers = 168;
  static constexpr int value_registers = 160;
  static_assert(fetching_registers + score_registers + L::groups * value_registers <= 512);

  TILEWAVE_DEVICE static void run(const Args& args, Shared& begin) {
    // An opaque offset keeps the base of shared memory in a register. Without it, the compiler computes the base from
    // the block's rank in its cluster wherever an address is needed.
    const std::uint32_t offset = B::opaque(std::uint32_t{0});
    Shared& shared = *reinterpret_cast<Shared*>(reinterpret_cast<char*>(&begin) + offset);
    const int wave = B::wave_id(), group = wave / L::group_waves, of_group = wave % L::group_waves;
    if (wave == 0) L::begin(args, shared);
    if (group == fetching) Base::Inputs::touch(args, of_group);
    if (args.clustered()) B::cluster_arrive();
    if (group == fetching) {
      B::template give_registers<fetching_registers>();
      MlaDecodeWork<L> work(args.of.attention);  // it reads lengths meanwhile
      await_barriers(args);
      MlaDecodeSpecialisedFetch<B, S, L>(args, shared, of_group).run(work);
    } else if (group == scoring) {
      B::template take_registers<score_registers>();
      await_barriers(args);
      MlaDecodeScoreGroup<B, L>(args, shared, of_group).run();
    } else {
      if (wave == 0) Base::Inputs::touch_rows(args);
      B::template take_registers<value_registers>();
      await_barriers(args);
      MlaDecodeValueGroup<B, L>(args, shared, group, of_group).run();
    }
    if (args.clustered()) {  // no block leaves while the other may still write to its shared memory or arrive there
      B::cluster_arrive();
      B::cluster_wait();
    }
  }

 private:
  /// Waits until wave 0 has initialised the barriers, in both blocks of a cluster.
  TILEWAVE_DEVICE static void await_barriers(const Args& args) {
    if (args.clustered()) {
      B::cluster_wait();
    } else {
      B::barrier();
    }
  }

  static constexpr int scoring = L::groups, fetching = scoring + 1;
};

}  // namespace tilewave
