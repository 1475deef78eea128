// SPDX-License-Identifier: MIT
// In which order the main loop through LDS does things: what stands between its products, how units become operands,
// and which step is copied next where a block goes through several tiles.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/core/vec.hpp"
#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave::detail {

/// Deals `count` actions out over the gaps behind so many products, and runs those of gap `at`.
template <int count, int gaps, int at, class Action>
TILEWAVE_DEVICE void gemm_interleave(const Action& action) {
  constexpr int from = count * at / gaps, to = count * (at + 1) / gaps;
  tilewave::static_for<to - from>([&](auto index) TILEWAVE_INLINE_LAMBDA { action(Index<from + index>{}); });
}

/// Copies a lane's units to the operand of a product. Two slices of fp6 share three units: an odd slice begins with
/// the last six words of its two.
template <DType type, int parity, int chunks>
TILEWAVE_DEVICE void gemm_arrange(const Chunk (&units)[chunks], Chunk (&operand)[chunks]) {
  TILEWAVE_UNROLL
  for (int w = 0; w < 4 * chunks; ++w) {
    const int from = is_fp6(type) && parity == 1 ? min_of(w + 2, 4 * chunks - 1) : w;
    operand[w / 4][w % 4] = units[from / 4][from % 4];
  }
}

/// The step that is copied next on a walk: a step of a tile, and the tile's number. Behind the last tile it is a step
/// beyond K, of which copies read nothing.
template <class B>
struct GemmAhead {
  std::int32_t step = 0, tile = 0, tiles = 1, steps = 0;  // steps: of a tile
  std::int32_t next_b = 0, next_scale = 0;                // from a tile to the next: bytes of B, elements of its scales

  TILEWAVE_DEVICE void advance() {
    if (step < steps) ++step;
    if (step < steps || tile + 1 >= tiles) return;
    step = 0, ++tile;
  }
  // The compiler would keep these in vector registers, which no copy takes.
  TILEWAVE_DEVICE std::int32_t b() const { return B::uniform(tile * next_b); }
  TILEWAVE_DEVICE std::int32_t scale() const { return B::uniform(tile * next_scale); }
};

}  // namespace tilewave::detail
