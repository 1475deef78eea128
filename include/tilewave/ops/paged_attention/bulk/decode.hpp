// SPDX-License-Identifier: MIT
// Paged-attention decode through shared memory, for rooms with bulk copies and products of wave groups.
//
// Grid: clusters of blocks that share one row block of a KV head and merge through shared memory, or persistent blocks
// that share all stages of the batch evenly (work_queue.hpp). A block is one wave group that computes, or two that take
// stages by turns, and a few waves that fetch. Those keep a ring of stages full, `stage_tokens` of K and V each. Their
// copies take whole segments of a page, so only the size of the ring bounds the bytes in flight. Where tokens of V are
// rows, tensor maps describe K and V, and products take V as it lies, transposed.
// A wave group multiplies K and V where they lie in the ring. Queries and probabilities lie beside it, and scores and
// outputs are in registers (layout.hpp).
// Shared memory: the ring; for each wave group Q and probabilities, or what it hands the other group at the end; and
// what waves and blocks publish to each other. Bound: bytes of K and V over memory bandwidth.
#pragma once

#include "tilewave/attention/unattended.hpp"
#include "tilewave/ops/paged_attention/bulk/epilogue.hpp"
#include "tilewave/ops/paged_attention/bulk/inputs.hpp"
#include "tilewave/ops/paged_attention/bulk/online_softmax.hpp"

namespace tilewave {

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionBulkDecode {
  using Room = B;
  using L = PagedAttentionBulkLayout<B, S, P>;
  using Args = PagedAttentionArgs;
  using WorkItem = PagedAttentionWorkItem;
  using State = typename L::State;
  using Products = typename L::Products;
  using Inputs = PagedAttentionBulkInputs<L>;
  using Epilogue = PagedAttentionBulkEpilogue<L>;
  using WorkQueue = PagedAttentionWorkQueue<L>;
  using Stages = PagedAttentionStages<L>;
  using Stage = typename Stages::Stage;
  using Ring = typename Stages::Ring;
  using Shared = typename L::Shared;
  using GroupShared = typename L::GroupShared;
  using Softmax = PagedAttentionBulkSoftmax<L>;
  using Probabilities = typename Softmax::Probabilities;

  struct Maps {
    typename B::TensorMap k, v;
    std::int32_t k_page_rows, v_page_rows;  // rows of the maps from a page to the next
  };
  static constexpr bool waits_itself = L::boxed;
  // A combine launch has nothing to bring before its wait, and may begin at once.
  static constexpr bool launches_next = !P.balanced();
  static constexpr int block_threads = P.block_waves() * L::lanes;
  static constexpr int waves_per_simd = P.waves_per_simd;
  // The driver keeps 1 KiB of shared memory for each block.
  static_assert(P.blocks_per_cu(B::facts) * (align_up(int{sizeof(Shared)}, 128) + 1024) <= B::facts.lds_bytes + 1024,
                "waves_per_simd claims more blocks than shared memory holds");

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) { run_parts(a, NoMaps{}, shared); }
  TILEWAVE_DEVICE static void run(const Args& a, const Maps& maps, Shared& shared) {
    if (B::wave_id() == L::wave_groups * L::waves && B::elected()) {
      B::prefetch_map(maps.k);
      B::prefetch_map(maps.v);
    }
    if (!a.tables_ready) B::wait_for_previous();
    B::promised_reads(a.tables_ready);
    run_parts(a, maps, shared);
  }

 private:
  struct NoMaps {};
  template <class AnyMaps>
  TILEWAVE_DEVICE static void run_parts(const Args& a, const AnyMaps& maps, Shared& shared) {
    WorkQueue queue(a);
    if (L::clustered(a)) B::template open<1>(&shared.mailbox);
    const int fetch_wave = B::wave_id() - L::wave_groups * L::waves;
    if (fetch_wave == 0) {
      if constexpr (L::wave_groups > 1) {
        if (B::elected()) B::mbarrier_init(&shared.exchanged, L::wave_groups * L::waves);
      }
      shared.ring.begin();
    }
    B::barrier();  // the ring is ready; loads of Q come behind it, because the barrier would wait for them
    if (fetch_wave >= 0) {
      fetch(a, maps, queue, fetch_wave, shared);
    } else {
      compute(a, queue, shared);
    }
  }
  /// What comes behind it reads what the kernel in front has written.
  TILEWAVE_DEVICE static void wait_at_last(const Args& a) {
    if constexpr (L::boxed) {
      B::promised_reads(false);
      if (a.tables_ready) B::wait_for_previous();
      if (a.next_at_once) B::launch_next();
    }
  }
  TILEWAVE_DEVICE static int lane() { return B::lane_id(); }
  /// The ring of an item: alike for waves that fetch and waves that compute.
  TILEWAVE_DEVICE static Ring ring_of(const Args& a, const WorkQueue& queue) {
    return L::clustered(a) ? Ring::ending_last(queue.stages()) : Ring{};
  }

  // A block begins with three reads that wait for each other: the length, a page, KV. Everything that does not need the
  // length comes before start(), which waits for it.

  template <class AnyMaps>
  TILEWAVE_DEVICE static void fetch(const Args& a, const AnyMaps& maps, WorkQueue& queue, int wave, Shared& shared) {
    typename Stages::Copy first_copy;
    if constexpr (!P.balanced()) {
      if (wave == 0) queue.prefetch_pages();
      first_copy = Stages::copy_of(a, queue.kv_head(), Stages::first_copy(wave));
    }
    queue.start();
    Ring ring = ring_of(a, queue);
    typename Stages::Pace pace(B::block_id() < a.last_round ? a.stage_ns : a.last_stage_ns);
    bool waits = true;
    const auto before_copies = [&]() TILEWAVE_INLINE_LAMBDA {
      if (waits) wait_at_last(a);
      waits = false;
    };
    for (; queue.more(); queue.next()) {
      if constexpr (P.balanced()) first_copy = Stages::copy_of(a, queue.kv_head(), Stages::first_copy(wave));
      shared.ring.fetch(a, maps, queue, wave, first_copy, ring, pace, before_copies);
    }
    before_copies();
    // All that this wave reads of K and V is on its way. Where each SM has blocks in turn, the next kernel's would take
    // bandwidth from those of the last round.
    if (L::boxed && L::clustered(a) && !a.next_at_once) B::launch_next();
    Epilogue::join_merge(a, shared);
  }

  TILEWAVE_DEVICE static void compute(const Args& a, WorkQueue& queue, Shared& shared) {
    GroupShared& group = shared.group[L::wave_group()];
    Inputs inputs;
    if constexpr (!P.balanced() && !L::boxed) inputs.load(a, queue.rows(0));
    queue.start();
    wait_at_last(a);
    if constexpr (!P.balanced() && L::boxed) inputs.load(a, queue.rows(0));
    Ring ring = ring_of(a, queue);
    ring.advance(L::wave_group());
    for (; queue.more(); queue.next()) {
      const WorkItem item = queue.item(0);
      if constexpr (P.balanced()) inputs.load(a, item);
      State s;
      inputs.set_up(a, item, s, group);
      consume(a, item, queue, ring, s, shared.ring, group);
      Epilogue::run(a, item, s, shared);
    }
  }

  TILEWAVE_DEVICE static void consume(const Args& a, const WorkItem& item, const WorkQueue& queue, Ring& ring, State& s,
                                      Stages& stages, GroupShared& group) {
    const std::int32_t beyond = Epilogue::first_beyond_received(queue.stages());
    // The number of wave groups divides the ring, so a slot always belongs to the same group, which waits for every one
    // of its phases.
    std::int32_t i = L::wave_group();
    for (; i < queue.stages(); i += L::wave_groups, ring.advance(L::wave_groups)) {
      if (L::clustered(a) && i >= beyond && i - L::wave_groups < beyond) Epilogue::publish_free_stages();
      stages.barriers.wait_full(ring);
      const std::int32_t token = queue.token(i);
      Stage& stage = stages.stage[ring.stage_index()];
      // There are two buffers, since a wave may write the next stage's probabilities while another wave's products
      // still read this stage's.
      auto& p = group.operand.p[i / L::wave_groups % 2];
      const bool edge = item.is_edge(token, L::stage_tokens);
      Products scores[L::tiles] = {};
      WideKeys k;  // registers must live until the products are done
      begin_multiply_k(a, stage, group, k, scores);
      if (edge) zero_unattended(item, token, stage);
      WideValues v;
      if constexpr (L::widened) {  // while K's products are under way
        if (edge) B::group_barrier();
        widen_values(stage, v, 0, early_tiles);
      }
      B::template group_mma_wait<0>();
      TILEWAVE_UNROLL
      for (int tile = 0; tile < L::tiles; ++tile) B::group_mma_fence(scores[tile]);
      bool exceeds = Softmax::scale_and_mask(a, item, token, edge, stage, s, scores);
      // The vote is also the barrier behind which all waves' probabilities are in shared memory.
      typename Softmax::Sums sums;
      for (;; exceeds = false) {
        Softmax::exponentiate(item, token, stage, s, scores, p, sums);
        B::shared_written();
        if (!B::group_any(exceeds)) break;
        Softmax::raise_maximum(s, scores, group);
      }
      L::each_row([&](int octet, int r) { s.row_sum[octet][r] += sums[octet][r]; });
      if constexpr (L::widened) widen_values(stage, v, early_tiles, L::out_tiles);
      multiply_v(stage, v, p, s);
      stages.barriers.release(ring.slot);
    }
    if (L::clustered(a) && i - L::wave_groups < beyond) Epilogue::publish_free_stages();
  }

  /// The operand of product `step` from a matrix [k / chunk_k][rows] of chunks, whose rows start at `first`.
  template <int rows>
  TILEWAVE_DEVICE static GroupOperand operand(const Chunk (*chunks)[rows], int step, int first = 0) {
    return {chunks, 8 * 16, rows * 16, (2 * step * rows + first) * 16};
  }

  using WideKeys = Chunk[L::tiles][L::steps];
  /// Begins scores = K Q^T. K goes through registers, so that a wave's 16 tokens may lie anywhere in the stage. Pages
  /// of 16 tokens can then be copied whole.
  TILEWAVE_DEVICE static void begin_multiply_k(const Args& a, const Stage& stage, const GroupShared& group, WideKeys& k,
                                               Products (&scores)[L::tiles]) {
    const int matrix = lane() / 8;
    constexpr int loads = S.head_size / L::unit / 2;
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      const std::int32_t token = 64 * tile + 16 * L::wave() + L::token_of(lane() % 8 * 4, matrix % 2);
      if constexpr (L::boxed) {
        const Chunk* const row = stage.k[token / 8][0][token % 8];
        const int unit = matrix / 2 ^ token % 8;  // of dimensions 0 to 15, swizzled
        TILEWAVE_UNROLL
        for (int i = 0; i < loads; ++i) k[tile][i] = B::load_matrices(row + i / 4 * 64 + (unit ^ 2 * i % 8));
      } else {
        const std::int32_t in_segment = token & (a.segment - 1);
        const Chunk* const row =
            stage.k + (token - in_segment) * (S.head_size / L::unit) + in_segment + matrix / 2 * a.segment;
        TILEWAVE_UNROLL
        for (int i = 0; i < loads; ++i) {
          const Chunk units = B::load_matrices(row + 2 * i * a.segment);
          if constexpr (L::widened) {
            widen<L::k_type>(units, &k[tile][2 * i]);
          } else {
            k[tile][i] = units;
          }
        }
      }
    }
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) B::group_mma_fence(scores[tile]);
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int tile = 0; tile < L::tiles; ++tile) {
      TILEWAVE_UNROLL
      for (int step = 0; step < L::steps; ++step)
        B::template group_mma<L::k_type, L::rows>(k[tile][step], operand(group.operand.q, step), scores[tile]);
    }
    B::group_mma_end();
  }

  /// A stage of V as operands: this wave's 16 dimensions of each output tile.
  static constexpr int v_steps = L::stage_tokens / L::product_k;
  using WideValues = Chunk[L::out_tiles][v_steps];
  /// Output tiles whose V is widened while K's products are under way: all tiles, if registers hold them beside K,
  /// scores and outputs, else one.
  static constexpr int early_tiles =
      4 * L::tiles * (L::steps + L::out_tiles * 4) + L::rows / 2 * (L::tiles + L::out_tiles) <= 150 ? L::out_tiles : 1;
  TILEWAVE_DEVICE static void widen_values(const Stage& stage, WideValues& v, int first, int end) {
    TILEWAVE_UNROLL
    for (int d = first; d < end; ++d) {
      const int row = 64 * d + 16 * L::wave() + lane() % 16;
      TILEWAVE_UNROLL
      for (int unit = 0; unit < v_steps; unit += 2)
        widen<L::v_type>(B::load_matrices(&stage.v[unit + lane() / 16][row]), &v[d][unit]);
    }
  }

  TILEWAVE_DEVICE static void multiply_v(const Stage& stage, const WideValues& v, const Probabilities& p, State& s) {
    if constexpr (S.native) {  // the chip's sums of fp8 products keep about 14 bits, so they run over one stage only
      Products out[L::out_tiles] = {};
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) B::group_mma_fence(out[d]);
      multiply_v(stage, v, p, out);
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) {
        B::group_mma_fence(out[d]);
        TILEWAVE_UNROLL
        for (int i = 0; i < Products::size; ++i) s.out[d][i] += out[d][i];
      }
    } else {
      multiply_v(stage, v, p, s.out);
    }
  }
  TILEWAVE_DEVICE static void multiply_v(const Stage& stage, const WideValues& v, const Probabilities& p,
                                         Products (&out)[L::out_tiles]) {
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int d = 0; d < L::out_tiles; ++d) {
      TILEWAVE_UNROLL
      for (int step = 0; step < v_steps; ++step) {
        if constexpr (L::widened) {
          B::template group_mma<L::v_type, L::rows>(v[d][step], operand(p, step), out[d]);
        } else if constexpr (L::boxed) {
          const TransposedOperand tokens{stage.v, 8, 64 * d, step, 1024 * L::boxes};
          B::template group_multiply<L::v_type, L::rows>(tokens, operand(p, step), out[d], true);
        } else {
          B::template group_mma<L::v_type, L::rows>(operand(stage.v, step, 64 * d), operand(p, step), out[d]);
        }
      }
    }
    B::group_mma_end();
    B::template group_mma_wait<0>();
  }

  /// Widens two units of 16 fp8 elements of the wave's 16 rows to operands of 16-bit elements. The four matrices are
  /// rows 0 to 7 and rows 8 to 15 of the first unit, then of the second.
  template <DType type>
  TILEWAVE_DEVICE static void widen(const Chunk& fp8, Chunk* operands) {
    TILEWAVE_UNROLL
    for (int unit = 0; unit < 2; ++unit) {
      TILEWAVE_UNROLL
      for (int half = 0; half < 2; ++half) {
        Vec<std::uint32_t, 2> words;
        if constexpr (type == DType::f16) {
          words = B::widen_fp8_to_f16(fp8[2 * unit + half]);
        } else {
          words = B::widen_fp8(fp8[2 * unit + half]);
        }
        operands[unit][half] = words[0];
        operands[unit][2 + half] = words[1];
      }
    }
  }

  /// Zeroes V of tokens that nobody attends, see attention/unattended.hpp.
  TILEWAVE_DEVICE static void zero_unattended(const WorkItem& item, std::int32_t token, Stage& stage) {
    if constexpr (L::boxed) {
      constexpr int chunks = 64 * L::boxes;  // of eight tokens
      TILEWAVE_UNROLL
      for (int i = 0; i < L::stage_tokens / 8 * chunks / L::wave_group_lanes; ++i) {
        const int chunk = i * L::wave_group_lanes + L::wave_group_lane();
        if (!item.attends(token + chunk / chunks * 8 + chunk / 8 % 8)) (&stage.v[0][0][0][0])[chunk] = {};
      }
    } else {
      constexpr int units = L::stage_tokens / L::unit;
      TILEWAVE_UNROLL
      for (int i = 0; i < units * S.head_size / L::wave_group_lanes; ++i) {
        const int chunk = i * L::wave_group_lanes + L::wave_group_lane();
        const std::int32_t from = token + chunk / S.head_size * L::unit;
        if (from + L::unit <= item.first || from >= item.end) (&stage.v[0][0])[chunk] = {};
      }
      for (const std::int32_t border : {item.first, item.end}) {
        const std::int32_t in_stage = border - token, unit = in_stage / L::unit;
        if (in_stage <= 0 || in_stage >= L::stage_tokens || in_stage % L::unit == 0) continue;
        for (int d = L::wave_group_lane(); d < S.head_size; d += L::wave_group_lanes)
          zero_outside<size_of(S.kv)>(stage.v[unit][d], token + unit * L::unit, item.first, item.end);
      }
    }
  }
};

}  // namespace tilewave
