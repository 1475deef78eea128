// SPDX-License-Identifier: MIT
// Paged-attention decode through shared memory, for rooms with bulk copies and wave-group products. A block is one wave
// group that computes, or two that take stages in turn, and waves that fetch: they keep a ring of stages,
// `stage_tokens` of K and V each, full with copies that take whole pieces of a page, so that nothing but the ring's
// size bounds the bytes in flight. A group multiplies K and V where they lie; queries and probabilities lie beside
// them, scores and outputs are in registers (staged_layout.hpp). Grid: clusters that share one (sequence, kv head, row
// group) and merge through shared memory, or persistent blocks that share all stages of the batch evenly (Work). LDS
// plan: the ring; for each group Q, probabilities, or what it hands the other; what waves and blocks tell each other.
// Bound: KV bytes over memory bandwidth.
#pragma once

#include "tilewave/attention/unattended.hpp"
#include "tilewave/ops/paged_attention/bulk/epilogue.hpp"
#include "tilewave/ops/paged_attention/bulk/inputs.hpp"
#include "tilewave/ops/paged_attention/bulk/online_softmax.hpp"

namespace tilewave {

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionStagedDecode {
  using Room = B;
  using L = PagedAttentionStagedLayout<B, S, P>;
  using Args = PagedAttentionArgs;
  using Place = PagedAttentionPlace;
  using State = typename L::State;
  using Products = typename L::Products;
  using Inputs = PagedAttentionStagedInputs<L>;
  using Epilogue = PagedAttentionStagedEpilogue<L>;
  using Work = PagedAttentionWork<L>;
  using Stages = PagedAttentionStages<L>;
  using Stage = typename Stages::Stage;
  using Ring = typename Stages::Ring;
  using Shared = typename L::Shared;
  using OfGroup = typename L::OfGroup;
  using Softmax = PagedAttentionStagedSoftmax<L>;
  using Probabilities = typename Softmax::Probabilities;

  static constexpr int block_threads = P.block_waves() * L::lanes;
  static constexpr int waves_per_simd = P.waves_per_simd;
  // 1 KiB of each block is the driver's.
  static_assert(P.blocks_per_cu(B::facts) * (align_up(int{sizeof(Shared)}, 128) + 1024) <= B::facts.lds_bytes + 1024,
                "waves_per_simd claims more blocks than shared memory holds");

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    if constexpr (P.balanced()) B::launch_next();
    Work work(a);
    if (L::clustered(a)) B::template open<1>(&shared.mailbox);
    if (const int fetching = B::wave_id() - L::groups * L::waves; fetching >= 0) {
      fetch(a, work, fetching, shared);
    } else {
      compute(a, work, shared);
    }
  }

 private:
  TILEWAVE_DEVICE static int lane() { return B::lane_id(); }
  /// Waves that fetch and those that compute go round alike.
  TILEWAVE_DEVICE static Ring ring_of(const Args& a, const Work& work) {
    return L::clustered(a) ? Ring::ending_last(work.stages()) : Ring{};
  }

  // A block begins with reads that wait for each other: length, page, KV. What can be done before the length is there
  // comes before it.

  TILEWAVE_DEVICE static void fetch(const Args& a, Work& work, int wave, Shared& shared) {
    if (wave == 0) shared.ring.begin();
    B::barrier();
    typename Stages::Piece piece;
    if constexpr (!P.balanced()) {
      if (wave == 0) work.prefetch_pages();
      piece = Stages::piece_of(a, work.kv_head(), Stages::first_piece(wave));
    }
    work.start();
    Ring ring = ring_of(a, work);
    typename Stages::Pace pace(B::block_id() < a.last_round ? a.stage_ns : a.last_stage_ns);
    for (; work.more(); work.next()) {
      if constexpr (P.balanced()) piece = Stages::piece_of(a, work.kv_head(), Stages::first_piece(wave));
      shared.ring.fetch(a, work, wave, piece, ring, pace);
    }
    Epilogue::join_merge(a, shared);
  }

  TILEWAVE_DEVICE static void compute(const Args& a, Work& work, Shared& shared) {
    B::barrier();  // the ring is ready; loads of Q behind it, since they would be waited for there
    OfGroup& own = shared.of_group[L::group()];
    Inputs inputs;
    if constexpr (!P.balanced()) inputs.load(a, work.rows(0));
    work.start();
    Ring ring = ring_of(a, work);
    ring.advance(L::group());
    for (; work.more(); work.next()) {
      const Place at = work.place(0);
      if constexpr (P.balanced()) inputs.load(a, at);
      State s;
      inputs.set_up(a, at, s, own);
      consume(a, at, work, ring, s, shared.ring, own);
      Epilogue::run(a, at, s, shared);
    }
  }

  TILEWAVE_DEVICE static void consume(const Args& a, const Place& at, const Work& work, Ring& ring, State& s,
                                      Stages& stages, OfGroup& own) {
    const std::int32_t beyond = Epilogue::first_beyond(work.stages());
    // A slot is always the same group's, since their number divides the ring: it waits for every phase of it.
    std::int32_t i = L::group();
    for (; i < work.stages(); i += L::groups, ring.advance(L::groups)) {
      if (L::clustered(a) && i >= beyond && i - L::groups < beyond) Epilogue::publish_free_slots();
      stages.barriers.wait_full(ring);
      const std::int32_t token = work.token(i);
      Stage& stage = stages.stage[ring.place()];
      // A wave may be at the next tile's probabilities while another's products still read this one's.
      auto& p = own.operand.p[i / L::groups % 2];
      const bool edge = at.is_edge(token, L::stage_tokens);
      Products scores[L::tiles] = {};
      WideKeys k;  // until the products are done
      begin_multiply_k(a, stage, own, k, scores);
      if (edge) drop_unattended(at, token, stage);
      WideValues v;
      if constexpr (L::widened) {  // while K's products are under way
        if (edge) B::group_barrier();
        widen_values(stage, v, 0, early_tiles);
      }
      B::template group_mma_wait<0>();
      TILEWAVE_UNROLL
      for (int tile = 0; tile < L::tiles; ++tile) B::group_mma_fence(scores[tile]);
      bool exceeds = Softmax::scale_and_mask(a, at, token, edge, stage, s, scores);
      // The vote is also the barrier behind which all probabilities are there.
      typename Softmax::Sums sums;
      for (;; exceeds = false) {
        Softmax::exponentiate(at, token, stage, s, scores, p, sums);
        B::shared_written();
        if (!B::group_any(exceeds)) break;
        Softmax::raise_maximum(s, scores, own);
      }
      L::each_row([&](int j, int e) { s.row_sum[j][e] += sums[j][e]; });
      if constexpr (L::widened) widen_values(stage, v, early_tiles, L::out_tiles);
      multiply_v(stage, v, p, s);
      stages.barriers.release(ring.slot);
    }
    if (L::clustered(a) && i - L::groups < beyond) Epilogue::publish_free_slots();
  }

  /// Step `step` of a matrix with 16 bytes of k of all `rows` in a row: of rows from `first` on.
  template <int rows>
  TILEWAVE_DEVICE static GroupOperand operand(const Chunk (*pieces)[rows], int step, int first = 0) {
    return {pieces, 8 * 16, rows * 16, (2 * step * rows + first) * 16};
  }

  using WideKeys = Chunk[L::tiles][L::steps];
  /// Through registers, so that a wave's 16 tokens may lie anywhere; pages of 16 tokens are then copied whole.
  TILEWAVE_DEVICE static void begin_multiply_k(const Args& a, const Stage& stage, const OfGroup& own, WideKeys& k,
                                               Products (&scores)[L::tiles]) {
    const int matrix = lane() / 8;
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      const std::int32_t token = 64 * tile + 16 * L::wave() + L::token_of(lane() % 8 * 4, matrix % 2);
      const std::int32_t in_segment = token & (a.segment - 1);
      const Chunk* row = stage.k + (token - in_segment) * (S.head_size / L::unit) + in_segment + matrix / 2 * a.segment;
      constexpr int loads = S.head_size / L::unit / 2;
      TILEWAVE_UNROLL
      for (int i = 0; i < loads; ++i) {
        const Chunk units = B::load_matrices(row + 2 * i * a.segment);
        if constexpr (L::widened) {
          widen<L::k_type>(units, &k[tile][2 * i]);
        } else {
          k[tile][i] = units;
        }
      }
    }
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) B::group_mma_fence(scores[tile]);
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      TILEWAVE_UNROLL
      for (int step = 0; step < L::steps; ++step)
        B::template group_mma<L::k_type, L::rows>(k[tile][step], operand(own.operand.q, step), scores[tile]);
    }
    B::group_mma_end();
  }

  /// A stage of V as operands: a wave's dimensions of each tile.
  static constexpr int v_steps = L::stage_tokens / L::step;
  using WideValues = Chunk[L::out_tiles][v_steps];
  /// Tiles that are widened while K's products are under way: as many as registers hold beside K, scores and outputs.
  static constexpr int early_tiles =
      4 * L::tiles * (L::steps + L::out_tiles * 4) + L::rows / 2 * (L::tiles + L::out_tiles) <= 150 ? L::out_tiles : 1;
  TILEWAVE_DEVICE static void widen_values(const Stage& stage, WideValues& v, int first, int end) {
    TILEWAVE_UNROLL
    for (int d = first; d < end; ++d) {
      const int row = 64 * d + 16 * L::wave() + lane() % 16;
      TILEWAVE_UNROLL
      for (int unit = 0; unit < v_steps; unit += 2)
        widen<L::v_type>(B::load_matrices(&stage.v[unit + lane() / 16][row]), &v[d][unit]);
    }
  }

  TILEWAVE_DEVICE static void multiply_v(const Stage& stage, const WideValues& v, const Probabilities& p, State& s) {
    if constexpr (S.native) {  // a chip's sums of fp8 products keep 14 bits or so: of a stage only
      Products out[L::out_tiles] = {};
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) B::group_mma_fence(out[d]);
      multiply_v(stage, v, p, out);
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) {
        B::group_mma_fence(out[d]);
        TILEWAVE_UNROLL
        for (int i = 0; i < Products::size; ++i) s.out[d][i] += out[d][i];
      }
    } else {
      multiply_v(stage, v, p, s.out);
    }
  }
  TILEWAVE_DEVICE static void multiply_v(const Stage& stage, const WideValues& v, const Probabilities& p,
                                         Products (&out)[L::out_tiles]) {
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int d = 0; d < L::out_tiles; ++d) {
      TILEWAVE_UNROLL
      for (int step = 0; step < v_steps; ++step) {
        if constexpr (L::widened) {
          B::template group_mma<L::v_type, L::rows>(v[d][step], operand(p, step), out[d]);
        } else {
          B::template group_mma<L::v_type, L::rows>(operand(stage.v, step, 64 * d), operand(p, step), out[d]);
        }
      }
    }
    B::group_mma_end();
    B::template group_mma_wait<0>();
  }

  /// Two units of 16 fp8 elements of the wave's 16 rows as operands of 16-bit elements: matrices are rows 0 to 7, then
  /// 8 to 15 of the product, of the first unit, then of the second.
  template <DType type>
  TILEWAVE_DEVICE static void widen(const Chunk& fp8, Chunk* operands) {
    TILEWAVE_UNROLL
    for (int unit = 0; unit < 2; ++unit) {
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        Vec<std::uint32_t, 2> words;
        if constexpr (type == DType::f16) {
          words = B::widen_fp8_to_f16(fp8[2 * unit + h]);
        } else {
          words = B::widen_fp8(fp8[2 * unit + h]);
        }
        operands[unit][h] = words[0];
        operands[unit][2 + h] = words[1];
      }
    }
  }

  /// Zero V of tokens that nobody attends: cache slots may hold anything, and 0 * NaN is NaN.
  TILEWAVE_DEVICE static void drop_unattended(const Place& at, std::int32_t token, Stage& stage) {
    constexpr int units = L::stage_tokens / L::unit;
    TILEWAVE_UNROLL
    for (int i = 0; i < units * S.head_size / L::group_lanes; ++i) {
      const int chunk = i * L::group_lanes + L::group_lane();
      const std::int32_t from = token + chunk / S.head_size * L::unit;
      if (from + L::unit <= at.first || from >= at.end) (&stage.v[0][0])[chunk] = {};
    }
    for (const std::int32_t border : {at.first, at.end}) {
      const std::int32_t in_stage = border - token, unit = in_stage / L::unit;
      if (in_stage <= 0 || in_stage >= L::stage_tokens || in_stage % L::unit == 0) continue;
      for (int d = L::group_lane(); d < S.head_size; d += L::group_lanes)
        zero_outside<size_of(S.kv)>(stage.v[unit][d], token + unit * L::unit, at.first, at.end);
    }
  }
};

}  // namespace tilewave
