// SPDX-License-Identifier: MIT
// The modelled time of a GEMM with int4 weights on CDNA. It ranks policies, and promises nothing. None of its constants
// is measured yet.
#pragma once

#include "tilewave/ops/gemm/choice/cost_cdna.hpp"
#include "tilewave/ops/gemm/choice/tile_count.hpp"

namespace tilewave {

/// Returns microseconds for m rows in each layer. It is the longest of five times: of memory, of L2, of L1, of the
/// products with the widening beside them, and of a wave's own steps.
inline double gemm_cost_int4(const GemmProblem& p, std::int32_t m, const GemmPolicy& policy, int splits,
                             const ArchFacts& facts) {
  const GemmTileCount count = gemm_tile_count(p, m, policy);
  const double k = p.k, row_bytes = k * size_of(p.spec.a),
               code_bytes = k * (0.5 + double(size_of(p.spec.group_scale())) / max_of(p.spec.scale_k, 1));
  // Contiguous groups without rows are not read.
  const double layers = p.spec.groups == GemmGroups::contiguous ? gemm_groups_hit(p, m) : double(gemm_layers(p));
  const double bytes = layers * p.n * code_bytes + count.rows * (row_bytes + double(p.n) * size_of(p.spec.out));
  const double memory = bytes / (0.85 * facts.hbm_bytes_per_second / 1e6);
  const double by_tiles = count.tiles * (min_of(policy.rows, m) * row_bytes + policy.columns * code_bytes);
  const double l2 = by_tiles / gemm_cdna_costs(facts.id, p.spec).l2;

  const double blocks = count.tiles * splits, units = facts.compute_units, block_k = k / splits;
  const int waves = policy.waves() * policy.waves_k;
  const auto rounds = [&](double at_a_time) { return double(std::int64_t((blocks + at_a_time - 1) / at_a_time)); };
  // In LDS codes become fp8 under rows of fp8, whose products take half as long, and whose steps are 128 k.
  const bool fp8 = policy.path == GemmPath::staged && is_fp8(p.spec.a);
  const double products =
      2.0 * policy.rows * policy.columns * block_k / (0.6 * (fp8 ? 2 : 1) * facts.bf16_flops / units / 1e6);
  // Each wave that multiplies a code widens it by two operations. On the way into LDS it is widened once, but sums are
  // scaled after each step.
  const bool in_lds = policy.path == GemmPath::staged;
  const double scaling = in_lds ? 0.5 * policy.rows * policy.columns / (fp8 ? 128.0 : 64.0) : 0.0;
  const double widening = (2.1 * policy.columns * (in_lds ? 1 : policy.waves_rows) + scaling) * block_k / (64 * 2000.0);
  // In each step of 128 k, a wave waits for what it loaded `stages` steps before. In LDS a step is 64 k, and what is
  // loaded in one is stored in the next.
  const double waiting =
      in_lds ? 0.8 * block_k / (fp8 ? 128 : 64) : 0.9 * block_k / 128 / (policy.waves_k * policy.stages);
  const double resident_blocks = units * max_of(1, policy.waves_per_simd * facts.simds_per_cu / waves);
  // In registers each wave reads its rows and codes through L1, of which it uses parts of lines: bytes in a microsecond
  // of a compute unit, fitted to modelled times.
  const double l1_bytes =
      min_of(policy.rows, m) * row_bytes * policy.waves_columns + policy.columns * code_bytes * policy.waves_rows;
  const double l1 = in_lds ? 0.0 : rounds(units) * l1_bytes / splits / per_arch(facts.id, 25e3, 34e3, 34e3);
  const double computing = max_of(rounds(units) * (products + widening), rounds(resident_blocks) * waiting);
  // Sums are written and read in f32.
  const double partials = 8.0 * splits * count.rows * p.n / (0.85 * facts.hbm_bytes_per_second / 1e6);
  const double combine = splits > 1 ? 3.0 + 0.3 * splits + partials : 0.0;
  return 3.5 + max_of(max_of(memory, l2), max_of(l1, computing)) + 0.15 * policy.waves_k + combine;
}

}  // namespace tilewave
