// SPDX-License-Identifier: MIT
// The end of a work item in a bulk decode kernel. Waves add up the sums of their rows, and two wave groups merge. If
// the blocks of a cluster split a context, they merge as well: each block owns some of the head dimensions, 16 at a
// time. Every other block sends it those of its outputs, with the maximum and the sum of its rows. The owner weighs
// them, adds them up and writes them. They arrive in the memory of the ring, in stages that are free by then.
#pragma once

#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/paged_attention/bulk/layout.hpp"

namespace tilewave {

/// L is a PagedAttentionBulkLayout.
template <class L>
struct PagedAttentionBulkEpilogue {
  using B = typename L::Room;
  using Args = PagedAttentionArgs;
  using WorkItem = PagedAttentionWorkItem;
  using State = typename L::State;
  using Products = typename L::Products;

  using Received = typename L::Received;
  static constexpr int dim_blocks = L::dim_blocks, most_blocks = max_bulk_splits;
  using Stages = PagedAttentionStages<L>;
  /// Stages of the ring that lie below what other blocks send.
  static constexpr int received_stages = ceil_div(int{sizeof(Received)}, int{sizeof(typename Stages::Stage)});
  static_assert(received_stages <= Stages::stages, "what the blocks of a cluster send each other lies in the ring");
  /// The first stage, of `count`, from which on nobody reads those stages of the ring any more.
  TILEWAVE_DEVICE static std::int32_t first_beyond_received(std::int32_t count) {
    return max_of(count - Stages::stages + received_stages, 0);
  }

  /// Two query rows of a lane after all tokens: what outputs are multiplied by, and the lse.
  struct Finished {
    float scale[2], lse[2];
  };

  /// A wave group calls this once for each work item. Waves that fetch call join_merge() at their end.
  TILEWAVE_DEVICE static void run(const Args& a, const WorkItem& item, State& s, typename L::Shared& shared) {
    const int lane = B::lane_id(), wave = L::wave();
    if constexpr (L::wave_groups > 1) merge_wave_groups(s, shared);
    float sum[L::row_octets][2];
    L::each_row([&](int octet, int r) { sum[octet][r] = L::over_tokens(s.row_sum[octet][r], L::sum); });
    if (L::clustered(a)) {
      B::cluster_wait();
      merge_cluster(a, item, s, sum, shared);
      return;
    }
    auto& wave_sums = shared.group[L::wave_group()].wave_values;
    L::each_row([&](int octet, int r) {
      if (lane / 4 == 0) wave_sums[L::row_of(lane, octet, r)][wave] = sum[octet][r];
    });
    B::group_barrier();
    TILEWAVE_UNROLL
    for (int octet = 0; octet < L::row_octets; ++octet) {
      float total[2];
      TILEWAVE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const Vec<float, 4> sums = wave_sums[L::row_of(lane, octet, r)];
        total[r] = sums[0] + sums[1] + sums[2] + sums[3];
      }
      const Finished rows = finish(a, item, s.v_scale, octet, s.row_max[octet], total);
      TILEWAVE_UNROLL
      for (int n = 0; n < L::finished_tiles; ++n) {
        if (L::finished_tile(n) < L::out_tiles)
          write(a, item, 4 * L::finished_tile(n) + wave, octet, rows, octet_of(s.out[n], octet));
      }
    }
  }
  TILEWAVE_DEVICE static void join_merge(const Args& a, typename L::Shared& shared) {
    if (L::clustered(a)) publish_free_stages();
    if (!L::clustered(a)) return;
    B::cluster_wait();
    B::collect(shared.mailbox, received_floats(a), 0);
  }

  /// Publishes to the cluster that this wave does not read the stages any more in which other blocks' outputs arrive.
  TILEWAVE_DEVICE static void publish_free_stages() {
    B::cluster_wait();  // for mailboxes to be open
    B::cluster_arrive_relaxed();
  }

 private:
  /// The values of an octet, [half][r].
  TILEWAVE_DEVICE static Vec<float, 4> octet_of(const Products& out, int octet) {
    return {{L::value(out, octet, 0, 0), L::value(out, octet, 0, 1), L::value(out, octet, 1, 0),
             L::value(out, octet, 1, 1)}};
  }

  /// Floats that this block receives.
  TILEWAVE_DEVICE static int received_floats(const Args& a) {
    const int owned = max_of(a.splits.quotient(dim_blocks), B::cluster_rank() < dim_blocks ? 1 : 0) * a.cluster;
    return 4 * L::row_octets * (4 * L::waves * a.cluster + L::lanes * owned);
  }

  /// Each of two wave groups hands the other its part of the tile that the other finishes, and adds up its own tile.
  TILEWAVE_DEVICE static void merge_wave_groups(State& s, typename L::Shared& shared) {
    static_assert(L::wave_groups == 2 && L::out_tiles <= 2, "two wave groups finish one tile of outputs each");
    const int wave_group = L::wave_group(), lane = L::wave_group_lane();
    Products &own = s.out[0], &last = s.out[L::out_tiles - 1], other;
    TILEWAVE_UNROLL
    for (int i = 0; i < Products::size; ++i) {
      other[i] = wave_group == 0 ? last[i] : own[i];
      own[i] = wave_group == 0 ? own[i] : last[i];
    }
    auto& given = shared.group[wave_group].exchange;
    B::group_barrier();  // the products of all waves are done
    TILEWAVE_UNROLL
    for (int octet = 0; octet < L::row_octets; ++octet) {
      B::store(&given.rows[octet][lane],
               Vec<float, 4>{{s.row_sum[octet][0], s.row_sum[octet][1], s.row_max[octet][0], s.row_max[octet][1]}});
      B::store(&given.out[octet][lane], octet_of(other, octet));
    }
    B::mbarrier_arrive(&shared.exchanged);
    B::mbarrier_wait(&shared.exchanged, 0);
    const auto& taken = shared.group[1 - wave_group].exchange;
    TILEWAVE_UNROLL
    for (int octet = 0; octet < L::row_octets; ++octet) {
      const auto rows = B::load(&taken.rows[octet][lane]), part = B::load(&taken.out[octet][lane]);
      TILEWAVE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const float top = L::larger(s.row_max[octet][r], rows[2 + r]), finite = top == L::minus_infinity ? 0.0f : top;
        const float own_factor = B::exp2(s.row_max[octet][r] - finite), other_factor = B::exp2(rows[2 + r] - finite);
        s.row_max[octet][r] = top;
        s.row_sum[octet][r] = s.row_sum[octet][r] * own_factor + rows[r] * other_factor;
        TILEWAVE_UNROLL
        for (int half = 0; half < 2; ++half) {
          float& out = L::value(own, octet, half, r);
          out = out * own_factor + part[2 * half + r] * other_factor;
        }
      }
    }
  }

  /// Sends outputs and statistics to the blocks of the cluster that own them, and adds up what this block owns.
  TILEWAVE_DEVICE static void merge_cluster(const Args& a, const WorkItem& item, const State& s,
                                            const float (&sum)[L::row_octets][2], typename L::Shared& shared) {
    auto& received = shared.ring.received;
    const int lane = B::lane_id(), wave = L::wave(), rank = B::cluster_rank();
    if (L::wave_group() == 0 && lane / 4 < a.cluster) {  // lanes that hold the same rows send them to different blocks
      TILEWAVE_UNROLL
      for (int octet = 0; octet < L::row_octets; ++octet) {
        B::post(shared.mailbox, &received.statistics[rank][wave][octet][lane % 4], lane / 4,
                Vec<float, 4>{{sum[octet][0], sum[octet][1], s.row_max[octet][0], s.row_max[octet][1]}});
      }
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < L::finished_tiles; ++i) {
      if (L::finished_tile(i) >= L::out_tiles) break;
      const int n = 4 * L::finished_tile(i) + wave, owned = a.splits.quotient(n);
      TILEWAVE_UNROLL
      for (int octet = 0; octet < L::row_octets; ++octet) {
        B::post(shared.mailbox, &received.outputs[owned * a.cluster + rank][octet][lane], n - owned * a.cluster,
                octet_of(s.out[i], octet));
      }
    }
    B::collect(shared.mailbox, received_floats(a), 0);
    // A wave adds up one octet of query rows of one dimension block at a time.
    for (int i = B::wave_id(); i / L::row_octets * a.cluster + rank < dim_blocks; i += L::wave_groups * L::waves) {
      add_up(a, item, s.v_scale, received, i / L::row_octets, i % L::row_octets);
    }
  }

  /// Adds up an octet of the dimension block that is number `owned` of this block's.
  TILEWAVE_DEVICE static void add_up(const Args& a, const WorkItem& item, float v_scale, const Received& received,
                                     int owned, int octet) {
    const int lane = B::lane_id();
    static_assert(most_blocks == L::lanes / 4, "each four lanes that share rows look at another block of the cluster");
    float max[2] = {L::minus_infinity, L::minus_infinity}, sum[2] = {};
    if (lane / 4 < a.cluster) {
      TILEWAVE_UNROLL
      for (int w = 0; w < L::waves; ++w) {
        const auto both = B::load(&received.statistics[lane / 4][w][octet][lane % 4]);
        TILEWAVE_UNROLL
        for (int r = 0; r < 2; ++r) {
          sum[r] += both[r];
          max[r] = both[2 + r];  // all waves of the block have the same
        }
      }
    }
    float top[2], weight[2];
    TILEWAVE_UNROLL
    for (int r = 0; r < 2; ++r) {
      top[r] = L::over_tokens(max[r], L::larger);
      weight[r] = B::exp2(max[r] - (top[r] == L::minus_infinity ? 0.0f : top[r]));  // -inf if no block saw a token
      sum[r] = L::over_tokens(sum[r] * weight[r], L::sum);
    }
    Vec<float, 4> total{};
    TILEWAVE_UNROLL
    for (int source = 0; source < most_blocks; ++source) {
      const auto part = B::load(&received.outputs[owned * a.cluster + min_of(source, a.cluster - 1)][octet][lane]);
      TILEWAVE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const float source_weight = B::shuffle(weight[r], 4 * source + lane % 4);  // 0 if there is no such block
        total[r] += source_weight * part[r];
        total[2 + r] += source_weight * part[2 + r];
      }
    }
    write(a, item, owned * a.cluster + B::cluster_rank(), octet, finish(a, item, v_scale, octet, top, sum), total);
  }

  TILEWAVE_DEVICE static Finished finish(const Args& a, const WorkItem& item, float v_scale, int octet,
                                         const float (&max)[2], const float (&sums)[2]) {
    Finished rows;
    TILEWAVE_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float sum = item.beyond_table ? __builtin_nanf("") : sums[r];
      rows.scale[r] = sum == 0.0f ? 0.0f : v_scale / sum;
      rows.lse[r] = sum == 0.0f ? L::minus_infinity : (max[r] + B::log2(sum)) * ln_2;
      if (a.sinks != nullptr && item.slot < 0) {
        const std::int32_t row = min_of(item.first_row + L::row_of(B::lane_id(), octet, r), a.rows - 1);
        const JoinedSink joined = join_sink<B>(rows.lse[r], B::load(a.sinks + query_row(a, item, row).head));
        rows.scale[r] *= joined.out_scale;
        rows.lse[r] = joined.lse;
      }
    }
    return rows;
  }

  /// Writes dimensions 16 n to 16 n + 15 of the rows of an octet.
  TILEWAVE_DEVICE static void write(const Args& a, const WorkItem& item, int n, int octet, const Finished& rows,
                                    const Vec<float, 4>& out) {
    const int lane = B::lane_id(), odd = lane / 4 % 2;
    if (item.slot >= 0) {
      TILEWAVE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const int row = L::row_of(lane, octet, r);
        if (item.first_row + row >= a.rows) continue;
        const std::int64_t partial = std::int64_t{item.slot} * L::rows + row;
        float* to = a.partial_out + partial * L::head_size + 16 * n + lane / 4;
        B::store(to, out[r] * rows.scale[r]);
        B::store(to + 8, out[2 + r] * rows.scale[r]);
        if (n == 0 && lane / 4 == 0) B::store(a.partial_lse + partial, rows.lse[r]);
      }
      return;
    }
    // Two lanes have neighbouring dimensions of the same two rows. They exchange values, so that each has a pair of
    // neighbouring dimensions of one row.
    Vec<std::uint32_t, 2> words;
    TILEWAVE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float even_row = out[2 * half] * rows.scale[0], odd_row = out[2 * half + 1] * rows.scale[1];
      const float other = B::shuffle_xor(odd ? even_row : odd_row, 4);
      words[half] = L::round_out(odd ? other : even_row, odd ? odd_row : other);
    }
    const std::int32_t row = item.first_row + L::row_of(lane, octet, odd);
    if (row >= a.rows) return;
    const QueryRow query = query_row(a, item, row);
    auto* to = static_cast<std::uint16_t*>(a.out) + query.out_row * a.out_row_stride + query.head * a.out_head_stride +
               16 * n + lane / 8 * 2;
    B::store(reinterpret_cast<std::uint32_t*>(to), words[0]);
    B::store(reinterpret_cast<std::uint32_t*>(to + 8), words[1]);
    if (a.lse != nullptr && n == 0 && lane / 8 == 0)
      B::store(a.lse + query.out_row * a.num_q_heads + query.head, odd ? rows.lse[1] : rows.lse[0]);
  }
};

}  // namespace tilewave
