// SPDX-License-Identifier: MIT
// GEMM with int4 weights and few rows of A on sm90, or any room with products of one wave and copies of one lane. Grid:
// so many blocks for each tile of P.rows rows, each with a share of the strips of sixteen columns that is equal give or
// take one. A block takes its strips in passes of P.columns / 16. All of its waves share K: wave w has stages w, w +
// waves and so on, of 128 k each, so that what the chip reads at a time lies close together.
//
// A wave copies what it will read itself. So no wave waits for another, and no tensor map has to be read before the
// first bytes are. Copies run on past the end of a pass. There the waves merge their sums through shared memory. LDS
// plan: a ring of P.stages stages for each wave, and the sums of one pass or two. Bound: memory bandwidth of B.
#pragma once

#include "tilewave/ops/gemm/epilogue.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"

namespace tilewave {

/// The order of K is free, as long as both operands agree on it. In a stage, lane l has two runs of sixteen k, from 16
/// (l % 4) and from 16 (4 + l % 4) on. Its rows of a strip are 2 (l / 4) and the next one. These are 16 bytes each, and
/// it uses all of them. A shift and one more operation make two values of eight codes, all too large by the same bias.
/// One more product with A gives what the biases add up to, and the sums of all strips of a stage begin with its
/// negative.
template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue = GemmIdentity>
struct GemmFewRowsKernel {
  static_assert(gemm_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: gemm_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  using Epilogue = GemmEpilogue<B, S, UserEpilogue>;
  using Atom = typename B::Accumulator;
  using Scales = Packed<S.group_scale(), 2>;  // of a lane's two rows of a strip
  static constexpr int lanes = B::facts.wave_lanes, waves = P.waves_k, groups = P.waves_columns;  // waves: of a group
  static constexpr int block_threads = groups * waves * lanes, waves_per_simd = groups * waves / B::facts.simds_per_cu;
  static constexpr int stage_k = 128, strip_bytes = stage_k * 8;  // strip_bytes: of a strip in a stage
  static constexpr int pass_strips = P.columns / 16, strips = pass_strips / groups;  // strips: of a group in a pass
  static constexpr int panels = P.rows / 8;                                          // of 8 rows of A
  static constexpr DType type = is_fp8(S.a) ? DType::f16 : S.a;  // of the products; f16 holds every fp8 value

  struct Stage {
    Chunk codes[strips][2][lanes];
    Scales scales[strips][8];
  };
  using Sums = Atom[groups][waves][strips][panels][lanes];
  static constexpr int ring_bytes = groups * waves * P.stages * sizeof(Stage);
  static constexpr int sum_buffers = 2 * sizeof(Sums) + ring_bytes <= B::facts.lds_bytes ? 2 : 1;
  /// Blocks that share K send each other sums by mailboxes. In a panel, lane l has rows 2 (l % 4) and the next one, and
  /// block l % 4 % splits writes them: [blocks][strips x panels of a pass][8 lanes][most of four such lanes].
  struct Landing {
    Mailbox box;
    Atom sums[pass_strips * panels * 8 * (P.splits > 2 ? 6 : 4)];  // three blocks: 3 x 2
  };
  struct NoLanding {};
  struct Shared {
    Sums sums[sum_buffers];
    Stage ring[groups * waves][P.stages];
    [[no_unique_address]] std::conditional_t<(P.splits > 1), Landing, NoLanding> landing;
  };
  /// At most 176 bytes come with a launch. A block would read what goes beyond from memory
  /// (docs/notebook/2026-11-22-decode.md).
  struct Args {
    const char *codes, *a, *scales;
    void* out;
    const float* a_scale;
    const void *bias, *residual;
    float* out_scale;
    std::int32_t m, n, stages;  // stages: of K
    // All blocks have full_passes passes. What is left is one more pass, of strips_per_block strips, or one more.
    std::int32_t full_passes, strips_per_block, blocks_with_one_more;
    FastDiv blocks;       // of a tile of rows
    FastDiv row_tiles;    // of a layer
    std::int32_t splits;  // blocks of a cluster, which share the K of one pass
    float alpha;
    bool wide;  // out's rows are such that two neighbours are stored at once
    // Strides in elements, but a_stride and a_layer in units of 16 bytes, and code_layer in strips.
    std::int32_t a_stride, scale_stride, out_stride, residual_stride;
    std::int32_t code_layer, a_layer, scale_layer, out_layer, residual_layer, bias_layer, a_scale_layer;
    [[no_unique_address]] UserEpilogue epilogue;
  };
  static_assert(!std::is_empty_v<UserEpilogue> || sizeof(Args) <= 176, "arguments beyond 176 bytes come from memory");

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const bool clustered = P.splits > 1 && a.splits > 1;
    const std::int32_t of_all = clustered ? B::block_id() / a.splits : B::block_id();
    const std::int32_t row_tile = a.blocks.quotient(of_all);
    const std::int32_t block = of_all - row_tile * a.blocks.divisor;  // of the tile of rows
    GemmTile tile{};
    tile.layer = a.row_tiles.quotient(row_tile);
    tile.a_layer = tile.layer;
    tile.first_row = (row_tile - tile.layer * a.row_tiles.divisor) * P.rows;
    tile.row_end = a.m;
    const Passes passes(a, block);
    const int wave_of_block = B::wave_id(), wave = wave_of_block % waves, group = wave_of_block / waves;
    const int rank = clustered ? B::cluster_rank() : 0;
    const int first_stage = rank * waves + wave, next_stage = clustered ? a.splits * waves : waves;
    if constexpr (P.splits > 1) {
      if (clustered) B::template open<1>(&shared.landing.box);
    }

    Copies copies(a, tile, passes, first_stage, next_stage, group);
    Rows rows(a, tile);
    if (a.stages > 0) rows.load(a, first_stage);
    TILEWAVE_ROLL
    for (int i = 0; i < P.stages; ++i) copies.next(a, shared.ring[wave_of_block][i]);
    const int read_unit = B::opaque(slot_unit(B::lane_id() % 4, B::lane_id() / 4));
    std::int32_t stage_of_k = first_stage;
    int slot = 0, buffer = 0;
    for (std::int32_t pass = 0; pass < passes.count(a); ++pass) {
      Atom sums[strips][panels];
      TILEWAVE_UNROLL
      for (int i = 0; i < strips * panels; ++i) sums[i / panels][i % panels] = {};
      const int strips_of_block = passes.strips_of(a, pass), count = strips_of_group(strips_of_block, group);
      TILEWAVE_ROLL
      for (; stage_of_k < a.stages; stage_of_k += next_stage) {
        const Operands operands(rows);
        rows.load(a, stage_of_k + next_stage);
        Stage& stage = shared.ring[wave_of_block][slot];
        B::template lane_copies_wait<P.stages - 1>();
        B::wave_barrier();
        if (count == strips) {
          multiply<strips>(operands, stage, read_unit, count, sums);
        } else if (groups > 1 && count == strips - 1) {
          multiply<max_of(strips - 1, 1)>(operands, stage, read_unit, count, sums);
        } else {
          multiply<0>(operands, stage, read_unit, count, sums);
        }
        B::wave_barrier();
        copies.next(a, stage);
        slot = slot + 1 == P.stages ? 0 : slot + 1;
      }
      stage_of_k -= a.stages;
      if (sum_buffers == 1 && pass > 0) B::barrier();
      TILEWAVE_UNROLL
      for (int s = 0; s < strips; ++s) {
        TILEWAVE_UNROLL
        for (int n = 0; n < panels; ++n)
          if (s < count) shared.sums[buffer][group][wave][s][n][B::lane_id()] = sums[s][n];
      }
      B::barrier();
      tile.first_column = 16 * passes.first_of(a, pass);
      finish(a, tile, strips_of_block, rank, shared, shared.sums[buffer]);
      if (sum_buffers == 2) buffer ^= 1;
    }
    B::template lane_copies_wait<0>();
  }

 private:
  /// Returns where the unit of sixteen k number `line` of rows 2 `unit` and 2 `unit` + 1 of a strip lies in a stage.
  /// Lanes copy units of 16 bytes in memory's order, since a request would otherwise become four. Lanes that read at a
  /// time, four lines of two units, meet each bank once.
  TILEWAVE_DEVICE static int slot_unit(int line, int unit) { return 8 * line + (unit ^ 2 * line); }

  /// Of the strips of a block in a pass, groups have equally many, give or take one.
  TILEWAVE_DEVICE static int first_of_group(int strips_of_block, int group) { return strips_of_block * group / groups; }
  TILEWAVE_DEVICE static int strips_of_group(int strips_of_block, int group) {
    return first_of_group(strips_of_block, group + 1) - first_of_group(strips_of_block, group);
  }

  /// The strips of a block. In each pass they follow those of the block before, so that all blocks read close together.
  struct Passes {
    std::int32_t block, last_strips;  // last_strips: of the pass behind the full ones

    TILEWAVE_DEVICE Passes(const Args& a, std::int32_t own_block)
        : block(own_block), last_strips(a.strips_per_block + (own_block < a.blocks_with_one_more ? 1 : 0)) {}
    TILEWAVE_DEVICE std::int32_t count(const Args& a) const { return a.full_passes + (last_strips > 0 ? 1 : 0); }
    TILEWAVE_DEVICE std::int32_t first_of(const Args& a, std::int32_t pass) const {
      if (pass < a.full_passes) return (pass * a.blocks.divisor + block) * pass_strips;
      return a.full_passes * a.blocks.divisor * pass_strips + block * a.strips_per_block +
             min_of(block, a.blocks_with_one_more);
    }
    TILEWAVE_DEVICE std::int32_t strips_of(const Args& a, std::int32_t pass) const {
      return pass < a.full_passes ? pass_strips : pass == a.full_passes ? last_strips : 0;
    }
  };

  /// Copies a wave's stages of all passes, in order.
  class Copies {
   public:
    TILEWAVE_DEVICE Copies(const Args& a, const GemmTile& tile, const Passes& passes, int first_stage, int next_stage,
                           int group)
        : passes_(passes),
          stage_(first_stage),
          next_stage_(P.splits > 1 ? next_stage : waves),
          group_(group),
          strip_stride_(std::int64_t{a.stages} * strip_bytes) {
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
        const char* from = codes_;
        TILEWAVE_UNROLL
        for (int s = 0; s < strips; ++s) {
          if (s >= count_) continue;
          TILEWAVE_UNROLL
          for (int i = 0; i < 2; ++i)
            B::copy_lane(&to.codes[s][i][target_], reinterpret_cast<const Chunk*>(from + i * 512));
          from += strip_stride_;
        }
        const auto* const scales = reinterpret_cast<const Scales*>(scales_);
        TILEWAVE_UNROLL
        for (int i = 0; i < 8 * strips; i += lanes) {
          const int pair = i + B::lane_id();
          if (pair < 8 * count_) B::copy_lane(&to.scales[pair / 8][pair % 8], scales + i);
        }
      }
      B::lane_copies_end();
      stage_ += next_stage_;
      codes_ += next_stage_ * strip_bytes;
      scales_ += std::int64_t{2 * next_stage_} * a.scale_stride;
    }

   private:
    TILEWAVE_DEVICE void begin_pass(const Args& a) {
      const int of_block = passes_.strips_of(a, pass_);
      const std::int64_t strip = passes_.first_of(a, pass_) + first_of_group(of_block, group_);
      count_ = a.stages > 0 ? strips_of_group(of_block, group_) : 0;
      codes_ = B::opaque(first_ + strip * strip_stride_ + std::int64_t{stage_} * strip_bytes);
      scales_ = B::opaque(first_scales_ + strip * 32 + std::int64_t{stage_} * a.scale_stride * 2);
    }

    const Passes& passes_;
    std::int32_t pass_ = 0, stage_;  // stage_: of the pass
    int next_stage_, group_;
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
  };

  /// The same rows as operands, in the order in which codes are widened, and the negative sum of the codes' biases.
  struct Operands {
    typename B::KvOperand values[4][panels][2];  // two products for each 8 k
    Atom bias_sums[panels];

    TILEWAVE_DEVICE explicit Operands(const Rows& rows) {
      constexpr std::uint32_t bias = B::template i4_negative_biases<type>;
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        bias_sums[n] = {};
        TILEWAVE_UNROLL
        for (int j = 0; j < 4; ++j) {
          const Chunk k = eight_k(rows, n, j);
          TILEWAVE_UNROLL
          for (int p = 0; p < 2; ++p) {
            values[j][n][p][0] = B::template pick_bytes<0, 1, 4, 5>(k[2 * p], k[2 * p + 1]);
            values[j][n][p][1] = B::template pick_bytes<2, 3, 6, 7>(k[2 * p], k[2 * p + 1]);
            bias_sums[n] = product(values[j][n][p], {{bias, bias, bias, bias}}, bias_sums[n]);
          }
        }
      }
    }

   private:
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

  /// Adds the products of `count` strips of a stage. Those of a full pass have no branches between them, so that ptxas
  /// mixes them: a strip by itself is a chain of eight products. `read_unit`: the unit of a strip that has this lane's
  /// codes.
  template <int all>
  TILEWAVE_DEVICE static void multiply(const Operands& operands, const Stage& stage, int read_unit, int count,
                                       Atom (&sums)[strips][panels]) {
    TILEWAVE_UNROLL
    for (int s = 0; s < (all > 0 ? all : strips); ++s) {
      if (all == 0 && s >= count) continue;
      Atom stage_sums[panels];
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) stage_sums[n] = operands.bias_sums[n];
      TILEWAVE_UNROLL
      for (int j = 0; j < 4; ++j) {
        const Chunk& codes = stage.codes[s][j / 2][read_unit];
        const Chunk first = B::template widen_i4_biased<type>(codes[j % 2]);
        const Chunk second = B::template widen_i4_biased<type>(codes[2 + j % 2]);
        TILEWAVE_UNROLL
        for (int p = 0; p < 2; ++p) {
          TILEWAVE_UNROLL
          for (int n = 0; n < panels; ++n) {
            stage_sums[n] =
                product(operands.values[j][n][p], {{first[2 * p], first[2 * p + 1], second[2 * p], second[2 * p + 1]}},
                        stage_sums[n]);
          }
        }
      }
      const auto scale = tilewave::widen<B, S.group_scale(), 2>(stage.scales[s][B::lane_id() / 4]);
      TILEWAVE_UNROLL
      for (int n = 0; n < panels; ++n) {
        TILEWAVE_UNROLL
        for (int e = 0; e < 4; ++e) sums[s][n][e] += stage_sums[n][e] * scale[e / 2];
      }
    }
  }

  struct InTile {
    int row, column;
  };
  /// Adds up the sums of all waves in the order of the waves, then those of blocks in the order of blocks, and writes
  /// them. Elements 2 h and 2 h + 1 of lane l's atom have column 2 (l / 4) + h of the strip. Their rows of the panel are
  /// 2 (l % 4) and the next one.
  TILEWAVE_DEVICE static void finish(const Args& a, const GemmTile& tile, int count, int rank, Shared& shared,
                                     const Sums& sums) {
    GemmArgs gemm{};  // with what the epilogue reads
    gemm.m = a.m, gemm.n = a.n, gemm.alpha = a.alpha;
    gemm.a_scale = a.a_scale, gemm.a_scale_layer_stride = a.a_scale_layer;
    gemm.bias = a.bias, gemm.bias_layer_stride = a.bias_layer;
    gemm.residual = a.residual, gemm.residual_stride = a.residual_stride, gemm.residual_layer_stride = a.residual_layer;
    gemm.out = a.out, gemm.out_stride = a.out_stride, gemm.out_layer_stride = a.out_layer, gemm.out_scale = a.out_scale;
    const float factor = Epilogue::out_factor(gemm);
    const int items = count * panels * lanes;
    if constexpr (P.splits > 1) {
      if (a.splits > 1) {
        const auto landing = [&](int i, int from) TILEWAVE_INLINE_LAMBDA {
          const int most = ceil_div(4, a.splits);  // of four lanes that a block writes for
          return shared.landing.sums + ((from * count * panels + i / lanes) * 8 + i % lanes / 4) * most +
                 i % 4 / a.splits;
        };
        B::cluster_wait();  // the other blocks have opened their boxes
        TILEWAVE_ROLL
        for (int i = B::block_lane_id(); i < items; i += block_threads) {
          const Vec<float, 4> own = sum_of_waves(i, count, sums);
          const int owner = i % 4 % a.splits;
          if (owner == rank) {
            *reinterpret_cast<Vec<float, 4>*>(landing(i, rank)) = own;
          } else {
            B::post(shared.landing.box, reinterpret_cast<Vec<float, 4>*>(landing(i, rank)), owner, own);
          }
        }
        const int lanes_of_four = ceil_div(4 - rank, a.splits);
        B::collect(shared.landing.box, (a.splits - 1) * count * panels * 8 * lanes_of_four * 4, 0);
        TILEWAVE_ROLL
        for (int i = B::block_lane_id(); i < items; i += block_threads) {
          if (i % 4 % a.splits != rank) continue;
          Vec<float, 4> merged{};
          TILEWAVE_ROLL
          for (int from = 0; from < a.splits; ++from) {
            const auto part = *reinterpret_cast<const Vec<float, 4>*>(landing(i, from));
            TILEWAVE_UNROLL
            for (int e = 0; e < 4; ++e) merged[e] += part[e];
          }
          write(a, gemm, tile, i, factor, merged);
        }
        return;
      }
    }
    TILEWAVE_ROLL
    for (int i = B::block_lane_id(); i < items; i += block_threads) {
      if (tile.first_row + row_of(i) >= a.m) continue;
      write(a, gemm, tile, i, factor, sum_of_waves(i, count, sums));
    }
  }
  /// The first of the two rows of item i: lane i % lanes of panel i / lanes % panels, then strips.
  TILEWAVE_DEVICE static int row_of(int i) { return 8 * (i / lanes % panels) + 2 * (i % 4); }
  TILEWAVE_DEVICE static Vec<float, 4> sum_of_waves(int i, int count, const Sums& sums) {
    const int lane = i % lanes, panel = i / lanes % panels, strip = i / lanes / panels;
    const int group = groups == 1 ? 0 : ((strip + 1) * groups - 1) / count,
              of_group = strip - first_of_group(count, group);
    constexpr int at_once = waves % 4 == 0 ? 4 : 3;
    static_assert(waves % at_once == 0, "sums of waves are added up three or four at a time");
    Vec<float, 4> merged{};
    TILEWAVE_ROLL
    for (int w = 0; w < waves; w += at_once) {
      TILEWAVE_UNROLL
      for (int i = 0; i < at_once; ++i) {
        const Atom wave_sums = sums[group][w + i][of_group][panel][lane];
        TILEWAVE_UNROLL
        for (int e = 0; e < 4; ++e) merged[e] += wave_sums[e];
      }
    }
    return merged;
  }
  TILEWAVE_DEVICE static void write(const Args& a, const GemmArgs& gemm, const GemmTile& tile, int i, float factor,
                                    const Vec<float, 4>& merged) {
    const InTile first{row_of(i), 16 * (i / lanes / panels) + 2 * (i % lanes / 4)};
    Vec<float, 4> values[1]{merged};
    const auto at = [&](int e) TILEWAVE_INLINE_LAMBDA { return InTile{first.row + e % 2, first.column + e / 2}; };
    Epilogue::apply(gemm, a.epilogue, tile, values, at);
    TILEWAVE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const Vec<float, 2> pair{{values[0][r] * factor, values[0][2 + r] * factor}};
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
};

}  // namespace tilewave
