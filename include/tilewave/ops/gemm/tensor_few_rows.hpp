// SPDX-License-Identifier: MIT
// Weights of four bits under few rows: each wave of a group multiplies all strips of the group's by stages of its own,
// every fourth, with products of one wave (mma.sync). Nobody waits for others but at a tile's end, where the waves'
// sums become those of a group's products, which the epilogues know.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/gemm/tensor_codes.hpp"

namespace tilewave {

/// K is summed up in any order, the same of both operands: lane l has the 32 k from 32 (l % 4) on of a stage, so that
/// it reads 16 bytes at a time (of codes two rows of 16 k, of A a row of 8) and has use for all of them. A shift and
/// one operation more make two values of eight codes, the first of them 0 and 2. All are too large by the same bias;
/// what the biases sum up to is one product more, which the sums of all strips begin with.
template <class L, GemmSpec S, GemmPolicy P>
struct GemmTensorFewRows {
  using B = typename L::Backend;
  using Codes = typename L::Codes;
  using Shared = typename L::Shared;
  using Ring = typename L::Ring;
  using Sums = typename L::Sums;
  using Atom = typename B::Accumulator;
  using Pair = Vec<float, 2>;
  static constexpr int waves = L::group_waves, strips = L::group_tall / 16, panels = L::group_wide / 8;
  // A slot is one wave's within a tile, see scale_waves.
  static_assert(P.waves_k == waves && P.stages % waves == 0 && P.cluster == 1 && S.group == 128);
  static constexpr DType type = is_fp8(S.a) ? DType::f16 : S.a;  // that is multiplied; of fp8 no value is rounded

  TILEWAVE_DEVICE static void multiply(typename L::Args::Steps steps, int group, Shared& shared, Ring& ring,
                                       Sums (&sums)[L::tiles]) {
    Atom all[strips][panels];
    TILEWAVE_UNROLL
    for (int i = 0; i < strips * panels; ++i) all[i / panels][i % panels] = {};
    const Places places(group);
    Ring at = ring;
    at.advance(L::group_wave());
    for (std::int32_t step = steps.first + L::group_wave(); step < steps.end; step += waves, at.advance(waves)) {
      B::mbarrier_wait(&shared.ring.full[at.slot], at.round);
      multiply_stage(places, shared, at.slot, all);
      shared.ring.release(at.slot);
    }
    ring.skip(steps.end - steps.first);
    exchange(all, shared.exchange[group], sums);
  }

 private:
  /// What of a stage a lane reads, in chunks: 16 k of two rows of codes (i = 0, 1), 8 k of a row of A (j = 0 .. 3).
  /// Lanes of k 64 and beyond take the two 16 k in turn: so none meets another in a bank.
  struct Places {
    std::uint32_t codes[2], a[4], scales;

    TILEWAVE_DEVICE explicit Places(int group) {
      const int lane = B::lane_id(), own = lane % 4, row = lane / 4;
      TILEWAVE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int sixteen = i ^ own / 2, line = 2 * own + sixteen;
        codes[i] = worked_out(L::tall_row(group) / 16 * Codes::strip_chunks + 8 * line + (row ^ line));
        TILEWAVE_UNROLL
        for (int w = 0; w < 2; ++w) {
          const int unit = is_fp8(S.a) ? 2 * own + sixteen : 4 * (own % 2) + 2 * sixteen + w;  // w: words of it
          const int of_row = (is_fp8(S.a) ? 0 : own / 2 * L::wide_rows) + L::wide_row(group) + row;
          a[2 * i + w] = worked_out(of_row * L::row_chunks + (unit ^ row));
        }
      }
      scales = worked_out(L::tall_row(group) + 2 * row);
    }
    /// Else ptxas would do so in every stage, to save a register.
    TILEWAVE_DEVICE static std::uint32_t worked_out(int place) { return B::settle(static_cast<std::uint32_t>(place)); }
  };

  TILEWAVE_DEVICE static Chunk widened(std::uint32_t first, std::uint32_t second) {
    const auto low = B::widen_fp8_to_f16(first), high = B::widen_fp8_to_f16(second);
    return {{low[0], low[1], high[0], high[1]}};
  }
  template <class Kv>
  TILEWAVE_DEVICE static Atom product(const Kv& kv, const typename B::RowsOperand& rows, const Atom& sum) {
    return type == DType::bf16 ? B::mma(kv, rows, sum) : B::mma_f16(kv, rows, sum);
  }

  TILEWAVE_DEVICE static void multiply_stage(const Places& places, const Shared& shared, int slot,
                                             Atom (&all)[strips][panels]) {
    constexpr std::uint32_t bias = B::template i4_negative_biases<type>;
    typename B::KvOperand a[4][panels][2];  // two products of each 8 k of a lane
    Atom of_bias[panels], sums[strips][panels];
    TILEWAVE_UNROLL
    for (int n = 0; n < panels; ++n) {
      of_bias[n] = {};
      TILEWAVE_UNROLL
      for (int j = 0; j < 4; ++j) {
        Chunk k = shared.wide[slot][places.a[j] + 8 * n * L::row_chunks];
        if constexpr (is_fp8(S.a)) k = widened(k[2 * (j % 2)], k[2 * (j % 2) + 1]);
        TILEWAVE_UNROLL
        for (int p = 0; p < 2; ++p) {
          a[j][n][p][0] = B::template pick_bytes<0, 1, 4, 5>(k[2 * p], k[2 * p + 1]);
          a[j][n][p][1] = B::template pick_bytes<2, 3, 6, 7>(k[2 * p], k[2 * p + 1]);
          of_bias[n] = product(a[j][n][p], {{bias, bias, bias, bias}}, of_bias[n]);
        }
      }
    }
    TILEWAVE_UNROLL
    for (int j = 0; j < 4; ++j) {
      TILEWAVE_UNROLL
      for (int s = 0; s < strips; ++s) {
        const Chunk& eights = shared.tall[slot][places.codes[j / 2] + s * Codes::strip_chunks];
        const Chunk first = B::template widen_i4_biased<type>(eights[j % 2]);
        const Chunk second = B::template widen_i4_biased<type>(eights[2 + j % 2]);
        TILEWAVE_UNROLL
        for (int p = 0; p < 2; ++p) {
          TILEWAVE_UNROLL
          for (int n = 0; n < panels; ++n) {
            const bool begun = j + p > 0;
            sums[s][n] = product(a[j][n][p], {{first[2 * p], first[2 * p + 1], second[2 * p], second[2 * p + 1]}},
                                 begun ? sums[s][n] : of_bias[n]);
          }
        }
      }
    }
    TILEWAVE_UNROLL
    for (int s = 0; s < strips; ++s) {
      const Pair scale = *reinterpret_cast<const Pair*>(shared.b_scale[slot] + places.scales + 16 * s);
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        TILEWAVE_UNROLL
        for (int e = 0; e < 4; ++e) all[s][n][e] += sums[s][n][e] * scale[e / 2];
      }
    }
  }

  /// Wave w gets strip w of each four, in the order of waves. Elements 2 h and 2 h + 1 of lane l's atom are of row
  /// 2 (l / 4) + h of the strip.
  TILEWAVE_DEVICE static void exchange(const Atom (&all)[strips][panels], Atom (&shared)[4][waves][32],
                                       Sums (&sums)[L::tiles]) {
    const int lane = B::lane_id(), wave = L::group_wave();
    TILEWAVE_UNROLL
    for (int t = 0; t < L::tiles; ++t) {
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        TILEWAVE_UNROLL
        for (int s = 0; s < 4; ++s) shared[s][wave][lane] = all[4 * t + s][n];
        B::group_barrier();
        TILEWAVE_UNROLL
        for (int h = 0; h < 2; ++h) {
          const int row = lane / 4 + 8 * h;
          Pair sum{};
          TILEWAVE_UNROLL
          for (int w = 0; w < waves; ++w) {
            const auto* const of_rows = reinterpret_cast<const Pair*>(&shared[wave][w][row / 2 * 4 + lane % 4]);
            const Pair some = of_rows[row % 2];
            sum[0] += some[0];
            sum[1] += some[1];
          }
          sums[t][4 * n + 2 * h] = sum[0];
          sums[t][4 * n + 2 * h + 1] = sum[1];
        }
        B::group_barrier();
      }
    }
  }
};

}  // namespace tilewave
