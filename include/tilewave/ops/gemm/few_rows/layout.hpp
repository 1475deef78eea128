// SPDX-License-Identifier: MIT
// The layout of GemmFewRowsKernel: shared memory, arguments, and which strips of B each block and wave has.
#pragma once

#include "tilewave/ops/gemm/epilogue.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmFewRowsLayout {
  static_assert(gemm_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: gemm_policy_status(arch, spec, policy).reason says which");
  using Backend = B;
  using Atom = typename B::Accumulator;
  using Scales = Packed<S.group_scale(), 2>;  // of a lane's two rows of a strip
  static constexpr int lanes = B::facts.wave_lanes, waves = P.waves_k, groups = P.waves_columns;  // waves: of a group
  static constexpr int block_threads = groups * waves * lanes;
  static constexpr int stage_k = 128, strip_bytes = stage_k * 8;           // strip_bytes: of a strip in a stage
  static constexpr int halves = GemmEpilogue<B, S, UserEpilogue>::halves;  // gated: gates, and their ups
  static constexpr int strips = P.columns / 16 / groups;                   // of B, of a group in a pass
  static constexpr int group_strips = strips / halves, out_strips = groups * group_strips;  // of C: of a group, of all
  static constexpr int panels = P.rows / 8;                                                 // of 8 rows of A
  static constexpr bool whole_strips = true;                                                // of C
  static constexpr int sums_at_once = waves % 4 == 0 ? 4 : 3;                               // of waves

  struct StageZeros {
    alignas(4) Packed<DType::i8, 2> zeros[strips][8];  // of a lane's two rows of a strip
  };
  struct NoZeros {};
  struct Stage : std::conditional_t<S.zero_points, StageZeros, NoZeros> {
    Chunk codes[strips][2][lanes];
    Scales scales[strips][8];
  };
  using Sums = Atom[groups][waves][strips][panels][lanes];
  static constexpr int shared_bytes = (B::facts.lds_bytes + 1024) / P.waves_per_simd - 1024;  // of a block
  static constexpr int ring_bytes = groups * waves * P.stages * sizeof(Stage);
  static constexpr int sum_buffers = 2 * sizeof(Sums) + ring_bytes <= shared_bytes ? 2 : 1;
  struct Shared {
    Sums sums[sum_buffers];
    Stage ring[groups * waves][P.stages];
  };
  /// At most 176 bytes come with a launch. A block would read what goes beyond from memory
  /// (docs/notebook/2026-11-22-decode.md).
  struct Args {
    const char *codes, *a, *scales;
    void* out;
    const void* a_scale_or_zeros;  // fp8: the scales of A's rows; else B's zero points, if it has some
    const void *bias, *residual;
    float* out_scale;
    std::int32_t m, n, stages;  // n: columns of C; stages: of K
    // All blocks have full_passes passes. What is left is one more pass, of strips_per_block strips, or one more.
    std::int32_t full_passes, strips_per_block, blocks_with_one_more;
    FastDiv blocks;     // of a tile of rows
    FastDiv row_tiles;  // of a layer
    float alpha, swiglu_alpha, swiglu_limit;
    bool wide;     // out's rows are such that two neighbours are stored at once
    bool b_ready;  // codes and scales may be read before the kernel in front is over
    // Strides in elements, but a_stride and a_layer in units of 16 bytes, and code_layer in strips.
    std::int32_t a_stride, scale_stride, out_stride, residual_stride;
    std::int32_t code_layer, a_layer, scale_layer, out_layer, residual_layer, bias_layer, a_scale_layer;
    [[no_unique_address]] UserEpilogue epilogue;
  };
  static_assert(!std::is_empty_v<UserEpilogue> || sizeof(Args) <= 176, "arguments beyond 176 bytes come from memory");

  /// Returns what the epilogue reads.
  TILEWAVE_DEVICE static GemmArgs epilogue_args(const Args& a) {
    GemmArgs gemm{};
    gemm.m = a.m, gemm.n = a.n, gemm.gate_stride = 1, gemm.up_row = a.n;
    gemm.alpha = a.alpha, gemm.swiglu_alpha = a.swiglu_alpha, gemm.swiglu_limit = a.swiglu_limit;
    gemm.a_scale = static_cast<const float*>(is_fp8(S.a) ? a.a_scale_or_zeros : nullptr);
    gemm.a_scale_layer_stride = a.a_scale_layer;
    gemm.bias = a.bias, gemm.bias_layer_stride = a.bias_layer;
    gemm.residual = a.residual, gemm.residual_stride = a.residual_stride, gemm.residual_layer_stride = a.residual_layer;
    gemm.out = a.out, gemm.out_stride = a.out_stride, gemm.out_layer_stride = a.out_layer, gemm.out_scale = a.out_scale;
    return gemm;
  }
  /// The first strip of a group of waves among those of its block in a pass. All groups have equally many, give or take
  /// one.
  TILEWAVE_DEVICE static int first_of_group(int strips_of_block, int group) { return strips_of_block * group / groups; }
  TILEWAVE_DEVICE static int strips_of_group(int strips_of_block, int group) {
    return first_of_group(strips_of_block, group + 1) - first_of_group(strips_of_block, group);
  }

  /// The strips of C of a block. In each pass they follow those of the block before, so all blocks read close together.
  struct Passes {
    std::int32_t block, last_strips;  // last_strips: of the pass behind the full ones

    TILEWAVE_DEVICE Passes(const Args& a, std::int32_t own_block)
        : block(own_block), last_strips(a.strips_per_block + (own_block < a.blocks_with_one_more ? 1 : 0)) {}
    TILEWAVE_DEVICE std::int32_t count(const Args& a) const { return a.full_passes + (last_strips > 0 ? 1 : 0); }
    TILEWAVE_DEVICE std::int32_t first_of(const Args& a, std::int32_t pass) const {
      if (pass < a.full_passes) return (pass * a.blocks.divisor + block) * out_strips;
      return a.full_passes * a.blocks.divisor * out_strips + block * a.strips_per_block +
             min_of(block, a.blocks_with_one_more);
    }
    TILEWAVE_DEVICE std::int32_t strips_of(const Args& a, std::int32_t pass) const {
      return pass < a.full_passes ? out_strips : pass == a.full_passes ? last_strips : 0;
    }
  };
};

}  // namespace tilewave
