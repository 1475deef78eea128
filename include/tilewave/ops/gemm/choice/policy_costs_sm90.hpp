// SPDX-License-Identifier: MIT
// The constants of gemm_cost_dense_sm90: what policies of dense products take on an H200. Each has code of its own,
// with an order of instructions that no formula knows. They were fitted by bench/ops/gemm/fit_choice.cpp to times of
// docs/notebook/tuned, gemm_unseen_sm90_2026-11-28-2.csv.gz (docs/notebook/2026-11-28-gemm-choice-anew.md); those of
// blocks and int4 to gemm_unseen_sm90_2026-11-28.csv.gz (2026-11-28-gemm-unseen-shapes.md).
#pragma once

#include <span>

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

/// What all policies of a kind of operands have in common.
struct GemmDenseCost {
  double memory;  // TB/s
  // TB/s from L2 to all blocks: whose neighbours in number read the same columns of B, that share K, that share boxes
  // of rows of A by two, of columns of B, and of rows by four.
  double l2, l2_split, l2_rows, l2_columns, l2_rows_by_four;
  // So much of A's bytes leave L2 where many blocks read them, up to so many columns of tiles all, and of B's where one
  // block reads them.
  double a_again, a_readers, b_once;
  double few_columns, a_memory;  // more time of a round, and of A from memory, of few columns under many rows
  double turns;                  // what a second block of an SM adds to the time of one
  double intake;                 // KB a microsecond that an SM takes in
  double late_stage;             // microseconds of each stage below six, in which values leave late
  double second_round;           // microseconds of the first further round
  double merge_rows;             // microseconds less for rows of 128 x 256 that are not there
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

inline constexpr GemmDenseCost gemm_dense_cost_sixteen_bits{.memory = 4.589,
                                                            .l2 = 22.42,
                                                            .l2_split = 7.985,
                                                            .l2_rows = 13.68,
                                                            .l2_columns = 8.541,
                                                            .l2_rows_by_four = 7.439,
                                                            .a_again = 0.498,
                                                            .a_readers = 0,
                                                            .b_once = 0.9144,
                                                            .few_columns = 0.04937,
                                                            .a_memory = 0.5133,
                                                            .turns = 0.2134,
                                                            .intake = 185.4,
                                                            .late_stage = 0.1931,
                                                            .second_round = 1.001,
                                                            .merge_rows = 3.076,
                                                            .by_three = 0,
                                                            .by_five = 0.05022,
                                                            .by_six = 0,
                                                            .by_seven = 0.02678,
                                                            .absent = 0.2023};
inline constexpr GemmDenseCost gemm_dense_cost_fast{.memory = 4.64,
                                                    .l2 = 24.5,
                                                    .l2_split = 12.96,
                                                    .l2_rows = 18.33,
                                                    .l2_columns = 8,
                                                    .l2_rows_by_four = 8.053,
                                                    .a_again = 1.435,
                                                    .a_readers = 2.352,
                                                    .b_once = 0.646,
                                                    .few_columns = 0.03965,
                                                    .a_memory = 0.36,
                                                    .turns = 0.0902,
                                                    .intake = 307.7,
                                                    .late_stage = 0.09457,
                                                    .second_round = 0.01948,
                                                    .merge_rows = 2.897,
                                                    .by_three = 0.03164,
                                                    .by_five = 0.01145,
                                                    .by_six = 0.01522,
                                                    .by_seven = 0,
                                                    .absent = 0.1571};
inline constexpr GemmDenseCost gemm_dense_cost_blocks{.memory = 4.875,
                                                      .l2 = 13.13,
                                                      .l2_split = 7.977,
                                                      .l2_rows = 9.5,
                                                      .l2_columns = 8,
                                                      .l2_rows_by_four = 7,
                                                      .a_again = 0.3359,
                                                      .a_readers = 3.359,
                                                      .b_once = 0.5512,
                                                      .few_columns = 0,
                                                      .a_memory = 0,
                                                      .turns = 0.4,
                                                      .intake = 150.9,
                                                      .late_stage = 0.25,
                                                      .second_round = 0,
                                                      .merge_rows = 2.205,
                                                      .by_three = 0,
                                                      .by_five = 0.00929,
                                                      .by_six = 0.09149,
                                                      .by_seven = 0.02533,
                                                      .absent = 0.3};
inline constexpr GemmDenseCost gemm_dense_cost_promoted{.memory = 4.675,
                                                        .l2 = 17.7,
                                                        .l2_split = 7.982,
                                                        .l2_rows = 9.5,
                                                        .l2_columns = 10.39,
                                                        .l2_rows_by_four = 7,
                                                        .a_again = 0.2586,
                                                        .a_readers = 4.618,
                                                        .b_once = 0.5525,
                                                        .few_columns = 0.04541,
                                                        .a_memory = 0.631,
                                                        .turns = 0,
                                                        .intake = 246.1,
                                                        .late_stage = 0.25,
                                                        .second_round = 0.4989,
                                                        .merge_rows = 2.884,
                                                        .by_three = 0,
                                                        .by_five = 0.04778,
                                                        .by_six = 0,
                                                        .by_seven = 0.05834,
                                                        .absent = 0.3};
inline constexpr GemmDenseCost gemm_dense_cost_int4{.memory = 4.503,
                                                    .l2 = 15.03,
                                                    .l2_split = 6.237,
                                                    .l2_rows = 9.5,
                                                    .l2_columns = 8,
                                                    .l2_rows_by_four = 7,
                                                    .a_again = 0.6291,
                                                    .a_readers = 3.885,
                                                    .b_once = 0.593,
                                                    .few_columns = 0.03768,
                                                    .a_memory = 0.198,
                                                    .turns = 0.6323,
                                                    .intake = 166.5,
                                                    .late_stage = 0.25,
                                                    .second_round = 0.9166,
                                                    .merge_rows = 2.522,
                                                    .by_three = 0,
                                                    .by_five = 0,
                                                    .by_six = 0,
                                                    .by_seven = 0.00528,
                                                    .absent = 0};

// clang-format off
inline constexpr GemmPolicyCost gemm_policy_costs_sixteen_bits[] = {
    {8, 16, 1, GemmForm::few_rows, 3.71, 0.1441, 1.67, 0.40, 0.084, 1.202},
    {8, 16, 2, GemmForm::few_rows, 4.09, 0.1278, 0.96, 0.14, -0.285, 0.980},
    {8, 16, 4, GemmForm::few_rows, 4.09, 0.3749, 0.74, 0.24, -0.300, 0.956},
    {16, 64, 1, GemmForm::two_blocks, 7.15, 0.1387, 0.00, 0.75, -0.073, 0.964},
    {32, 64, 1, GemmForm::swapped, 6.71, 0.1326, 0.77, 1.27, -0.039, 0.993},
    {64, 64, 1, GemmForm::swapped, 7.33, 0.1314, 0.93, 1.36, -0.047, 0.980},
    {64, 64, 1, GemmForm::shared_rows, 6.21, 0.1533, 0.34, 1.30, 0.000, 1.001},
    {64, 64, 1, GemmForm::shared_by_four, 5.91, 0.1166, 2.50, 1.30, 0.000, 0.973},
    {64, 64, 1, GemmForm::two_blocks, 6.65, 0.1959, 0.00, 1.30, 0.000, 0.967},
    {64, 96, 1, GemmForm::plain, 6.20, 0.1243, 0.73, 1.55, 0.000, 0.959},
    {64, 96, 1, GemmForm::clustered, 6.73, 0.1299, 0.51, 1.55, 0.000, 1.030},
    {64, 96, 1, GemmForm::shared_rows, 6.74, 0.1697, 0.09, 1.55, 0.000, 0.993},
    {64, 112, 1, GemmForm::clustered, 6.88, 0.1419, 0.51, 1.68, 0.000, 1.014},
    {64, 128, 1, GemmForm::shared_rows, 6.82, 0.1878, 0.00, 1.80, 0.000, 0.975},
    {64, 128, 2, GemmForm::swapped, 6.36, 0.1573, 0.43, 1.29, 0.092, 0.957},
    {64, 160, 1, GemmForm::plain, 7.22, 0.1730, 0.91, 1.78, -0.117, 0.953},
    {64, 224, 1, GemmForm::plain, 7.65, 0.2537, 0.67, 2.55, 0.000, 0.945},
    {80, 64, 1, GemmForm::swapped, 6.00, 0.1190, 0.48, 1.58, 0.017, 0.960},
    {80, 128, 2, GemmForm::swapped, 6.61, 0.1873, 0.56, 1.29, 0.131, 0.971},
    {96, 64, 1, GemmForm::swapped, 6.10, 0.1224, 0.61, 1.77, 0.015, 0.954},
    {96, 64, 1, GemmForm::shared_by_four, 6.05, 0.1175, 3.75, 1.55, 0.000, 0.989},
    {96, 128, 2, GemmForm::swapped, 7.09, 0.2176, 0.86, 1.30, 0.129, 0.970},
    {128, 64, 1, GemmForm::swapped, 6.42, 0.1650, 0.58, 1.88, 0.014, 0.953},
    {128, 96, 2, GemmForm::shared_rows, 7.39, 0.2458, 0.37, 2.30, 0.000, 0.955},
    {128, 112, 2, GemmForm::plain, 7.50, 0.2689, 0.80, 1.56, 0.142, 1.004},
    {128, 128, 2, GemmForm::swapped, 7.48, 0.3001, 1.09, 1.54, 0.139, 0.991},
    {128, 128, 2, GemmForm::clustered, 7.44, 0.2903, 0.54, 2.80, 0.000, 1.054},
    {128, 144, 1, GemmForm::pingpong, 6.74, 0.3406, 3.22, 3.05, 0.000, 0.988},
    {128, 144, 2, GemmForm::late, 8.27, 0.3487, 0.56, 3.05, 0.000, 1.015},
    {128, 160, 1, GemmForm::pingpong, 6.93, 0.3764, 3.27, 3.30, 0.000, 0.995},
    {128, 176, 1, GemmForm::pingpong, 7.36, 0.4133, 2.92, 3.55, 0.000, 1.008},
    {128, 192, 1, GemmForm::pingpong, 7.85, 0.4574, 1.72, 3.80, 0.000, 0.958},
    {128, 224, 2, GemmForm::late, 9.41, 0.5322, 0.35, 4.30, 0.000, 0.985},
    {128, 240, 2, GemmForm::late, 9.64, 0.5642, 0.43, 4.55, 0.000, 0.990},
    {128, 256, 2, GemmForm::late, 9.52, 0.6056, 0.26, 4.80, 0.000, 0.969},
    {144, 192, 3, GemmForm::swapped, 7.95, 0.5121, 0.91, 4.17, 0.000, 0.971},
    {160, 128, 2, GemmForm::swapped, 7.62, 0.3809, 0.80, 1.94, 0.045, 1.053},
    {192, 112, 3, GemmForm::plain, 8.21, 0.4072, 0.96, 1.51, 0.174, 0.911},
};
inline constexpr GemmPolicyCost gemm_policy_costs_fast[] = {
    {16, 64, 1, GemmForm::swapped, 6.60, 0.0989, 0.13, 0.39, -0.047, 0.972},
    {16, 64, 1, GemmForm::two_blocks, 6.35, 0.1370, 0.60, 0.60, -0.034, 0.989},
    {32, 64, 1, GemmForm::swapped, 6.65, 0.1125, 1.00, 0.76, -0.100, 0.983},
    {32, 128, 2, GemmForm::swapped, 6.94, 0.1332, 1.58, 0.66, -0.025, 0.981},
    {64, 64, 1, GemmForm::swapped, 6.55, 0.1117, 1.19, 1.06, -0.071, 0.984},
    {64, 64, 1, GemmForm::shared_rows, 6.53, 0.1430, 0.88, 1.30, 0.000, 0.986},
    {64, 64, 1, GemmForm::shared_by_four, 6.16, 0.1181, 3.42, 1.30, 0.000, 1.007},
    {64, 64, 1, GemmForm::two_blocks, 6.00, 0.1934, 0.29, 1.30, 0.000, 0.983},
    {64, 96, 1, GemmForm::plain, 6.71, 0.1268, 0.93, 1.55, 0.000, 0.982},
    {64, 128, 1, GemmForm::shared_rows, 6.93, 0.1731, 0.96, 1.80, 0.000, 0.958},
    {64, 128, 2, GemmForm::swapped, 6.92, 0.1581, 1.34, 1.07, -0.017, 0.979},
    {64, 160, 1, GemmForm::plain, 7.46, 0.1901, 1.35, 1.68, -0.249, 0.967},
    {64, 192, 1, GemmForm::pingpong, 6.15, 0.2413, 2.27, 2.30, 0.000, 0.920},
    {64, 224, 1, GemmForm::plain, 7.66, 0.2813, 1.03, 2.55, 0.000, 0.967},
    {80, 64, 1, GemmForm::swapped, 6.32, 0.1220, 0.76, 1.07, -0.020, 0.991},
    {96, 64, 1, GemmForm::swapped, 6.65, 0.1328, 0.62, 1.01, -0.029, 0.983},
    {96, 64, 1, GemmForm::shared_by_four, 6.19, 0.1387, 3.46, 1.55, 0.000, 1.036},
    {96, 128, 2, GemmForm::swapped, 7.03, 0.2323, 1.19, 1.62, -0.007, 0.985},
    {128, 64, 1, GemmForm::swapped, 6.95, 0.1591, 1.02, 1.43, -0.057, 0.961},
    {128, 112, 2, GemmForm::plain, 7.84, 0.2822, 1.22, 1.66, -0.058, 1.018},
    {128, 128, 1, GemmForm::pingpong, 5.54, 0.3318, 3.21, 2.80, 0.000, 0.960},
    {128, 128, 2, GemmForm::plain, 7.66, 0.3217, 1.12, 1.94, -0.127, 1.029},
    {128, 128, 2, GemmForm::swapped, 7.25, 0.3231, 0.97, 1.99, -0.010, 1.019},
    {128, 144, 1, GemmForm::pingpong, 6.80, 0.3665, 3.47, 3.05, 0.000, 1.001},
    {128, 144, 2, GemmForm::late, 8.16, 0.3725, 0.81, 3.05, 0.000, 1.035},
    {128, 160, 1, GemmForm::pingpong, 6.67, 0.4068, 3.56, 3.30, 0.000, 1.030},
    {128, 176, 1, GemmForm::pingpong, 6.58, 0.4482, 3.73, 3.55, 0.000, 1.043},
    {128, 176, 2, GemmForm::late, 8.37, 0.4680, 0.33, 3.55, 0.000, 1.084},
    {128, 192, 1, GemmForm::pingpong, 7.17, 0.4901, 2.96, 3.80, 0.000, 0.998},
    {128, 224, 2, GemmForm::late, 10.04, 0.5825, 0.63, 4.30, 0.000, 1.035},
    {128, 256, 2, GemmForm::late, 9.61, 0.6622, 0.40, 4.80, 0.000, 1.040},
    {144, 192, 3, GemmForm::swapped, 7.58, 0.5372, 2.03, 4.17, 0.000, 0.995},
    {160, 128, 2, GemmForm::swapped, 7.68, 0.3926, 2.04, 2.62, -0.139, 1.081},
    {192, 128, 3, GemmForm::plain, 7.63, 0.4897, 1.26, 3.80, 0.000, 1.014},
};
inline constexpr GemmPolicyCost gemm_policy_costs_blocks[] = {
    {16, 64, 1, GemmForm::swapped, 6.14, 0.1373, 0.13, 0.37, -0.049, 0.925},
    {32, 64, 1, GemmForm::swapped, 6.15, 0.1697, 0.57, 0.75, -0.102, 0.984},
    {64, 64, 1, GemmForm::swapped, 6.21, 0.2505, 0.64, 1.35, -0.140, 1.385},
    {64, 128, 2, GemmForm::swapped, 6.36, 0.3708, 1.52, 1.41, -0.034, 0.978},
    {128, 128, 2, GemmForm::plain, 6.76, 0.3316, 1.92, 2.00, -0.108, 0.903},
    {128, 256, 2, GemmForm::plain, 8.55, 0.6600, 4.59, 4.80, 0.000, 0.874},
    {192, 128, 3, GemmForm::plain, 7.43, 0.4868, 2.87, 3.80, 0.000, 0.918},
};
inline constexpr GemmPolicyCost gemm_policy_costs_promoted[] = {
    {16, 64, 1, GemmForm::swapped, 5.95, 0.1081, 0.33, 0.90, -0.033, 0.959},
    {16, 64, 1, GemmForm::two_blocks, 5.89, 0.1313, 0.36, 0.96, 0.041, 0.948},
    {32, 64, 1, GemmForm::swapped, 6.02, 0.1106, 1.00, 1.17, 0.009, 0.965},
    {64, 64, 1, GemmForm::swapped, 6.28, 0.1213, 0.96, 1.34, -0.026, 0.967},
    {64, 128, 2, GemmForm::swapped, 6.44, 0.1732, 1.13, 1.46, 0.054, 0.934},
    {128, 128, 2, GemmForm::plain, 7.35, 0.3210, 1.40, 2.83, -0.181, 0.964},
    {128, 128, 2, GemmForm::swapped, 7.31, 0.3163, 1.80, 2.33, -0.002, 0.910},
    {128, 128, 2, GemmForm::streamed, 7.46, 0.3347, 0.90, 2.80, 0.000, 0.999},
    {128, 256, 2, GemmForm::plain, 9.22, 0.6431, 1.78, 4.80, 0.000, 0.915},
    {128, 256, 2, GemmForm::clustered, 9.51, 0.6452, 1.78, 4.80, 0.000, 1.284},
    {192, 128, 3, GemmForm::plain, 7.36, 0.4963, 1.25, 3.80, 0.000, 1.021},
};
inline constexpr GemmPolicyCost gemm_policy_costs_int4[] = {
    {8, 32, 1, GemmForm::few_rows, 5.08, 0.9211, 0.31, 0.16, 0.789, 0.966},
    {8, 64, 1, GemmForm::few_rows, 5.24, 0.8642, 0.42, 0.16, 1.346, 0.963},
    {8, 128, 1, GemmForm::few_rows, 4.29, 0.9700, 0.99, 0.42, 0.406, 0.887},
    {8, 256, 1, GemmForm::few_rows, 2.57, 0.9024, 2.78, 0.20, 0.012, 0.845},
    {16, 64, 1, GemmForm::two_blocks, 6.02, 0.3262, 0.00, 0.48, -0.059, 0.979},
    {16, 64, 1, GemmForm::few_rows, 5.24, 0.9967, 0.26, 0.57, 0.378, 1.035},
    {16, 256, 1, GemmForm::few_rows, 4.12, 1.0055, 0.99, 0.77, -0.306, 1.104},
    {16, 256, 4, GemmForm::swapped, 6.31, 0.7735, 0.59, 0.55, 0.110, 1.026},
    {32, 128, 2, GemmForm::swapped, 6.19, 0.4682, 1.48, 0.76, -0.015, 1.026},
    {64, 128, 2, GemmForm::swapped, 6.32, 0.5914, 1.17, 1.26, -0.024, 1.000},
    {64, 192, 3, GemmForm::swapped, 6.02, 0.8310, 1.68, 1.46, 0.109, 0.994},
    {128, 128, 2, GemmForm::swapped, 6.41, 0.8491, 1.58, 2.17, 0.027, 1.011},
    {256, 128, 2, GemmForm::swapped, 6.79, 0.7643, 2.06, 4.80, 0.000, 1.000},
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
  if (s.four_bit()) return detail::gemm_dense_cost_int4;
  if (size_of(s.a) > 1) return detail::gemm_dense_cost_sixteen_bits;
  if (s.scale == Scaling::per_block) return detail::gemm_dense_cost_blocks;
  if (s.has_sums_to_choose() && s.sums == GemmSums::promoted) return detail::gemm_dense_cost_promoted;
  return detail::gemm_dense_cost_fast;
}
/// The policies of a spec that were timed.
constexpr std::span<const detail::GemmPolicyCost> gemm_policy_costs(const GemmSpec& s) {
  if (s.four_bit()) return detail::gemm_policy_costs_int4;
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
