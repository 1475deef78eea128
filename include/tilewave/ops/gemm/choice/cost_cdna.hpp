// SPDX-License-Identifier: MIT
// What a GEMM is expected to take on CDNA: it ranks policies, no more.
#pragma once

#include <cmath>

#include "tilewave/ops/gemm/choice/tile_count.hpp"

namespace tilewave {

/// Fitted to modelled times, not to measured ones: those of the simulator's clock for MI300X and MI355X
/// (docs/notebook/2026-11-23-clock-choices.md; tiles below 128 x 128: docs/notebook/campaigns).
struct GemmCdnaCosts {
  double few, small, large;     // us of a step of 128 bytes of K: weights in registers; 128 x 128; 256 columns or rows
  double small_area;            // the power of a smaller tile's area that its step takes
  double small_beside;          // more of it where two blocks share a unit,
  double large_beside;          // and where all units multiply, which lowers the clock
  double l2, l2_small, memory;  // bytes a us: operands by tiles, by those below 128 x 128; operands and output once
  double start, aside, aside_split, aside_memory;  // us; us of sums put aside, and of each; bytes a us
};
constexpr GemmCdnaCosts gemm_cdna_costs(ArchId arch) {
  constexpr GemmCdnaCosts gfx942{0.53, 0.90, 2.22, 0.2, 0.11, 1.23, 11.6e6, 28.6e6, 4.0e6, 1.6, 1.24, 0.44, 1.3e6};
  constexpr GemmCdnaCosts gfx950{0.44, 0.55, 1.02, 0.75, 0.27, 0.85, 19.7e6, 27e6, 5.5e6, 4.4, 2.6, 1.46, 8.8e6};
  return per_arch(arch, gfx942, gfx950, gfx942);  // sm90 has costs of its own
}

/// Microseconds, with m rows in each layer, or in all contiguous groups together.
inline double gemm_cost_cdna(const GemmProblem& p, std::int32_t m, const GemmPolicy& policy, int splits,
                             const ArchFacts& facts) {
  const GemmCdnaCosts c = gemm_cdna_costs(facts.id);
  const auto size_of_value = [](DType type) { return double(size_of(type)) / packing_of(type); };
  const double size = size_of_value(p.spec.a), size_b = size_of_value(p.spec.b);
  const GemmTileCount count = gemm_tile_count(p, m, policy);
  const double tiles = count.tiles, blocks = tiles * splits;
  const double units = facts.compute_units, at_a_time = units * policy.waves_per_simd;
  const double beside = blocks > units ? policy.waves_per_simd - 1 : 0;
  // Preshuffled weights are whole lines.
  const double lines = p.spec.weights == GemmWeights::preshuffled ? 0.57 : 1;
  const double few = c.few * lines * policy.columns / 64 * std::pow(policy.rows / 16.0, 0.2);
  const bool by_registers = policy.path == GemmPath::weights_in_registers;
  const double area = policy.rows * policy.columns / (128.0 * 128);
  const double step = by_registers ? few
                      : area <= 1  ? c.small * std::pow(area, c.small_area) * (1 + c.small_beside * beside)
                                   : c.large * (1 + c.large_beside * min_of(1.0, blocks / units));
  // With mx scales a large tile is 256 x 256, or of fp8 half of that.
  const double part = p.spec.mx() && !by_registers && area > 1 ? area / 4 : 1.0;
  // Products of fp4 and fp6 take half the time of those that fp8 has a part in.
  const double half = p.spec.mx() && packing_of(p.spec.a) > 1 ? 0.5 : 1.0;
  const double steps = std::ceil(p.k * size / policy.depth_bytes / splits);
  const double computing = std::ceil(blocks / at_a_time) * steps * step * half * part;
  const double by_tiles =
      tiles * (policy.rows * size + policy.columns * size_b) * p.k / (by_registers || area >= 1 ? c.l2 : c.l2_small);
  const double once = (gemm_layers(p) * size_b * p.n * p.k + count.rows * (size * p.k + 2.0 * p.n)) / c.memory;
  // Sums put aside are written, read in turn, and wait for a launch of their own.
  const double sums = 2.0 * blocks * policy.rows * policy.columns * sizeof(float);
  const double aside = splits > 1 ? c.aside + c.aside_split * splits + sums / c.aside_memory : 0;
  const double squares = computing * computing + by_tiles * by_tiles + once * once;
  return c.start + std::sqrt(squares) + aside;
}

}  // namespace tilewave
