// SPDX-License-Identifier: MIT
// Sort the choices of tokens by expert: a counting sort that keeps their order. Grid: blocks, each with a run of
// choices. A block takes a tile of them at a time: every wave finds, among its lanes, who chose the same expert, and
// counts experts for itself in shared memory, where nobody else writes; then counts of waves before become places.
// Nothing is added up by atomics, so every place is the same each time.
//
// Where one block does, it counts all choices and then places them; blocks beside it count them as well, to write
// their share of the pads, which are many more than few choices. Else MoeSortCount leaves the counts of every
// block in the workspace, and each block of MoeSort sums those of the blocks before it and of all. Bound: latency of
// two reads of memory in a row up to some ten thousand choices, then memory.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/moe_sort/policy.hpp"
#include "tilewave/ops/moe_sort/problem.hpp"

namespace tilewave {

struct MoeSortArgs {
  const std::int32_t* topk_ids;
  const float* topk_weights;
  const std::int32_t* expert_mask;
  std::int32_t* sorted_ids;
  std::int32_t* sorted_expert_ids;
  std::int32_t* num_tokens_post_pad;
  float* sorted_weights;
  std::int32_t* group_offsets;
  std::int32_t* group_counts;
  std::int32_t* rows;
  std::int64_t ids_stride, weights_stride, rows_stride;
  std::int32_t* counts;  // [blocks, experts], in the workspace
  FastDiv topk, unit;
  std::int32_t tokens, choices, experts, capacity;
  std::int32_t units, units_of_wave;   // of the capacity; those that a wave looks at together
  std::int32_t experts_of_lane;        // where each lane takes neighbours
  std::int32_t blocks, block_choices;  // of a block, whole tiles
  std::int32_t writers;                // blocks of the launch: more than `blocks` where one places all
};

/// What waves count, and how choices are read: of both kernels.
template <class B, MoeSortPolicy P>
struct MoeSortTile {
  static constexpr int wave_lanes = B::facts.wave_lanes, waves = P.threads / wave_lanes;
  static constexpr int none = most_sorted_experts;  // the expert of a choice that gets no row
  static constexpr int expert_bits = 11;
  static constexpr int choices = P.tile();
  struct Counts {
    std::int32_t of[waves][most_sorted_experts];
  };

  /// Choice `turn` of this lane in the tile that starts at `first`: waves, then turns, then lanes follow one another.
  TILEWAVE_DEVICE static std::int32_t choice(std::int32_t first, int wave, int turn) {
    return first + (wave * P.turns + turn) * wave_lanes + B::lane_id();
  }
  TILEWAVE_DEVICE static std::int32_t expert_of(const MoeSortArgs& a, std::int32_t choice, std::int32_t end) {
    if (choice >= end) return none;
    const std::int32_t token = a.topk.quotient(choice);
    const std::int32_t id = B::load(a.topk_ids + token * a.ids_stride + (choice - token * a.topk.divisor));
    if (id < 0 || id >= a.experts) return none;
    return a.expert_mask != nullptr && B::load(a.expert_mask + id) == 0 ? none : id;
  }
  /// The experts of this lane's choices of a tile.
  using Experts = Vec<std::int32_t, P.turns>;
  TILEWAVE_DEVICE static Experts read(const MoeSortArgs& a, std::int32_t first, std::int32_t end) {
    const int wave = B::wave_id();
    Experts experts;
    TILEWAVE_UNROLL
    for (int i = 0; i < P.turns; ++i) experts[i] = expert_of(a, choice(first, wave, i), end);
    return experts;
  }
  TILEWAVE_DEVICE static void clear(const MoeSortArgs& a, Counts& counts) {
    std::int32_t* const own = counts.of[B::wave_id()];
    TILEWAVE_ROLL
    for (std::int32_t e = B::lane_id(); e < a.experts; e += wave_lanes) own[e] = 0;
  }
  /// How many choices of this wave came before this lane's of the same expert, since the counts were clear. By all
  /// lanes of a wave.
  TILEWAVE_DEVICE static std::int32_t rank(Counts& counts, std::int32_t expert) {
    std::int32_t* const own = counts.of[B::wave_id()];
    const Peers same = B::template peers<expert_bits>(static_cast<std::uint32_t>(expert));
    B::wave_barrier();  // counts of the turn before are there
    const std::int32_t before = expert != none ? own[expert] : 0;
    B::wave_barrier();  // all have read
    if (expert != none && same.before == 0) own[expert] = before + same.count;
    return before + same.before;
  }
  /// This lane's choices of a tile, and how many of the same expert came before each in its wave.
  struct Ranked {
    Experts experts, ranks;
  };
  TILEWAVE_DEVICE static void rank(Counts& counts, Ranked& tile) {
    TILEWAVE_UNROLL
    for (int i = 0; i < P.turns; ++i) tile.ranks[i] = rank(counts, tile.experts[i]);
  }
  /// Counts of all waves from choice `first` to `end`, by the whole block; what the last tile had.
  TILEWAVE_DEVICE static Ranked count(const MoeSortArgs& a, Counts& counts, std::int32_t first, std::int32_t end) {
    Ranked tile{};
    TILEWAVE_ROLL
    for (; first < end; first += choices) {
      tile.experts = read(a, first, end);
      rank(counts, tile);
    }
    return tile;
  }
  TILEWAVE_DEVICE static std::int32_t sum(const Counts& counts, std::int32_t expert) {
    std::int32_t all = 0;
    TILEWAVE_UNROLL
    for (int w = 0; w < waves; ++w) all += counts.of[w][expert];
    return all;
  }
};

/// The counts of every block.
template <class B, MoeSortSpec S, MoeSortPolicy P>
struct MoeSortCount {
  using Room = B;
  using Args = MoeSortArgs;
  using Tile = MoeSortTile<B, P>;
  using Shared = typename Tile::Counts;
  static constexpr int block_threads = P.threads, waves_per_simd = P.waves_per_simd;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& counts) {
    B::launch_next();
    const std::int32_t first = B::block_id() * a.block_choices;
    Tile::clear(a, counts);
    Tile::count(a, counts, first, min_of(first + a.block_choices, a.choices));
    B::barrier();
    TILEWAVE_ROLL
    for (std::int32_t e = B::block_lane_id(); e < a.experts; e += P.threads) {
      B::store(a.counts + std::int64_t{B::block_id()} * a.experts + e, Tile::sum(counts, e));
    }
  }
};

template <class B, MoeSortSpec S, MoeSortPolicy P>
struct MoeSort {
  using Room = B;
  using Args = MoeSortArgs;
  using Tile = MoeSortTile<B, P>;
  static constexpr int block_threads = P.threads, waves_per_simd = P.waves_per_simd;
  struct Shared {
    typename Tile::Counts counts;                 // then places
    std::int32_t next[most_sorted_experts];       // row of an expert's next choice
    std::int32_t start[most_sorted_experts + 1];  // first row of an expert, then the end of all
    std::int32_t local[most_sorted_experts];      // which local expert; above 16 bits, pads behind its choices
    Vec<std::int32_t, 2> wave_sums[Tile::waves];
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t first = B::block_id() * a.block_choices, end = min_of(first + a.block_choices, a.choices);
    Tile::clear(a, shared.counts);
    // Inputs alone, while MoeSortCount still works. Counts are the first tile's, unless one block has all of several.
    const bool alone = a.blocks == 1;
    bool ranked = !alone || a.choices <= Tile::choices;
    typename Tile::Ranked tile_of =
        Tile::count(a, shared.counts, alone ? 0 : first, alone ? a.choices : min_of(first + Tile::choices, end));
    if (!ranked) tile_of.experts = Tile::read(a, first, end);
    B::barrier();
    B::wait_for_previous();
    lay_out(a, shared);
    TILEWAVE_ROLL
    for (std::int32_t tile = first; tile < end; tile += Tile::choices) {
      if (!ranked) {
        Tile::clear(a, shared.counts);
        Tile::rank(shared.counts, tile_of);
        B::barrier();
      }
      place(a, shared, tile, end, tile_of);
      tile_of.experts = Tile::read(a, tile + Tile::choices, end);
      ranked = false;
    }
    write_rest(a, shared);
  }

 private:
  /// Sums over what lanes with lower numbers have, and over all of the block. One barrier.
  struct Scan {
    Vec<std::int32_t, 2> before, all;
  };
  TILEWAVE_DEVICE static Scan scan(Shared& shared, Vec<std::int32_t, 2> x) {
    const int wave = B::wave_id();
    const Vec<std::int32_t, 2> sum{{B::sum_up_to(x[0]), B::sum_up_to(x[1])}};
    if (B::lane_id() == Tile::wave_lanes - 1) shared.wave_sums[wave] = sum;
    B::barrier();
    Scan found{};
    TILEWAVE_UNROLL
    for (int i = 0; i < 2; ++i) {
      found.before[i] = sum[i] - x[i];
      TILEWAVE_UNROLL
      for (int w = 0; w < Tile::waves; ++w) {
        const std::int32_t of_wave = shared.wave_sums[w][i];
        found.before[i] += w < wave ? of_wave : 0;
        found.all[i] += of_wave;
      }
    }
    return found;
  }

  using Counted = typename B::template Window<true>;  // what MoeSortCount left
  /// The choices of an expert, and those of them in blocks before this one.
  TILEWAVE_DEVICE static Vec<std::int32_t, 2> counts_of(const Args& a, const Shared& shared, const Counted& counts,
                                                        std::int32_t expert) {
    if (a.blocks == 1) return {{Tile::sum(shared.counts, expert), 0}};
    constexpr int batch = 32;  // reads under way; of blocks that are not there 0
    Vec<std::int32_t, 2> sum{};
    std::uint32_t at = static_cast<std::uint32_t>(4 * expert);
    TILEWAVE_ROLL
    for (std::int32_t first = 0; first < a.blocks; first += batch) {
      std::int32_t count[batch];
      TILEWAVE_UNROLL
      for (int i = 0; i < batch; ++i) {
        count[i] = counts.template load<std::int32_t>(at);
        at = B::settle(at + static_cast<std::uint32_t>(4 * a.experts));  // not 32 products in as many scalar registers
      }
      const std::int32_t before = B::settle(B::block_id() - first);  // in a vector register: masks fill the others
      TILEWAVE_UNROLL
      for (int i = 0; i < batch; ++i) {
        sum[0] += count[i];
        sum[1] += count[i] & ((i - before) >> 31);
      }
    }
    return sum;
  }

  TILEWAVE_DEVICE static std::int32_t padded(const Args& a, std::int32_t count) {
    return a.unit.quotient(max_of(count, 0) + a.unit.divisor - 1) * a.unit.divisor;
  }
  /// Where each expert's rows are, and this block's among them; block 0 tells.
  TILEWAVE_DEVICE static void lay_out(const Args& a, Shared& shared) {
    const Counted counts{a.counts, static_cast<std::uint32_t>(4 * a.blocks * a.experts)};
    TILEWAVE_ROLL
    for (std::int32_t e = B::block_lane_id(); e < a.experts; e += P.threads) {
      const bool local = a.expert_mask == nullptr || B::load(a.expert_mask + e) != 0;
      const Vec<std::int32_t, 2> count = counts_of(a, shared, counts, e);
      shared.start[e] = local ? count[0] : -1;  // until the first rows are known
      shared.next[e] = count[1];
    }
    B::barrier();
    const std::int32_t first = B::block_lane_id() * a.experts_of_lane,
                       end = min_of(first + a.experts_of_lane, a.experts);
    Vec<std::int32_t, 2> mine{};  // rows, local experts
    TILEWAVE_ROLL
    for (std::int32_t e = first; e < end; ++e) {
      mine[0] += padded(a, shared.start[e]);
      mine[1] += shared.start[e] >= 0 ? 1 : 0;
    }
    const Scan found = scan(shared, mine);
    std::int32_t row = found.before[0], index = found.before[1];
    const std::int32_t rows = found.all[0], locals = found.all[1];
    TILEWAVE_ROLL
    for (std::int32_t e = first; e < end; ++e) {
      const std::int32_t choices = shared.start[e], count = max_of(choices, 0), beyond = row + padded(a, count);
      const bool local = choices >= 0;
      shared.start[e] = row;
      shared.next[e] += row;
      shared.local[e] = index | (beyond - row - count) << 16;
      if (B::block_id() == 0) {  // what is not local stands behind
        const std::int32_t at = local ? index : locals + e - index;
        if (a.group_offsets != nullptr) B::store(a.group_offsets + at, local ? row : rows);
        if (a.group_counts != nullptr) B::store(a.group_counts + at, count);
      }
      row = beyond;
      index += local ? 1 : 0;
    }
    if (B::block_lane_id() == 0) {
      shared.start[a.experts] = rows;
      if (B::block_id() == 0) {
        if (a.group_offsets != nullptr) B::store(a.group_offsets + a.experts, rows);
        B::store(a.num_tokens_post_pad, rows);
        B::store(a.num_tokens_post_pad + 1, a.tokens);
      }
    }
    B::barrier();
  }

  TILEWAVE_DEVICE static void write_pad(const Args& a, std::int32_t row) {
    B::store(a.sorted_ids + row, a.topk.divisor << sorted_token_bits | a.tokens);
    if (a.sorted_weights != nullptr) B::store(a.sorted_weights + row, 0.0f);
  }

  /// The experts of all units, and pads; every block its share. A lane finds what a unit has, then the wave writes the
  /// pads of one unit after the other, so that neighbours are written together.
  TILEWAVE_DEVICE static void write_rest(const Args& a, const Shared& shared) {
    constexpr int wave_lanes = Tile::wave_lanes;
    const std::int32_t rows = shared.start[a.experts], lane = B::lane_id();
    const std::int32_t wave = B::block_id() * Tile::waves + B::wave_id(), share = a.units_of_wave;
    TILEWAVE_ROLL
    for (std::int32_t first = wave * share; first < a.units; first += a.writers * Tile::waves * share) {
      const std::int32_t unit = first + lane, row = unit * a.unit.divisor;
      std::int32_t expert = 0, beyond = a.experts;  // start[expert] <= row < start[beyond], if there are such
      TILEWAVE_ROLL
      while (beyond - expert > 1) {
        const std::int32_t middle = (expert + beyond) / 2;
        (shared.start[middle] <= row ? expert : beyond) = middle;
      }
      if (lane < share && unit < a.units)
        B::store(a.sorted_expert_ids + unit, row < rows ? shared.local[expert] & 0xffff : -1);
      const std::int32_t pads = row < rows ? max_of(row, shared.start[expert + 1] - (shared.local[expert] >> 16)) : row;
      TILEWAVE_ROLL
      for (int i = 0; i < share; ++i) {
        const std::int32_t end = min_of((first + i + 1) * a.unit.divisor, a.capacity);
        TILEWAVE_ROLL
        for (std::int32_t pad = B::shuffle(pads, i) + lane; pad < end; pad += wave_lanes) write_pad(a, pad);
      }
    }
  }

  /// The choices of one tile, after a barrier behind its ranks.
  TILEWAVE_DEVICE static void place(const Args& a, Shared& shared, std::int32_t tile, std::int32_t end,
                                    const typename Tile::Ranked& of) {
    const int wave = B::wave_id();  // by the whole wave: not where lanes have gone apart
    TILEWAVE_ROLL
    for (std::int32_t e = B::block_lane_id(); e < a.experts; e += P.threads) {
      std::int32_t row = shared.next[e];
      TILEWAVE_UNROLL
      for (int w = 0; w < Tile::waves; ++w) {
        const std::int32_t count = shared.counts.of[w][e];
        shared.counts.of[w][e] = row;
        row += count;
      }
      shared.next[e] = row;
    }
    B::barrier();
    TILEWAVE_UNROLL
    for (int i = 0; i < P.turns; ++i) {
      const std::int32_t choice = Tile::choice(tile, wave, i);
      if (choice >= end) continue;
      const std::int32_t token = a.topk.quotient(choice), slot = choice - token * a.topk.divisor;
      std::int32_t row = -1;
      if (of.experts[i] != Tile::none) {
        row = shared.counts.of[wave][of.experts[i]] + of.ranks[i];
        B::store(a.sorted_ids + row, slot << sorted_token_bits | token);
        if (a.sorted_weights != nullptr) {
          B::store(a.sorted_weights + row, B::load(a.topk_weights + token * a.weights_stride + slot));
        }
      }
      if (a.rows != nullptr) B::store(a.rows + token * a.rows_stride + slot, row);
    }
    B::wave_barrier();  // of counts a wave clears its own
  }
};

}  // namespace tilewave
