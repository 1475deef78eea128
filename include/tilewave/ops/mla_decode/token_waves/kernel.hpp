// SPDX-License-Identifier: MIT
// Decode of latent attention on CDNA for few query rows, with much of the cache under way.
//
// Grid: by the schedule of the policy (work.hpp). A block has P.rows query rows, query tokens times heads: sixteen, or
// 32 of fp8 q. It walks their tokens in tiles of P.tokens, of which each of its four waves has a quarter, with all
// dimensions and a softmax of its own. While a tile is multiplied, the next one is on its way to registers, from which
// it goes through the wave's part of LDS. So waves meet only at the end of an item, where they add up their sums.
// Bound: reads of the cache.
#pragma once

#include "tilewave/ops/mla_decode/token_waves/output.hpp"
#include "tilewave/ops/mla_decode/work.hpp"

namespace tilewave {

template <class RoomOf, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeTokenWaves : MlaDecodeQueued<P> {
  static_assert(mla_decode_policy_status(RoomOf::facts.id, S, P).ok(),
                "a law of policies is broken: mla_decode_policy_status(arch, spec, policy).reason says which");
  using Room = RoomOf;
  using B = Room;
  using Args = MlaDecodeArgs;
  using L = MlaTokenWavesLayout<B, S, P>;
  using Shared = typename L::Shared;
  static constexpr MlaDecodeSpec spec = S;
  static constexpr int lanes = L::lanes;
  static constexpr int block_threads = P.waves * lanes, waves_per_simd = P.waves_per_simd;

  static Status prepare(const MlaDecodeProblem& p, Args& args) {
    args = mla_decode_args(p, P, B::facts);
    return {};
  }

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    for (MlaDecodeWork<MlaDecodeTokenWaves> work(args.attention); work.more(); work.next()) {
      const PagedAttentionWorkItem item = work.item();
      MlaTokenWavesLoop<L> loop(args, item, work.table(), shared);
      if (item.tiles > 0) loop.run(args.q_scale);
      MlaTokenWavesOutput<L>::write(args.attention, item, loop, shared);
      B::lds_barrier();  // nobody reads sums any more
    }
  }
};

}  // namespace tilewave
