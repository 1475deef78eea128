// SPDX-License-Identifier: MIT
// A wave group has 64 rows of each item: it multiplies their scores, does their softmax, and multiplies values.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/flash_attention/tensor/items.hpp"
#include "tilewave/ops/flash_attention/tensor/output.hpp"
#include "tilewave/ops/flash_attention/tensor/softmax.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

/// A wave group, and its slots in the rings.
template <class B, FlashAttentionSpec S, FlashAttentionPolicy P, bool split>
struct FlashAttentionWaveGroup {
  using L = FlashAttentionTensorLayout<B, S, P, split>;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Item = typename L::Item;
  using Softmax = FlashAttentionSoftmax<B, S, L, P>;
  using Items = FlashAttentionItems<B, Shared>;

  const Args& args;
  Shared& shared;
  int group;
  typename L::QSlot q{};
  typename L::KvSlot k{}, v{};
  int turn_parity = 0;
  bool storing = false;  // the copy engine may still read the last output
  int stored_slot = 0;   // q's of that item

  /// Runs one item after the other. Behind the last products of values of one item, the first scores of the next are
  /// begun, so that they run beside the output. Behind the last item these scores are of stale data and unused. A
  /// second way out would be a second copy of this code, and code that runs once comes from memory.
  TILEWAVE_DEVICE void run() {
    Items items(shared);
    Item item;
    if (!items.take(item)) return;
    if (group + 1 == L::groups) pass_turn();
    typename L::Scores scores;
    int unseen = unseen_tiles(item);
    await_item(q);
    skip_keys(unseen);
    begin_scores(q, scores);
    finish_scores<0>(scores);
    bool half = sees_half(item, unseen);
    while (true) {
      Softmax softmax(args.attention, args.sections, item, group);
      typename L::Output out{};
      typename Softmax::Operands probabilities;
      if (64 * group < item.rows) {
        walk(item, unseen, half, softmax, scores, probabilities, out);
      } else {
        pass_by(item, probabilities);
      }
      typename L::QSlot ahead = q;
      ahead.advance();
      if constexpr (!L::out_in_q) shared.q_ring.release(q.slot);
      begin_values(probabilities, out);
      JoinedSink joined[Softmax::rows];
      if constexpr (!L::transposes) finish_rows(softmax, out, joined);  // beside these products
      if constexpr (L::q_stages == 1) {
        finish_values<0>(out);
        if constexpr (L::transposes) finish_rows(softmax, out, joined);
        write(item, softmax, joined, out);
        if constexpr (L::out_in_q) finish_output();
      }
      // An item that is taken before the last one is written takes registers.
      Item next;
      const bool more = takes_early ? items.take(next) : items.await();
      if (more) await_item(ahead);
      if constexpr (takes_early) {
        unseen = more ? unseen_tiles(next) : 0;
        half = more && sees_half(next, unseen);
        skip_keys(unseen);
      }
      // The stale q may be rows of the output, which all waves of the group have to have written.
      if (L::q_stages == 1 && L::out_in_q && !more) B::group_barrier();
      begin_scores(ahead, scores);
      if constexpr (L::q_stages > 1) {
        finish_values<1>(out);
        if constexpr (L::transposes) finish_rows(softmax, out, joined);
        write(item, softmax, joined, out);
      }
      B::template group_mma_wait<0>();
      B::group_mma_fence(scores);
      if (!more) break;  // the stale scores had no keys to release
      release_keys();
      if constexpr (takes_early) {
        item = next;
      } else {
        items.take_awaited(item);
      }
    }
    finish_output();
  }

 private:
  // The group's rows may see so many tiles less at an item's end than the last group's. Where the first group need
  // not have one to pass by, as in tiles of 128 keys, to ask takes longer than what it spares.
  static constexpr int most_unseen =
      P.rows - 64 > P.keys&& P.cluster == 1 && !L::transposes ? (P.rows - 64) / P.keys + 1 : 0;

  /// Returns the tiles at an item's end, of those that any of its rows sees, that none of the group's rows does.
  TILEWAVE_DEVICE int unseen_tiles(const Item& item) const {
    if (most_unseen == 0 || 64 * group >= item.rows) return 0;
    const std::int32_t query = item.first_query + args.sections.row_heads.query_of(64 * group + 63);
    const std::int32_t end = VisibleKeys::of(args.attention, item.sequence, query).end;
    const std::int32_t seen = max_of(ceil_div(end, P.keys), item.first_tile + 1);
    return min_of(max_of(item.end_tile - seen, 0), most_unseen);
  }
  /// Returns whether none of the group's rows sees the second half of the keys of its first tile, as the first group
  /// of two does not under a causal mask.
  static constexpr bool halves =
      P.keys == 128 && L::groups == 2 && P.cluster == 1 && (!L::transposes || S.head_size == 64);
  TILEWAVE_DEVICE bool sees_half(const Item& item, int unseen) const {
    if (!halves || 64 * group >= item.rows) return false;
    const std::int32_t query = item.first_query + args.sections.row_heads.query_of(64 * group + 63);
    const std::int32_t end = VisibleKeys::of(args.attention, item.sequence, query).end;
    return end <= (item.end_tile - 1 - unseen) * P.keys + P.keys / 2;
  }
  static constexpr bool takes_early = most_unseen > 0 || halves;  // the group's first tile has to be known
  /// Passes by the first tiles of keys. (There is no loop, since products may be under way.)
  TILEWAVE_DEVICE void skip_keys(int tiles) {
    TILEWAVE_UNROLL
    for (int i = 0; i < most_unseen; ++i) {
      if (i >= tiles) continue;
      shared.k_ring.release(k.slot);
      k.advance();
      shared.k_ring.wait_full(k);
    }
  }
  /// Passes by the values of those tiles, and the group's turns.
  TILEWAVE_DEVICE void skip_values(int tiles) {
    TILEWAVE_UNROLL
    for (int i = 0; i < most_unseen; ++i) {
      if (i >= tiles) continue;
      await_turn();
      pass_turn();
      L::values_ring(shared).wait_full(v);
      L::values_ring(shared).release(v.slot);
      v.advance();
    }
  }

  /// Walks from the last tile of keys that the group sees to an item's first; it does not see `unseen` tiles behind.
  /// Scores of the last tile are there at the start; of its keys the group may see the first half alone. Products of
  /// values of the first tile are left to the caller.
  TILEWAVE_DEVICE void walk(const Item& item, int unseen, bool half, Softmax& softmax, typename L::Scores& scores,
                            typename Softmax::Operands& probabilities, typename L::Output& out) {
    Vec<float, Softmax::rows> factor;
    std::int32_t tile = item.end_tile - 1 - unseen;
    if (halves && half) {
      softmax.template prepare<true, P.keys / 2>(tile, scores, factor);
      softmax.template run<true, P.keys / 2>(scores, probabilities, factor);
    } else {
      softmax.template prepare<true>(tile, scores, factor);
      softmax.template run<true>(scores, probabilities, factor);
    }
    if constexpr (L::out_in_q) finish_output();
    skip_values(unseen);
    if (!L::transposes && (tile + 1) * P.keys > item.sequence.kv_count)
      clear_values(item.sequence.kv_count - tile * P.keys);
    while (tile > item.first_tile) {
      const std::int32_t last = L::keeps_sums ? max_of(kept_tile(tile), item.first_tile) : item.first_tile;
      // Only the lse needs sums of probabilities that products sum up. (The loop is there twice, since a question in it
      // would keep exponentials behind the wait for values.)
      if (L::multiplies_sums && args.attention.lse == nullptr) {
        walk_down<!L::multiplies_sums>(tile, last, softmax, scores, probabilities, out);
      } else {
        walk_down<true>(tile, last, softmax, scores, probabilities, out);
      }
      if constexpr (L::keeps_sums) {
        if (tile > item.first_tile) keep_sums(out, tile < kept_tile(item.end_tile - 1));
      }
    }
  }
  /// Walks from the tile before `tile` to `last`, which is before it. Sums are kept outside this loop: it has to be
  /// short.
  template <bool adds_sums>
  TILEWAVE_DEVICE void walk_down(std::int32_t& tile, std::int32_t last, Softmax& softmax, typename L::Scores& scores,
                                 typename Softmax::Operands& probabilities, typename L::Output& out) {
    Vec<float, Softmax::rows> factor;
    do {
      --tile;
      shared.k_ring.wait_full(k);
      await_turn();
      begin_scores(q, scores);
      begin_values(probabilities, out);
      pass_turn();
      finish_scores<1>(scores);
      const bool raised = softmax.template prepare<false>(tile, scores, factor);
      finish_values<0>(out);
      if (softmax.template run<false, P.keys, adds_sums>(scores, probabilities, factor) || raised) out.scale(factor);
    } while (tile > last);
  }
  /// Returns the next tile behind which sums are kept.
  TILEWAVE_DEVICE static std::int32_t kept_tile(std::int32_t tile) { return align_down(tile - 1, L::kept_tiles); }

  /// Passes by an item none of whose rows are the group's, as those of a few decode rows. The products of values that
  /// follow have no effect.
  TILEWAVE_DEVICE void pass_by(const Item& item, typename Softmax::Operands& probabilities) {
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < L::key_slices; ++k_slice) probabilities[k_slice] = Chunk{};
    if constexpr (L::out_in_q) finish_output();
    TILEWAVE_ROLL
    for (std::int32_t tile = item.end_tile - 1; tile > item.first_tile; --tile) {
      shared.k_ring.wait_full(k);
      await_turn();
      pass_turn();
      shared.k_ring.release(k.slot);
      k.advance();
      L::values_ring(shared).wait_full(v);
      L::values_ring(shared).release(v.slot);
      v.advance();
    }
  }

  /// Waits until an item's q and its last tile of keys are there.
  TILEWAVE_DEVICE void await_item(const typename L::QSlot& q) {
    shared.q_ring.wait_full(q);
    shared.k_ring.wait_full(k);
  }
  TILEWAVE_DEVICE static void finish_rows(const Softmax& softmax, const typename L::Output& out,
                                          JoinedSink (&joined)[Softmax::rows]) {
    TILEWAVE_UNROLL
    for (int h = 0; h < Softmax::rows; ++h) joined[h] = softmax.finish(h, out);
  }
  /// Writes the rows of an item.
  TILEWAVE_DEVICE void write(const Item& item, const Softmax& softmax, const JoinedSink (&joined)[Softmax::rows],
                             typename L::Output& out) {
    if constexpr (!L::out_in_q) finish_output();
    if constexpr (L::keeps_sums) {
      if (kept_tile(item.end_tile - 1) > item.first_tile && 64 * group < item.rows) add_kept_sums(out);
    }
    const int wave = B::block_lane_id() % L::group_lanes / B::facts.wave_lanes;
    FlashAttentionOutput<B, S, L>::write(args, item, softmax, joined, out,
                                         L::staging(shared, q.slot) + (64 * group + 16 * wave) * L::box_chunks);
    stored_slot = q.slot;
    storing = true;
    q.advance();
  }
  /// Returns the place of eight of the lane's sums of values. Only this lane reads what it writes there.
  TILEWAVE_DEVICE Chunk* kept_place(int eight) const {
    constexpr int of_box = 16 * L::box_chunks / B::facts.wave_lanes;
    const int wave = B::block_lane_id() / B::facts.wave_lanes;
    return shared.staging.out + (eight / of_box * P.rows + 16 * wave) * L::box_chunks +
           eight % of_box * B::facts.wave_lanes + B::lane_id();
  }
  /// Calls f(eight sums of values, their place).
  template <class F>
  TILEWAVE_DEVICE void each_kept(typename L::Output& out, const F& f) const {
    constexpr int eights = L::Sums::size / 8;
    TILEWAVE_UNROLL
    for (int i = 0; i < L::value_parts * eights; ++i) f(&out.of[i / eights][i % eights * 8], kept_place(i));
  }
  /// Adds the sums of values to those in shared memory. What these round off stays.
  TILEWAVE_DEVICE void keep_sums(typename L::Output& out, bool kept) {
    if (!kept) finish_output();
    each_kept(out, [&](float* sums, Chunk* at) TILEWAVE_INLINE_LAMBDA {
      if (kept) add_kept(*at, out.kept_factor, sums);
      Chunk words;
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        words[w] = B::round_bf16(sums[2 * w], sums[2 * w + 1]);
        const Vec<float, 2> kept_pair = widen<B, DType::bf16, 2>({{words[w]}});
        sums[2 * w] -= kept_pair[0];
        sums[2 * w + 1] -= kept_pair[1];
      }
      *at = words;
    });
    out.kept_factor = {{1.0f, 1.0f}};
  }
  /// Adds those in shared memory. The place of the output is the wave's again.
  TILEWAVE_DEVICE void add_kept_sums(typename L::Output& out) const {
    each_kept(out, [&](float* sums, const Chunk* at) TILEWAVE_INLINE_LAMBDA { add_kept(*at, out.kept_factor, sums); });
    B::wave_barrier();
  }
  /// Adds pairs of kept sums, times the factors of their rows, which alternate.
  TILEWAVE_DEVICE static void add_kept(const Chunk& words, const Vec<float, 2>& factor, float* sums) {
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const Vec<float, 2> kept_pair = widen<B, DType::bf16, 2>({{words[w]}});
      sums[2 * w] = fused(kept_pair[0], factor[w % 2], sums[2 * w]);
      sums[2 * w + 1] = fused(kept_pair[1], factor[w % 2], sums[2 * w + 1]);
    }
  }
  /// Waits until the copy engine has read the last output. If it was in q's place, that is free then.
  TILEWAVE_DEVICE void finish_output() {
    if (!storing) return;
    if (B::lane_id() == 0) B::template stores_read<0>();
    if constexpr (L::out_in_q) {
      shared.q_ring.release(stored_slot);
    } else {
      B::wave_barrier();
    }
    storing = false;
  }

  /// Begins scores = q K^T of the tile in K's slot, as one batch.
  TILEWAVE_DEVICE void begin_scores(const typename L::QSlot& q, typename L::Scores& scores) {
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < L::score_slices; ++k_slice) {
      B::template group_multiply<S.q, P.keys>(L::q_operand(shared, q.slot, group, k_slice),
                                              L::k_operand(shared, k.slot, k_slice), scores, k_slice > 0);
    }
    B::group_mma_end();
  }
  /// Begins out += probabilities V of the tile in V's slot, as one batch.
  TILEWAVE_DEVICE void begin_values(const typename Softmax::Operands& probabilities, typename L::Output& out) {
    L::values_ring(shared).wait_full(v);
    out.fence();
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < L::key_slices; ++k_slice) {
      TILEWAVE_UNROLL
      for (int part = 0; part < L::value_parts; ++part) {
        B::template group_multiply<S.kv, L::value_columns>(probabilities[k_slice],
                                                           L::v_operand(shared, v.slot, part, k_slice), out.of[part]);
      }
      if constexpr (L::multiplies_sums) {
        const SwizzledOperand ones{shared.transposed.ones, 0, 0};
        if (k_slice == 0) {
          B::template group_multiply<S.kv, L::sum_columns, false>(probabilities[k_slice], ones, out.of_tile);
        } else {
          B::template group_multiply<S.kv, L::sum_columns>(probabilities[k_slice], ones, out.of_tile);
        }
      }
    }
    B::group_mma_end();
  }

  /// Waits until at most `behind` batches are under way: the scores are there then, and K's slot is free.
  template <int behind>
  TILEWAVE_DEVICE void finish_scores(typename L::Scores& scores) {
    B::template group_mma_wait<behind>();
    release_keys();
    B::group_mma_fence(scores);
  }
  TILEWAVE_DEVICE void release_keys() {
    shared.k_ring.release(k.slot);
    k.advance();
  }
  template <int behind>
  TILEWAVE_DEVICE void finish_values(typename L::Output& out) {
    B::template group_mma_wait<behind>();
    L::values_ring(shared).release(v.slot);
    v.advance();
    out.fence();
    if constexpr (L::multiplies_sums) out.add_sums();
  }

  /// Waits for the group's turn. Groups begin their products in turn, group 0 first.
  TILEWAVE_DEVICE void await_turn() {
    if constexpr (P.turns) B::await_turn(&shared.turn[group], group, turn_parity);
    turn_parity ^= 1;
  }
  TILEWAVE_DEVICE void pass_turn() {
    const int next = group + 1 == L::groups ? 0 : group + 1;
    if constexpr (P.turns) B::pass_turn(&shared.turn[next], next);
  }

  /// Clears the rows of V from `first` of the tile on, which may be NaN: they are no keys of this sequence. Each
  /// group clears them for itself, as each writes the same. (Waves that transpose V clear them where they do.)
  TILEWAVE_DEVICE void clear_values(std::int32_t first) {
    shared.v_ring.wait_full(v);
    const int lane = B::block_lane_id() % L::group_lanes;
    for (int i = first * L::box_chunks + lane; i < P.keys * L::box_chunks; i += L::group_lanes) {
      TILEWAVE_UNROLL
      for (int box = 0; box < L::value_boxes; ++box)
        shared.v[v.slot][L::value_chunk(i / L::box_chunks, box) + i % L::box_chunks] = Chunk{};
    }
    B::shared_written();
    B::group_barrier();
  }
};

}  // namespace tilewave
