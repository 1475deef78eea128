// SPDX-License-Identifier: MIT
// Sorts the choices of tokens by expert with a counting sort that keeps their order. A block places a run of choices.
// It must know how many choices each expert has, and how many of them come before its own. Then, one tile at a time,
// every wave finds which of its lanes chose the same expert and counts experts for itself in shared memory. The counts
// of the waves before give the positions. Atomics add only numbers of choices, so every position is the same each time.
//
// Few choices are counted by every block for itself. On Hopper some ten thousand are counted by a cluster, whose blocks
// exchange their counts; each of several clusters does so, because reading again costs less than an exchange through
// memory. For more choices MoeSortCount leaves the counts of every block in the workspace, and each block of MoeSort
// sums those of the blocks before it and of all. Bound: the latency of a launch and a read of memory, then memory.
#pragma once

#include "tilewave/ops/moe_sort/tile.hpp"

namespace tilewave {

/// Counts the choices of every block.
template <class B, MoeSortSpec S, MoeSortPolicy P>
struct MoeSortCount {
  using Room = B;
  using Args = MoeSortArgs;
  static constexpr int block_threads = P.threads_of(MoeSortCounts::workspace);
  using Choices = MoeSortChoices<B, P, block_threads>;
  struct Shared {
    typename Choices::Histogram counts;
  };
  static constexpr int waves_per_simd = P.waves_per_simd;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t first = B::block_id() * a.block_choices, end = min_of(first + a.block_choices, a.choices);
    const auto each_expert = [&](const auto& visit) {
      TILEWAVE_ROLL
      for (std::int32_t e = B::block_lane_id(); e < a.experts; e += block_threads) visit(e);
    };
    Choices::count(a, first, end, end, shared.counts, shared.counts, [&] {
      each_expert([&](std::int32_t e) { shared.counts[e] = 0; });
      B::barrier();
    });
    B::barrier();
    std::uint32_t* const counts = a.counts + std::int64_t{B::block_id()} * a.experts;
    each_expert([&](std::int32_t e) { B::store(counts + e, shared.counts[e]); });
  }
};

template <class B, MoeSortSpec S, MoeSortPolicy P, MoeSortCounts from = MoeSortCounts::block>
struct MoeSort {
  using Room = B;
  using Args = MoeSortArgs;
  static constexpr bool clustered = from == MoeSortCounts::cluster, counted = from == MoeSortCounts::workspace;
  static constexpr bool waits_itself = counted, reads_inputs_early = counted;
  static constexpr int block_threads = P.threads_of(from);
  // a lane has 32 reads in flight
  static constexpr int waves_per_simd = counted ? min_of(P.waves_per_simd, 4) : P.waves_per_simd;
  static constexpr int cluster = clustered ? P.cluster : 1;
  using Choices = MoeSortChoices<B, P, block_threads>;
  using Tile = MoeSortTile<B, P, block_threads, counted ? P.lane_choices : 1>;
  static constexpr int wave_lanes = Choices::wave_lanes;
  struct Shared {
    typename Tile::Counts counts;               // counts of waves, then positions
    typename Choices::Histogram next;           // choices before this block's, then the row of an expert's next choice
    typename Choices::Histogram others;         // other choices that this block counts, then all that it counts
    std::int32_t pads_at[most_sorted_experts];  // row of an expert's first pad
    // 1 for a local expert; then its local index, and above 16 bits its number of pads
    std::int32_t local[most_sorted_experts];
    Vec<std::int32_t, 2> wave_sums[Tile::waves];
    Mailbox box;
    // The counts of the cluster's blocks, as bits.
    Vec<float, 4> published[cluster][clustered ? most_sorted_experts / 4 : 1];
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const int rank = clustered ? B::cluster_rank() : 0, chunk = B::block_id() / cluster;
    const std::int32_t segment = counted ? 0 : rank * a.segment,
                       segment_end = counted ? a.choices : min_of(segment + a.segment, a.choices);
    const std::int32_t first = min_of(segment + chunk * a.block_choices, segment_end),
                       end = min_of(first + a.block_choices, segment_end);
    if constexpr (clustered) B::template open<1>(&shared.box);
    Tile tile;
    const auto rank_first = [&] {
      tile.read(a, first, end);
      Tile::clear(a, shared.counts);
      each_expert_of_lane(a, [&](std::int32_t e) {
        shared.next[e] = shared.others[e] = 0;
        shared.local[e] = a.expert_mask == nullptr || B::load(a.expert_mask + e) != 0;
      });
      B::barrier();
      tile.rank(shared.counts);
    };
    if constexpr (counted) {  // only inputs are read, while MoeSortCount still works
      rank_first();
      B::barrier();
      sum_up(a, shared, false);
      B::wait_for_previous();
      B::launch_next();
    } else {
      Choices::count(a, segment, first, segment_end, shared.next, shared.others, rank_first);
      B::barrier();
      if constexpr (clustered) publish(a, shared, rank);
      sum_up(a, shared, false);
      if constexpr (clustered) B::collect(shared.box, cluster * 4 * ceil_div(a.experts, 4), 0);
    }
    const std::int32_t rows = lay_out(a, shared, rank);
    if constexpr (!counted) {  // there is one tile
      scatter(a, shared, first, end, tile);
    } else {
      TILEWAVE_ROLL
      for (std::int32_t at = first; at < end; at += Tile::choices) {
        if (at > first) {
          Tile::clear(a, shared.counts);
          tile.rank(shared.counts);
          B::barrier();
          sum_up(a, shared, true);
          B::barrier();
        }
        Tile next;
        next.read(a, at + Tile::choices, end);
        scatter(a, shared, at, end, tile);
        tile = next;
      }
    }
    write_rest(a, shared, rows);
  }

 private:
  template <class Visit>
  TILEWAVE_DEVICE static void each_expert_of_lane(const Args& a, const Visit& visit) {
    const std::int32_t of_lane = ceil_div(a.experts, block_threads);  // neighbouring experts
    const std::int32_t first = B::block_lane_id() * of_lane, end = min_of(first + of_lane, a.experts);
    TILEWAVE_ROLL
    for (std::int32_t e = first; e < end; ++e) visit(e);
  }

  /// Sends the counts of this block to all blocks of the cluster.
  TILEWAVE_DEVICE static void publish(const Args& a, Shared& shared, int rank) {
    B::cluster_wait();
    // A wave posts to one block at a time, from neighbouring lanes to neighbouring words.
    TILEWAVE_ROLL
    for (int i = B::wave_id(); i < cluster; i += Tile::waves) {
      const int to = (rank + i) % cluster;
      TILEWAVE_ROLL
      for (std::int32_t four = B::lane_id(); 4 * four < a.experts; four += wave_lanes) {
        Vec<float, 4> counts;
        TILEWAVE_UNROLL
        for (int j = 0; j < 4; ++j) {
          const std::uint32_t count = shared.next[4 * four + j] + shared.others[4 * four + j];
          counts[j] = __builtin_bit_cast(float, count);
        }
        B::post(shared.box, &shared.published[rank][four], to, counts);
      }
    }
  }

  /// Returns the sums over the lanes with lower numbers, and over all lanes of the block. It takes one barrier.
  struct Scan {
    Vec<std::int32_t, 2> before, all;
  };
  TILEWAVE_DEVICE static Scan scan(Shared& shared, Vec<std::int32_t, 2> x) {
    const int wave = B::wave_id();
    const Vec<std::int32_t, 2> sum{{B::sum_up_to(x[0]), B::sum_up_to(x[1])}};
    if (B::lane_id() == wave_lanes - 1) shared.wave_sums[wave] = sum;
    B::barrier();
    // Lanes add up the sums of as many waves as there are.
    const int lane = B::lane_id();
    Vec<std::int32_t, 2> of_wave{};
    if (lane < Tile::waves) of_wave = shared.wave_sums[lane];
    Scan found{};
    TILEWAVE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int up_to = B::sum_up_to(of_wave[i]);
      found.all[i] = B::shuffle(up_to, Tile::waves - 1);
      found.before[i] = sum[i] - x[i] + B::shuffle(up_to - of_wave[i], wave);
    }
    return found;
  }

  using Counted = typename B::template Window<true>;  // counts that MoeSortCount left
  /// Returns the choices of an expert, and how many of them come before this block's.
  TILEWAVE_DEVICE static Vec<std::int32_t, 2> counts_of(const Args& a, Shared& shared, const Counted& counts,
                                                        std::int32_t expert, int rank) {
    Vec<std::int32_t, 2> sum{};
    if constexpr (counted) {
      constexpr int batch = 32;  // reads in flight; blocks that do not exist count 0
      std::uint32_t at = static_cast<std::uint32_t>(4 * expert);
      TILEWAVE_ROLL
      for (std::int32_t first = 0; first < a.blocks; first += batch) {
        std::int32_t count[batch];
        TILEWAVE_UNROLL
        for (int i = 0; i < batch; ++i) {
          count[i] = counts.template load<std::int32_t>(at);
          at = B::opaque(at + static_cast<std::uint32_t>(4 * a.experts));  // keeps 32 products out of scalar registers
        }
        // in a vector register, because masks fill the scalar ones
        const std::int32_t before = B::opaque(B::block_id() - first);
        TILEWAVE_UNROLL
        for (int i = 0; i < batch; ++i) {
          sum[0] += count[i];
          sum[1] += count[i] & ((i - before) >> 31);
        }
      }
      return sum;
    }
    sum[1] = static_cast<std::int32_t>(shared.next[expert]);
    if constexpr (!clustered) {
      sum[0] = sum[1] + static_cast<std::int32_t>(shared.others[expert]);
      return sum;
    }
    TILEWAVE_UNROLL
    for (int r = 0; r < cluster; ++r) {
      const float published = shared.published[r][expert / 4][expert % 4];
      const auto count = __builtin_bit_cast(std::int32_t, published);
      sum[0] += count;
      sum[1] += r < rank ? count : 0;
    }
    return sum;
  }

  /// Computes the rows of each expert, and this block's rows among them; block 0 stores them. Returns the rows of all
  /// experts.
  TILEWAVE_DEVICE static std::int32_t lay_out(const Args& a, Shared& shared, int rank) {
    constexpr std::int32_t no_row = -(1 << 30);  // so low that no position of a choice makes it valid
    const Counted counts{a.counts, static_cast<std::uint32_t>(4 * a.blocks * a.experts)};
    Vec<std::int32_t, 2> mine{};  // rows and local experts of this lane
    each_expert_of_lane(a, [&](std::int32_t e) {
      const Vec<std::int32_t, 2> count = counts_of(a, shared, counts, e, rank);
      const std::int32_t local = shared.local[e], choices = local != 0 ? count[0] : 0;
      const std::int32_t rows = a.unit.quotient(choices + a.unit.divisor - 1) * a.unit.divisor;
      shared.next[e] = static_cast<std::uint32_t>(local != 0 ? count[1] : no_row);
      shared.pads_at[e] = choices;  // kept here until the first rows are known
      shared.local[e] = local | (rows - choices) << 16;
      mine[0] += rows;
      mine[1] += local;
    });
    const Scan found = scan(shared, mine);
    std::int32_t row = found.before[0], index = found.before[1];
    const std::int32_t rows = found.all[0], locals = found.all[1];
    each_expert_of_lane(a, [&](std::int32_t e) {
      const std::int32_t local = shared.local[e] & 1, pads = shared.local[e] >> 16, count = shared.pads_at[e];
      shared.next[e] += static_cast<std::uint32_t>(local != 0 ? row : 0);
      shared.pads_at[e] = row + count;
      shared.local[e] = index | pads << 16;
      if (B::block_id() == 0) {  // experts that are not local stand behind the others
        const std::int32_t at = local != 0 ? index : locals + e - index;
        if (a.group_offsets != nullptr) B::store(a.group_offsets + at, local != 0 ? row : rows);
        if (a.group_counts != nullptr) B::store(a.group_counts + at, count);
      }
      row += count + pads;
      index += local;
    });
    if (B::block_id() == 0 && B::block_lane_id() == 0) {
      if (a.group_offsets != nullptr) B::store(a.group_offsets + a.experts, rows);
      B::store(a.num_tokens_post_pad, rows);
      B::store(a.num_tokens_post_pad + 1, a.tokens);
    }
    B::barrier();
    return rows;
  }

  /// Turns counts of waves into those of the waves before. The whole block calls it, between barriers. For a `further`
  /// tile the choices of the tile before are placed.
  TILEWAVE_DEVICE static void sum_up(const Args& a, Shared& shared, bool further) {
    auto& counts = shared.counts.of;
    TILEWAVE_ROLL
    for (std::int32_t e = B::block_lane_id(); e < a.experts; e += block_threads) {
      if (further) shared.next[e] += static_cast<std::uint32_t>(counts[Tile::waves][e]);
      std::int32_t sum = 0;
      TILEWAVE_UNROLL
      for (int w = 0; w < Tile::waves; ++w) {
        const std::int32_t count = counts[w][e];
        counts[w][e] = sum;
        sum += count;
      }
      counts[Tile::waves][e] = sum;
    }
  }
  /// Places the choices of one tile. The first choice of a unit stores its expert.
  TILEWAVE_DEVICE static void scatter(const Args& a, const Shared& shared, std::int32_t first, std::int32_t end,
                                      const Tile& tile) {
    const int wave = B::wave_id();  // the whole wave calls it, so not where lanes have diverged
    TILEWAVE_UNROLL
    for (int i = 0; i < Tile::lane_choices; ++i) {
      const std::int32_t choice = Tile::choice(first, wave, i), expert = tile.experts[i];
      if (choice >= end) continue;
      const std::int32_t token = a.topk.quotient(choice), slot = choice - token * a.topk.divisor;
      std::int32_t row = -1;
      if (expert != Tile::none) {
        row =
            max_of(static_cast<std::int32_t>(shared.next[expert]) + shared.counts.of[wave][expert] + tile.ranks[i], -1);
      }
      if (row >= 0) {
        B::store(a.sorted_ids + row, slot << sorted_token_bits | token);
        if (a.sorted_weights != nullptr) B::store(a.sorted_weights + row, tile.weights[i]);
        if (a.row_tokens != nullptr) B::store(a.row_tokens + row, token);
        const std::int32_t unit = a.unit.quotient(row);
        if (unit * a.unit.divisor == row) B::store(a.sorted_expert_ids + unit, shared.local[expert] & 0xffff);
      }
      if (a.rows != nullptr) B::store(a.rows + token * a.rows_stride + slot, row);
    }
    B::wave_barrier();  // a wave clears only counts of its own
  }

  TILEWAVE_DEVICE static void write_pad(const Args& a, std::int32_t row) {
    B::store(a.sorted_ids + row, a.topk.divisor << sorted_token_bits | a.tokens);
    if (a.sorted_weights != nullptr) B::store(a.sorted_weights + row, 0.0f);
    if (a.row_tokens != nullptr) B::store(a.row_tokens + row, -1);
  }
  /// Writes the pads of experts, and those behind them up to the capacity. Every block writes a part.
  TILEWAVE_DEVICE static void write_rest(const Args& a, const Shared& shared, std::int32_t rows) {
    TILEWAVE_ROLL
    for (std::int32_t e = B::wave_id() * a.blocks + B::block_id(); e < a.experts; e += Tile::waves * a.blocks) {
      const std::int32_t at = shared.pads_at[e], end = at + (shared.local[e] >> 16);
      TILEWAVE_ROLL
      for (std::int32_t pad = at + B::lane_id(); pad < end; pad += wave_lanes) write_pad(a, pad);
    }
    const std::int32_t lane = B::block_id() * block_threads + B::block_lane_id(), lanes = a.blocks * block_threads;
    TILEWAVE_ROLL
    for (std::int32_t pad = rows + lane; pad < a.capacity; pad += lanes) write_pad(a, pad);
    const std::int32_t units = a.unit.quotient(a.capacity + a.unit.divisor - 1);
    TILEWAVE_ROLL
    for (std::int32_t unit = a.unit.quotient(rows) + lane; unit < units; unit += lanes) {
      B::store(a.sorted_expert_ids + unit, -1);
    }
  }
};

}  // namespace tilewave
