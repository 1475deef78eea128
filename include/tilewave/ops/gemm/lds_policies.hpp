// SPDX-License-Identifier: MIT
// The policies that entries of CDNA are built for.
#pragma once

#include <array>

#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

struct GemmPolicies {
  std::array<GemmPolicy, 16> list{};
  int count = 0;
  constexpr void add(const GemmPolicy& p) { list[count++] = p; }
};

constexpr GemmPolicies gemm_lds_policies(ArchId arch, const GemmSpec& s) {
  GemmPolicies all;
  const bool direct = arch == ArchId::gfx950, blocks = s.scale == GemmScale::block;
  const GemmPath path = direct ? GemmPath::direct : GemmPath::staged;
  const bool preshuffled = s.weights == GemmWeights::preshuffled;
  if (!preshuffled) {
    if (!blocks) {
      if (direct) {
        all.add({.rows = 256, .columns = 256, .stages = 2, .waves_rows = 2, .waves_columns = 2, .path = path});
      }
      all.add(
          {.rows = 256, .columns = 256, .stages = direct ? 2 : 1, .waves_rows = 2, .waves_columns = 4, .path = path});
    }
    all.add({.rows = 128,
             .columns = 128,
             .stages = direct ? 2 : 1,
             .waves_rows = 2,
             .waves_columns = 2,
             .path = path,
             .splits = 16,
             .waves_per_simd = 2});
  }
  // Few rows: 16 columns of 16 rows of B a wave are 2 KiB in flight a step.
  const auto few = [&](int rows, int columns, int stages) {
    all.add({.rows = rows,
             .columns = columns,
             .stages = stages,
             .waves_rows = 1,
             .waves_columns = 4,
             .path = GemmPath::weights_in_registers,
             .splits = 16,
             .waves_per_simd = 1});
  };
  few(16, blocks ? 128 : 64, 4);
  if (preshuffled) {
    few(32, 128, 4);
    few(64, 128, 2);
  }
  return all;
}

}  // namespace tilewave
