// SPDX-License-Identifier: MIT
// GEMM with weights of four bits under few rows, in rooms with products of one wave and copies of a lane (sm90). A
// block has some sixteens of columns ("strips"), as many as any other give or take one, and multiplies a few at a time,
// a pass. All of its waves share K, every so many-th 128 of it each, so that what the chip reads at a time lies close
// together. A wave copies what it will read itself: none waits for another, and no descriptor stands between a launch
// and its first bytes. Copies go on over the end of a pass, where the waves' sums meet in shared memory. LDS plan: a
// ring of stages of each wave's own; the sums of a pass or two. Bound: bytes of B over memory bandwidth.
#pragma once

#include "tilewave/ops/gemm/epilogue.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"

namespace tilewave {

/// K is summed up in any order, the same of both operands: lane l has of a stage the sixteens of k l % 4 and
/// 4 + l % 4, of rows 2 (l / 4) and the next of a strip, 16 bytes each, and has use for all of them. A shift and one
/// operation more make two values of eight codes, all too large by the same bias; what the biases sum up to is one
/// product more, which the sums of all strips of a stage begin with.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue = GemmIdentity>
struct GemmFewRowsKernel {
  static_assert(gemm_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: gemm_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  using Epilogue = GemmEpilogue<B, S, UserEpilogue>;
  using Atom = typename B::Accumulator;
  using Scales = Packed<S.group_scale(), 2>;  // of a lane's two rows of a strip
  static constexpr int lanes = B::facts.wave_lanes, waves = P.waves_k, block_threads = waves * lanes;
  static constexpr int waves_per_simd = waves / B::facts.simds_per_cu;
  static constexpr int step = 128, strip_bytes = step * 8;            // k of a stage; bytes of a strip's
  static constexpr int strips = P.columns / 16, panels = P.rows / 8;  // of a pass; 8 rows of A
  static constexpr DType type = is_fp8(S.a) ? DType::f16 : S.a;       // that is multiplied; of fp8 no value is rounded

  struct Stage {
    Chunk codes[strips][2][lanes];
    Scales scales[strips][8];
  };
  using Sums = Atom[waves][strips][panels][lanes];
  static constexpr int turns = 2 * sizeof(Sums) + waves * P.stages * sizeof(Stage) <= B::facts.lds_bytes ? 2 : 1;
  struct Shared {
    Sums sums[turns];
    Stage ring[waves][P.stages];
  };
  /// No more than come with a launch, 176 bytes: others a block would read from memory
  /// (docs/notebook/2026-11-22-decode.md).
  struct Args {
    const char *codes, *a, *scales;
    void* out;
    const float* a_scale;
    const void *bias, *residual;
    float* out_scale;
    std::int32_t m, n, steps;
    // Whole passes; strips of a block in the last one, and of how many blocks one more.
    std::int32_t full_passes, strips_per_block, blocks_with_one_more;
    FastDiv blocks, row_tiles;  // of a tile of rows; of a layer
    float alpha;
    bool wide;                                                         // out's rows take two neighbours at a time
    std::int32_t a_stride, scale_stride, out_stride, residual_stride;  // of a: in units of 16 bytes, else elements
    std::int32_t code_layer, a_layer, scale_layer, out_layer, residual_layer, bias_layer,
        a_scale_layer;  // codes: strips
    [[no_unique_address]] UserEpilogue epilogue;
  };
  static_assert(!std::is_empty_v<UserEpilogue> || sizeof(Args) <= 176, "arguments beyond 176 bytes come from memory");

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t rest = a.blocks.quotient(B::block_id()), share = B::block_id() - rest * a.blocks.divisor;
    GemmTile tile{};
    tile.layer = a.row_tiles.quotient(rest);
    tile.a_layer = tile.layer;
    tile.first_row = (rest - tile.layer * a.row_tiles.divisor) * P.rows;
    tile.row_end = a.m;
    const Passes passes(a, share);
    const int wave = B::wave_id();

    Copies copies(a, tile, passes);
    Rows rows(a, tile);
    if (a.steps > 0) rows.load(a, wave);
    TILEWAVE_ROLL
    for (int i = 0; i < P.stages; ++i) copies.next(a, shared.ring[wave][i]);
    const int own = B::opaque(place_of(B::lane_id() % 4, B::lane_id() / 4));
    std::int32_t at = wave;
    int slot = 0, turn = 0;
    for (std::int32_t pass = 0; pass < passes.count(a); ++pass) {
      Atom all[strips][panels];
      TILEWAVE_UNROLL
      for (int i = 0; i < strips * panels; ++i) all[i / panels][i % panels] = {};
      const int count = passes.strips_of(a, pass);
      TILEWAVE_ROLL
      for (; at < a.steps; at += waves) {
        const Operands operands(rows);
        rows.load(a, at + waves);
        Stage& stage = shared.ring[wave][slot];
        B::template lane_copies_wait<P.stages - 1>();
        B::wave_barrier();
        multiply(operands, stage, own, count, all);
        B::wave_barrier();
        copies.next(a, stage);
        slot = slot + 1 == P.stages ? 0 : slot + 1;
      }
      at -= a.steps;
      if (turns == 1 && pass > 0) B::barrier();
      TILEWAVE_UNROLL
      for (int s = 0; s < strips; ++s) {
        TILEWAVE_UNROLL
        for (int n = 0; n < panels; ++n)
          if (s < count) shared.sums[turn][wave][s][n][B::lane_id()] = all[s][n];
      }
      B::barrier();
      tile.first_column = 16 * passes.first_of(a, pass);
      finish(a, tile, count, shared.sums[turn]);
      if (turns == 2) turn ^= 1;
    }
    B::template lane_copies_wait<0>();
  }

 private:
  /// Lanes copy units of 16 bytes in memory's order, or a request would be four. Where sixteen k number `line` of rows
  /// 2 `unit` and the next then are: lanes that read at a time, four lines of two units, meet each bank once.
  TILEWAVE_DEVICE static int place_of(int line, int unit) { return 8 * line + (unit ^ 2 * line); }

  /// Which strips a block has: in each pass those behind the block before, so that all blocks read close together.
  struct Passes {
    std::int32_t share, last;

    TILEWAVE_DEVICE Passes(const Args& a, std::int32_t of_block)
        : share(of_block), last(a.strips_per_block + (of_block < a.blocks_with_one_more ? 1 : 0)) {}
    TILEWAVE_DEVICE std::int32_t count(const Args& a) const { return a.full_passes + (last > 0 ? 1 : 0); }
    TILEWAVE_DEVICE std::int32_t first_of(const Args& a, std::int32_t pass) const {
      if (pass < a.full_passes) return (pass * a.blocks.divisor + share) * strips;
      return a.full_passes * a.blocks.divisor * strips + share * a.strips_per_block +
             min_of(share, a.blocks_with_one_more);
    }
    TILEWAVE_DEVICE std::int32_t strips_of(const Args& a, std::int32_t pass) const {
      return pass < a.full_passes ? strips : pass == a.full_passes ? last : 0;
    }
  };

  /// A wave's stages of all passes, in order.
  class Copies {
   public:
    TILEWAVE_DEVICE Copies(const Args& a, const GemmTile& tile, const Passes& passes)
        : passes_(passes), at_(B::wave_id()), of_strip_(std::int64_t{a.steps} * strip_bytes) {
      first_ = a.codes + tile.layer * std::int64_t{a.code_layer} * of_strip_ + 16 * B::lane_id();
      first_scales_ = a.scales + tile.layer * std::int64_t{a.scale_layer} * 2 + 4 * B::lane_id();
      target_ = B::opaque(place_of(B::lane_id() / 8, B::lane_id() % 8));
      place(a);
    }
    TILEWAVE_DEVICE void next(const Args& a, Stage& to) {
      if (at_ >= a.steps && count_ > 0) {
        for (; at_ >= a.steps; at_ -= a.steps) ++pass_;
        place(a);
      }
      if (count_ > 0) {
        const char* from = codes_;
        TILEWAVE_UNROLL
        for (int s = 0; s < strips; ++s) {
          if (s >= count_) continue;
          TILEWAVE_UNROLL
          for (int i = 0; i < 2; ++i)
            B::copy_lane(&to.codes[s][i][target_], reinterpret_cast<const Chunk*>(from + i * 512));
          from += of_strip_;
        }
        const auto* const scales = reinterpret_cast<const Scales*>(scales_);
        TILEWAVE_UNROLL
        for (int i = 0; i < 8 * strips; i += lanes) {
          const int pair = i + B::lane_id();
          if (pair < 8 * count_) B::copy_lane(&to.scales[pair / 8][pair % 8], scales + i);
        }
      }
      B::lane_copies_end();
      at_ += waves;
      codes_ += waves * strip_bytes;
      scales_ += std::int64_t{2 * waves} * a.scale_stride;
    }

   private:
    TILEWAVE_DEVICE void place(const Args& a) {
      const std::int64_t strip = passes_.first_of(a, pass_);
      count_ = a.steps > 0 ? passes_.strips_of(a, pass_) : 0;
      codes_ = B::opaque(first_ + strip * of_strip_ + std::int64_t{at_} * strip_bytes);
      scales_ = B::opaque(first_scales_ + strip * 32 + std::int64_t{at_} * a.scale_stride * 2);
    }

    const Passes& passes_;
    std::int32_t pass_ = 0, at_;  // stage of the pass
    int count_, target_;          // strips; where in the ring a lane's unit goes
    std::int64_t of_strip_;
    const char *first_, *first_scales_, *codes_, *scales_;
  };

  /// What a lane has of a stage of rows of A, as they lie: of its two sixteens of k, of row l / 4 of each panel.
  struct Rows {
    static constexpr int chunks = size_of(S.a);  // of sixteen k
    Chunk of[2][panels][chunks];
    const char* first[panels];

    /// Rows that are not there are as their last neighbour, and nobody stores what comes of them.
    TILEWAVE_DEVICE Rows(const Args& a, const GemmTile& tile) {
      const int own = B::lane_id() % 4, row = B::lane_id() / 4;
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        const std::int64_t at = min_of(tile.first_row + 8 * n + row, a.m - 1);
        first[n] = B::opaque(a.a + (tile.layer * std::int64_t{a.a_layer} + at * a.a_stride + own * size_of(S.a)) * 16);
      }
    }
    /// Of stage `at` of a pass, or of the next one.
    TILEWAVE_DEVICE void load(const Args& a, std::int32_t at) {
      while (at >= a.steps) at -= a.steps;
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        const char* const from = first[n] + std::int64_t{at} * (step * size_of(S.a));
        TILEWAVE_UNROLL
        for (int i = 0; i < 2 * chunks; ++i) {
          of[i / chunks][n][i % chunks] =
              B::load(reinterpret_cast<const Chunk*>(from + i / chunks * 64 * size_of(S.a) + i % chunks * 16));
        }
      }
    }
  };

  /// The same as operands, in the order in which codes are widened, and what the biases of codes sum up to.
  struct Operands {
    typename B::KvOperand of[4][panels][2];  // two products of each 8 k
    Atom of_bias[panels];

    TILEWAVE_DEVICE explicit Operands(const Rows& rows) {
      constexpr std::uint32_t bias = B::template i4_negative_biases<type>;
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        of_bias[n] = {};
        TILEWAVE_UNROLL
        for (int j = 0; j < 4; ++j) {
          const Chunk k = eight(rows, n, j);
          TILEWAVE_UNROLL
          for (int p = 0; p < 2; ++p) {
            of[j][n][p][0] = B::template pick_bytes<0, 1, 4, 5>(k[2 * p], k[2 * p + 1]);
            of[j][n][p][1] = B::template pick_bytes<2, 3, 6, 7>(k[2 * p], k[2 * p + 1]);
            of_bias[n] = product(of[j][n][p], {{bias, bias, bias, bias}}, of_bias[n]);
          }
        }
      }
    }

   private:
    TILEWAVE_DEVICE static Chunk eight(const Rows& rows, int n, int j) {
      if constexpr (!is_fp8(S.a)) return rows.of[j / 2][n][j % 2];
      const Chunk& sixteen = rows.of[j / 2][n][0];
      const auto low = B::widen_fp8_to_f16(sixteen[2 * (j % 2)]), high = B::widen_fp8_to_f16(sixteen[2 * (j % 2) + 1]);
      return {{low[0], low[1], high[0], high[1]}};
    }
  };

  template <class Kv>
  TILEWAVE_DEVICE static Atom product(const Kv& kv, const typename B::RowsOperand& rows, const Atom& sum) {
    return type == DType::bf16 ? B::mma(kv, rows, sum) : B::mma_f16(kv, rows, sum);
  }

  /// `own`: where this lane's codes are.
  TILEWAVE_DEVICE static void multiply(const Operands& operands, const Stage& stage, int own, int count,
                                       Atom (&all)[strips][panels]) {
    TILEWAVE_UNROLL
    for (int s = 0; s < strips; ++s) {
      if (s >= count) continue;
      Atom sums[panels];
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) sums[n] = operands.of_bias[n];
      TILEWAVE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const Chunk& eights = stage.codes[s][j / 2][own];
        const Chunk first = B::template widen_i4_biased<type>(eights[j % 2]);
        const Chunk second = B::template widen_i4_biased<type>(eights[2 + j % 2]);
        TILEWAVE_UNROLL
        for (int p = 0; p < 2; ++p) {
          TILEWAVE_UNROLL
          for (int n = 0; n < panels; ++n) {
            sums[n] = product(operands.of[j][n][p],
                              {{first[2 * p], first[2 * p + 1], second[2 * p], second[2 * p + 1]}}, sums[n]);
          }
        }
      }
      const auto scale = tilewave::widen<B, S.group_scale(), 2>(stage.scales[s][B::lane_id() / 4]);
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        TILEWAVE_UNROLL
        for (int e = 0; e < 4; ++e) all[s][n][e] += sums[n][e] * scale[e / 2];
      }
    }
  }

  /// Elements 2 h and 2 h + 1 of lane l's atom are of column 2 (l / 4) + h of the strip, rows 2 (l % 4) and the next of
  /// the panel. Waves' sums are added up in their order.
  TILEWAVE_DEVICE static void finish(const Args& a, const GemmTile& tile, int count, const Sums& sums) {
    struct InTile {
      int row, column;
    };
    GemmArgs gemm{};  // what the epilogue reads of it
    gemm.m = a.m, gemm.n = a.n, gemm.alpha = a.alpha;
    gemm.a_scale = a.a_scale, gemm.a_scale_layer_stride = a.a_scale_layer;
    gemm.bias = a.bias, gemm.bias_layer_stride = a.bias_layer;
    gemm.residual = a.residual, gemm.residual_stride = a.residual_stride, gemm.residual_layer_stride = a.residual_layer;
    gemm.out = a.out, gemm.out_stride = a.out_stride, gemm.out_layer_stride = a.out_layer, gemm.out_scale = a.out_scale;
    const float factor = Epilogue::out_factor(gemm);
    TILEWAVE_ROLL
    for (int i = B::block_lane_id(); i < count * panels * lanes; i += block_threads) {
      const int lane = i % lanes, panel = i / lanes % panels, strip = i / lanes / panels;
      const InTile first{8 * panel + 2 * (lane % 4), 16 * strip + 2 * (lane / 4)};
      if (tile.first_row + first.row >= a.m) continue;
      Vec<float, 4> all[1]{};
      constexpr int at_once = 4;
      static_assert(waves % at_once == 0, "sums of waves are added up four at a time");
      TILEWAVE_ROLL
      for (int w = 0; w < waves; w += at_once) {
        TILEWAVE_UNROLL
        for (int i = 0; i < at_once; ++i) {
          const Atom some = sums[w + i][strip][panel][lane];
          TILEWAVE_UNROLL
          for (int e = 0; e < 4; ++e) all[0][e] += some[e];
        }
      }
      const auto at = [&](int e) TILEWAVE_INLINE_LAMBDA { return InTile{first.row + e % 2, first.column + e / 2}; };
      Epilogue::apply(gemm, a.epilogue, tile, all, at);
      TILEWAVE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const Vec<float, 2> pair{{all[0][r] * factor, all[0][2 + r] * factor}};
        const std::int32_t row = tile.first_row + first.row + r, column = tile.first_column + first.column;
        if (row >= a.m) continue;
        if constexpr (size_of(S.out) > 1) {
          if (a.wide) {
            Epilogue::store(gemm, tile, row, column, pair);
            continue;
          }
        }
        TILEWAVE_UNROLL
        for (int c = 0; c < 2; ++c) Epilogue::store(gemm, tile, row, column + c, Vec<float, 1>{{pair[c]}});
      }
    }
  }
};

}  // namespace tilewave
