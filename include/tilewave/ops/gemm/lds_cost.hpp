// SPDX-License-Identifier: MIT
// What a GEMM is expected to cost on CDNA: it ranks policies, no more. Nothing of it is fitted to measurements yet.
#pragma once

#include <cmath>

#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/policy.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave {

/// Seconds, with m rows in each layer.
inline double gemm_cost_lds(const GemmProblem& p, std::int32_t m, const GemmPolicy& policy, int splits,
                            const ArchFacts& facts) {
  const int size = size_of(p.spec.a);
  const double flops = size == 1 ? facts.fp8_flops : facts.bf16_flops;
  const double layers = p.spec.groups == GemmGroups::one ? p.batch : p.groups;
  const double row_tiles = ceil_div(m, policy.rows), column_tiles = ceil_div(p.n, policy.columns);
  const double blocks = row_tiles * column_tiles * layers * splits;
  const double at_a_time = double{1} * facts.compute_units * policy.waves_per_simd;
  const double rounds = std::ceil(blocks / at_a_time);
  // Matrix time of a block, alone on its unit; tiles in registers load operands as often as waves need them.
  const double k = double{1} * p.k / splits, tile = double{1} * policy.rows * policy.columns;
  const double share = policy.path == GemmPath::weights_in_registers ? 0.4 : tile >= 256 * 256 ? 0.8 : 0.6;
  const double matrix = rounds * policy.waves_per_simd * 2 * tile * k / (share * flops / facts.compute_units);
  // Weights come from memory once for each row of tiles that is not in L2 at the same time: bounded below by once.
  const double bytes = layers * (double{1} * p.n * p.k + double{1} * m * p.k) * size + layers * 2.0 * m * p.n;
  const double busy = min_of(1.0, blocks / facts.compute_units);
  const double memory = bytes / (0.8 * facts.hbm_bytes_per_second * busy);
  // Sums put aside are written, read, and wait for a launch of their own.
  const double aside = splits > 1 ? 5e-6 + 2.0 * splits * layers * row_tiles * column_tiles * tile * sizeof(float) /
                                               facts.hbm_bytes_per_second
                                  : 0;
  return max_of(matrix, memory) + aside + 3e-6;
}

}  // namespace tilewave
