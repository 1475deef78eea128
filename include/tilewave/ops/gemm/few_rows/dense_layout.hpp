// SPDX-License-Identifier: MIT
// The layout of GemmDenseFewRowsKernel: shared memory, arguments, and which columns of C each block has.
#pragma once

#include "tilewave/ops/gemm/epilogue.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class UserEpilogue>
struct GemmDenseFewRowsLayout {
  static_assert(gemm_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: gemm_policy_status(arch, spec, policy).reason says which");
  using Backend = B;
  using Atom = typename B::Accumulator;
  static constexpr int lanes = B::facts.wave_lanes, waves = P.waves_k, groups = 1, block_threads = waves * lanes;
  static constexpr int halves = GemmEpilogue<B, S, UserEpilogue>::halves;  // gated: gates, and their ups
  static constexpr int strips = P.columns / 16,
                       group_strips = strips / halves;         // of sixteen rows of B; of columns of C
  static constexpr int panels = P.rows / 8;                    // of 8 rows of A
  static constexpr bool whole_strips = false;                  // C may end within a strip
  static constexpr int sums_at_once = waves % 8 == 0 ? 8 : 4;  // of waves
  static constexpr int step_k = P.depth_bytes / size_of(S.a), units = P.depth_bytes / 16;  // units: of 16 bytes of k

  using Sums = Atom[groups][waves][strips][panels][lanes];
  struct Shared {
    Sums sums;
  };
  /// At most 176 bytes come with a launch. A block would read what goes beyond from memory
  /// (docs/notebook/2026-11-22-decode.md).
  struct Args {
    const char *b, *a;
    void* out;
    const float *a_scale, *b_scale;
    const void *bias, *residual;
    float* out_scale;
    std::int32_t m, n, k;  // n: columns of C
    FastDiv blocks;        // of a tile of rows
    FastDiv row_tiles;     // of a layer
    float alpha, swiglu_alpha, swiglu_limit;
    bool wide;     // out's rows are such that two neighbours are stored at once
    bool b_ready;  // B may be read before the kernel in front is over
    // Strides in elements, but those of a and b in units of 16 bytes.
    std::int32_t a_stride, b_stride, out_stride, residual_stride;
    std::int32_t a_layer, b_layer, out_layer, residual_layer, bias_layer, a_scale_layer, b_scale_layer;
    std::int32_t gate_stride, up_row;
    [[no_unique_address]] UserEpilogue epilogue;
  };
  static_assert(!std::is_empty_v<UserEpilogue> || sizeof(Args) <= 176, "arguments beyond 176 bytes come from memory");

  /// Returns what the epilogue reads.
  TILEWAVE_DEVICE static GemmArgs epilogue_args(const Args& a) {
    GemmArgs gemm{};
    gemm.m = a.m, gemm.n = a.n, gemm.gate_stride = a.gate_stride, gemm.up_row = a.up_row;
    gemm.alpha = a.alpha, gemm.swiglu_alpha = a.swiglu_alpha, gemm.swiglu_limit = a.swiglu_limit;
    gemm.a_scale = a.a_scale, gemm.a_scale_layer_stride = a.a_scale_layer;
    gemm.b_scale = a.b_scale, gemm.b_scale_layer_stride = a.b_scale_layer;
    gemm.bias = a.bias, gemm.bias_layer_stride = a.bias_layer;
    gemm.residual = a.residual, gemm.residual_stride = a.residual_stride, gemm.residual_layer_stride = a.residual_layer;
    gemm.out = a.out, gemm.out_stride = a.out_stride, gemm.out_layer_stride = a.out_layer, gemm.out_scale = a.out_scale;
    return gemm;
  }
  /// Strips follow one another: all belong to one group of waves.
  TILEWAVE_DEVICE static int first_of_group(int, int) { return 0; }
};

}  // namespace tilewave
