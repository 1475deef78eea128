// SPDX-License-Identifier: MIT
// Decode of latent attention in rooms with products of wave groups.
//
// Grid: by the schedule of the policy (work.hpp), one block per multiprocessor at a time. A block has 64 query rows,
// query tokens times heads. The sums of their 512 columns fill the registers of two wave groups, 256 columns each. Four
// waves fetch q and tiles of 64 tokens (fetch.hpp). Tiles go in pairs: group 0 makes the probabilities of the first,
// group 1 those of the second, and both multiply both with their half of the values. Shared memory: q, two stages, and
// in the last box of a stage, after its use, the tile's probabilities (layout.hpp). Bound: matrix rate, or reads of the
// cache if there are few rows.
//
//   group 0   S(0)  softmax of S(0)     O += P(0) V(0)                     O += P(1) V(1)   S(2)
//   group 1          S(1)               O += P(0) V(0)   softmax of S(1)   O += P(1) V(1)         S(3)
//   unit      [S(0)][S(1)             ][P(0) V(0) of both              ][P(1) V(1) of both ][S(2)][S(3)
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/tensor/base.hpp"
#include "tilewave/ops/mla_decode/tensor/fetch.hpp"
#include "tilewave/ops/mla_decode/tensor/output.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeTensor : MlaDecodeTensorBase<B, MlaDecodeTensorLayout<B, S, P>> {
  using Base = MlaDecodeTensorBase<B, MlaDecodeTensorLayout<B, S, P>>;
  using typename Base::L, typename Base::Args, typename Base::Shared, typename Base::Item;
  static_assert(!L::widens, "codes have kernels of their own");
  // ptxas has products wait for one another (C7512) where waves that multiply have too few registers.
  static constexpr int fetching_registers = 88, multiplying_registers = 208;

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), group = wave / L::group_waves;
    if (wave == 0) L::begin(shared);
    Base::Inputs::touch(args, wave - L::groups * L::group_waves);
    MlaDecodeWork<L> work(args.of.attention);  // it reads lengths while wave 0 initialises barriers
    B::barrier();
    if (group == L::groups) {
      B::template give_registers<fetching_registers>();
      MlaDecodeFetch<B, S, L> fetch(args, shared, wave - L::groups * L::group_waves);
      for (; work.more(); work.next()) fetch.run(work.item(), work.table());
    } else {
      B::template take_registers<multiplying_registers>();
      WaveGroup of{args.of, shared, group};
      for (; work.more(); work.next()) of.run(work.item(), wave % L::group_waves);
    }
  }

 private:
  using Softmax = MlaDecodeSoftmax<B, L>;
  using Scores = typename L::Scores;
  using Sums = typename L::Sums;

  /// A wave group, and the phases of the barriers that it waits for.
  struct WaveGroup {
    const MlaDecodeArgs& args;
    Shared& shared;
    int group;
    int q_parity = 0, stage_parity[2] = {}, probabilities_parity[2] = {}, summed_parity = 0, turn_parity = 0;
    typename L::Operands own{};  // this group's probabilities
    // This is of q's last box: products with it leave shared memory to those of the other group.
    Chunk q_last[max_of(L::last_slices, 1)] = {};

    TILEWAVE_DEVICE void run(const Item& item, int wave) {
      Softmax softmax(args, item, wave);
      Sums out{};
      if (item.tiles > 0) {
        B::mbarrier_wait(&shared.q_full, q_parity);
        q_parity ^= 1;
        if constexpr (L::any_last) load_last(wave);
        if (group == 0) {
          lead(item, softmax, out);
        } else {
          follow(item, softmax, out);
        }
      }
      softmax.publish(shared.sum[group]);
      B::mbarrier_arrive(&shared.summed[group]);
      B::mbarrier_wait(&shared.summed[1 - group], summed_parity);
      // A group also waits for its own waves, whose sums are of other rows, before q is overwritten.
      B::mbarrier_wait(&shared.summed[group], summed_parity);
      summed_parity ^= 1;
      const float total[] = {softmax.total(0, shared.sum), softmax.total(1, shared.sum)};
      Chunk* const boxes = shared.q + group * L::half_boxes * L::q_box_size;
      Chunk* const staged[] = {boxes, boxes + 2 * L::q_box_size};
      MlaDecodeOutput<B, L>::write(args, item, softmax, total, out, group, staged, [&]() TILEWAVE_INLINE_LAMBDA {
        if (item.tiles > 0) B::mbarrier_arrive(&shared.q_free);
      });
    }

   private:
    /// Loads q's last box of the wave's sixteen rows, as products take it from registers.
    TILEWAVE_DEVICE void load_last(int wave) {
      const int matrix = B::lane_id() / 8, row = 16 * wave + B::lane_id() % 8 + 8 * (matrix % 2);
      TILEWAVE_UNROLL
      for (int k_slice = 0; k_slice < L::last_slices; ++k_slice) {
        q_last[k_slice] =
            B::load_matrices(shared.q + L::last_box * L::box_size + L::chunk_of(row, 2 * k_slice + matrix / 2));
      }
    }

    /// Group 0 makes the probabilities of the first tile of each pair. Behind the last products of values of a pair it
    /// begins the scores of the next.
    TILEWAVE_DEVICE void lead(const Item& item, Softmax& softmax, Sums& out) {
      Scores scores;
      out.fence();
      begin_scores<0, L::score_boxes>(0, scores);
      B::mbarrier_arrive(&shared.turn);
      finish_scores(scores);
      for (std::int32_t tile = 0;; tile += 2) {
        scale(out,
              softmax.run(item.begin + tile * L::tokens, is_edge(item, tile), scores, shared.reference[0], []() {}));
        publish(0, softmax, scores);
        begin_values<true>(item, tile, out);
        finish_values(0, out);
        if (tile + 1 >= item.tiles) return;
        await_values(1);
        await_probabilities(1);
        scale(out, softmax.follow(shared.reference[1]));
        begin_values<false>(item, tile + 1, out);
        if (tile + 2 >= item.tiles) {
          finish_values(1, out);
          return;
        }
        finish_part<1>(1, 0);
        begin_scores<0, L::part_boxes>(0, scores);
        finish_part<1>(1, 1);
        out.fence();
        begin_scores<L::part_boxes, L::score_boxes>(0, scores);
        B::mbarrier_arrive(&shared.turn);
        finish_scores(scores);
      }
    }

    /// Group 1 makes those of the second tile. Meanwhile its products of the first run.
    TILEWAVE_DEVICE void follow(const Item& item, Softmax& softmax, Sums& out) {
      Scores scores;
      out.fence();
      std::int32_t tile = 0;
      for (; tile + 1 < item.tiles; tile += 2) {
        await_turn();
        begin_scores<0, L::score_boxes>(1, scores);
        finish_scores(scores);
        // A group waits while it begins products of which several are under way, so the softmax comes between.
        begin_other_values(item, tile, softmax, out);
        begin_part<false>(0, 0, out);
        const Vec<float, 2> factor =
            softmax.run(item.begin + (tile + 1) * L::tokens, is_edge(item, tile + 1), scores, shared.reference[1],
                        [&]() TILEWAVE_INLINE_LAMBDA { begin_part<false>(0, 1, out); });
        publish(1, softmax, scores);
        finish_values(0, out);
        scale(out, factor);
        begin_values<true>(item, tile + 1, out);
        finish_values(1, out);
      }
      if (tile >= item.tiles) return;
      turn_parity ^= 1;  // nobody took that turn
      begin_other_values(item, tile, softmax, out);
      begin_parts<false>(0, out);
      finish_values(0, out);
    }
    /// What comes before the products of the first tile of a pair, whose probabilities are the other group's.
    TILEWAVE_DEVICE void begin_other_values(const Item& item, std::int32_t tile, Softmax& softmax, Sums& out) {
      await_values(0);
      await_probabilities(0);
      scale(out, softmax.follow(shared.reference[0]));
      clear_values(item, tile);
      out.fence();
    }

    /// Waits until group 0 has begun all of its scores. If both began theirs at once, both softmaxes would come when no
    /// product is left beside them.
    TILEWAVE_DEVICE void await_turn() {
      B::mbarrier_wait(&shared.turn, turn_parity);
      turn_parity ^= 1;
    }
    TILEWAVE_DEVICE void finish_scores(Scores& scores) {
      B::template group_mma_wait<0>();
      B::group_mma_fence(scores);
    }
    /// Begins the scores of boxes [first, end) of the tile in a stage, as one batch.
    template <int first, int end>
    TILEWAVE_DEVICE void begin_scores(int stage, Scores& scores) {
      static_for<end - first>([&](auto n) TILEWAVE_INLINE_LAMBDA {
        constexpr int box = L::score_box(first + n);
        L::template await_box<first + n, end>(shared.full[stage], stage_parity[stage]);
        B::group_mma_begin();  // again behind each loop that waits, or ptxas does so
        TILEWAVE_UNROLL
        for (int i = 4 * box; i < min_of(4 * box + 4, L::score_slices); ++i) {
          const SwizzledOperand keys = L::key_operand(shared, stage, i);
          if constexpr (box == L::last_box) {
            B::template group_multiply<L::type, L::tokens>(q_last[i % 4], keys, scores);
          } else {
            B::template group_multiply<L::type, L::tokens>(L::q_operand(shared, i), keys, scores, i > 0);
          }
        }
      });
      B::group_mma_end();
    }
    /// Waits for the boxes of the group's half of a tile whose scores the other group has made.
    TILEWAVE_DEVICE void await_values(int stage) {
      TILEWAVE_UNROLL
      for (int box = 0; box < L::half_boxes; ++box)
        B::mbarrier_wait(&shared.full[stage][group * L::half_boxes + box], stage_parity[stage]);
    }
    /// Packs the probabilities of a tile, and stores them for the other group. All waves of this group have read the
    /// last box by then.
    TILEWAVE_DEVICE void publish(int stage, const Softmax& softmax, const Scores& scores) {
      Softmax::pack(scores, own);
      B::group_barrier();
      softmax.store(own, shared.kv[stage] + L::last_box * L::box_size);
      B::shared_written();
      B::mbarrier_arrive(&shared.probabilities[stage]);
    }
    TILEWAVE_DEVICE void await_probabilities(int stage) {
      B::mbarrier_wait(&shared.probabilities[stage], probabilities_parity[stage]);
      probabilities_parity[stage] ^= 1;
    }
    /// Begins out += probabilities values of a tile, a batch for each part. The probabilities are this group's `own`,
    /// in registers, or the other group's, in shared memory.
    template <bool from_registers>
    TILEWAVE_DEVICE void begin_values(const Item& item, std::int32_t tile, Sums& out) {
      const int stage = tile % L::stages;
      clear_values(item, tile);
      out.fence();
      begin_parts<from_registers>(stage, out);
    }
    template <bool from_registers>
    TILEWAVE_DEVICE void begin_parts(int stage, Sums& out) {
      TILEWAVE_UNROLL
      for (int part = 0; part < L::parts; ++part) begin_part<from_registers>(stage, part, out);
    }
    template <bool from_registers>
    TILEWAVE_DEVICE void begin_part(int stage, int part, Sums& out) {
      B::group_mma_begin();
      TILEWAVE_UNROLL
      for (int k_slice = 0; k_slice < L::value_slices; ++k_slice) {
        const auto values = L::value_operand(shared, stage, group, part, k_slice);
        if constexpr (from_registers) {
          B::template group_multiply<L::type, L::part_columns>(own[k_slice], values, out.of[part]);
        } else {
          B::template group_multiply<L::type, L::part_columns>(L::probability_operand(shared, stage, k_slice), values,
                                                               out.of[part], true);
        }
      }
      B::group_mma_end();
    }
    /// Clears the group's half of the values of tokens behind the sequence's last: they may be NaN.
    TILEWAVE_DEVICE void clear_values(const Item& item, std::int32_t tile) {
      const int stage = tile % L::stages;
      const std::int32_t first = item.end - item.begin - tile * L::tokens;
      if (first >= L::tokens) return;
      Chunk* const boxes = shared.kv[stage] + group * L::half_boxes * L::box_size;
      const int lane = B::block_lane_id() % L::group_lanes;
      TILEWAVE_ROLL
      for (int i = first * L::box_chunks + lane; i < L::box_size; i += L::group_lanes) {
        TILEWAVE_UNROLL
        for (int box = 0; box < L::half_boxes; ++box) boxes[box * L::box_size + i] = Chunk{};
      }
      B::shared_written();
      B::group_barrier();
    }
    /// Waits until at most `behind` batches are under way, and frees a part of the group's half of the stage.
    template <int behind>
    TILEWAVE_DEVICE void finish_part(int stage, int part) {
      B::template group_mma_wait<behind>();
      const bool last = part == L::parts - 1;
      B::mbarrier_arrive(&shared.free[stage][group][part]);
      if (last) stage_parity[stage] ^= 1;
    }
    TILEWAVE_DEVICE void finish_values(int stage, Sums& out) {
      static_assert(L::parts == 2, "a part is under way while the first is finished");
      finish_part<1>(stage, 0);
      finish_part<0>(stage, 1);
      out.fence();
    }
    TILEWAVE_DEVICE static bool is_edge(const Item& item, std::int32_t tile) {
      return item.is_edge(item.begin + tile * L::tokens, L::tokens);
    }
    TILEWAVE_DEVICE static void scale(Sums& out, const Vec<float, 2>& factor) {
      if (B::any(factor[0] != 1.0f || factor[1] != 1.0f)) out.scale(factor);
    }
  };
};

}  // namespace tilewave
