// SPDX-License-Identifier: MIT
// The constants of gemm_cost_dense_sm90: what policies of dense products take on an H200. Each has code of its own,
// with an order of instructions that no formula knows. They were fitted by bench/ops/gemm/fit_choice.cpp to
// docs/notebook/tuned/gemm_unseen_sm90_2026-11-28.csv.gz (docs/notebook/2026-11-28-gemm-unseen-shapes.md).
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

inline constexpr GemmDenseCost gemm_dense_cost_sixteen_bits{.memory = 4.586,
                                                            .l2 = 19.94,
                                                            .l2_split = 8.581,
                                                            .l2_rows = 15.74,
                                                            .l2_columns = 8.734,
                                                            .l2_rows_by_four = 7.153,
                                                            .a_again = 0.5681,
                                                            .a_readers = 0,
                                                            .b_once = 0.8737,
                                                            .few_columns = 0.06378,
                                                            .a_memory = 0.353,
                                                            .turns = 0.1323,
                                                            .intake = 210,
                                                            .late_stage = 0.189,
                                                            .second_round = 0.5054,
                                                            .merge_rows = 2.8,
                                                            .by_three = 0.0311,
                                                            .by_five = 0.002149,
                                                            .by_six = 0,
                                                            .by_seven = 0.03867,
                                                            .absent = 0.1787};
inline constexpr GemmDenseCost gemm_dense_cost_fast{.memory = 4.531,
                                                    .l2 = 24.27,
                                                    .l2_split = 11.9,
                                                    .l2_rows = 17.82,
                                                    .l2_columns = 8,
                                                    .l2_rows_by_four = 7.73,
                                                    .a_again = 1.295,
                                                    .a_readers = 1.997,
                                                    .b_once = 0.8425,
                                                    .few_columns = 0.03183,
                                                    .a_memory = 0.4919,
                                                    .turns = 0.1324,
                                                    .intake = 282,
                                                    .late_stage = 0.2954,
                                                    .second_round = 0.1193,
                                                    .merge_rows = 2.934,
                                                    .by_three = 0.02503,
                                                    .by_five = 0.03002,
                                                    .by_six = 0.03325,
                                                    .by_seven = 0.04549,
                                                    .absent = 0.1898};
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
inline constexpr GemmDenseCost gemm_dense_cost_promoted{.memory = 4.738,
                                                        .l2 = 17.13,
                                                        .l2_split = 7.987,
                                                        .l2_rows = 9.5,
                                                        .l2_columns = 10.34,
                                                        .l2_rows_by_four = 7,
                                                        .a_again = 0.03053,
                                                        .a_readers = 5.842,
                                                        .b_once = 0.5603,
                                                        .few_columns = 0.02025,
                                                        .a_memory = 0,
                                                        .turns = 0,
                                                        .intake = 228.3,
                                                        .late_stage = 0.25,
                                                        .second_round = 0.09825,
                                                        .merge_rows = 3.781,
                                                        .by_three = 0.0001069,
                                                        .by_five = 0.02564,
                                                        .by_six = 0.06198,
                                                        .by_seven = 0.07184,
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
    {8, 16, 1, GemmForm::few_rows, 3.25, 0.2301, 1.54, 0.49, 0.070, 1.238},
    {8, 16, 2, GemmForm::few_rows, 3.60, 0.2023, 0.94, 0.25, -0.250, 0.988},
    {8, 16, 4, GemmForm::few_rows, 3.95, 0.4099, 0.56, 0.02, -0.323, 0.956},
    {16, 64, 1, GemmForm::two_blocks, 7.16, 0.1519, 0.07, 0.29, -0.114, 0.963},
    {32, 64, 1, GemmForm::swapped, 6.94, 0.1385, 0.85, 0.73, -0.103, 0.981},
    {64, 64, 1, GemmForm::swapped, 8.37, 0.1427, 0.91, 0.56, -0.212, 0.986},
    {64, 64, 1, GemmForm::shared_rows, 6.10, 0.1531, 0.50, 1.30, 0.000, 0.970},
    {64, 64, 1, GemmForm::shared_by_four, 5.77, 0.1245, 2.56, 1.30, 0.000, 0.960},
    {64, 64, 1, GemmForm::two_blocks, 6.98, 0.2027, 0.39, 1.30, 0.000, 0.978},
    {64, 96, 1, GemmForm::plain, 6.01, 0.1316, 0.77, 1.55, 0.000, 0.954},
    {64, 96, 1, GemmForm::clustered, 6.45, 0.1441, 0.42, 1.55, 0.000, 1.058},
    {64, 96, 1, GemmForm::shared_rows, 6.56, 0.1598, 0.31, 1.55, 0.000, 0.974},
    {64, 112, 1, GemmForm::clustered, 6.65, 0.1460, 0.54, 1.68, 0.000, 0.998},
    {64, 128, 1, GemmForm::shared_rows, 6.48, 0.1799, 0.36, 1.80, 0.000, 0.963},
    {64, 128, 2, GemmForm::swapped, 6.04, 0.1688, 0.45, 1.24, 0.029, 0.952},
    {64, 160, 1, GemmForm::plain, 7.11, 0.1890, 0.81, 1.88, -0.316, 0.964},
    {64, 224, 1, GemmForm::plain, 7.43, 0.2667, 0.80, 2.55, 0.000, 0.955},
    {80, 64, 1, GemmForm::swapped, 6.01, 0.1236, 0.56, 1.25, -0.003, 0.946},
    {80, 128, 2, GemmForm::swapped, 6.63, 0.1977, 0.65, 1.25, 0.031, 0.971},
    {96, 64, 1, GemmForm::swapped, 6.05, 0.1340, 0.56, 1.40, -0.021, 0.940},
    {96, 64, 1, GemmForm::shared_by_four, 5.93, 0.1318, 3.84, 1.55, 0.000, 0.993},
    {96, 128, 2, GemmForm::swapped, 6.83, 0.2331, 0.69, 1.42, 0.028, 0.975},
    {128, 64, 1, GemmForm::swapped, 6.43, 0.1752, 0.68, 1.55, -0.058, 0.956},
    {128, 96, 2, GemmForm::shared_rows, 7.04, 0.2563, 0.40, 2.30, 0.000, 0.918},
    {128, 112, 2, GemmForm::plain, 7.16, 0.2935, 0.59, 1.74, 0.021, 1.022},
    {128, 112, 2, GemmForm::clustered, 7.18, 0.2651, 0.61, 2.55, 0.000, 1.030},
    {128, 128, 2, GemmForm::swapped, 7.03, 0.3240, 0.60, 1.54, 0.053, 1.008},
    {128, 128, 2, GemmForm::clustered, 7.05, 0.3072, 0.54, 2.80, 0.000, 1.098},
    {128, 128, 2, GemmForm::shared_rows, 7.14, 0.3423, 0.45, 2.80, 0.000, 1.058},
    {128, 144, 1, GemmForm::pingpong, 5.65, 0.3710, 3.42, 3.05, 0.000, 0.965},
    {128, 144, 2, GemmForm::late, 7.71, 0.3742, 0.61, 3.05, 0.000, 1.004},
    {128, 160, 1, GemmForm::pingpong, 5.43, 0.4094, 3.53, 3.30, 0.000, 0.980},
    {128, 176, 1, GemmForm::pingpong, 5.73, 0.4511, 3.31, 3.55, 0.000, 0.999},
    {128, 192, 1, GemmForm::pingpong, 6.13, 0.4902, 3.11, 3.80, 0.000, 0.950},
    {128, 224, 2, GemmForm::late, 8.95, 0.5734, 0.49, 4.30, 0.000, 1.016},
    {128, 240, 2, GemmForm::late, 10.15, 0.6088, 0.52, 4.55, 0.000, 1.026},
    {128, 256, 2, GemmForm::late, 9.50, 0.6525, 0.51, 4.80, 0.000, 1.019},
    {192, 112, 3, GemmForm::plain, 7.28, 0.4428, 0.63, 1.90, 0.032, 0.934},
};
inline constexpr GemmPolicyCost gemm_policy_costs_fast[] = {
    {16, 64, 1, GemmForm::swapped, 6.47, 0.0991, 0.04, 0.18, -0.047, 0.981},
    {16, 64, 1, GemmForm::two_blocks, 6.19, 0.1372, 0.29, 0.43, -0.035, 0.996},
    {32, 64, 1, GemmForm::swapped, 6.52, 0.1138, 0.83, 0.48, -0.072, 0.991},
    {32, 128, 2, GemmForm::swapped, 6.68, 0.1417, 0.91, 0.53, -0.014, 0.981},
    {64, 64, 1, GemmForm::swapped, 6.34, 0.1159, 0.68, 0.91, -0.072, 0.988},
    {64, 64, 1, GemmForm::shared_rows, 6.39, 0.1515, 0.77, 1.30, 0.000, 0.995},
    {64, 64, 1, GemmForm::shared_by_four, 6.16, 0.1181, 3.42, 1.30, 0.000, 1.007},
    {64, 64, 1, GemmForm::two_blocks, 5.99, 0.1950, 0.20, 1.30, 0.000, 0.994},
    {64, 96, 1, GemmForm::plain, 6.61, 0.1305, 0.95, 1.55, 0.000, 0.989},
    {64, 128, 1, GemmForm::shared_rows, 6.91, 0.1819, 0.61, 1.80, 0.000, 0.972},
    {64, 128, 2, GemmForm::swapped, 6.54, 0.1652, 0.77, 1.07, -0.002, 0.975},
    {64, 160, 1, GemmForm::plain, 7.48, 0.1978, 0.99, 1.63, -0.325, 0.977},
    {64, 192, 1, GemmForm::pingpong, 6.20, 0.2445, 2.61, 2.30, 0.000, 0.909},
    {64, 224, 1, GemmForm::plain, 7.68, 0.2855, 0.91, 2.55, 0.000, 0.973},
    {80, 64, 1, GemmForm::swapped, 6.32, 0.1220, 0.76, 1.07, -0.020, 0.991},
    {96, 64, 1, GemmForm::swapped, 6.65, 0.1328, 0.62, 1.01, -0.029, 0.983},
    {96, 64, 1, GemmForm::shared_by_four, 6.28, 0.1322, 3.42, 1.55, 0.000, 1.072},
    {96, 128, 2, GemmForm::swapped, 6.98, 0.2389, 0.75, 1.43, -0.002, 0.989},
    {128, 64, 1, GemmForm::swapped, 6.90, 0.1663, 0.77, 1.30, -0.081, 0.975},
    {128, 112, 2, GemmForm::plain, 7.41, 0.2964, 0.76, 1.78, -0.033, 1.021},
    {128, 128, 1, GemmForm::pingpong, 5.57, 0.3355, 3.85, 2.80, 0.000, 0.977},
    {128, 128, 2, GemmForm::plain, 7.17, 0.3346, 0.77, 1.80, 0.002, 1.034},
    {128, 128, 2, GemmForm::swapped, 6.94, 0.3341, 0.64, 1.97, 0.012, 1.033},
    {128, 144, 1, GemmForm::pingpong, 6.64, 0.3728, 3.54, 3.05, 0.000, 0.998},
    {128, 144, 2, GemmForm::late, 8.09, 0.3817, 0.60, 3.05, 0.000, 1.029},
    {128, 160, 1, GemmForm::pingpong, 6.01, 0.4130, 3.70, 3.30, 0.000, 1.003},
    {128, 176, 1, GemmForm::pingpong, 5.82, 0.4552, 3.72, 3.55, 0.000, 1.014},
    {128, 176, 2, GemmForm::late, 8.37, 0.4680, 0.33, 3.55, 0.000, 1.084},
    {128, 192, 1, GemmForm::pingpong, 5.62, 0.4989, 3.57, 3.80, 0.000, 0.920},
    {128, 224, 2, GemmForm::late, 10.04, 0.5825, 0.63, 4.30, 0.000, 1.035},
    {128, 256, 2, GemmForm::late, 9.93, 0.6688, 0.56, 4.80, 0.000, 1.045},
    {192, 128, 3, GemmForm::plain, 7.31, 0.5082, 0.81, 3.80, 0.000, 1.050},
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
    {16, 64, 1, GemmForm::swapped, 6.13, 0.1007, 0.14, 0.36, -0.122, 0.950},
    {16, 64, 1, GemmForm::two_blocks, 5.63, 0.1420, 0.39, 0.84, -0.055, 0.945},
    {32, 64, 1, GemmForm::swapped, 6.11, 0.1069, 1.14, 0.68, -0.076, 0.955},
    {64, 64, 1, GemmForm::swapped, 6.18, 0.1248, 1.06, 1.19, -0.138, 0.966},
    {64, 128, 2, GemmForm::swapped, 6.42, 0.1787, 1.44, 1.43, -0.042, 0.933},
    {128, 128, 2, GemmForm::plain, 7.03, 0.3286, 1.30, 2.90, -0.230, 0.969},
    {128, 128, 2, GemmForm::swapped, 6.93, 0.3269, 1.19, 2.50, -0.082, 0.969},
    {128, 128, 2, GemmForm::streamed, 7.43, 0.3326, 1.05, 2.80, 0.000, 1.018},
    {128, 256, 2, GemmForm::plain, 8.52, 0.6682, 2.05, 4.80, 0.000, 0.897},
    {128, 256, 2, GemmForm::clustered, 8.98, 0.6692, 2.17, 4.80, 0.000, 1.318},
    {192, 128, 3, GemmForm::plain, 7.24, 0.5002, 1.47, 3.80, 0.000, 0.949},
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
