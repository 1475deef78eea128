// SPDX-License-Identifier: MIT
// Paged-attention decode through shared memory, for rooms with bulk copies and wave-group products. A block is a wave
// group that computes and one wave that fetches: it keeps a ring of stages, `stage_tokens` of K and V each, full with
// copies that take whole pieces of a page, so that nothing but the ring's size bounds the bytes in flight. The group
// multiplies K and V where they lie; queries and probabilities lie beside them, scores and outputs are in registers
// (staged_layout.hpp). Grid: clusters that share one (sequence, kv head, row group) and merge through shared memory, or
// persistent blocks that share all stages of the batch evenly (Work). LDS plan: the ring, Q, probabilities, what waves
// and blocks tell each other. Bound: KV bytes over memory bandwidth.
#pragma once

#include "tilewave/ops/paged_attention/scores.hpp"
#include "tilewave/ops/paged_attention/staged_epilogue.hpp"

namespace tilewave {

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionStagedDecode {
  using Room = B;
  using L = PagedAttentionStagedLayout<B, S, P>;
  using Args = PagedAttentionArgs;
  using Place = PagedAttentionPlace;
  using State = typename L::State;
  using Products = typename L::Products;
  using Epilogue = PagedAttentionStagedEpilogue<L>;
  using Work = PagedAttentionWork<L>;
  using Stages = PagedAttentionStages<L>;
  using Stage = typename Stages::Stage;
  using Ring = typename Stages::Ring;
  using Shared = typename L::Shared;
  using Probabilities = Chunk[L::stage_tokens / 8][L::rows];
  using Sums = float[L::eights][2];

  static constexpr int block_threads = L::group_lanes + L::lanes;
  static constexpr int waves_per_simd = P.waves_per_simd;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t wave = B::wave_id();
    if constexpr (P.balanced()) B::launch_next();
    if (L::clustered(a)) B::template open<1>(&shared.mailbox);
    Work work(a);
    Ring ring = L::clustered(a) ? Ring::ending_last(work.stages()) : Ring{};
    if (wave == L::waves) {
      // The first copies are on their way before the block's other waves are waited for.
      shared.ring.begin();
      bool alone = true;
      const auto meet = [&] {
        if (alone) B::barrier();
        alone = false;
      };
      for (; work.more(); work.next()) shared.ring.fetch(a, work, ring, meet);
      meet();
      Epilogue::accompany(a, shared);
      return;
    }
    bool met = false;
    for (; work.more(); work.next()) {
      const Place at = work.place(0);
      State s;
      set_up(a, at, s, shared);
      if (!met) B::barrier();
      met = true;
      consume(a, at, work, ring, s, shared);
      Epilogue::run(a, at, s, shared);
    }
    if (!met) B::barrier();
  }

 private:
  TILEWAVE_DEVICE static int lane() { return B::lane_id(); }
  TILEWAVE_DEVICE static int group_lane() { return B::block_lane_id(); }

  TILEWAVE_DEVICE static void set_up(const Args& a, const Place& at, State& s, Shared& shared) {
    constexpr int pieces = S.head_size / 8;  // 16 bytes of a row
    constexpr int count = ceil_div(L::rows * pieces, L::group_lanes);
    Chunk chunks[count] = {};
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i) {
      const int row = (i * L::group_lanes + group_lane()) / pieces, piece = group_lane() % pieces;
      if (row < L::rows && at.first_row + row < a.rows) {
        const QueryRow query = query_row(a, at, at.first_row + row);
        chunks[i] =
            B::load(reinterpret_cast<const Chunk*>(static_cast<const std::uint16_t*>(a.q) +
                                                   query.out_row * a.q_row_stride + query.head * a.q_head_stride) +
                    piece);
      }
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i) {
      const int row = (i * L::group_lanes + group_lane()) / pieces, piece = group_lane() % pieces;
      if (row >= L::rows) break;  // whole waves
      Chunk& q = chunks[i];
      if constexpr (L::scales_q) {
        const float scale = scale_q_row(q);
        if (piece == 0) shared.q_scale[row] = scale;
      }
      if constexpr (L::widened) {  // as units of K are dealt out
        auto* low = reinterpret_cast<Vec<std::uint32_t, 2>*>(&shared.q[piece / 2 * 2][row]) + piece % 2;
        auto* high = reinterpret_cast<Vec<std::uint32_t, 2>*>(&shared.q[piece / 2 * 2 + 1][row]) + piece % 2;
        *low = {{q[0], q[2]}};
        *high = {{q[1], q[3]}};
      } else {
        shared.q[piece][row] = q;
      }
    }
    B::shared_written();
    B::group_barrier();
    const float k_scale = a.scale_log2 * L::common_scale(a, a.k_scale, at.kv_head);
    L::each_row([&](int j, int e) {
      const int row = L::query_of(lane(), j, e);
      const QueryRow query = query_row(a, at, min_of(at.first_row + row, a.rows - 1));
      s.causal_end[j][e] = at.end - a.mtp + 1 + query.token;
      s.row_max[j][e] = L::minus_infinity;
      s.row_sum[j][e] = 0.0f;
      s.factor[j][e] = L::scales_q ? k_scale * shared.q_scale[row] : k_scale;
      if constexpr (S.alibi) s.slope[j][e] = B::load(a.alibi_slopes + query.head) * log2_e;
    });
    TILEWAVE_UNROLL
    for (int d = 0; d < L::out_tiles; ++d) s.out[d] = {};
  }

  /// A row of Q, a chunk a lane, from bf16 to f16, its largest element brought to [2^14, 2^15), where even 2^-28 of it
  /// is still exact: returns the power of two it was divided by.
  TILEWAVE_DEVICE static float scale_q_row(Chunk& q) {
    std::uint32_t top = 0;  // exponent and mantissa order magnitudes, as integers
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) top = max_of(top, max_of(q[w] & 0x7fff0000u, q[w] << 16 & 0x7fff0000u));
    TILEWAVE_UNROLL
    for (int mask = 1; mask < S.head_size / 8; mask *= 2) top = max_of(top, B::shuffle_xor(top, mask));
    const std::uint32_t exponent = min_of(max_of(top >> 23, 15u), 254u);  // of zeros and infinities, any
    const float factor = __builtin_bit_cast(float, (127 + 14 + 127 - exponent) << 23);
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      q[w] = B::pack_f16(__builtin_bit_cast(float, q[w] << 16) * factor,
                         __builtin_bit_cast(float, q[w] & 0xffff0000u) * factor);
    }
    return __builtin_bit_cast(float, (exponent - 14) << 23);
  }

  TILEWAVE_DEVICE static void consume(const Args& a, const Place& at, const Work& work, Ring& ring, State& s,
                                      Shared& shared) {
    const std::int32_t beyond = Epilogue::first_beyond(work.stages());
    for (std::int32_t i = 0; i < work.stages(); ++i, ring.advance()) {
      if (i == beyond && L::clustered(a)) Epilogue::tell_places_are_free();
      B::mbarrier_wait(&shared.ring.full[ring.slot], ring.round);
      const std::int32_t token = work.token(i);
      Stage& stage = shared.ring.stage[ring.place()];
      // A wave may be at the next tile's probabilities while another's products still read this one's.
      auto& p = shared.p[i % 2];
      const bool edge = token < at.full_first || token + L::stage_tokens > at.full_end;
      Products scores[L::tiles] = {};
      multiply_k(a, stage, shared, scores);
      bool exceeds = soften(a, at, token, edge, stage, s, scores);
      if (edge) drop_unattended(at, token, stage);
      // The vote is also the barrier behind which all probabilities are there.
      Sums sums;
      for (;; exceeds = false) {
        exponentiate(at, token, stage, s, scores, p, sums);
        B::shared_written();
        if (!B::group_any(exceeds)) break;
        raise_maximum(s, scores, shared);
      }
      L::each_row([&](int j, int e) { s.row_sum[j][e] += sums[j][e]; });
      multiply_v(stage, p, s);
      B::mbarrier_arrive(&shared.ring.empty[ring.slot]);
    }
    if (work.stages() <= beyond && L::clustered(a)) Epilogue::tell_places_are_free();
  }

  /// Step `step`, of 16 elements of k, of a matrix with 8 of them of all `rows` in a row: of rows from `first` on.
  template <int rows>
  TILEWAVE_DEVICE static GroupOperand operand(const Chunk (*pieces)[rows], int step, int first = 0) {
    return {pieces, 8 * 16, rows * 16, (2 * step * rows + first) * 16};
  }

  /// Through registers, so that a wave's 16 tokens may lie anywhere; pages of 16 tokens are then copied whole.
  TILEWAVE_DEVICE static void multiply_k(const Args& a, const Stage& stage, const Shared& shared,
                                         Products (&scores)[L::tiles]) {
    Chunk k[L::tiles][L::steps];
    const int matrix = lane() / 8;
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      const std::int32_t token = 64 * tile + 16 * B::wave_id() + L::token_of(lane() % 8 * 4, matrix % 2);
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
    for (int tile = 0; tile < L::tiles; ++tile) B::group_mma_hold(scores[tile]);
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      TILEWAVE_UNROLL
      for (int step = 0; step < L::steps; ++step)
        B::template group_mma<L::k_type, L::rows>(k[tile][step], operand(shared.q, step), scores[tile]);
    }
    B::group_mma_end();
    B::template group_mma_wait<0>();
  }

  TILEWAVE_DEVICE static void multiply_v(const Stage& stage, const Probabilities& p, State& s) {
    constexpr int v_steps = 4 * L::tiles;  // of 16 tokens
    Chunk v[L::widened ? L::out_tiles : 1][v_steps];
    if constexpr (L::widened) {
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) {
        const int row = 64 * d + 16 * B::wave_id() + lane() % 16;
        TILEWAVE_UNROLL
        for (int unit = 0; unit < v_steps; unit += 2)
          widen<L::v_type>(B::load_matrices(&stage.v[unit + lane() / 16][row]), &v[d][unit]);
      }
    }
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int d = 0; d < L::out_tiles; ++d) {
      TILEWAVE_UNROLL
      for (int step = 0; step < v_steps; ++step) {
        if constexpr (L::widened) {
          B::template group_mma<L::v_type, L::rows>(v[d][step], operand(p, step), s.out[d]);
        } else {
          B::template group_mma<L::v_type, L::rows>(operand(stage.v, step, 64 * d), operand(p, step), s.out[d]);
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

  /// From products to masked scores in log2 units. Whether one exceeds the reference maximum by more than the slack.
  TILEWAVE_DEVICE static bool soften(const Args& a, const Place& at, std::int32_t token, bool edge, const Stage& stage,
                                     const State& s, Products (&scores)[L::tiles]) {
    bool exceeds = false;
    each_token([&](int tile, int h, std::int32_t in_stage) {
      const std::int32_t here = token + in_stage;
      const float k_scale = L::per_token && attended(at, here) ? B::load(&stage.k_scale[in_stage]) : 0.0f;
      L::each_row([&](int j, int e) {
        float& score = L::value(scores[tile], j, h, e);
        score *= L::per_token ? s.factor[j][e] * k_scale : s.factor[j][e];
        if constexpr (S.soft_cap) score = a.cap_log2 * tanh_of<B>(score);
        const std::int32_t behind = s.causal_end[j][e] - 1 - here;  // tokens back from the row's own
        if constexpr (S.alibi) score -= s.slope[j][e] * static_cast<float>(behind);
        if (edge && static_cast<std::uint32_t>(behind) > static_cast<std::uint32_t>(a.window))
          score = L::minus_infinity;
        exceeds = exceeds || score > s.row_max[j][e] + L::max_slack;
      });
    });
    return exceeds;
  }
  /// Scales of cache slots outside the attended tokens may be anything, and 0 * NaN is NaN.
  TILEWAVE_DEVICE static bool attended(const Place& at, std::int32_t token) {
    return token >= at.first && token < at.end;
  }

  /// Probabilities into shared memory, and what they sum up to in this lane.
  TILEWAVE_DEVICE static void exponentiate(const Place& at, std::int32_t token, const Stage& stage, const State& s,
                                           const Products (&scores)[L::tiles], Probabilities& p, Sums& sums) {
    L::each_row([&](int j, int e) { sums[j][e] = 0.0f; });
    std::uint32_t words[L::tiles][L::eights][2];
    each_token([&](int tile, int h, std::int32_t in_stage) {
      const float v_scale = L::per_token && attended(at, token + in_stage) ? B::load(&stage.v_scale[in_stage]) : 0.0f;
      TILEWAVE_UNROLL
      for (int j = 0; j < L::eights; ++j) {
        float x[2];
        TILEWAVE_UNROLL
        for (int e = 0; e < 2; ++e) {
          const float maximum = s.row_max[j][e] == L::minus_infinity ? 0.0f : s.row_max[j][e];  // nothing visible yet
          x[e] = B::exp2(L::value(scores[tile], j, h, e) - maximum);
          sums[j][e] += x[e];
          x[e] *= L::per_token ? v_scale : L::lift;
        }
        words[tile][j][h] = L::template pack_probabilities<L::v_type>(x[0], x[1]);
      }
    });
    // Matrices are eight tokens h of eight query rows.
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      Chunk* eight = p[8 * tile + 2 * B::wave_id() + lane() / 8 % 2];
      if constexpr (L::eights == 1) {
        B::template store_matrices<2>(&eight[lane() % 8],
                                      Vec<std::uint32_t, 2>{{words[tile][0][0], words[tile][0][1]}});
      } else {
        TILEWAVE_UNROLL
        for (int j = 0; j < L::eights; j += 2) {
          const Vec<std::uint32_t, 4> four{
              {words[tile][j][0], words[tile][j][1], words[tile][j + 1][0], words[tile][j + 1][1]}};
          B::template store_matrices<4>(&eight[8 * (j + lane() / 16) + lane() % 8], four);
        }
      }
    }
  }

  /// Call f(tile, h, in_stage) for every token of the lane.
  template <class F>
  TILEWAVE_DEVICE static void each_token(F f) {
    const int first = 16 * B::wave_id();
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) f(tile, h, 64 * tile + first + L::token_of(lane(), h));
    }
  }

  TILEWAVE_DEVICE static void raise_maximum(State& s, const Products (&scores)[L::tiles], Shared& shared) {
    const int wave = B::wave_id();
    L::each_row([&](int j, int e) {
      float most = L::minus_infinity;
      TILEWAVE_UNROLL
      for (int tile = 0; tile < L::tiles; ++tile) {
        TILEWAVE_UNROLL
        for (int h = 0; h < 2; ++h) most = L::larger(most, L::value(scores[tile], j, h, e));
      }
      most = L::over_tokens(most, L::larger);
      if (lane() / 4 == 0) shared.of_wave[L::query_of(lane(), j, e)][wave] = most;
    });
    B::group_barrier();
    L::each_row([&](int j, int e) {
      const Vec<float, 4> maxima = shared.of_wave[L::query_of(lane(), j, e)];
      float raised = s.row_max[j][e];
      TILEWAVE_UNROLL
      for (int w = 0; w < L::waves; ++w) raised = L::larger(raised, maxima[w]);
      const float factor = raised == L::minus_infinity ? 1.0f : B::exp2(s.row_max[j][e] - raised);
      s.row_max[j][e] = raised;
      s.row_sum[j][e] *= factor;
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) {
        TILEWAVE_UNROLL
        for (int h = 0; h < 2; ++h) L::value(s.out[d], j, h, e) *= factor;
      }
    });
  }

  /// Zero V of tokens that nobody attends: cache slots may hold anything, and 0 * NaN is NaN.
  TILEWAVE_DEVICE static void drop_unattended(const Place& at, std::int32_t token, Stage& stage) {
    constexpr int units = L::stage_tokens / L::unit;
    TILEWAVE_UNROLL
    for (int i = 0; i < units * S.head_size / L::group_lanes; ++i) {
      const int chunk = i * L::group_lanes + group_lane();
      const std::int32_t from = token + chunk / S.head_size * L::unit;
      if (from + L::unit <= at.first || from >= at.end) (&stage.v[0][0])[chunk] = {};
    }
    for (const std::int32_t border : {at.first, at.end}) {
      const std::int32_t in_stage = border - token, unit = in_stage / L::unit;
      if (in_stage <= 0 || in_stage >= L::stage_tokens || in_stage % L::unit == 0) continue;
      for (int d = group_lane(); d < S.head_size; d += L::group_lanes)
        zero_outside<S>(stage.v[unit][d], token + unit * L::unit, at.first, at.end);
    }
  }
};

}  // namespace tilewave
