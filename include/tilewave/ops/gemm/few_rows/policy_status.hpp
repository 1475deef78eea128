// SPDX-License-Identifier: MIT
// The laws of policies of few rows on sm90, and how a law that is broken is told.
#pragma once

#include "tilewave/arch/facts.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave::detail {

constexpr Status illegal_policy(const char* reason) { return {StatusCode::bad_value, reason}; }

/// The laws of GemmFewRowsKernel: few rows of A by int4 weights on sm90.
constexpr Status gemm_few_rows_policy(const GemmSpec& s, const GemmPolicy& p) {
  if (s.scale_k != 128 || s.groups != GemmGroups::one)
    return illegal_policy("few rows of int4 weights: scale_k is 128, without groups");
  if (p.swapped || p.stream || p.sharers() != 1 || p.splits != 1)
    return illegal_policy("few rows of int4 weights: not swapped, no stream, one of cluster and splits");
  const int groups = p.waves_columns, waves = groups * p.waves_k;
  if (p.waves_rows != 1)
    return illegal_policy("few rows of int4 weights: waves share K, or take strips side by side: waves_rows is 1");
  if (p.waves_k % 4 != 0 && p.waves_k % 3 != 0)
    return illegal_policy(
        "few rows of int4 weights: sums are added three or four at a time: waves_k is such a multiple");
  if (waves % 4 != 0 || waves > 32)
    return illegal_policy("few rows of int4 weights: a block's waves are a multiple of 4, for four SIMDs, up to 32");
  if (waves * p.waves_per_simd > 64)
    return illegal_policy("an SM holds at most 2048 lanes: fewer waves, or fewer blocks (waves_per_simd)");
  if (p.rows % 8 != 0 || p.columns % (16 * groups) != 0)
    return illegal_policy(
        "few rows of int4 weights: rows are a multiple of 8, columns of a strip, 16, for each wave beside another");
  if (s.gated && p.columns % (32 * groups) != 0)
    return illegal_policy(
        "few rows of int4 weights, gated: columns are a multiple of 32, a strip of gates and its ups");
  if (p.depth_bytes != 128 * size_of(s.a))
    return illegal_policy("a stage of int4 weights is 128 values of k: depth_bytes is 128 times A's element");
  const int strips = p.columns / 16, sums = p.waves_k * strips * (p.rows / 8) * 32 * 16;
  if (p.columns / 16 / groups / (s.gated ? 2 : 1) > 8)
    return illegal_policy("few rows of int4 weights: a wave copies scales of at most eight strips at a time");
  if (sums + p.waves_k * p.stages * strips * (128 * 8 + 8 * 4 + (s.zero_points ? 16 : 0)) >
      (sm90_facts.lds_bytes + 1024) / p.waves_per_simd - 1024)
    return illegal_policy(
        "rings and sums of all waves exceed shared memory, of which waves_per_simd blocks have a part");
  return {};
}

/// The laws of GemmDenseFewRowsKernel: few rows of A by weights of 16 or 8 bits on sm90.
constexpr Status gemm_dense_few_rows_policy(const GemmSpec& s, const GemmPolicy& p) {
  if (s.a == DType::i8 || s.scale == Scaling::per_block || s.groups != GemmGroups::one ||
      s.weights != GemmWeights::row_major || s.layout != GemmLayout::nt || s.out_scale == Scaling::per_group)
    return illegal_policy(
        "few rows: one product of bf16, f16 or fp8, nt and row-major, without scales of blocks or groups");
  if (p.swapped || p.stream || p.pingpong || p.late || p.sharers() != 1 || p.splits != 1)
    return illegal_policy("few rows: not swapped, no stream, no pingpong, not late, one of cluster and splits");
  if (p.waves_rows != 1 || p.waves_columns != 1)
    return illegal_policy("few rows: waves share K, so waves_rows and waves_columns are 1");
  if (p.waves_k % 4 != 0 || p.waves_k > 32)
    return illegal_policy("few rows: waves_k is a multiple of 4, for four SIMDs, up to 32");
  if (p.waves_k * p.waves_per_simd > 64)
    return illegal_policy("an SM holds at most 2048 lanes: fewer waves, or fewer blocks (waves_per_simd)");
  if (p.rows % 8 != 0 || p.columns % (s.gated ? 32 : 16) != 0)
    return illegal_policy(s.gated
                              ? "few rows, gated: rows are a multiple of 8, columns of 32, a strip of gates and its ups"
                              : "few rows: rows are a multiple of 8, columns of a strip, 16");
  if (p.depth_bytes != 64) return illegal_policy("few rows: four lanes have 16 bytes each of a row: depth_bytes is 64");
  if (p.waves_k * (p.columns / 16) * (p.rows / 8) * 32 * 16 > (sm90_facts.lds_bytes + 1024) / p.waves_per_simd - 1024)
    return illegal_policy("sums of all waves exceed shared memory, of which waves_per_simd blocks have a part");
  return {};
}

}  // namespace tilewave::detail
