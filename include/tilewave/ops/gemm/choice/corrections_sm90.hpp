// SPDX-License-Identifier: MIT
// By how much the policies of dense products on sm90 differ from the model of cost_dense_sm90.hpp: each has code of its
// own, with an order of instructions that the model does not know.
#pragma once

#include <cmath>
#include <span>

#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

namespace detail {

/// What distinguishes policies of one tile. two_blocks: an SM. clustered: blocks share B's boxes. shared_rows: those of
/// A, shared_by_four: four do.
enum class GemmForm : int {
  plain,
  swapped,
  streamed,
  pingpong,
  late,
  clustered,
  shared_rows,
  shared_by_four,
  two_blocks
};

/// A policy's time is e^exponent times the model's, and so many microseconds more, for each further split, too.
struct GemmCorrection {
  int rows, columns, waves_rows;
  GemmForm form;
  double exponent, us, us_of_split;
};

// They were fitted to docs/notebook/tuned/gemm_dense_sm90_2026-11-28.csv.gz behind the constants of the model
// (docs/notebook/2026-11-28-gemm-copies-and-choice.md), those of 16 bits and of fast sums anew to that,
// gemm_bf16_sm90_2026-11-28-3.csv.gz and gemm_dense_sm90_2026-11-28-5.csv.gz there
// (docs/notebook/2026-11-28-gemm-boxes-in-turn.md).
// clang-format off
inline constexpr GemmCorrection gemm_corrections_sixteen_bits[] = {
    {16, 64, 1, GemmForm::two_blocks, -0.034, -0.02, -0.065},
    {32, 64, 1, GemmForm::swapped, -0.016, -0.23, 0.004},
    {64, 64, 1, GemmForm::shared_by_four, -0.049, -0.31, 0.000},
    {64, 64, 1, GemmForm::shared_rows, 0.034, 0.20, 0.000},
    {64, 64, 1, GemmForm::swapped, -0.059, -0.14, -0.201},
    {64, 64, 1, GemmForm::two_blocks, -0.023, 0.71, 0.019},
    {64, 96, 1, GemmForm::clustered, 0.047, -0.19, 0.000},
    {64, 96, 1, GemmForm::plain, -0.022, -0.33, 0.000},
    {64, 96, 1, GemmForm::shared_rows, 0.048, 0.11, 0.000},
    {64, 112, 1, GemmForm::clustered, 0.101, 0.55, 0.000},
    {64, 128, 1, GemmForm::shared_rows, 0.071, 0.35, 0.000},
    {64, 128, 2, GemmForm::swapped, -0.015, -0.13, -0.213},
    {64, 160, 1, GemmForm::plain, -0.001, 0.60, -0.029},
    {64, 224, 1, GemmForm::plain, -0.021, -0.05, 0.000},
    {80, 64, 1, GemmForm::swapped, -0.032, -0.21, 0.067},
    {80, 128, 2, GemmForm::swapped, 0.005, 0.76, -0.279},
    {96, 64, 1, GemmForm::shared_by_four, 0.003, -0.51, 0.000},
    {96, 64, 1, GemmForm::swapped, 0.046, -0.58, 0.189},
    {96, 128, 2, GemmForm::swapped, -0.005, -0.08, 0.098},
    {128, 64, 1, GemmForm::swapped, 0.030, -0.01, -0.210},
    {128, 96, 2, GemmForm::shared_rows, 0.110, 1.00, 0.000},
    {128, 112, 2, GemmForm::clustered, -0.035, -0.03, 0.000},
    {128, 112, 2, GemmForm::plain, 0.040, -0.36, -0.108},
    {128, 128, 2, GemmForm::clustered, 0.020, 0.28, 0.000},
    {128, 128, 2, GemmForm::shared_rows, 0.078, -0.55, 0.000},
    {128, 128, 2, GemmForm::swapped, -0.023, 0.66, -0.169},
    {128, 144, 1, GemmForm::pingpong, 0.096, -1.60, 0.000},
    {128, 144, 2, GemmForm::late, -0.067, -0.90, 0.000},
    {128, 160, 1, GemmForm::pingpong, 0.021, -1.41, 0.000},
    {128, 176, 1, GemmForm::pingpong, -0.005, -1.74, 0.000},
    {128, 192, 1, GemmForm::pingpong, 0.004, -1.54, 0.000},
    {128, 224, 2, GemmForm::late, -0.077, 1.18, 0.000},
    {128, 240, 2, GemmForm::late, 0.019, -0.68, 0.000},
    {128, 256, 2, GemmForm::late, 0.005, -1.28, 0.000},
    {192, 112, 3, GemmForm::plain, 0.009, 0.74, -0.331},
};
inline constexpr GemmCorrection gemm_corrections_fast[] = {
    {16, 64, 1, GemmForm::swapped, -0.113, 0.26, 0.092},
    {16, 64, 1, GemmForm::two_blocks, -0.061, 0.89, 0.172},
    {32, 64, 1, GemmForm::swapped, 0.041, -1.07, -0.225},
    {32, 128, 2, GemmForm::swapped, 0.015, 0.16, -0.224},
    {64, 64, 1, GemmForm::swapped, 0.015, -1.38, -0.056},
    {64, 64, 1, GemmForm::two_blocks, 0.044, 0.90, 0.150},
    {64, 96, 1, GemmForm::plain, -0.025, 0.25, 0.000},
    {64, 128, 1, GemmForm::shared_rows, -0.023, 0.23, 0.000},
    {64, 128, 2, GemmForm::swapped, -0.064, -0.46, -0.164},
    {64, 160, 1, GemmForm::plain, -0.047, 0.88, -0.258},
    {64, 192, 1, GemmForm::pingpong, -0.105, -0.44, 0.000},
    {64, 224, 1, GemmForm::plain, -0.039, -0.27, 0.000},
    {96, 128, 2, GemmForm::swapped, -0.017, -1.33, 0.183},
    {128, 64, 1, GemmForm::swapped, -0.017, -0.20, -0.359},
    {128, 112, 2, GemmForm::plain, 0.004, -0.51, -0.051},
    {128, 128, 1, GemmForm::pingpong, -0.004, -0.10, 0.000},
    {128, 128, 2, GemmForm::plain, 0.030, -0.92, -0.362},
    {128, 128, 2, GemmForm::swapped, -0.041, 0.02, -0.358},
    {128, 144, 1, GemmForm::pingpong, -0.024, 1.10, 0.000},
    {128, 144, 2, GemmForm::late, 0.061, 0.00, 0.000},
    {128, 160, 1, GemmForm::pingpong, -0.004, -2.37, 0.000},
    {128, 176, 1, GemmForm::pingpong, -0.025, -1.42, 0.000},
    {128, 176, 2, GemmForm::late, 0.114, -0.73, 0.000},
    {128, 192, 1, GemmForm::pingpong, -0.016, -2.73, 0.000},
    {128, 224, 2, GemmForm::late, 0.149, -0.58, 0.000},
    {128, 256, 2, GemmForm::late, 0.152, 0.42, 0.000},
    {192, 128, 3, GemmForm::plain, 0.102, -2.88, 0.000},
};
inline constexpr GemmCorrection gemm_corrections_promoted[] = {
    {16, 64, 1, GemmForm::swapped, 0.032, -0.43, -0.029},
    {16, 64, 1, GemmForm::two_blocks, 0.012, -0.48, -0.000},
    {32, 64, 1, GemmForm::swapped, -0.008, -0.48, 0.006},
    {64, 64, 1, GemmForm::swapped, 0.027, -0.51, -0.038},
    {64, 128, 2, GemmForm::swapped, 0.034, -0.50, -0.019},
    {128, 128, 2, GemmForm::plain, -0.019, -0.00, -0.001},
    {128, 128, 2, GemmForm::streamed, -0.016, 0.00, -0.000},
    {128, 128, 2, GemmForm::swapped, 0.038, -0.46, -0.001},
    {128, 256, 2, GemmForm::plain, -0.043, 0.01, 0.000},
    {128, 256, 2, GemmForm::clustered, 0.018, 0.01, -0.000},
    {192, 128, 3, GemmForm::plain, -0.024, -0.04, -0.000},
};
inline constexpr GemmCorrection gemm_corrections_blocks[] = {
    {16, 64, 1, GemmForm::swapped, -0.014, -0.46, 0.053},
    {32, 64, 1, GemmForm::swapped, 0.031, -0.52, -0.065},
    {64, 64, 1, GemmForm::swapped, 0.003, -0.46, -0.000},
    {64, 128, 2, GemmForm::swapped, -0.001, -0.50, 0.004},
    {128, 128, 2, GemmForm::plain, 0.004, -0.03, -0.017},
    {128, 256, 2, GemmForm::plain, 0.005, 0.02, 0.000},
    {192, 128, 3, GemmForm::plain, -0.004, -0.00, 0.000},
};
// clang-format on

constexpr GemmForm gemm_form(const GemmPolicy& p) {
  if (p.waves_per_simd > 1) return GemmForm::two_blocks;
  if (p.cluster > 1) return GemmForm::clustered;
  if (p.cluster_columns > 1) return p.cluster_columns > 2 ? GemmForm::shared_by_four : GemmForm::shared_rows;
  if (p.stream) return GemmForm::streamed;
  if (p.pingpong) return GemmForm::pingpong;
  if (p.late) return GemmForm::late;
  return p.swapped ? GemmForm::swapped : GemmForm::plain;
}

}  // namespace detail

/// The corrections of a spec's policies.
constexpr std::span<const detail::GemmCorrection> gemm_corrections(const GemmSpec& s) {
  if (size_of(s.a) > 1) return detail::gemm_corrections_sixteen_bits;
  if (s.scale == Scaling::per_block) return detail::gemm_corrections_blocks;
  if (s.has_sums_to_choose() && s.sums == GemmSums::promoted) return detail::gemm_corrections_promoted;
  return detail::gemm_corrections_fast;
}

/// Returns the modelled time `us` of a dense product with the correction of its policy, where it has one.
inline double gemm_corrected_us(const GemmSpec& s, const GemmPolicy& p, int splits, double us) {
  for (const detail::GemmCorrection& c : gemm_corrections(s)) {
    if (c.rows != p.rows || c.columns != p.columns || c.waves_rows != p.waves_rows || c.form != detail::gemm_form(p))
      continue;
    return us * std::exp(c.exponent) + c.us + c.us_of_split * (splits - 1);
  }
  return us;
}

}  // namespace tilewave
