// SPDX-License-Identifier: MIT
// Sums of experts' results. Grid: one block for each tile of columns (row_tiles.hpp). A lane first fetches the
// positions of a batch of slots, then all their rows of x together, and adds them by rising slot. A slot that is left
// out has an empty window, so that nothing branches. No LDS. Bound: memory, topk reads and one write for each value.
#pragma once

#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/moe_reduce/policy.hpp"
#include "tilewave/ops/moe_reduce/problem.hpp"

namespace tilewave {

struct MoeReduceArgs {
  const void* x;
  const std::int32_t* slots;
  const float* weights;
  const std::int32_t *topk_ids, *expert_mask;
  const void* residual;
  RowExtent extent;
  RowOutputArgs output;
  FastDiv tiles;  // tiles of a row
  std::int64_t x_stride, x_slot_stride, residual_stride;
  std::int32_t topk, x_rows, experts;
};
static_assert(sizeof(MoeReduceArgs) <= sm90_arguments_with_launch);

template <class B, MoeReduceSpec S, MoeReducePolicy P>
struct MoeReduce {
  using Room = B;
  using Args = MoeReduceArgs;
  using Tile = Row<B, S.x, P>;
  using Output = RowOutput<B, S.x, RowOutputSpec{S.x, Scaling::none}, P>;
  using LaneRow = typename Tile::LaneRow;
  static constexpr int block_threads = P.block_threads(), waves_per_simd = P.waves_per_simd;
  static constexpr int unit = Tile::unit, batch = moe_reduce_batch(P, S.x), few = moe_reduce_few(B::facts.id, P, S.x);
  using Shared = typename Tile::template Shared<1>;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const LaneRow at = tile_lane_row<B, Tile, P>(a.extent, a.tiles, shared);
    const std::uint32_t bytes = at.active ? Tile::template window_bytes<S.x>(a.extent.columns - at.first) : 0;
    Vec<float, unit> sums[P.chunks] = {};
    // A batch loads all its slots; those beyond topk have empty windows. Few slots use a smaller batch, with fewer
    // addresses in front of the first load.
    if (few < batch && a.topk <= few) {
      passes<few>(a, at, bytes, sums);
    } else {
      passes<batch>(a, at, bytes, sums);
    }
    if (a.residual != nullptr) {
      Tile x;
      load(x, at, a.residual, at.row * a.residual_stride, bytes);
      add(sums, x, 1.0f);
    }
    Output::template write<0>(
        a.output, a.extent, at, shared, [&](const auto& body) { body(at.first); },
        [&](int chunk, int) TILEWAVE_INLINE_LAMBDA { return sums[chunk]; });
  }

 private:
  /// Adds all slots, n at a time.
  template <int n>
  TILEWAVE_DEVICE static void passes(const Args& a, const LaneRow& at, std::uint32_t bytes,
                                     Vec<float, unit> (&sums)[P.chunks]) {
    for (int first = 0; first < a.topk; first += n) {
      const Slots<n> slots(a, min_of(at.row, a.extent.rows - 1), first);
      Tile x[n];
      TILEWAVE_UNROLL
      for (int k = 0; k < n; ++k) load(x[k], at, a.x, slots.offset[k], slots.counts[k] ? bytes : 0);
      B::sched_fence();  // no sum before the last load, and no look at weights
      TILEWAVE_UNROLL
      for (int k = 0; k < n; ++k) add(sums, x[k], slots.counts[k] ? slots.weight[k] : 0.0f);
    }
  }

  /// n slots of a token from `first` on: whether each counts, the element at which its row starts, and its weight.
  /// Nothing waits for the weights before the rows are requested.
  template <int n>
  struct Slots {
    std::int64_t offset[n];
    float weight[n];
    bool counts[n];

    TILEWAVE_DEVICE Slots(const Args& a, std::int32_t row, int first) {
      const std::int64_t start = std::int64_t{row} * a.topk;
      std::int32_t slot[n];  // slot in the tables; beyond the end the last one again
      TILEWAVE_UNROLL
      for (int k = 0; k < n; ++k) {
        slot[k] = min_of(first + k, a.topk - 1);
        counts[k] = first + k < a.topk;
        offset[k] = row * a.x_stride + slot[k] * a.x_slot_stride;
        weight[k] = 1.0f;
      }
      if (a.slots != nullptr) {
        std::int32_t of_x[n];
        TILEWAVE_UNROLL
        for (int k = 0; k < n; ++k) of_x[k] = B::load(a.slots + start + slot[k]);
        load_weights(a, start, slot);
        TILEWAVE_UNROLL
        for (int k = 0; k < n; ++k) {
          counts[k] = counts[k] & inside(of_x[k], a.x_rows);
          offset[k] = of_x[k] * a.x_stride;
        }
      } else {
        load_weights(a, start, slot);
      }
      if (a.expert_mask != nullptr) {
        std::int32_t expert[n];
        TILEWAVE_UNROLL
        for (int k = 0; k < n; ++k) expert[k] = B::load(a.topk_ids + start + slot[k]);
        TILEWAVE_UNROLL
        for (int k = 0; k < n; ++k) {
          counts[k] = counts[k] & inside(expert[k], a.experts);
          expert[k] = B::load(a.expert_mask + (counts[k] ? expert[k] : 0));
        }
        TILEWAVE_UNROLL
        for (int k = 0; k < n; ++k) counts[k] = counts[k] & (expert[k] != 0);
      }
    }
    TILEWAVE_DEVICE void load_weights(const Args& a, std::int64_t start, const std::int32_t (&slot)[n]) {
      if (a.weights == nullptr) return;
      TILEWAVE_UNROLL
      for (int k = 0; k < n; ++k) weight[k] = B::load(a.weights + start + slot[k]);
    }
    TILEWAVE_DEVICE static bool inside(std::int32_t i, std::int32_t count) {
      return static_cast<std::uint32_t>(i) < static_cast<std::uint32_t>(count);
    }
  };

  /// Loads the tile of a row that starts at an element of `data`. Without bytes the tile becomes zeros.
  TILEWAVE_DEVICE static void load(Tile& x, const LaneRow& at, const void* data, std::int64_t offset,
                                   std::uint32_t bytes) {
    const auto* from = static_cast<const Storage<S.x>*>(data) + offset + at.first;
    const typename Tile::Window row{B::opaque(from), bytes};
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      x.chunks[c] = row.template load_stream<typename Tile::Packed>(Tile::column(at.lane, c) * size_of(S.x));
    }
  }
  TILEWAVE_DEVICE static void add(Vec<float, unit> (&sums)[P.chunks], const Tile& x, float weight) {
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      const Vec<float, unit> v = x.values(c);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) sums[c][e] += weight * v[e];
    }
  }
};

}  // namespace tilewave
