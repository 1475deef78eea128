// SPDX-License-Identifier: MIT
// Decode of latent attention on CDNA with the rows of the cache in LDS, which are keys and values in one.
//
// Grid: by the schedule of the policy (work.hpp). A block has P.rows query rows, query tokens times heads, in waves of
// 32 rows, and walks their tokens in tiles of P.tokens. A wave has q and all 512 output columns of its rows in
// registers, so it multiplies a tile by itself: nothing but the tile is shared. LDS: a ring of tiles (layout.hpp), of
// which all waves fetch a part. Where there are fewer rows, the other waves do nothing else.
// Bound: reads of the cache; with 128 rows the matrix rate is near.
#pragma once

#include <limits>

#include "tilewave/ops/mla_decode/lds/output.hpp"
#include "tilewave/ops/mla_decode/work.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeLds : MlaDecodeQueued<P> {
  static_assert(mla_decode_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: mla_decode_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  using Args = MlaDecodeArgs;
  using L = MlaLdsLayout<B, S, P>;
  using Shared = typename L::Shared;
  static constexpr MlaDecodeSpec spec = S;
  static constexpr int lanes = L::lanes;
  static constexpr int block_threads = P.waves * lanes, waves_per_simd = P.waves_per_simd;

  static Status prepare(const MlaDecodeProblem& p, Args& args) {
    args = mla_decode_args(p, P, B::facts);
    return {};
  }

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    for (Work work(args.attention); work.more(); work.next()) {
      const Item item = uniform(work.item());
      if (B::wave_id() < L::row_waves) {
        State s;
        begin(s);
        if (item.tiles > 0) MlaLdsMainLoop<L>(args, item, shared, s).run();
        B::lds_barrier();  // nobody reads tiles any more
        MlaLdsOutput<L>::write(args.attention, item, s, shared);
      } else {
        if (item.tiles > 0) Fetching::run(args, item, shared);
        B::lds_barrier();
      }
      B::lds_barrier();  // nor rows
    }
  }

 private:
  using Work = MlaDecodeWork<MlaDecodeLds>;
  using Item = PagedAttentionWorkItem;
  using State = MlaLdsState<L>;
  using Fetching = std::conditional_t<L::held, MlaLdsHeldFetching<L>, MlaLdsFetching<L>>;

  /// All lanes of a wave have the same item, which belongs into scalar registers.
  TILEWAVE_DEVICE static Item uniform(Item item) {
    for (std::int32_t* const field : {&item.sequence, &item.first_row, &item.first, &item.end, &item.begin, &item.tiles,
                                      &item.full_first, &item.full_end, &item.slot}) {
      *field = B::uniform(*field);
    }
    item.beyond_table = B::uniform(item.beyond_table ? 1 : 0) != 0;
    return item;
  }

  TILEWAVE_DEVICE static void begin(State& s) {
    TILEWAVE_UNROLL
    for (int r = 0; r < State::score_rows; ++r) {
      s.reference[r] = State::lowest;
      s.sum[r] = 0.0f;
    }
    TILEWAVE_UNROLL
    for (auto& sums : s.out) sums = {};
  }
};

}  // namespace tilewave
