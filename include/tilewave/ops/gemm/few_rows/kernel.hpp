// SPDX-License-Identifier: MIT
// GEMM with int4 weights and few rows of A on sm90, or any room with products of one wave and copies of one lane. Grid:
// so many blocks for each tile of P.rows rows, each with a share of the strips of sixteen columns of C that is equal
// give or take one. A block takes its strips in passes of P.columns / 16 strips of B; gated, half of them are gates,
// and the others their ups. P.waves_columns groups of waves take strips beside each other, so what they read of A comes
// from memory once. The waves of a group share K: wave w has stages w, w + waves and so on, of 128 k each, so that what
// the chip reads at a time lies close together.
//
// A wave copies what it will read itself. So no wave waits for another, and no tensor map has to be read before the
// first bytes are. Where the problem says that B is ready, copies begin before the kernel in front is over. They run on
// past the end of a pass. There the waves merge their sums through shared memory (output.hpp). LDS plan: a ring of
// P.stages stages for each wave, and the sums of one pass or two. Bound: memory bandwidth of B.
#pragma once

#include "tilewave/ops/gemm/few_rows/layout.hpp"
#include "tilewave/ops/gemm/few_rows/output.hpp"

namespace tilewave {

/// The order of K is free, as long as both operands agree on it. In a stage, lane l has two runs of sixteen k, from 16
/// (l % 4) and from 16 (4 + l % 4) on. Its rows of a strip are 2 (l / 4) and the next one. These are 16 bytes each, and
/// it uses all of them. A code whose bits stand lowest in a bf16 or f16 counts the type's least subnormals, and also
/// where it reaches the exponent's lowest bit, so that one operation makes two values of eight codes, and one shift
/// serves four of those operations. All are too large by the same bias. One more product with A gives what the biases
/// add up to, and the sums of all strips of a stage begin with its negative.
/// A is multiplied by powers of two, so that products with values so small are not: bf16 by 2^96. Where that makes a
/// value infinite, the stage is multiplied again, by that row and with a smaller power.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue = GemmIdentity>
struct GemmFewRowsKernel {
  using Room = B;
  using L = GemmFewRowsLayout<B, S, P, UserEpilogue>;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Passes = typename L::Passes;
  using Stage = typename L::Stage;
  using Atom = typename L::Atom;
  using Scales = typename L::Scales;
  using Output = GemmFewRowsOutput<L, S, UserEpilogue>;
  static constexpr int lanes = L::lanes, waves = L::waves, groups = L::groups, strips = L::strips, panels = L::panels;
  static constexpr int block_threads = L::block_threads;
  static constexpr int waves_per_simd = groups * waves / B::facts.simds_per_cu * P.waves_per_simd;
  static constexpr bool waits_itself = true;
  static constexpr int halves = L::halves, group_strips = L::group_strips;
  static constexpr int stage_k = L::stage_k, strip_bytes = L::strip_bytes;
  static constexpr DType type = is_fp8(S.a) ? DType::f16 : S.a;  // of the products; f16 holds every fp8 value
  /// Codes are counts of subnormals, but under rows of f16, which have no room for the factors, and under two panels of
  /// rows, which have no registers for them (docs/notebook/2026-11-28-gemm-int4-peers.md).
  static constexpr bool by_counts = S.a != DType::f16 && panels == 1;
  /// Says whether A's first rows are asked for in front of the ring's codes, behind which they come last. Single groups
  /// with four strips take longer then (docs/notebook/2026-11-28-gemm-int4-one-batch.md).
  static constexpr bool rows_first = S.a == DType::bf16 && !S.zero_points && (groups > 1 || strips < 4);
  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t row_tile = a.blocks.quotient(B::block_id());
    const std::int32_t block = B::block_id() - row_tile * a.blocks.divisor;  // of the tile of rows
    GemmTile tile{};
    tile.layer = a.row_tiles.quotient(row_tile);
    tile.a_layer = tile.layer;
    tile.first_row = (row_tile - tile.layer * a.row_tiles.divisor) * P.rows;
    tile.row_end = a.m;
    const Passes passes(a, block);
    const int wave_of_block = B::wave_id(), wave = wave_of_block % waves, group = wave_of_block / waves;

    if (!a.b_ready) B::wait_for_previous();
    Rows rows(a, tile);
    if (rows_first && !a.b_ready && a.stages > 0) rows.load(a, wave);
    Copies copies(a, tile, passes, wave, group);
    B::promised_reads(a.b_ready);
    TILEWAVE_ROLL
    for (int i = 0; i < P.stages; ++i) copies.next(a, shared.ring[wave_of_block][i]);
    B::promised_reads(false);
    if (a.b_ready) B::wait_for_previous();
    if ((!rows_first || a.b_ready) && a.stages > 0) rows.load(a, wave);
    const int read_unit = B::opaque(slot_unit(B::lane_id() % 4, B::lane_id() / 4));
    std::int32_t stage_of_k = wave;
    int slot = 0, buffer = 0;
    for (std::int32_t pass = 0; pass < passes.count(a); ++pass) {
      Atom sums[strips][panels];
      TILEWAVE_UNROLL
      for (int i = 0; i < strips * panels; ++i) sums[i / panels][i % panels] = {};
      const int strips_of_block = passes.strips_of(a, pass), count = L::strips_of_group(strips_of_block, group);
      TILEWAVE_ROLL
      for (; stage_of_k < a.stages; stage_of_k += waves) {
        Operands operands(rows, usual());
        rows.load(a, stage_of_k + waves);
        Stage& stage = shared.ring[wave_of_block][slot];
        B::template lane_copies_wait<P.stages - 1>();
        B::wave_barrier();
        const auto multiply_all = [&] {
          if (count == group_strips) {
            multiply<group_strips>(operands, stage, read_unit, count, sums);
          } else if (groups > 1 && count == group_strips - 1) {
            multiply<max_of(group_strips - 1, 1)>(operands, stage, read_unit, count, sums);
          } else {
            multiply<0>(operands, stage, read_unit, count, sums);
          }
        };
        if constexpr (by_counts && S.a == DType::bf16) {
          // Rows that the factors make infinite are multiplied by themselves, so that others keep their bits.
          const bool apart = B::any(!operands.finite());
          const std::uint32_t infinite = apart ? operands.infinite_rows() : 0;
          TILEWAVE_ROLL
          for (int part = apart ? 0 : 1; part < 2; ++part) {
            if (apart) {
              Rows some(a, tile);
              some.load(a, stage_of_k);
              some.keep(part == 0 ? ~infinite : infinite);
              operands = Operands(some, part == 0 ? usual() : large());
            }
            multiply_all();
          }
        } else {
          multiply_all();
        }
        B::wave_barrier();
        copies.next(a, stage);
        slot = slot + 1 == P.stages ? 0 : slot + 1;
      }
      stage_of_k -= a.stages;
      if (pass + 1 == passes.count(a)) B::launch_next();  // all that this wave reads of B is there
      if (L::sum_buffers == 1 && pass > 0) B::barrier();
      TILEWAVE_UNROLL
      for (int s = 0; s < strips; ++s) {
        TILEWAVE_UNROLL
        for (int n = 0; n < panels; ++n)
          if (s % group_strips < count) shared.sums[buffer][group][wave][s][n][B::lane_id()] = sums[s][n];
      }
      B::barrier();
      tile.first_column = 16 * passes.first_of(a, pass);
      Output::finish(a, tile, strips_of_block, shared.sums[buffer]);
      if (L::sum_buffers == 2) buffer ^= 1;
    }
    B::template lane_copies_wait<0>();
  }

 private:
  /// Returns where the unit of sixteen k number `line` of rows 2 `unit` and 2 `unit` + 1 of a strip lies in a stage.
  /// Lanes copy units of 16 bytes in memory's order, since a request would otherwise become four. Lanes that read at a
  /// time, four lines of two units, meet each bank once.
  TILEWAVE_DEVICE static int slot_unit(int line, int unit) { return 8 * line + (unit ^ 2 * line); }

  /// Copies a wave's stages of all passes, in order.
  class Copies {
   public:
    TILEWAVE_DEVICE Copies(const Args& a, const GemmTile& tile, const Passes& passes, int wave, int group)
        : passes_(passes), stage_(wave), group_(group), strip_stride_(std::int64_t{a.stages} * strip_bytes) {
      first_ = a.codes + tile.layer * std::int64_t{a.code_layer} * strip_stride_ + 16 * B::lane_id();
      first_scales_ = a.scales + tile.layer * std::int64_t{a.scale_layer} * 2 + 4 * B::lane_id();
      target_ = B::opaque(slot_unit(B::lane_id() / 8, B::lane_id() % 8));
      begin_pass(a);
    }
    /// Begins the copies of the next stage, if there is one.
    TILEWAVE_DEVICE void next(const Args& a, Stage& to) {
      if (stage_ >= a.stages && count_ > 0) {
        for (; stage_ >= a.stages; stage_ -= a.stages) ++pass_;
        begin_pass(a);
      }
      if (count_ > 0) {
        TILEWAVE_UNROLL
        for (int half = 0; half < halves; ++half) copy_half(a, half, to);
      }
      B::lane_copies_end();
      stage_ += waves;
      codes_ += waves * strip_bytes;
      scales_ += std::int64_t{2 * waves} * a.scale_stride;
    }

   private:
    TILEWAVE_DEVICE void copy_half(const Args& a, int half, Stage& to) {
      const char* from = codes_ + half * (a.n / 16) * strip_stride_;
      TILEWAVE_UNROLL
      for (int s = 0; s < group_strips; ++s) {
        if (s >= count_) continue;
        TILEWAVE_UNROLL
        for (int i = 0; i < 2; ++i)
          B::copy_lane(&to.codes[half * group_strips + s][i][target_], reinterpret_cast<const Chunk*>(from + i * 512));
        from += strip_stride_;
      }
      if constexpr (S.zero_points) {  // a lane copies those of four rows
        using Four = Packed<DType::i8, 4>;
        const char* const zeros = static_cast<const char*>(a.a_scale_or_zeros) + (scales_ - a.scales) / 2 +
                                  half * std::int64_t{a.n} + 2 * B::lane_id();
        auto* const into = reinterpret_cast<Four*>(to.zeros[half * group_strips]) + B::lane_id();
        if (B::lane_id() < 4 * count_) B::copy_lane(into, reinterpret_cast<const Four*>(zeros));
      }
      const auto* const scales = reinterpret_cast<const Scales*>(scales_ + half * std::int64_t{2} * a.n);
      TILEWAVE_UNROLL
      for (int i = 0; i < 8 * group_strips; i += lanes) {
        const int pair = i + B::lane_id();
        if (pair < 8 * count_) B::copy_lane(&to.scales[half * group_strips + pair / 8][pair % 8], scales + i);
      }
    }
    TILEWAVE_DEVICE void begin_pass(const Args& a) {
      const int of_block = passes_.strips_of(a, pass_);
      const std::int64_t strip = passes_.first_of(a, pass_) + L::first_of_group(of_block, group_);
      count_ = a.stages > 0 ? L::strips_of_group(of_block, group_) : 0;
      codes_ = B::opaque(first_ + strip * strip_stride_ + std::int64_t{stage_} * strip_bytes);
      scales_ = B::opaque(first_scales_ + strip * 32 + std::int64_t{stage_} * a.scale_stride * 2);
    }

    const Passes& passes_;
    std::int32_t pass_ = 0, stage_;  // stage_: of the pass
    int group_;
    int count_;                  // strips of the pass
    int target_;                 // unit of a stage that this lane copies
    std::int64_t strip_stride_;  // in bytes
    const char *first_, *first_scales_, *codes_, *scales_;
  };

  /// What lane l loads of a stage of rows of A, as they lie: its two runs of sixteen k of row l / 4 of each panel.
  struct Rows {
    static constexpr int chunks = size_of(S.a);  // of sixteen k
    Chunk units[2][panels][chunks];
    const char* first[panels];

    /// Rows beyond M are loaded as the last row is, and what comes of them is not stored.
    TILEWAVE_DEVICE Rows(const Args& a, const GemmTile& tile) {
      const int sixteen = B::lane_id() % 4, row = B::lane_id() / 4;
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        const std::int64_t at = min_of(tile.first_row + 8 * n + row, a.m - 1);
        first[n] =
            B::opaque(a.a + (tile.layer * std::int64_t{a.a_layer} + at * a.a_stride + sixteen * size_of(S.a)) * 16);
      }
    }
    /// Loads a stage of the pass. Stages past its end are those of the next pass.
    TILEWAVE_DEVICE void load(const Args& a, std::int32_t stage) {
      while (stage >= a.stages) stage -= a.stages;
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        const char* const from = first[n] + std::int64_t{stage} * (stage_k * size_of(S.a));
        TILEWAVE_UNROLL
        for (int i = 0; i < 2 * chunks; ++i) {
          units[i / chunks][n][i % chunks] =
              B::load(reinterpret_cast<const Chunk*>(from + i / chunks * 64 * size_of(S.a) + i % chunks * 16));
        }
      }
    }

    /// Makes zeros of the rows of panels whose bit is not set.
    TILEWAVE_DEVICE void keep(std::uint32_t bits) {
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        if ((bits >> n & 1) != 0) continue;
        TILEWAVE_UNROLL
        for (int i = 0; i < 2 * chunks; ++i) units[i / chunks][n][i % chunks] = {};
      }
    }
  };

  /// The powers of two by which A is multiplied, as pairs: for codes that count subnormals, and for those that count
  /// sixteen. `sums` makes a stage's sums those of the values.
  struct Factors {
    std::uint32_t ones, sixteens;
    float sums;
  };
  TILEWAVE_DEVICE static constexpr Factors usual() {
    return type == DType::bf16 ? Factors{0x6f806f80u, 0x6d806d80u, 0x1p37f}   // 2^96, 2^92
                               : Factors{0x4c004c00u, 0x3c003c00u, 0x1p20f};  // 2^4, 1
  }
  TILEWAVE_DEVICE static constexpr Factors large() { return {0x42804280u, 0x40804080u, 0x1p127f}; }  // 2^6, 2^2

  /// The same rows as operands, in the order in which codes are widened, and the negative sum of the codes' biases.
  /// With zero points, which are biases, too, it is the sum of A's values, since rows of B differ.
  struct Operands {
    typename B::KvOperand values[4][panels][2];  // two products for each 8 k
    Atom bias_sums[panels];
    float factor;  // of sums

    TILEWAVE_DEVICE Operands(const Rows& rows, Factors factors) : factor(factors.sums) {
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        bias_sums[n] = {};
        TILEWAVE_UNROLL
        for (int j = 0; j < 4; ++j) {
          const Chunk k = eight_k(rows, n, j);
          TILEWAVE_UNROLL
          for (int p = 0; p < 2; ++p) {
            auto& pairs = values[j][n][p];
            pairs[0] = times(B::template pick_bytes<0, 1, 4, 5>(k[2 * p], k[2 * p + 1]), factors, p);
            pairs[1] = times(B::template pick_bytes<2, 3, 6, 7>(k[2 * p], k[2 * p + 1]), factors, p);
            const std::uint32_t bias = bias_of(p);
            bias_sums[n] = product(pairs, {{bias, bias, bias, bias}}, bias_sums[n]);
          }
        }
      }
    }
    /// Says whether all of the lane's rows of sums are finite.
    TILEWAVE_DEVICE bool finite() const {
      bool all = true;
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) all = all && is_finite(bias_sums[n][0] + bias_sums[n][1]);
      return all;
    }
    /// Returns a bit for each panel in which the row of A whose values the lane has is not finite.
    TILEWAVE_DEVICE std::uint32_t infinite_rows() const {
      std::uint32_t bits = 0;
      const int row = B::lane_id() / 4;
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        const float even = B::shuffle(bias_sums[n][0], row / 2), odd = B::shuffle(bias_sums[n][1], row / 2);
        if (!is_finite(row % 2 == 0 ? even : odd)) bits |= 1u << n;
      }
      return bits;
    }

   private:
    TILEWAVE_DEVICE static bool is_finite(float value) { return value - value == 0.0f; }
    TILEWAVE_DEVICE static std::uint32_t times(std::uint32_t pair, Factors factors, int p) {
      if constexpr (by_counts && type == DType::bf16)
        return B::multiply_bf16(pair, p == 0 ? factors.ones : factors.sixteens);
      return by_counts && p == 0 ? B::multiply_f16(pair, factors.ones) : pair;
    }
    /// Returns a pair of the negative bias, or of 1 with zero points, as codes are widened.
    TILEWAVE_DEVICE static constexpr std::uint32_t bias_of(int p) {
      if (!by_counts && S.zero_points) return type == DType::bf16 ? 0x3f803f80u : 0x3c003c00u;
      if (!by_counts) return B::template i4_negative_biases<type>;
      return (S.zero_points ? 0x00010001u : 0x00080008u) << 4 * p | (S.zero_points ? 0 : 0x80008000u);
    }
    TILEWAVE_DEVICE static Chunk eight_k(const Rows& rows, int n, int j) {
      if constexpr (!is_fp8(S.a)) return rows.units[j / 2][n][j % 2];
      const Chunk& sixteen = rows.units[j / 2][n][0];
      const auto low = B::widen_fp8_to_f16(sixteen[2 * (j % 2)]), high = B::widen_fp8_to_f16(sixteen[2 * (j % 2) + 1]);
      return {{low[0], low[1], high[0], high[1]}};
    }
  };

  template <class Kv>
  TILEWAVE_DEVICE static Atom product(const Kv& kv, const typename B::RowsOperand& rows, const Atom& sum) {
    return type == DType::bf16 ? B::mma(kv, rows, sum) : B::mma_f16(kv, rows, sum);
  }

  /// Adds the products of `count` strips of C of a stage: `all`, unless that is 0. Then there are no branches between
  /// them, and ptxas mixes them: a strip by itself is a chain of eight products. Under sixteen rows of A those of two
  /// strips alternate, which is one to three percent faster at 60 MB. `read_unit`: the unit of a strip that has this
  /// lane's codes.
  template <int all>
  TILEWAVE_DEVICE static void multiply(const Operands& operands, const Stage& stage, int read_unit, int count,
                                       Atom (&sums)[strips][panels]) {
    constexpr int together = all > 0 && panels > 1 && strips % 2 == 0 ? 2 : 1;
    const auto counts = [&](int s) TILEWAVE_INLINE_LAMBDA { return s % group_strips < (all > 0 ? all : count); };
    TILEWAVE_UNROLL
    for (int first = 0; first < strips; first += together) {
      if (together == 1 && !counts(first)) continue;
      Atom stage_sums[together][panels];
      TILEWAVE_UNROLL
      for (int i = 0; i < together * panels; ++i)
        stage_sums[i / panels][i % panels] = first_sums(operands, stage, first + i / panels, i % panels);
      TILEWAVE_UNROLL
      for (int j = 0; j < 4; ++j) {
        TILEWAVE_UNROLL
        for (int t = 0; t < together; ++t)
          if (counts(first + t)) add_eight_k(operands, stage.codes[first + t][j / 2][read_unit], j, stage_sums[t]);
      }
      TILEWAVE_UNROLL
      for (int t = 0; t < together; ++t) {
        const int s = first + t;
        if (!counts(s)) continue;
        const auto scale = tilewave::widen<B, S.group_scale(), 2>(stage.scales[s][B::lane_id() / 4]);
        TILEWAVE_UNROLL
        for (int n = 0; n < panels; ++n) {
          TILEWAVE_UNROLL
          for (int e = 0; e < 4; ++e) {
            const float sum = by_counts ? stage_sums[t][n][e] * operands.factor : stage_sums[t][n][e];
            sums[s][n][e] += sum * scale[e / 2];
          }
        }
      }
    }
  }
  /// Returns what the sums of a strip in a stage begin with.
  TILEWAVE_DEVICE static Atom first_sums(const Operands& operands, const Stage& stage, int strip, int panel) {
    Atom sums = operands.bias_sums[panel];
    if constexpr (S.zero_points) {
      const std::uint32_t zeros = stage.zeros[strip][B::lane_id() / 4][0];
      TILEWAVE_UNROLL
      for (int e = 0; e < 4; ++e)
        sums[e] *= (by_counts ? -8.0f : -B::template i4_bias<type>)-static_cast<float>(
            static_cast<std::int8_t>(zeros >> e / 2 * 8));
    }
    return sums;
  }
  /// Adds the products of eight k of the lane, number j of a stage.
  TILEWAVE_DEVICE static void add_eight_k(const Operands& operands, const Chunk& codes, int j, Atom (&sums)[panels]) {
    const Chunk first = widened(codes[j % 2]), second = widened(codes[2 + j % 2]);
    TILEWAVE_UNROLL
    for (int p = 0; p < 2; ++p) {
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        sums[n] = product(operands.values[j][n][p],
                          {{first[2 * p], first[2 * p + 1], second[2 * p], second[2 * p + 1]}}, sums[n]);
      }
    }
  }
  TILEWAVE_DEVICE static Chunk widened(std::uint32_t word) {
    return by_counts ? B::widen_i4_counts(word) : B::template widen_i4_biased<type>(word);
  }
};

}  // namespace tilewave
