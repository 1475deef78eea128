// SPDX-License-Identifier: MIT
// The modelled time of a GEMM on CDNA. It ranks policies, and promises nothing.
#pragma once

#include <cmath>

#include "tilewave/ops/gemm/choice/tile_count.hpp"

namespace tilewave {

/// The constants of the model. They are fitted to modelled times, not to measured ones: to the simulator's clock for
/// MI300X and MI355X (docs/notebook/2026-11-23-clock-choices.md; tiles below 128 x 128: docs/notebook/campaigns).
struct GemmCdnaCosts {
  // Microseconds of a step of 128 bytes of K: 16 x 64 with operands in registers, 128 x 128, and larger tiles.
  double registers_step, small_step, large_step;
  double small_area;            // the exponent with which a smaller tile's step depends on its area
  double small_beside;          // more time of that step where two blocks share a compute unit
  double large_beside;          // more time of a large tile's step where all units multiply, which lowers the clock
  double l2, l2_small, memory;  // bytes a microsecond: operands by tile, by tile below 128 x 128, and each tensor once
  double start;                 // microseconds of a launch
  // Blocks that share K: microseconds of the second launch, of each split in it, and its bytes a microsecond.
  double combine, combine_split, combine_memory;
  double ring = 0;  // microseconds that tiles through LDS begin later than those in registers
  // What begins and ends a round of tiles of contiguous groups, through LDS (a walk of tiles has it once) and in
  // registers. Where it is fitted, a step of few rows in registers takes what the rows ask for that the groups have.
  double group_ring = 0, group_begin = 0;
};
constexpr GemmCdnaCosts gemm_cdna_costs(ArchId arch, const GemmSpec& s) {
  constexpr GemmCdnaCosts gfx942{0.53, 0.90, 2.22, 0.2, 0.11, 1.23, 11.6e6, 28.6e6, 4.0e6, 1.6, 1.24, 0.44, 1.3e6};
  constexpr GemmCdnaCosts gfx950{0.44, 0.55, 1.02, 0.75, 0.27, 0.85, 19.7e6, 27e6, 5.5e6, 4.4, 2.6, 1.46, 8.8e6};
  // By blocks on gfx950: docs/notebook/2026-11-28-gemm-cdna-beside-peers.md and 2026-11-28-moe-cdna-walk.md.
  constexpr GemmCdnaCosts blocks{0.33, 0.48, 0.74, 0.75, 0.7, 0.27, 19.7e6, 27e6, 5.5e6, 4.5, 3.6, 0.25, 8.8e6, 2.2};
  if (arch == ArchId::gfx950 && s.scale == Scaling::per_block && s.groups != GemmGroups::masked) {
    GemmCdnaCosts of_groups = blocks;
    of_groups.small_beside = 0.3, of_groups.memory = 7e6;
    if (s.gated) of_groups.large_step = 0.85;
    of_groups.group_ring = 3.8, of_groups.group_begin = 2.5;
    of_groups.combine = gfx950.combine, of_groups.combine_split = gfx950.combine_split;
    return s.groups == GemmGroups::one ? blocks : of_groups;
  }
  return per_arch(arch, gfx942, gfx950, gfx942);  // sm90 has a model of its own.
}

/// Returns microseconds for m rows in each layer, or in all contiguous groups together.
inline double gemm_cost_cdna(const GemmProblem& p, std::int32_t m, const GemmPolicy& policy, int splits,
                             const ArchFacts& facts) {
  const GemmCdnaCosts c = gemm_cdna_costs(facts.id, p.spec);
  const auto size_of_value = [](DType type) { return double(size_of(type)) / packing_of(type); };
  const double size = size_of_value(p.spec.a), size_b = size_of_value(p.spec.b);
  const GemmTileCount count = gemm_tile_count(p, m, policy);
  const double blocks = count.tiles * splits;
  const double units = facts.compute_units, at_a_time = units * policy.waves_per_simd;
  const double blocks_beside = blocks > units ? policy.waves_per_simd - 1 : 0;
  // Loads of preshuffled weights are whole lines, and take less time.
  const double lines = p.spec.weights == GemmWeights::preshuffled ? 0.57 : 1;
  const double registers_step = c.registers_step * lines * policy.columns / 64 * std::pow(policy.rows / 16.0, 0.2);
  const bool by_registers = policy.path == GemmPath::weights_in_registers;
  const double area = policy.rows * policy.columns / (128.0 * 128);
  const double step = by_registers ? registers_step
                      : area <= 1  ? c.small_step * std::pow(area, c.small_area) * (1 + c.small_beside * blocks_beside)
                                   : c.large_step * (1 + c.large_beside * min_of(1.0, blocks / units));
  // With MX scales a large tile is 256 x 256, or with fp8 weights half of that.
  const double large_area = p.spec.mx() && !by_registers && area > 1 ? area / 4 : 1.0;
  // Products of fp4 and fp6 take half the time of products with an fp8 operand.
  const double fp4_rate = p.spec.mx() && packing_of(p.spec.a) > 1 ? 0.5 : 1.0;
  const double steps = std::ceil(p.k * size / policy.depth_bytes / splits);
  // Where groups have one tile of rows each, two blocks share a unit, and whichever ends makes room.
  const bool grouped = p.spec.groups == GemmGroups::contiguous;
  const bool single = grouped && by_registers && m <= policy.rows * gemm_groups_hit(p, m);
  const bool fitted = c.group_ring > 0, flows = fitted && !by_registers;
  const double rounds = single  ? max_of(1.0, blocks / (2 * at_a_time))
                        : flows ? max_of(1.0, blocks / at_a_time)
                                : std::ceil(blocks / at_a_time);
  const double tile_rows = min_of<double>(policy.rows, double(m) * ceil_div(p.n, policy.columns) / count.tiles);
  const double by_rows = fitted && by_registers && count.tiles > units ? 0.4 + tile_rows / 8 : 1;
  const double begin = flows ? c.group_ring / gemm_walk(p, m, policy, facts) : fitted ? c.group_begin : 0;
  const double round = steps * step * by_rows * fp4_rate * large_area + begin;
  const double computing = rounds * round;
  const double by_tiles = count.tiles * ((fitted ? tile_rows : policy.rows) * size + policy.columns * size_b) * p.k /
                          (by_registers || area >= 1 ? c.l2 : c.l2_small);
  const double layers = p.spec.groups == GemmGroups::contiguous ? gemm_groups_hit(p, m) : gemm_layers(p);
  const double once = (layers * size_b * p.n * p.k + count.rows * (size * p.k + 2.0 * p.n)) / c.memory;
  // Partials are written, then read by a second launch.
  const double partial_bytes = 2.0 * blocks * policy.rows * policy.columns * sizeof(float);
  const double combine = splits > 1 ? c.combine + c.combine_split * splits + partial_bytes / c.combine_memory : 0;
  // A merge goes over all tiles that groups may have (docs/notebook/2026-11-28-moe-launches.md).
  if (grouped && splits > 1 && count.tiles >= units / 2) return 1e6;
  const double squares = computing * computing + by_tiles * by_tiles + once * once;
  return c.start + (by_registers ? 0 : c.ring) + std::sqrt(squares) + combine;
}

}  // namespace tilewave
