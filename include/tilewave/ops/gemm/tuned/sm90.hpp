// SPDX-License-Identifier: MIT
// Where the cost model's choice took over 3 % longer than the best plan that was timed in at least two runs.
// source: docs/notebook/tuned/gemm_bf16_sm90_2026-11-28-3.csv.gz, gemm_unseen_sm90_2026-11-28.csv.gz and -2.csv.gz
// device: NVIDIA H200, 2026-11-28
// commit: 87be778b
#pragma once

#include <array>

#include "tilewave/ops/gemm/tuned/row.hpp"

namespace tilewave {

namespace detail {

/// A row for one product of bf16 with exactly these extents.
constexpr TunedGemm tuned_bf16(std::int32_t m, std::int32_t n, std::int32_t k, int splits, const GemmPolicy& policy) {
  return {{}, m, m, n, k, 1, 0, policy, splits};
}

/// The same of fp8 with fast sums.
constexpr TunedGemm tuned_fast(Scaling scale, std::int32_t m, std::int32_t n, std::int32_t k, int splits,
                               const GemmPolicy& policy) {
  constexpr DType fp8 = DType::fp8_e4m3fn;
  return {{.a = fp8, .b = fp8, .scale = scale, .sums = GemmSums::fast}, m, m, n, k, 1, 0, policy, splits};
}

}  // namespace detail

inline constexpr std::array tuned_gemm_sm90{
    detail::tuned_bf16(32, 1024, 1536, 5,
                       {.rows = 32, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .splits = 8}),
    detail::tuned_bf16(64, 2112, 7168, 4,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(64, 8960, 5120, 1,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(96, 2048, 11008, 4,
                       {.rows = 96, .columns = 128, .stages = 7, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(128, 384, 7168, 8,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(128, 896, 4864, 6,
                       {.rows = 128, .columns = 64, .stages = 8, .waves_rows = 1, .swapped = true, .splits = 8}),
    detail::tuned_bf16(128, 5120, 8192, 1, {.rows = 64, .columns = 96, .stages = 10, .waves_rows = 1, .cluster = 2}),
    detail::tuned_bf16(128, 5120, 12800, 1, {.rows = 64, .columns = 96, .stages = 10, .waves_rows = 1, .cluster = 2}),
    detail::tuned_bf16(
        160, 64, 896, 6,
        {.rows = 16, .columns = 64, .stages = 8, .waves_rows = 1, .swapped = true, .splits = 8, .waves_per_simd = 2}),
    detail::tuned_bf16(160, 1280, 8192, 4,
                       {.rows = 96, .columns = 128, .stages = 7, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(192, 960, 5120, 3,
                       {.rows = 96, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .splits = 8}),
    detail::tuned_bf16(192, 1152, 8192, 4,
                       {.rows = 96, .columns = 128, .stages = 7, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(320, 896, 4864, 3,
                       {.rows = 80, .columns = 128, .stages = 7, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(512, 256, 2560, 4,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(1024, 256, 7168, 4,
                       {.rows = 96, .columns = 128, .stages = 7, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(
        1024, 512, 7168, 1,
        {.rows = 96, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .cluster_columns = 4}),
    detail::tuned_bf16(
        2048, 256, 4096, 1,
        {.rows = 64, .columns = 64, .stages = 13, .waves_rows = 1, .swapped = true, .cluster_columns = 2}),
    detail::tuned_bf16(4096, 160, 4096, 2, {.rows = 64, .columns = 160, .stages = 7, .waves_rows = 1, .splits = 4}),
    // By docs/notebook/2026-11-28-gemm-scales-ahead.md.
    detail::tuned_bf16(64, 4096, 4096, 2,
                       {.rows = 80, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .splits = 8}),
    detail::tuned_fast(
        Scaling::per_row, 4096, 128, 5120, 1,
        {.rows = 64, .columns = 64, .stages = 13, .waves_rows = 1, .swapped = true, .cluster_columns = 2}),
    detail::tuned_fast(
        Scaling::per_row, 4096, 128, 7168, 1,
        {.rows = 64, .columns = 64, .stages = 13, .waves_rows = 1, .swapped = true, .cluster_columns = 2}),
    detail::tuned_fast(
        Scaling::per_row, 96, 4096, 4096, 1,
        {.rows = 96, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .cluster_columns = 4}),
    detail::tuned_fast(
        Scaling::per_row, 96, 6144, 4096, 1,
        {.rows = 96, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .cluster_columns = 4}),
    detail::tuned_fast(
        Scaling::per_row, 96, 5120, 8192, 1,
        {.rows = 96, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .cluster_columns = 4}),
    detail::tuned_fast(
        Scaling::per_tensor, 4096, 128, 5120, 1,
        {.rows = 64, .columns = 64, .stages = 13, .waves_rows = 1, .swapped = true, .cluster_columns = 2}),
    detail::tuned_fast(
        Scaling::per_tensor, 4096, 128, 7168, 1,
        {.rows = 64, .columns = 64, .stages = 13, .waves_rows = 1, .swapped = true, .cluster_columns = 2}),
    detail::tuned_fast(
        Scaling::per_tensor, 96, 4096, 4096, 1,
        {.rows = 96, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .cluster_columns = 4}),
    detail::tuned_fast(
        Scaling::per_tensor, 96, 6144, 4096, 1,
        {.rows = 96, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .cluster_columns = 4}),
    detail::tuned_fast(
        Scaling::per_tensor, 96, 5120, 8192, 1,
        {.rows = 96, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .cluster_columns = 4}),
    // Where the model took over a tenth longer in docs/notebook/2026-11-28-gemm-unseen-shapes.md, lists of the project.
    detail::tuned_bf16(2048, 384, 7168, 1,
                       {.rows = 64, .columns = 96, .stages = 10, .waves_rows = 1, .cluster_columns = 2}),
    detail::tuned_bf16(256, 256, 4096, 8,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(256, 512, 4096, 4,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_bf16(
        2048, 256, 7168, 1,
        {.rows = 64, .columns = 64, .stages = 13, .waves_rows = 1, .swapped = true, .cluster_columns = 2}),
    detail::tuned_bf16(
        1024, 512, 4096, 1,
        {.rows = 96, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .cluster_columns = 4}),
    detail::tuned_bf16(2048, 512, 7168, 1,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 1, .cluster_columns = 2}),
    detail::tuned_bf16(256, 512, 7168, 4,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_fast(Scaling::per_tensor, 256, 192, 4096, 5,
                       {.rows = 64, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .splits = 8}),
    detail::tuned_fast(Scaling::per_tensor, 1024, 512, 7168, 1,
                       {.rows = 64, .columns = 96, .stages = 10, .waves_rows = 1}),
    detail::tuned_fast(Scaling::per_tensor, 96, 2112, 7168, 4,
                       {.rows = 96, .columns = 128, .stages = 7, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_fast(Scaling::per_tensor, 256, 512, 7168, 4,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_fast(Scaling::per_row, 64, 2880, 4096, 4,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_fast(Scaling::per_row, 2048, 320, 5120, 1,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_fast(
        Scaling::per_row, 2048, 256, 7168, 1,
        {.rows = 64, .columns = 64, .stages = 13, .waves_rows = 1, .swapped = true, .cluster_columns = 2}),
    detail::tuned_fast(Scaling::per_row, 1024, 512, 7168, 1,
                       {.rows = 64, .columns = 96, .stages = 10, .waves_rows = 1}),
    // By two trials or the command's tables of docs/notebook/2026-11-28-gemm-boxes-in-turn.md and the page before it.
    detail::tuned_fast(Scaling::per_row, 64, 4096, 4096, 1,
                       {.rows = 64, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .splits = 8}),
    detail::tuned_fast(Scaling::per_tensor, 64, 4096, 4096, 1,
                       {.rows = 64, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .splits = 8}),
    detail::tuned_bf16(
        64, 7168, 8192, 1,
        {.rows = 64, .columns = 64, .stages = 10, .waves_rows = 1, .swapped = true, .cluster_columns = 4}),
    detail::tuned_bf16(64, 10240, 8192, 1,
                       {.rows = 80, .columns = 128, .stages = 7, .waves_rows = 2, .swapped = true, .splits = 8}),
    detail::tuned_fast(Scaling::per_row, 4096, 256, 7168, 1,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 1, .cluster_columns = 2}),
    detail::tuned_fast(Scaling::per_tensor, 4096, 256, 7168, 1,
                       {.rows = 64, .columns = 128, .stages = 8, .waves_rows = 1, .cluster_columns = 2})};

}  // namespace tilewave
