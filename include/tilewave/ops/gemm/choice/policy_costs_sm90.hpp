// SPDX-License-Identifier: MIT
// The constants of gemm_cost_dense_sm90: what policies of dense products take on an H200. Each has code of its own,
// with an order of instructions that no formula knows. They were fitted by bench/ops/gemm/fit_choice.cpp to times of
// docs/notebook/tuned, gemm_unseen_sm90_2026-11-28-3.csv.gz (docs/notebook/2026-11-28-gemm-choice-long-k.md) and, but
// for fast fp8, 2026-11-28-2; those of int4 to gemm_unseen_sm90_2026-11-28.csv.gz (2026-11-28-gemm-unseen-shapes.md).
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
  double by_eight = 0;                         // microseconds more of eight splits
  double crowded = 0;         // twice the microseconds more of a merge where clusters take all places of the chip
  double rows_by_bands = 0;   // so much more of l2_rows where rows have many bands
  double second_block = 0;    // what a second block adds to the time of one, on however few SMs there is one
  double clusters_start = 0;  // microseconds more until all clusters that share boxes have begun
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
/// `crowd`: how much longer a stage is where all SMs have a block. Of few rows `waves_rows` is the blocks of an SM,
/// `merge` is for eight rows, and `split` an SM's bandwidth.
struct GemmPolicyCost {
  int rows, columns, waves_rows;
  GemmForm form;
  double start, stage, tile, merge, split, memory;
  double crowd = 0;
};

inline constexpr GemmDenseCost gemm_dense_cost_sixteen_bits{.memory = 4.598,
                                                            .l2 = 20.07,
                                                            .l2_split = 7.895,
                                                            .l2_rows = 4.594,
                                                            .l2_columns = 12.38,
                                                            .l2_rows_by_four = 3.832,
                                                            .a_again = 0.4347,
                                                            .a_readers = 0,
                                                            .b_once = 0.5375,
                                                            .few_columns = 0.04638,
                                                            .a_memory = 0.3956,
                                                            .turns = 0.04839,
                                                            .intake = 172.1,
                                                            .late_stage = 0.01195,
                                                            .second_round = 0.7889,
                                                            .merge_rows = 3.147,
                                                            .by_three = 0,
                                                            .by_five = 0.2871,
                                                            .by_six = 0.4416,
                                                            .by_seven = 0.6755,
                                                            .absent = 0.2492,
                                                            .by_eight = 0.975,
                                                            .crowded = 1.403,
                                                            .rows_by_bands = 1.555,
                                                            .second_block = 0.01308,
                                                            .clusters_start = 0};
inline constexpr GemmDenseCost gemm_dense_cost_fast{.memory = 4.508,
                                                    .l2 = 21.26,
                                                    .l2_split = 10.94,
                                                    .l2_rows = 4.977,
                                                    .l2_columns = 8,
                                                    .l2_rows_by_four = 4.713,
                                                    .a_again = 1.144,
                                                    .a_readers = 3.548,
                                                    .b_once = 0.3261,
                                                    .few_columns = 0.04701,
                                                    .a_memory = 0.3913,
                                                    .turns = 0,
                                                    .intake = 303,
                                                    .late_stage = 0.2032,
                                                    .second_round = 0.1516,
                                                    .merge_rows = 3.372,
                                                    .by_three = 0,
                                                    .by_five = 0.1823,
                                                    .by_six = 0.3644,
                                                    .by_seven = 0.519,
                                                    .absent = 0.2583,
                                                    .by_eight = 0.8118,
                                                    .crowded = 0.6342,
                                                    .rows_by_bands = 1.737,
                                                    .second_block = 0.02054,
                                                    .clusters_start = 0.4456};
inline constexpr GemmDenseCost gemm_dense_cost_blocks{.memory = 4.795,
                                                      .l2 = 10.92,
                                                      .l2_split = 9.513,
                                                      .l2_rows = 9.5,
                                                      .l2_columns = 8,
                                                      .l2_rows_by_four = 7,
                                                      .a_again = 0.6498,
                                                      .a_readers = 4.982,
                                                      .b_once = 0.448,
                                                      .few_columns = 0.03054,
                                                      .a_memory = 0,
                                                      .turns = 0.4,
                                                      .intake = 182.6,
                                                      .late_stage = 0.25,
                                                      .second_round = 0,
                                                      .merge_rows = 2.84,
                                                      .by_three = 0,
                                                      .by_five = 0.1395,
                                                      .by_six = 0.2066,
                                                      .by_seven = 0.2149,
                                                      .absent = 0.3,
                                                      .by_eight = 0.3702,
                                                      .crowded = 0.3401,
                                                      .rows_by_bands = 0,
                                                      .second_block = 0,
                                                      .clusters_start = 0};
inline constexpr GemmDenseCost gemm_dense_cost_promoted{.memory = 4.59,
                                                        .l2 = 16.84,
                                                        .l2_split = 8.675,
                                                        .l2_rows = 9.5,
                                                        .l2_columns = 11.22,
                                                        .l2_rows_by_four = 7,
                                                        .a_again = 0.5328,
                                                        .a_readers = 5.496,
                                                        .b_once = 0.4282,
                                                        .few_columns = 0.009219,
                                                        .a_memory = 0.1981,
                                                        .turns = 0,
                                                        .intake = 228.4,
                                                        .late_stage = 0.25,
                                                        .second_round = 0.3759,
                                                        .merge_rows = 3.146,
                                                        .by_three = 0,
                                                        .by_five = 0.1854,
                                                        .by_six = 0.2755,
                                                        .by_seven = 0.3948,
                                                        .absent = 0.3,
                                                        .by_eight = 0.5812,
                                                        .crowded = 0.1911,
                                                        .rows_by_bands = 0,
                                                        .second_block = 0,
                                                        .clusters_start = 0};
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
    {8, 16, 1, GemmForm::few_rows, 3.80, 0.0200, 1.65, 0.39, -0.014, 1.147, 0.000},
    {8, 16, 2, GemmForm::few_rows, 4.22, 0.0920, 0.92, 0.13, -0.278, 0.977, 0.000},
    {8, 16, 4, GemmForm::few_rows, 4.25, 0.3846, 0.68, 0.16, -0.200, 0.960, 0.000},
    {16, 64, 1, GemmForm::two_blocks, 7.06, 0.1273, 0.00, 1.18, -0.269, 0.963, 0.215},
    {32, 64, 1, GemmForm::swapped, 6.77, 0.1425, 0.80, 1.38, -0.237, 0.993, -0.088},
    {64, 64, 1, GemmForm::swapped, 7.36, 0.1238, 0.71, 1.41, -0.211, 0.986, 0.122},
    {64, 64, 1, GemmForm::shared_rows, 6.33, 0.1322, 0.14, 1.30, 0.000, 1.080, 0.120},
    {64, 64, 1, GemmForm::shared_by_four, 5.97, 0.1143, 2.18, 1.30, 0.000, 1.040, 0.069},
    {64, 64, 1, GemmForm::two_blocks, 6.80, 0.1443, 0.00, 1.30, 0.000, 0.974, 0.452},
    {64, 96, 1, GemmForm::plain, 6.23, 0.1287, 0.72, 1.55, 0.000, 0.958, -0.065},
    {64, 96, 1, GemmForm::clustered, 6.78, 0.1066, 0.36, 1.55, 0.000, 1.051, 0.308},
    {64, 96, 1, GemmForm::shared_rows, 6.81, 0.1449, 0.00, 1.55, 0.000, 1.067, 0.085},
    {64, 112, 1, GemmForm::clustered, 6.93, 0.1167, 0.39, 1.68, 0.000, 1.022, 0.285},
    {64, 128, 1, GemmForm::shared_rows, 6.84, 0.1965, 0.00, 1.80, 0.000, 1.036, -0.242},
    {64, 128, 2, GemmForm::swapped, 6.39, 0.1791, 0.58, 1.60, -0.133, 0.959, -0.163},
    {64, 160, 1, GemmForm::plain, 7.21, 0.1870, 0.86, 2.11, -0.274, 0.952, -0.088},
    {64, 224, 1, GemmForm::plain, 7.60, 0.2785, 0.76, 2.55, 0.000, 0.951, -0.109},
    {80, 64, 1, GemmForm::swapped, 6.07, 0.1138, 0.42, 1.83, -0.202, 0.960, 0.020},
    {80, 128, 2, GemmForm::swapped, 6.70, 0.1974, 0.55, 1.67, -0.108, 0.970, -0.069},
    {96, 64, 1, GemmForm::swapped, 6.19, 0.1194, 0.51, 1.99, -0.204, 0.951, -0.001},
    {96, 64, 1, GemmForm::shared_by_four, 6.09, 0.1111, 3.84, 1.55, 0.000, 1.098, 0.084},
    {96, 128, 2, GemmForm::swapped, 7.04, 0.2165, 0.57, 1.82, -0.111, 0.966, 0.008},
    {128, 64, 1, GemmForm::swapped, 6.55, 0.1563, 0.47, 2.15, -0.209, 0.946, 0.035},
    {128, 96, 2, GemmForm::shared_rows, 7.43, 0.2254, 0.36, 2.30, 0.000, 1.038, 0.034},
    {128, 112, 2, GemmForm::plain, 7.51, 0.2568, 0.72, 2.13, -0.108, 0.992, 0.049},
    {128, 128, 2, GemmForm::swapped, 7.49, 0.2861, 0.65, 2.08, -0.097, 0.979, 0.062},
    {128, 128, 2, GemmForm::clustered, 7.38, 0.3006, 0.53, 2.80, 0.000, 0.980, 0.038},
    {128, 144, 1, GemmForm::pingpong, 7.04, 0.3202, 3.05, 3.05, 0.000, 0.987, 0.067},
    {128, 144, 2, GemmForm::late, 8.24, 0.3231, 0.46, 3.05, 0.000, 1.010, 0.090},
    {128, 160, 1, GemmForm::pingpong, 7.30, 0.3377, 3.18, 3.30, 0.000, 0.986, 0.110},
    {128, 176, 1, GemmForm::pingpong, 7.60, 0.3687, 2.86, 3.55, 0.000, 0.985, 0.120},
    {128, 192, 1, GemmForm::pingpong, 9.63, 0.4264, 0.00, 3.80, 0.000, 0.972, 0.083},
    {128, 224, 2, GemmForm::late, 9.21, 0.4722, 0.21, 4.30, 0.000, 0.975, 0.155},
    {128, 240, 2, GemmForm::late, 9.54, 0.4908, 0.24, 4.55, 0.000, 0.979, 0.179},
    {128, 256, 2, GemmForm::late, 9.47, 0.5180, 0.19, 4.80, 0.000, 0.970, 0.193},
    {144, 192, 3, GemmForm::swapped, 7.78, 0.4756, 0.42, 4.17, 0.000, 0.961, 0.116},
    {160, 128, 2, GemmForm::swapped, 7.63, 0.3617, 0.53, 2.06, 0.023, 1.040, 0.075},
    {192, 112, 3, GemmForm::plain, 8.15, 0.4035, 0.92, 1.27, 0.292, 0.885, 0.017},
};
inline constexpr GemmPolicyCost gemm_policy_costs_fast[] = {
    {16, 64, 1, GemmForm::swapped, 6.63, 0.0986, 0.00, 0.69, -0.184, 1.016, 0.485},
    {16, 64, 1, GemmForm::two_blocks, 6.37, 0.1300, 0.66, 0.97, -0.155, 0.981, 0.248},
    {32, 64, 1, GemmForm::swapped, 6.56, 0.1394, 1.12, 1.18, -0.198, 1.006, -0.084},
    {32, 128, 2, GemmForm::swapped, 6.83, 0.1789, 2.65, 1.19, -0.149, 0.965, -0.235},
    {64, 64, 1, GemmForm::swapped, 6.57, 0.1407, 1.19, 1.57, -0.213, 1.002, -0.065},
    {64, 64, 1, GemmForm::shared_rows, 6.20, 0.1339, 0.58, 1.30, 0.000, 1.049, 0.130},
    {64, 64, 1, GemmForm::shared_by_four, 6.16, 0.1181, 3.42, 1.30, 0.000, 1.007},
    {64, 64, 1, GemmForm::two_blocks, 6.07, 0.1530, 0.55, 1.30, 0.000, 0.979, 0.344},
    {64, 96, 1, GemmForm::plain, 6.63, 0.1374, 1.11, 1.55, 0.000, 0.984, -0.127},
    {64, 128, 1, GemmForm::shared_rows, 6.83, 0.2007, 0.92, 1.80, 0.000, 1.038, -0.350},
    {64, 128, 2, GemmForm::swapped, 6.93, 0.1968, 2.21, 1.62, -0.151, 0.980, -0.116},
    {64, 160, 1, GemmForm::plain, 7.47, 0.2025, 1.42, 1.89, -0.158, 0.967, -0.087},
    {64, 192, 1, GemmForm::pingpong, 6.08, 0.2141, 2.43, 2.30, 0.000, 0.911, 0.078},
    {64, 224, 1, GemmForm::plain, 7.70, 0.2973, 1.17, 2.55, 0.000, 0.964, -0.089},
    {80, 64, 1, GemmForm::swapped, 6.32, 0.1220, 0.76, 1.07, -0.020, 0.991},
    {96, 64, 1, GemmForm::swapped, 6.65, 0.1328, 0.62, 1.01, -0.029, 0.983},
    {96, 64, 1, GemmForm::shared_by_four, 6.07, 0.1388, 3.89, 1.55, 0.000, 1.089, -0.025},
    {96, 128, 2, GemmForm::swapped, 7.24, 0.2408, 1.13, 1.85, -0.118, 0.989, -0.046},
    {128, 64, 1, GemmForm::swapped, 6.90, 0.1883, 1.21, 1.96, -0.197, 0.965, -0.149},
    {128, 112, 2, GemmForm::plain, 8.04, 0.2633, 1.06, 1.95, -0.112, 1.024, 0.095},
    {128, 128, 1, GemmForm::pingpong, 5.84, 0.2624, 3.19, 2.80, 0.000, 0.953, 0.266},
    {128, 128, 2, GemmForm::plain, 8.06, 0.3022, 0.97, 1.98, -0.064, 1.024, 0.085},
    {128, 128, 2, GemmForm::swapped, 7.59, 0.3031, 0.93, 2.27, -0.091, 1.016, 0.079},
    {128, 144, 1, GemmForm::pingpong, 6.97, 0.2977, 3.75, 3.05, 0.000, 0.999, 0.223},
    {128, 144, 2, GemmForm::late, 8.24, 0.3381, 0.60, 3.05, 0.000, 1.032, 0.120},
    {128, 160, 1, GemmForm::pingpong, 7.22, 0.3170, 3.69, 3.30, 0.000, 1.014, 0.269},
    {128, 176, 1, GemmForm::pingpong, 7.23, 0.3564, 3.76, 3.55, 0.000, 0.987, 0.235},
    {128, 176, 2, GemmForm::late, 8.37, 0.4680, 0.33, 3.55, 0.000, 1.084},
    {128, 192, 1, GemmForm::pingpong, 7.30, 0.4263, 3.20, 3.80, 0.000, 0.959, 0.132},
    {128, 224, 2, GemmForm::late, 10.04, 0.5825, 0.63, 4.30, 0.000, 1.035},
    {128, 256, 2, GemmForm::late, 9.91, 0.5448, 0.24, 4.80, 0.000, 1.022, 0.218},
    {144, 192, 3, GemmForm::swapped, 7.85, 0.5064, 1.09, 4.17, 0.000, 1.016, 0.099},
    {160, 128, 2, GemmForm::swapped, 7.66, 0.3962, 1.13, 2.27, 0.046, 1.066, 0.036},
    {192, 128, 3, GemmForm::plain, 7.89, 0.4781, 0.69, 3.80, 0.000, 1.009, 0.065},
};
inline constexpr GemmPolicyCost gemm_policy_costs_blocks[] = {
    {16, 64, 1, GemmForm::swapped, 6.01, 0.1308, 0.15, 0.87, -0.083, 0.966, 0.311},
    {32, 64, 1, GemmForm::swapped, 6.04, 0.1932, 0.83, 1.36, -0.118, 1.002, -0.064},
    {64, 64, 1, GemmForm::swapped, 6.09, 0.2494, 0.93, 1.84, -0.139, 1.374, 0.006},
    {64, 128, 2, GemmForm::swapped, 6.53, 0.3510, 2.35, 1.90, -0.083, 0.972, 0.081},
    {128, 128, 2, GemmForm::plain, 6.85, 0.3694, 1.94, 2.05, 0.002, 0.876, -0.212},
    {128, 256, 2, GemmForm::plain, 8.26, 0.6403, 3.12, 4.80, 0.000, 0.868, -0.033},
    {192, 128, 3, GemmForm::plain, 7.43, 0.4525, 2.40, 3.80, 0.000, 0.879, 0.018},
};
inline constexpr GemmPolicyCost gemm_policy_costs_promoted[] = {
    {16, 64, 1, GemmForm::swapped, 6.00, 0.0893, 0.25, 0.96, -0.132, 0.978, 0.294},
    {16, 64, 1, GemmForm::two_blocks, 5.85, 0.1223, 0.39, 1.12, -0.074, 0.960, 0.159},
    {32, 64, 1, GemmForm::swapped, 5.96, 0.1214, 0.91, 1.30, -0.085, 0.969, -0.141},
    {64, 64, 1, GemmForm::swapped, 6.23, 0.1323, 0.97, 1.54, -0.123, 0.973, -0.153},
    {64, 128, 2, GemmForm::swapped, 6.42, 0.1949, 1.19, 1.64, -0.039, 0.946, -0.216},
    {128, 128, 2, GemmForm::plain, 7.34, 0.3075, 1.34, 2.42, -0.021, 0.972, 0.014},
    {128, 128, 2, GemmForm::swapped, 7.33, 0.3077, 1.67, 2.19, -0.035, 0.931, 0.002},
    {128, 128, 2, GemmForm::streamed, 7.04, 0.3298, 0.93, 2.80, 0.000, 0.989, -0.015},
    {128, 256, 2, GemmForm::plain, 8.85, 0.6100, 1.88, 4.80, 0.000, 0.914, 0.044},
    {128, 256, 2, GemmForm::clustered, 9.13, 0.6128, 1.86, 4.80, 0.000, 1.009, 0.041},
    {192, 128, 3, GemmForm::plain, 7.43, 0.4579, 1.26, 3.80, 0.000, 0.961, 0.066},
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
