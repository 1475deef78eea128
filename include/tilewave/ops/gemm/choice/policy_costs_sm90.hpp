// SPDX-License-Identifier: MIT
// The constants of gemm_cost_dense_sm90: what policies of dense products take on an H200. Each has code of its own, with
// an order of instructions that no formula knows.
#pragma once

#include <span>

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

/// What all policies of a kind of operands have in common.
struct GemmDenseCost {
  double memory;  // TB/s
  // TB/s from L2 to all blocks: whose neighbours in number read the same columns of B, that share K, that share boxes of
  // rows of A by two, of columns of B, and of rows by four.
  double l2, l2_split, l2_rows, l2_columns, l2_rows_by_four;
  // So much of A's bytes leave L2 where many blocks read them, up to so many columns of tiles all, and of B's where one
  // block reads them. a_once: where tiles have one column.
  double a_again, a_readers, a_once, b_once;
  double a_memory;      // more of A that comes from memory where blocks far from each other read it
  double turns;         // what a second block of an SM adds to the time of one
  double brought;       // KB a microsecond that an SM is brought
  double late_stage;    // microseconds of each stage below six, in which values leave late
  double second_round;  // microseconds of the first further round
  double merge_rows;    // microseconds less for rows of 128 x 256 that are not there
  double by_three, by_five, by_six, by_seven;  // microseconds more of splits that are no power of two
  double absent;                               // microseconds of 10^4 rows of boxes that are not there
};

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
  two_blocks,
  few_rows
};

/// Microseconds of a policy: once for each launch, for a stage of K, for each further tile of a block, for a merge of
/// blocks that share K, and for each of these blocks but the first. `memory`: its part of GemmDenseCost::memory.
/// Of few rows `waves_rows` is the blocks of an SM, `merge` is for eight rows, and `split` an SM's bandwidth.
struct GemmPolicyCost {
  int rows, columns, waves_rows;
  GemmForm form;
  double start, stage, tile, merge, split, memory;
};

// clang-format off
inline constexpr GemmDenseCost gemm_dense_cost_sixteen_bits{.memory = 4.583, .l2 = 19.54, .l2_split = 9.541, .l2_rows = 15.31, .l2_columns = 9.686, .l2_rows_by_four = 7.453, .a_again = 0.7096, .a_readers = 4.448, .a_once = 0.7172, .b_once = 0.8311, .a_memory = 0.6699, .turns = 0.1325, .brought = 202.1, .late_stage = 0.3444, .second_round = 0.6724, .merge_rows = 2.789, .by_three = 0.02108, .by_five = 0.02057, .by_six = 0.02141, .by_seven = 0.07415, .absent = 0.18};
inline constexpr GemmPolicyCost gemm_policy_costs_sixteen_bits[] = {
    {8, 16, 1, GemmForm::few_rows, 3.33, 0.2934, 1.48, 0.56, 0.112, 1.273},
    {8, 16, 2, GemmForm::few_rows, 3.76, 0.2352, 0.84, 0.28, -0.289, 0.989},
    {8, 16, 4, GemmForm::few_rows, 3.98, 0.4245, 0.70, -0.08, -0.366, 0.961},
    {16, 64, 1, GemmForm::two_blocks, 7.35, 0.1484, 0.08, 0.38, -0.142, 0.965},
    {32, 64, 1, GemmForm::swapped, 7.10, 0.1379, 0.90, 0.84, -0.125, 0.985},
    {64, 64, 1, GemmForm::shared_by_four, 5.93, 0.1244, 2.13, 1.30, 0.000, 0.954},
    {64, 64, 1, GemmForm::shared_rows, 6.27, 0.1567, 0.43, 1.30, 0.000, 0.981},
    {64, 64, 1, GemmForm::swapped, 8.46, 0.1417, 1.01, 0.81, -0.240, 0.989},
    {64, 64, 1, GemmForm::two_blocks, 7.19, 0.1959, 0.20, 1.30, 0.000, 0.979},
    {64, 96, 1, GemmForm::clustered, 6.59, 0.1428, 0.36, 1.55, 0.000, 1.051},
    {64, 96, 1, GemmForm::plain, 6.23, 0.1270, 0.73, 1.55, 0.000, 0.958},
    {64, 96, 1, GemmForm::shared_rows, 6.80, 0.1574, 0.27, 1.55, 0.000, 0.992},
    {64, 112, 1, GemmForm::clustered, 6.91, 0.1400, 0.55, 1.68, 0.000, 0.986},
    {64, 128, 1, GemmForm::shared_rows, 6.64, 0.1755, 0.29, 1.80, 0.000, 0.969},
    {64, 128, 2, GemmForm::swapped, 6.22, 0.1683, 0.00, 1.29, 0.009, 0.956},
    {64, 160, 1, GemmForm::plain, 7.33, 0.1778, 0.85, 1.95, -0.357, 0.962},
    {64, 224, 1, GemmForm::plain, 7.77, 0.2587, 0.76, 2.55, 0.000, 0.952},
    {80, 64, 1, GemmForm::swapped, 6.25, 0.1187, 0.57, 1.19, 0.001, 0.947},
    {80, 128, 2, GemmForm::swapped, 6.87, 0.1918, 0.66, 1.24, 0.005, 0.968},
    {96, 64, 1, GemmForm::shared_by_four, 6.08, 0.1303, 3.47, 1.55, 0.000, 0.996},
    {96, 64, 1, GemmForm::swapped, 6.25, 0.1316, 0.47, 1.38, -0.036, 0.942},
    {96, 128, 2, GemmForm::swapped, 7.03, 0.2283, 0.73, 1.38, 0.020, 0.970},
    {128, 64, 1, GemmForm::swapped, 6.76, 0.1662, 0.77, 1.45, -0.076, 0.947},
    {128, 96, 2, GemmForm::shared_rows, 7.18, 0.2519, 0.42, 2.30, 0.000, 0.932},
    {128, 112, 2, GemmForm::clustered, 7.32, 0.2570, 0.60, 2.55, 0.000, 0.966},
    {128, 112, 2, GemmForm::plain, 7.35, 0.2911, 0.60, 1.67, 0.025, 1.012},
    {128, 128, 2, GemmForm::clustered, 7.24, 0.3024, 0.56, 2.80, 0.000, 1.094},
    {128, 128, 2, GemmForm::shared_rows, 7.40, 0.3387, 0.20, 2.80, 0.000, 1.066},
    {128, 128, 2, GemmForm::swapped, 7.23, 0.3190, 0.99, 1.58, 0.027, 1.009},
    {128, 144, 1, GemmForm::pingpong, 5.81, 0.3726, 3.42, 3.05, 0.000, 0.978},
    {128, 144, 2, GemmForm::late, 7.72, 0.3751, 0.65, 3.05, 0.000, 1.012},
    {128, 160, 1, GemmForm::pingpong, 5.31, 0.4108, 3.63, 3.30, 0.000, 0.976},
    {128, 176, 1, GemmForm::pingpong, 5.10, 0.4541, 3.81, 3.55, 0.000, 1.003},
    {128, 192, 1, GemmForm::pingpong, 6.31, 0.4916, 3.15, 3.80, 0.000, 0.971},
    {128, 224, 2, GemmForm::late, 8.82, 0.5766, 0.49, 4.30, 0.000, 1.009},
    {128, 240, 2, GemmForm::late, 9.35, 0.6091, 0.81, 4.55, 0.000, 0.997},
    {128, 256, 2, GemmForm::late, 9.09, 0.6589, 0.56, 4.80, 0.000, 1.017},
    {192, 112, 3, GemmForm::plain, 7.48, 0.4418, 0.67, 2.47, -0.189, 0.927},
};
inline constexpr GemmDenseCost gemm_dense_cost_fast{.memory = 4.542, .l2 = 20.39, .l2_split = 9.524, .l2_rows = 14.95, .l2_columns = 8, .l2_rows_by_four = 7.366, .a_again = 0.9056, .a_readers = 3.763, .a_once = 0.5274, .b_once = 0.8976, .a_memory = 0.2352, .turns = 0.2047, .brought = 234.5, .late_stage = 0.2165, .second_round = 0.1247, .merge_rows = 2.725, .by_three = 0.01503, .by_five = 0.02457, .by_six = 0.04463, .by_seven = 0.08944, .absent = 0.2042};
inline constexpr GemmPolicyCost gemm_policy_costs_fast[] = {
    {16, 64, 1, GemmForm::swapped, 6.64, 0.0938, 0.12, 0.15, -0.049, 0.980},
    {16, 64, 1, GemmForm::two_blocks, 6.38, 0.1296, 0.17, 0.41, -0.050, 0.995},
    {32, 64, 1, GemmForm::swapped, 6.68, 0.1124, 0.79, 0.48, -0.076, 0.994},
    {32, 128, 2, GemmForm::swapped, 6.84, 0.1416, 0.54, 0.47, -0.011, 0.980},
    {64, 64, 1, GemmForm::shared_by_four, 6.27, 0.1202, 2.96, 1.30, 0.000, 1.032},
    {64, 64, 1, GemmForm::shared_rows, 6.43, 0.1577, 0.58, 1.30, 0.000, 1.019},
    {64, 64, 1, GemmForm::swapped, 6.49, 0.1141, 0.57, 0.93, -0.088, 0.988},
    {64, 64, 1, GemmForm::two_blocks, 6.12, 0.1929, 0.02, 1.30, 0.000, 1.001},
    {64, 96, 1, GemmForm::plain, 6.72, 0.1292, 0.84, 1.55, 0.000, 0.989},
    {64, 128, 1, GemmForm::shared_rows, 7.12, 0.1731, 0.52, 1.80, 0.000, 0.982},
    {64, 128, 2, GemmForm::swapped, 6.70, 0.1606, 0.70, 1.01, -0.007, 0.977},
    {64, 160, 1, GemmForm::plain, 7.67, 0.1900, 0.90, 1.24, -0.224, 0.974},
    {64, 192, 1, GemmForm::pingpong, 6.32, 0.2358, 2.54, 2.30, 0.000, 0.891},
    {64, 224, 1, GemmForm::plain, 7.72, 0.2762, 0.84, 2.55, 0.000, 0.985},
    {80, 64, 1, GemmForm::swapped, 5.30, 0.1335, 0.52, 1.43, 0.000, 1.000},
    {96, 64, 1, GemmForm::shared_by_four, 6.22, 0.1398, 1.99, 1.55, 0.000, 1.049},
    {96, 64, 1, GemmForm::swapped, 6.74, 0.1343, 0.62, 1.03, -0.047, 1.004},
    {96, 128, 2, GemmForm::swapped, 7.11, 0.2379, 0.78, 1.33, -0.002, 0.990},
    {128, 64, 1, GemmForm::swapped, 7.00, 0.1690, 0.70, 1.31, -0.093, 0.982},
    {128, 112, 2, GemmForm::plain, 7.45, 0.3003, 0.64, 1.79, -0.052, 1.045},
    {128, 128, 1, GemmForm::pingpong, 5.69, 0.3390, 3.75, 2.80, 0.000, 0.987},
    {128, 128, 2, GemmForm::plain, 7.25, 0.3403, 0.66, 1.66, 0.055, 1.050},
    {128, 128, 2, GemmForm::swapped, 7.01, 0.3331, 0.85, 1.92, 0.010, 1.036},
    {128, 144, 1, GemmForm::pingpong, 7.18, 0.3708, 3.54, 3.05, 0.000, 0.994},
    {128, 144, 2, GemmForm::late, 7.88, 0.3834, 0.62, 3.05, 0.000, 1.015},
    {128, 160, 1, GemmForm::pingpong, 5.84, 0.4173, 3.63, 3.30, 0.000, 0.909},
    {128, 176, 1, GemmForm::pingpong, 5.98, 0.4611, 3.47, 3.55, 0.000, 1.009},
    {128, 176, 2, GemmForm::late, 8.24, 0.4712, 0.38, 3.55, 0.000, 1.050},
    {128, 192, 1, GemmForm::pingpong, 4.85, 0.5005, 4.23, 3.80, 0.000, 0.904},
    {128, 224, 2, GemmForm::late, 9.47, 0.5944, 0.43, 4.30, 0.000, 1.034},
    {128, 256, 2, GemmForm::late, 9.69, 0.6795, 0.38, 4.80, 0.000, 1.062},
    {192, 128, 3, GemmForm::plain, 7.28, 0.5160, 0.82, 3.80, 0.000, 1.054},
};
inline constexpr GemmDenseCost gemm_dense_cost_blocks{.memory = 4.835, .l2 = 14.16, .l2_split = 8.273, .l2_rows = 9.5, .l2_columns = 8, .l2_rows_by_four = 7, .a_again = 0.5244, .a_readers = 3.987, .a_once = 1, .b_once = 0.5582, .a_memory = 0.07011, .turns = 0.4, .brought = 147, .late_stage = 0.25, .second_round = 0, .merge_rows = 2.028, .by_three = 0, .by_five = 0.0424, .by_six = 0.1523, .by_seven = 0.137, .absent = 0.3};
inline constexpr GemmPolicyCost gemm_policy_costs_blocks[] = {
    {16, 64, 1, GemmForm::swapped, 6.21, 0.1352, 0.12, 0.38, -0.058, 0.934},
    {32, 64, 1, GemmForm::swapped, 6.16, 0.1734, 0.60, 0.83, -0.124, 1.004},
    {64, 64, 1, GemmForm::swapped, 6.31, 0.2483, 0.68, 1.40, -0.155, 1.317},
    {64, 128, 2, GemmForm::swapped, 6.36, 0.3615, 1.46, 1.45, -0.043, 0.968},
    {128, 128, 2, GemmForm::plain, 6.84, 0.3382, 2.36, 1.93, -0.079, 0.936},
    {128, 256, 2, GemmForm::plain, 8.99, 0.6991, 3.84, 4.80, 0.000, 0.906},
    {192, 128, 3, GemmForm::plain, 7.62, 0.4606, 1.61, 3.80, 0.000, 0.851},
};
inline constexpr GemmDenseCost gemm_dense_cost_promoted{.memory = 4.237, .l2 = 14.93, .l2_split = 9.337, .l2_rows = 9.5, .l2_columns = 8.674, .l2_rows_by_four = 7, .a_again = 0.8421, .a_readers = 4.084, .a_once = 0, .b_once = 1.006, .a_memory = 0.114, .turns = 0.3239, .brought = 153, .late_stage = 0.25, .second_round = 0, .merge_rows = 2.957, .by_three = 0, .by_five = 0, .by_six = 0, .by_seven = 0.09682, .absent = 0.3};
inline constexpr GemmPolicyCost gemm_policy_costs_promoted[] = {
    {16, 64, 1, GemmForm::swapped, 6.62, 0.1325, 0.22, 0.13, -0.017, 0.997},
    {16, 64, 1, GemmForm::two_blocks, 6.10, 0.1375, 0.67, 0.93, 0.000, 0.986},
    {32, 64, 1, GemmForm::swapped, 6.49, 0.1300, 1.00, 0.45, -0.031, 0.998},
    {64, 64, 1, GemmForm::swapped, 6.62, 0.1512, 0.57, 0.84, -0.067, 0.997},
    {64, 128, 2, GemmForm::swapped, 6.69, 0.2141, 1.29, 0.98, 0.018, 0.955},
    {128, 128, 2, GemmForm::plain, 6.65, 0.3357, 1.00, 2.32, 0.157, 1.003},
    {128, 128, 2, GemmForm::streamed, 8.33, 0.3480, 2.08, 2.80, 0.000, 1.230},
    {128, 128, 2, GemmForm::swapped, 7.19, 0.5165, 1.91, 2.87, -0.176, 0.751},
    {128, 256, 2, GemmForm::clustered, 8.26, 0.6959, 1.64, 4.80, 0.000, 0.892},
    {128, 256, 2, GemmForm::plain, 7.63, 0.7016, 1.69, 4.80, 0.000, 1.011},
    {192, 128, 3, GemmForm::plain, 6.87, 0.5367, 0.65, 3.80, 0.000, 0.991},
};
// clang-format on

constexpr GemmForm gemm_form(const GemmPolicy& p) {
  if (p.path == GemmPath::weights_in_registers) return GemmForm::few_rows;
  if (p.waves_per_simd > 1) return GemmForm::two_blocks;
  if (p.cluster > 1) return GemmForm::clustered;
  if (p.cluster_columns > 1) return p.cluster_columns > 2 ? GemmForm::shared_by_four : GemmForm::shared_rows;
  if (p.stream) return GemmForm::streamed;
  if (p.pingpong) return GemmForm::pingpong;
  if (p.late) return GemmForm::late;
  return p.swapped ? GemmForm::swapped : GemmForm::plain;
}

/// What a policy takes that was not timed for these operands: its products at 1.6 GHz, and the usual ends of a tile.
constexpr GemmPolicyCost gemm_untimed_cost(const GemmSpec& s, const GemmPolicy& p) {
  const double tall = p.swapped ? p.columns : p.rows, wide = p.swapped ? p.rows : p.columns;
  // 64 rows of one side by n of the other and 32 bytes of k take n / 2 cycles.
  double cycles = tall / 64 * max_of(wide, 32.0) / 2 * (p.depth_bytes / 32);
  if (s.scale == Scaling::per_block) cycles = p.swapped ? max_of(1.3 * cycles, 131 + 4.8 * wide) : 1.25 * cycles;
  if (s.has_sums_to_choose() && s.sums == GemmSums::promoted) cycles *= 1.1;
  const double area = p.rows * p.columns / 32768.0;
  return {p.rows,
          p.columns,
          p.waves_rows,
          GemmForm::plain,
          size_of(s.a) == 2 ? 6.0 : 5.3,
          max_of(cycles, 215.0) / 1610,
          0.3 + 1.4 * area + (p.pingpong ? 3.0 : 0.0),
          0.8 + 4 * area,
          0.0,
          1.0};
}

}  // namespace detail

/// What the policies of a spec have in common.
constexpr const GemmDenseCost& gemm_dense_cost(const GemmSpec& s) {
  if (size_of(s.a) > 1) return detail::gemm_dense_cost_sixteen_bits;
  if (s.scale == Scaling::per_block) return detail::gemm_dense_cost_blocks;
  if (s.has_sums_to_choose() && s.sums == GemmSums::promoted) return detail::gemm_dense_cost_promoted;
  return detail::gemm_dense_cost_fast;
}
/// The policies of a spec that were timed.
constexpr std::span<const detail::GemmPolicyCost> gemm_policy_costs(const GemmSpec& s) {
  if (size_of(s.a) > 1) return detail::gemm_policy_costs_sixteen_bits;
  if (s.scale == Scaling::per_block) return detail::gemm_policy_costs_blocks;
  if (s.has_sums_to_choose() && s.sums == GemmSums::promoted) return detail::gemm_policy_costs_promoted;
  return detail::gemm_policy_costs_fast;
}
/// Returns what a policy takes. Where values could leave late and do not, that is what they take where they do.
constexpr detail::GemmPolicyCost gemm_policy_cost(const GemmSpec& s, const GemmPolicy& p) {
  using detail::GemmForm;
  const GemmForm form = detail::gemm_form(p);
  const int waves_rows = form == GemmForm::few_rows ? p.waves_per_simd : p.waves_rows;
  const detail::GemmPolicyCost* late = nullptr;
  for (const detail::GemmPolicyCost& c : gemm_policy_costs(s)) {
    if (c.rows != p.rows || c.columns != p.columns || c.waves_rows != waves_rows) continue;
    if (c.form == form) return c;
    if (c.form == GemmForm::late && form == GemmForm::plain) late = &c;
  }
  return late != nullptr ? *late : detail::gemm_untimed_cost(s, p);
}

}  // namespace tilewave
